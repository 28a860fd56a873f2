"""Trains and batches of copies on probed machines: the two layouts of a KV cache that submit piece by piece.

Run `python validation/kv.py`. 16 and 128 copies of 64 B to 1 MiB, one by one and in one cuMemcpyBatchAsync, in the process
after the one that each machine's parameters are fitted to: on the GPU alone, and the host's calls. What a call takes behind
others is from all of these machines; nothing else here is fitted to trains or batches but g, to copies of 64 B.

Goals: median 6 % on the GPU from 4 KiB on, 12 % of the calls. Exit status 1 where one is missed.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from stored import probe_names, probe_raw, probed_node

from busfare.measure.bench.kv import NO_HOST
from busfare.measure.raw import Measurement, read
from busfare.measure.summary import median
from busfare.plan import machine_of
from busfare.plan.offload.kv import Blocks, Layout, fetch, host_of

LAYOUTS: dict[str, Layout] = {"copies": "per-block", "batch": "batched"}
LEAST_BYTES, GPU_GOAL, CALLS_GOAL = 4096, 6.0, 12.0


def errors(name: str) -> Iterator[tuple[Layout, str, str, int, float]]:
    """Layout, direction, `GPU` or `calls`, bytes of a copy and percent off, of each case of a machine's second process."""
    machine = machine_of(probed_node(f"{name}-run1"))
    host = host_of(machine)
    for m in read(probe_raw(f"{name}-run2")).measurements:
        if not _is_train(m):
            continue
        layout, count = LAYOUTS[m.mode], (m.count, 0) if m.direction == "h2d" else (0, m.count)
        blocks = Blocks(m.bytes, count[0], 1, count[1])
        alone = fetch(layout, blocks, machine, NO_HOST).seconds
        calls = (
            m.count * host.copy_s if layout == "per-block" else host.batch_s + m.count * host.batch_piece_s
        )
        yield layout, m.direction, "GPU", m.bytes, 100 * (alone / median(m.device_s) - 1)
        yield layout, m.direction, "calls", m.bytes, 100 * (calls / median(m.api_s) - 1)


def _is_train(m: Measurement) -> bool:
    return bool(
        m.memory == "pinned"
        and m.mode in LAYOUTS
        and m.count > 1
        and m.gpu == 0
        and m.peer is None
        and m.device_ns
    )


def main() -> int:
    found: dict[tuple[str, str, str, int], list[float]] = defaultdict(list)
    for name in probe_names(run=2):
        for layout, direction, part, size, off in errors(name):
            found[layout, direction, part, size].append(off)
    print(f"{'layout':10} way  {'of':6} {'bytes':>8}  percent off: median, middle 80 %")
    for (layout, way, of, size), off in sorted(found.items()):
        low, middle, high = np.quantile(off, (0.1, 0.5, 0.9))
        print(f"{layout:10} {way}  {of:6} {size:8}  {middle:+6.1f}  {low:+6.1f} to {high:+6.1f}")
    met = True
    for of, goal in (("GPU", GPU_GOAL), ("calls", CALLS_GOAL)):
        judged = [abs(o) for key, off in found.items() if key[2] == of and key[3] >= LEAST_BYTES for o in off]
        good = float(np.median(judged)) <= goal
        met &= good
        print(
            f"{of}: {len(judged)} cases, median {np.median(judged):.1f} % (goal {goal:g}), "
            f"90th percentile {np.quantile(judged, 0.9):.1f} %{'' if good else ': MISSED'}"
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
