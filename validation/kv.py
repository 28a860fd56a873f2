"""Trains and batches of copies on probed machines: the two layouts of a KV cache that submit piece by piece.

Run `python validation/kv.py`. 16 and 128 copies of 64 B to 1 MiB, one by one and in one cuMemcpyBatchAsync, in the process
after the one that each machine's parameters are fitted to: on the GPU alone, and the host's calls. What a call takes behind
others is from all of these machines; nothing else here is fitted to trains or batches but g, to copies of 64 B.

Goals: median 6 % on the GPU from 4 KiB on, 12 % of the calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

import numpy as np
from claims import goal, judge, table
from stored import probe_names, probe_raw, probed_node

from busfare.measure.cases import read_record
from busfare.planning import machine_of
from busfare.planning.offload.kv import Blocks, Host, Layout, fetch, host_of

LAYOUTS: dict[str, Layout] = {"copies": "per-block", "batch": "batched"}
#: Nothing on the host: what the GPU takes by itself.
NO_HOST = Host(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
LEAST_BYTES, GPU_GOAL, CALLS_GOAL = 4096, 6.0, 12.0


def errors(name: str) -> Iterator[tuple[Layout, str, str, int, float]]:
    """Layout, direction, `GPU` or `calls`, bytes of a copy and percent off, of each case of a machine's second process."""
    machine = machine_of(probed_node(f"{name}-run1"))
    host = host_of(machine)
    for m in read_record(probe_raw(f"{name}-run2")).measurements:
        here = m.memory == "pinned" and m.gpu == 0 and m.peer is None
        if not (here and m.mode in LAYOUTS and m.count > 1 and m.device_ns):
            continue
        layout, count = LAYOUTS[m.mode], (m.count, 0) if m.direction == "h2d" else (0, m.count)
        alone = fetch(layout, Blocks(m.bytes, count[0], 1, count[1]), machine, NO_HOST).seconds
        apart, together = m.count * host.copy_s, host.batch_s + m.count * host.batch_piece_s
        calls = apart if layout == "per-block" else together
        yield layout, m.direction, "GPU", m.bytes, 100 * (alone / median(m.device_s) - 1)
        yield layout, m.direction, "calls", m.bytes, 100 * (calls / median(m.api_s) - 1)


def main() -> None:
    by_key: dict[tuple[str, str, str, int], list[float]] = defaultdict(list)
    for name in probe_names(run=2):
        for *key, off in errors(name):
            by_key[tuple(key)].append(off)
    rows = [(*key, *np.quantile(off, (0.5, 0.1, 0.9))) for key, off in sorted(by_key.items())]
    table("layout|way|of|bytes:d|median % off:+.1f|from:+.1f|to (80 %):+.1f", rows)
    for of, most in (("GPU", GPU_GOAL), ("calls", CALLS_GOAL)):
        judged = [abs(o) for key, off in by_key.items() if key[2] == of if key[3] >= LEAST_BYTES for o in off]
        goal(f"{of}: {len(judged)} cases, median % off", np.median(judged), most=most, form=".1f")
        goal("  90th percentile", np.quantile(judged, 0.9), form=".1f")


if __name__ == "__main__":
    judge(main)
