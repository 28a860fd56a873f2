"""Hybrids looked into: `python validation/waits.py`.

What the model of hybrids (`src/busfare/plan/starving.py`) rests on, from `results/bench/waits/`, which
`validation/waits_record.py` wrote: when each chunk's copies came, and when the blocks of its kernel ran. Printed are how
long kernels wait for their copies, by the number of chunks, and of copies that ended with the writes before them or well
after; whether a copy is ever over before the writes that began while it was under way; how far apart copies of one chunk
stand, after such writes and else; how often the queue of the copies changes, and how many kernels come late; when the
first and the last block of a kernel end. A comparison without goals: the exit status is 0, or 2 without results.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from busfare.measure.bench.kernel import KERNELS
from busfare.measure.bench.work import ELEMENT_BYTES
from busfare.node.arrays import FloatArray

FOLDER = Path(__file__).parents[1] / "results" / "bench" / "waits"
#: A kernel that waits for longer than this did not begin when its turn came (µs).
LATE_US = 26.0
#: What a write to mapped memory takes (µs a byte): 128 MiB out of an H100 and an H200.
WRITE_US = 1.905e-5
#: Arrivals are seen by kernels that look at memory, which takes them up to so long (µs).
SEEN_US = 2.0
#: A copy ended with the writes before it, or well after them (µs).
WITH_US, AFTER_US = 4.0, 10.0
#: A kernel whose threads compute for longer writes all along meanwhile (µs).
FIRST_US = 10.0


def main() -> int:
    paths = sorted(FOLDER.glob("*.json.gz"))
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            told = json.load(file)
        print(f"== {told['gpu']}, {told['date']}, driver {told['driver']}\n")
        print(
            "   waits: µs from a chunk's last copy to its kernel, least, median, 90 %, of those below 26; late: longer ones;"
        )
        print("   before: copies over more than 2 µs before the writes that they were under way with")
        for cell in told["cells"]:
            _cell(cell)
        print()
    return 0 if paths else 2


def _cell(cell: dict[str, Any]) -> None:
    kernel = KERNELS[cell["kernel"]]
    bytes_ = cell["levels"] * cell["level_elements"] * ELEMENT_BYTES * kernel.outputs
    runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for run in cell["looked_into"]:
        runs.setdefault((run["program"], run["chunks"]), []).append(run)
    for (program, chunks), found in runs.items():
        parts = [_looked(run, WRITE_US * bytes_ / chunks) for run in found]
        waits = np.concatenate([part["waits"] for part in parts])
        behind = np.concatenate([part["behind"] for part in parts])
        early, beside = (sum(int(part[key]) for part in parts) for key in ("early", "beside"))
        late = waits > LATE_US
        prompt = waits[~late]
        follow = {key: np.concatenate([part[key] for part in parts]) for key in ("after_writes", "else")}
        apart = " and ".join(f"{np.median(gaps):.1f}" for gaps in follow.values() if len(gaps))
        by_end = ", ".join(
            f"{words} {waits[chosen].mean():.1f} of {chosen.sum()}"
            for words, chosen in (
                ("with the writes", np.abs(behind) < WITH_US),
                ("after them", behind > AFTER_US),
            )
            if chosen.sum()
        )
        print(
            f"   {cell['kernel']} {cell['levels']}×{cell['level_elements']} {program} {chunks}: waits "
            f"{prompt.min():.1f}, {np.median(prompt):.1f}, {np.quantile(prompt, 0.9):.1f} (mean {prompt.mean():.1f}); "
            f"{by_end}; "
            f"queues {parts[0]['queues']:.0f}, late {late.sum() / len(found):.0f}; before {early} of {beside}"
            + (f"; copies of a chunk {apart} apart after writes and else" if apart else "")
            + f"; blocks end after {np.median([part['first'] for part in parts]):.1f} to "
            f"{np.median([part['last'] for part in parts]):.1f}"
        )


def _looked(run: dict[str, Any], writing: float) -> dict[str, FloatArray]:
    """One run: waits of all kernels, how many copies under way ended before the writes, gaps between copies of a chunk."""
    copies = np.array(run["copies_ns"], np.float64) / 1e3
    kernels = np.array(run["kernels_ns"], np.float64) / 1e3
    order = np.argsort(copies[:, 0, 0])
    queues = 1 + int(np.sum(np.diff(order) < 0))
    copies, kernels = copies[order], kernels[order]
    waits = kernels[:, 0] - copies[:, -1, 1]
    ends = kernels[:, 0] + writing
    # Where the writes before it were not prompt themselves, whose writes held a copy is not clear: NaN.
    first = np.minimum(kernels[:, 1] - kernels[:, 0], FIRST_US)
    behind = np.full(len(copies), np.nan)
    prompt = (waits[1:] < LATE_US) & (waits[:-1] < LATE_US)
    behind[1:][prompt] = (copies[1:, -1, 1] - ends[:-1] - first[:-1])[prompt]
    early = beside = 0
    after: list[float] = []
    other: list[float] = []
    for n in range(1, len(copies)):
        began, ended = kernels[n - 1, 0], ends[n - 1]
        if waits[n - 1] > LATE_US or (n > 1 and ends[n - 2] > began):
            continue  # its writes queue behind others', or it was late: whose they are is not clear
        for at, (first, last) in enumerate(copies[n]):
            under_way = first < began < last
            beside += under_way
            early += under_way and last < ended - SEEN_US
            if at + 1 < copies.shape[1]:
                gap = copies[n, at + 1, 0] - last
                (after if under_way and last < ended + SEEN_US else other).append(gap)
    return {
        "waits": waits,
        "behind": behind,
        "queues": np.array(queues),
        "first": np.median(kernels[:, 1] - kernels[:, 0]),
        "last": np.median(kernels[:, 2] - kernels[:, 0]),
        "early": np.array(early),
        "beside": np.array(beside),
        "after_writes": np.array(after),
        "else": np.array(other),
    }


if __name__ == "__main__":
    sys.exit(main())
