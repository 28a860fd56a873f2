"""What `busfare what-if` foretells of a change, beside the change made and measured.

Run `python validation/replay_pairs.py [--results FOLDER] [--plan FILE] [--only NAME,…]`. For each pair of the plan,
validation/pairs/pairs.toml, and each GPU in results/pairs: the speed-up measured (medians of unrecorded runs), the one
predicted from the recording of the program as it was, and whether they agree within 10 %; for each program, whether the
advice that `busfare report` ranks first is the change that gained most: from the recording alone, which is what counts,
and with `--unrecorded`. Where processes of one program differ by more than 10 %, it says so: no prediction can be held
to such a figure, and the pair counts like the others. Exit status 1 where either holds for fewer than 10 of 12.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from pairs.judged import GOAL_PERCENT, Judged, Machine, NoAnswerError, Predicted, Ranked
from pairs.table import FILE, Pair, Plan, Program, read_plan

FOLDER = Path(__file__).parents[1] / "results" / "pairs"
GOAL_SHARE = 10 / 12
#: Changes that save so nearly the same (percent of the run) have gained the same.
SAME_PERCENT = 2.0

Predict = Callable[[Machine, Pair], Predicted]
FirstAdvice = Callable[[Machine, Program], str]


def judge(pair: Pair, machines: dict[str, Machine], machine: Machine, predict: Predict) -> Judged:
    """`machine` is where the pair was recorded; where it names a target, the program ran there afterwards."""
    try:
        target = machines[pair.target] if pair.target else machine
        before = machine.seconds(pair.program, pair.before)
        measured = before / target.seconds(pair.program, pair.after)
        each = machine.medians(pair.program, pair.before), target.medians(pair.program, pair.after)
        least, most = min(each[0]) / max(each[1]), max(each[0]) / min(each[1])
    except KeyError:
        return Judged(pair, machine.name, None, None, why=f"nothing was run on {pair.target}")
    except NoAnswerError as error:
        return Judged(pair, machine.name, None, None, why=str(error))
    try:
        predicted = predict(machine, pair)
    except NoAnswerError as error:
        return Judged(pair, machine.name, measured, None, before, 0.0, str(error), least, most)
    replayed = predicted.baseline_replayed_seconds
    found = Judged(pair, machine.name, measured, predicted.speed_up, before, replayed, least=least, most=most)
    return replace(found, range=predicted.range)


def rank(program: Program, plan: Plan, machine: Machine, first_advice: FirstAdvice) -> Ranked | None:
    """None where fewer than two of the program's single changes were measured."""
    gained = []
    for pair in plan.pairs:
        if pair.program == program.name and pair.change and not pair.target:
            try:
                run = machine.seconds(pair.program, pair.before)
                without = machine.seconds(pair.program, pair.beyond or pair.before)
                gained.append((pair.change, (without - machine.seconds(pair.program, pair.after)) / run))
            except NoAnswerError:
                continue
    if len(gained) < 2:
        return None
    gained.sort(key=lambda change: -change[1])
    try:
        first = first_advice(machine, program)
    except NoAnswerError as error:
        return Ranked(program.name, machine.name, f"({error})", tuple(gained), False)
    advised = {change for change, ids in plan.findings.items() if first in ids}
    best = {change for change, gain in gained if gain >= gained[0][1] - SAME_PERCENT / 100}
    return Ranked(program.name, machine.name, first, tuple(gained), bool(advised & best))


def busfare(*arguments: str) -> dict[str, Any]:
    """What a command of busfare says with --json. Raises NoAnswerError where it fails."""
    command = [sys.executable, "-m", "busfare", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        words = " ".join(done.stderr.split())
        raise NoAnswerError(f"busfare {arguments[0]}: {words[-300:] or f'status {done.returncode}'}")
    return dict(json.loads(done.stdout))


def _recorded_on(plan: Plan, machine: Machine, program: str, command: str) -> list[str]:
    node = machine.node(plan, program)
    return [plan.recorded_on_option[command], node] if node else []


def predictor(plan: Plan, machines: dict[str, Machine]) -> Predict:
    def predict(machine: Machine, pair: Pair) -> Predicted:
        path = machine.recording(pair.program, pair.recording)
        options = list(pair.options)
        if pair.target:
            options[options.index("--node") + 1] = machines[pair.target].node(plan, pair.program)
        bare = f"{machine.seconds(pair.program, pair.before):.9f}s"
        where = _recorded_on(plan, machine, pair.program, "what-if")
        said = busfare("what-if", str(path), *options, "--unrecorded", bare, *where)
        baseline = said["baseline"]
        return Predicted(
            baseline["recorded_seconds"],
            baseline["replayed_seconds"],
            said["predicted_seconds"],
            tuple(said["range_seconds"]),
        )

    return predict


def adviser(plan: Plan, *, told: bool = False) -> FirstAdvice:
    """What `report` ranks first; `told`: as `what-if` is, how long the program takes unrecorded."""

    def first_advice(machine: Machine, program: Program) -> str:
        path = machine.recording(program.name, "before-fingerprint" if program.fingerprint else "before")
        bare = ["--unrecorded", f"{machine.seconds(program.name, 'before'):.9f}s"] if told else []
        said = busfare("report", str(path), *bare, *_recorded_on(plan, machine, program.name, "report"))
        if not said["findings"]:
            raise NoAnswerError("no advice")
        return str(said["findings"][0]["id"])

    return first_advice


def machines_in(folder: Path) -> dict[str, Machine]:
    found = (Machine(path.parent.name, path.parent, json.loads(path.read_text())) for path in
             sorted(folder.glob("*/times.json")))  # fmt: skip
    return {machine.name: machine for machine in found}


def share_met(hits: int, count: int) -> bool:
    return count > 0 and hits >= GOAL_SHARE * count


def show_pairs(judged: Sequence[Judged], plan: Plan) -> bool:
    print("  speed-ups                                          measured | predicted | error")
    for one in judged:
        change = f"{one.pair.before} → {one.pair.after}"
        if one.pair.target:
            change += f" on {one.pair.target}"
        library = plan.programs[one.pair.program].library
        start = f"  {one.pair.program:20} {library:7} {change:28}"
        measured = "   –   " if one.measured is None else f"{one.measured:6.3f}×"
        if one.error_percent is None:
            print(f"{start} {measured} |     –     | {one.why}")
            continue
        replayed = 100 * (one.replayed_seconds / one.before_seconds - 1)
        print(
            f"{start} {measured} | {one.predicted:8.3f}× | {one.error_percent:+6.1f} % "
            f"{'       ' if one.within else 'BEYOND '} (replayed unchanged: {replayed:+.1f} % of the unrecorded run;"
            f" processes: {one.least:.3f} to {one.most:.3f}×{', SCATTERED' if one.scattered else ''})"
        )
    counted = [one for one in judged if one.measured is not None]
    if not counted:
        return True
    hits = sum(one.within for one in counted)
    met = share_met(hits, len(counted))
    python = sum(plan.programs[one.pair.program].library != "CUDA" for one in counted)
    print(
        f"  within {GOAL_PERCENT:g} %: {hits} of {len(counted)} pairs, {python} of them Python "
        f"(goal 10 of 12) {'met' if met else 'MISSED'}; not measured: {len(judged) - len(counted)}"
    )
    of_cuda = [one for one in counted if plan.programs[one.pair.program].library == "CUDA"]
    of_them = sum(one.within for one in of_cuda)
    print(
        f"  of the CUDA C++ programs {of_them} of {len(of_cuda)}, of those of Python {hits - of_them} of {python}"
    )
    scattered = [one for one in counted if one.scattered]
    beyond = [one for one in scattered if not one.within]
    inside = sum(one.predicted is not None and one.least <= one.predicted <= one.most for one in beyond)
    print(
        f"  SCATTERED: processes of one program differ by more than {GOAL_PERCENT:g} %: {len(scattered)} pairs, "
        f"{len(beyond)} of the {len(counted) - hits} beyond, whose prediction lies between their processes in {inside}"
    )
    ranged = [one for one in counted if one.range[1] > one.range[0]]
    print(
        f"  measured within the range that what-if gives, from no unexplained wait to all of them: "
        f"{sum(one.in_range for one in ranged)} of {len(ranged)} pairs that have one"
    )
    firm = [one for one in counted if not one.scattered]
    print(f"  of the {len(firm)} other pairs, within {GOAL_PERCENT:g} %: {sum(one.within for one in firm)}")
    return met


def show_ranking(ranked: Sequence[Ranked], told: Sequence[Ranked]) -> bool:
    if not ranked:
        return True
    print("  the advice ranked first, and what each change saved of the run")
    for one in ranked:
        gains = ", ".join(f"{change} {100 * gain:.1f} %" for change, gain in one.gained)
        print(f"  {one.program:20} {one.first:24} {'      ' if one.hit else 'MISSED'} {gains}")
    hits = sum(one.hit for one in ranked)
    met = share_met(hits, len(ranked))
    print(f"  first advice gained most: {hits} of {len(ranked)} (goal 10 of 12) {'met' if met else 'MISSED'}")
    others = [f"{one.program} ({one.first})" for one in told if not one.hit]
    missed = f"; not {', '.join(others)}" if others else ""
    hits = len(told) - len(others)
    print(f"  … where report is told how long the program takes unrecorded: {hits} of {len(told)}{missed}")
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description="Predicted speed-ups beside measured ones.")
    parser.add_argument("--results", type=Path, default=FOLDER)
    parser.add_argument(
        "--plan", default=FILE.name, metavar="FILE", help="of validation/pairs: which programs"
    )
    parser.add_argument("--only", default="", metavar="NAME,…", help="these programs")
    options = parser.parse_args()
    plan = read_plan(FILE.with_name(options.plan))
    machines = machines_in(options.results)
    if not machines:
        print(f"no results in {options.results}: run validation/pairs/record.py on a GPU")
        return 0
    names = [name for name in options.only.split(",") if name] or list(plan.programs)
    predict = predictor(plan, machines)
    advisers = adviser(plan), adviser(plan, told=True)
    met = True
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for machine in machines.values():
            times = machine.times
            print(f"{times['gpu']}, driver {times['driver']}, {times['date']}")
            own = [p for p in plan.pairs if p.program in names and p.origin in ("", machine.name)]
            judged = pool.map(lambda pair, m=machine: judge(pair, machines, m, predict), own)
            met &= show_pairs(list(judged), plan)
            programs = [plan.programs[name] for name in names if name in plan.programs]
            ranked = [
                pool.map(lambda program, m=machine, a=advise: rank(program, plan, m, a), programs)
                for advise in advisers
            ]
            met &= show_ranking(*([one for one in found if one is not None] for found in ranked))
            print()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
