"""What the host's time between calls becomes once large copies no longer pass through its caches.

Run `python validation/host_caches.py [--here]`. Recordings of programs as they were and after a change, made within a
minute of each other (results/pairs/h200-after): the host's time between calls, recorded before and after the change, and
predicted from the recording before it. Only that time is compared: how often a program copies is in the recordings.
With `--here`, instead, what an interpreter's work takes longer on this machine behind copies of so many bytes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

from busfare.node import load_node
from busfare.timeline import Timeline, timeline
from busfare.timeline.host_caches import PRIVATE_CACHE_BYTES, gaps_without
from busfare.trace import read

FOLDER = Path(__file__).parents[1] / "results" / "pairs"
PROGRAMS = (("black_scholes", "pin"), ("kmeans", "pin"), ("kmeans", "dedupe"), ("train_images", "pin"))


def between(of: Timeline) -> float:
    """Host time between calls, in milliseconds; not the time before the first call of a thread."""
    return float(np.maximum(of.columns["call_gap"], 0).sum() / 1e6)


#: What an interpreter does, some tens of µs of it.
SOURCE = (
    "def f(a, b=None, *c, **d):\n    for i in range(a + 3):\n        b[i] = [x * 2 for x in c if x > i]\n"
)
COPIED, INTO = 64 << 20, 4 << 20


def slower_behind(size: int) -> float:
    """Seconds that the work takes longer behind a copy of `size` bytes, from memory that was not touched of late."""
    source, staging = np.ones(COPIED, np.uint8), np.ones(INTO, np.uint8)

    def once(copies: bool, works: bool) -> float:
        place, before = 0, time.perf_counter()
        for _ in range(100):
            if copies:
                staging[:size] = source[place : place + size]
                place = (place + size) % (COPIED - size)
            if works:
                compile(SOURCE, "source", "exec")
        return (time.perf_counter() - before) / 100

    return median(once(True, True) - once(True, False) - once(False, True) for _ in range(9))


def show_here() -> int:
    for kib in (4, 16, 32, 64, 256, 1024, 2048):
        print(f"  behind a copy of {kib:5} KiB: {1e6 * slower_behind(kib << 10):6.1f} µs longer")
    return 0


def main() -> int:
    if sys.argv[1:] == ["--here"]:
        return show_here()
    node = load_node(str(FOLDER / "h200" / "node.toml"))
    print(
        "host between calls, ms:   before | after | predicted after | less a large copy, µs: recorded, predicted"
    )
    for program, change in PROGRAMS:
        recorded = [FOLDER / "h200-after" / f"{program}-{variant}.bf" for variant in ("before", change)]
        before, after = (timeline(read(path), node) for path in recorded)
        copies = before.operations["kind"].to_numpy() == "copy"
        large = copies & (before.operations["bytes"].fill_null(0).to_numpy() >= PRIVATE_CACHE_BYTES)
        warm = between(before.with_columns(call_gap=gaps_without(before, copies)))
        less = [1e3 * (between(before) - ms) / large.sum() for ms in (between(after), warm)]
        print(
            f"  {program:16} {change:6} {between(before):7.1f} | {between(after):5.1f} | {warm:5.1f} | "
            f"{less[0]:5.0f}, {less[1]:5.0f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
