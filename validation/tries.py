"""Predictions and measurements of `busfare try` for third-party programs on H200s: `python validation/tries.py`.

Times are from the first CUDA call to the last. Predictions are those of the commit that measured. If a
program ran several times, the last counts. Runs of EARLIER commits only show how fast memory is pinned.
"""

import json
import lzma
from pathlib import Path

from claims import goal, judge, table

RESULTS = Path(__file__).parents[1] / "results" / "tries.json.xz"
#: Commits whose runs only give rates of pinning; minimum predicted speedup of the changes that count.
EARLIER, WORTH = ("a7dd0283", "175466c3"), 1.05
#: A change slows a program down if the upper end of its speedup is below this.
SLOWER = 0.98
#: Programs that copy each buffer once, from or to memory that was touched before: changed bytes are pinned bytes.
COPIED_ONCE = ("rodinia-lavaMD", "hec-adam", "py-cupy_frames", "hec-popcount", "olcf-vector_addition")


def main() -> None:
    every = json.loads(lzma.decompress(RESULTS.read_bytes()))
    earlier = [program for program in every if program["commit"] in EARLIER]
    programs = {program["name"]: program for program in every if program["commit"] not in EARLIER}
    rows, near, inside, counted, pinned, pageable, slower = [], 0, 0, 0, 0, 0, 0
    for program in programs.values():
        before = program["baseline"]["measured_seconds"]
        for run in program["runs"]:
            predicted, measured = run["predicted_seconds"], run["measured_seconds"]
            off = None if predicted is None or measured is None else 100 * (predicted / measured - 1)
            if off is not None and before / predicted > WORTH:
                counted += 1
                near += abs(off) <= 10
                inside += run["low_seconds"] <= measured <= run["high_seconds"]
            if run["change"] == "pin":
                pinned += run["changed_bytes"]
                pageable += program["baseline"]["pageable_bytes"]
            slower += measured is not None and run["speedup_range"][1] < SLOWER
            rows.append((program["name"], run["change"], before, predicted, measured, off, run["output"]))
    table("program | change | before:.3f | predicted:.3f | measured:.3f | off %:+.0f | output", rows)
    suites = {program["suite"] for program in programs.values()}
    goal("programs", len(programs), least=30, form="d")
    goal("suites and projects", len(suites), least=6, form="d")
    goal(
        "programs that ran with a change",
        sum(bool(program["runs"]) for program in programs.values()),
        least=20,
        form="d",
    )
    goal(
        "changes that alter the output",
        sum(row[-1] in ("altered", "failed") for row in rows),
        most=0,
        form="d",
    )
    goal("bytes of pageable copies that `pin` changed, %", 100 * pinned / pageable, least=90)
    goal(f"changes with a predicted speedup above {WORTH:g} ×", counted, form="d")
    goal("of these within 10 % of the measured time, %", 100 * near / counted, least=70)
    goal("of these with the measured time inside the 80 % interval, %", 100 * inside / counted, least=75)
    goal("changes that certainly slow a program down by more than 2 %", slower, form="d")
    rates = [
        (program["name"], run["changed_bytes"] / run["pinning_seconds"] / 1e9)
        for program in earlier
        for run in program["runs"]
        if run["change"] == "pin" and program["name"] in COPIED_ONCE
    ]
    table("program | pinned and unpinned, GB/s:.1f", rates)


if __name__ == "__main__":
    judge(main)
