"""What `busfare try` measured of programs of others on an H200, beside its predictions: `python validation/tries.py`.

Times are from the first CUDA call to the last; predictions are those of the commit that measured. Runs of the first commit
give only how fast memory was pinned: their times are of whole processes.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path

from claims import goal, judge, table

RESULTS = Path(__file__).parents[1] / "results" / "tries.json.xz"
#: The commit whose runs are compared with predictions, and the least predicted speedup that counts.
COMPARED, WORTH = "175466c3", 1.05
#: Programs that copy each buffer once, to and from memory that was touched before: what is changed is what is pinned.
COPIED_ONCE = ("rodinia-lavaMD", "hec-adam", "py-cupy_frames", "hec-popcount", "olcf-vector_addition")


def main() -> None:
    every = json.loads(lzma.decompress(RESULTS.read_bytes()))
    compared = [program for program in every if program["commit"] == COMPARED]
    rows, near, inside, counted = [], 0, 0, 0
    for program in compared:
        before = program["baseline"]["measured_seconds"]
        for run in program["runs"]:
            predicted, measured = run["predicted_seconds"], run["measured_seconds"]
            off = None if predicted is None else 100 * (predicted / measured - 1)
            if off is not None and before / predicted > WORTH:
                counted += 1
                near += abs(off) <= 10
                inside += run["low_seconds"] <= measured <= run["high_seconds"]
            rows.append((program["name"], run["change"], before, predicted, measured, off, run["output"]))
    table("program | change | before:.3f | predicted:.3f | measured:.3f | off %:+.0f | output", rows)
    goal("programs", len(compared), form="d")
    goal(
        "changes that alter the output",
        sum(row[-1] in ("altered", "failed") for row in rows),
        most=0,
        form="d",
    )
    goal(f"changes predicted to gain more than {WORTH:g} ×", counted, form="d")
    goal("of these within 10 % of the measured time", near, form="d")
    goal("of these with the measured time inside the 80 % interval", inside, form="d")
    rates = [
        (program["name"], run["changed_bytes"] / run["pinning_seconds"] / 1e9)
        for program in every
        for run in program["runs"]
        if run["change"] == "pin" and program["name"] in COPIED_ONCE
    ]
    table("program | registered and unregistered, GB/s:.1f", rates)


if __name__ == "__main__":
    judge(main)
