"""`plan`: the time of one answer, and of a plan file of 10,000 kernels, against the goals of 50 ms and 2 s.

    python -m benchmarks.plan [--runs N] [--kernels N] [--json FILE]

Start-up (interpreter and imports) is left out, as the goals do; everything after it is in: the node is looked up, the
file read and checked, every strategy predicted, and the answer written as JSON. Beside the wall time stands the
processor's own, which a busy machine does not stretch.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
from pathlib import Path

import msgspec

from benchmarks.runs import options_of, timed, write
from busfare.answers.plan import answer_plan
from busfare.questions import Plan

KERNEL_PLAN = {"h2d": "336MB", "d2h": "504MB", "kernel": "12ms", "node": "h100-sxm", "levels": "42"}
QUESTIONS = {
    "one kernel": KERNEL_PLAN,
    "one kernel, six nodes, swept": KERNEL_PLAN
    | {"to": ["gh200", "dgx-a100", "v100-pcie", "k20", "mi250x", "pcie:6x16"], "sweep": "link"},
    "unequal chunks, by the schedule": KERNEL_PLAN
    | {"levels": None, "chunks": "1,2,3,4,4,4,3,2,1", "queues": "4"},
    "calls of 4 us, by the schedule": KERNEL_PLAN | {"levels": None, "launch": "4us"},
    "pageable, hardware queues": KERNEL_PLAN | {"memory": "pageable", "queues": "8"},
}
PLAN_GOAL, FILE_GOAL = 0.050, 2.0


def main(arguments: list[str] | None = None) -> int:
    parser = options_of(__doc__, 9)
    parser.add_argument("--kernels", type=int, default=10_000)
    options = parser.parse_args(arguments)
    print(f"{'':36}{'median wall':>12}{'fastest':>10}{'processor':>11}{'goal':>9}   goal / median")
    times = {}
    for name, question in QUESTIONS.items():
        times[name] = timed(
            lambda question=question: msgspec.json.encode(answer_plan(Plan.of(**question))), options.runs
        )
        _show(name, times[name], PLAN_GOAL)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernels.toml"
        file.write_text(_kernels(options.kernels), encoding="utf-8")
        name = f"a file of {options.kernels:,} kernels"
        times[name] = timed(
            lambda: msgspec.json.encode(answer_plan(Plan.of(file=file))), max(3, options.runs // 3)
        )
        _show(name, times[name], FILE_GOAL)
    write(options, "plan", {"wall_and_processor_seconds": times})
    return 0


def _show(name: str, times: list[tuple[float, float]], goal: float) -> None:
    wall, processor = ([run[k] for run in times] for k in (0, 1))
    median = statistics.median(wall)
    print(
        f"{name:36}{median * 1e3:9.1f} ms{min(wall) * 1e3:7.1f} ms{statistics.median(processor) * 1e3:8.1f} ms"
        f"{goal * 1e3:6.0f} ms{goal / median:12.1f}×"
    )


def _kernels(count: int) -> str:
    """A plan file of `count` kernels of all sizes, the same in every run."""
    chance = random.Random(1)
    tables = [
        f'[[kernel]]\nname = "k{n}"\nh2d = "{chance.randint(1, 4000)}MB"\nd2h = "{chance.randint(1, 4000)}kB"\n'
        f'kernel = "{chance.randint(1, 9000)}us"\nlevels = {chance.randint(1, 128)}\naccesses_in = 2\n'
        for n in range(count)
    ]
    return 'node = "h100-sxm"\n\n' + "\n".join(tables)


if __name__ == "__main__":
    sys.exit(main())
