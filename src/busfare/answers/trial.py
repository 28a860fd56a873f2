"""The result of `try`. Records a program, then alternates runs with and without changes."""

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from shlex import join
from statistics import fmean, median, stdev
from typing import get_args

from msgspec import Struct, field

from busfare.advise.amounts import Predicted
from busfare.advise.finding import CallSite
from busfare.answers.trial_changes import DRY, Gain, Predictions, Refused, advice_for, chosen_changes
from busfare.answers.units import student_quantile
from busfare.errors import BusfareError, InputError
from busfare.measure.outputs import Difference, Reference, Verdict, compared
from busfare.measure.run import Progress
from busfare.measure.trial import BUSY_CORES, NS, Program, Run, busy_cores
from busfare.questions import Try as Question
from busfare.statements import Words, statement

#: Minimum number of rounds before stopping early: fewer do not show enough of the variation.
ENOUGH_RUNS = 5
#: Ctrl-C keeps the result if at least this many rounds are finished.
KEPT_RUNS = 2
#: Rounds stop when the 95 % interval of every speedup is narrower than this share of the speedup; confidence level.
NARROW, CONFIDENCE = 0.02, 0.95


class Baseline(Struct, kw_only=True):
    """The unchanged program: median time from the first CUDA driver call to the last, with its 95 % interval, to the first
    copy or kernel (`startup_seconds`), and of the whole process; `recorded_seconds`: process with the recorder, if it works.
    """

    measured_seconds: float
    measured_range_seconds: list[float] | None
    startup_seconds: float | None
    process_seconds: float
    runs: int
    recorded_seconds: float | None
    pageable_bytes: int


class Tried(Predicted, kw_only=True):
    """A change: its prediction with an 80 % interval, measurements with 95 % intervals, and the comparison of the output."""

    change: str
    predicted_seconds: float | None  # type: ignore[assignment]  # None if there is no prediction; `reason` says why
    measured_seconds: float | None
    measured_range_seconds: list[float] | None = None
    process_seconds: float | None = None
    speedup: float | None = None
    speedup_range: list[float] | None = None
    pinning_seconds: float = 0.0
    changed_bytes: int = 0
    kept_bytes: dict[str, int] = field(default_factory=dict)
    output: Verdict
    difference: Difference | None = None

    @property
    def certain(self) -> bool:
        """Whether the interval of the speedup excludes 1."""
        low, high = self.speedup_range or (1.0, 1.0)
        return not low <= 1 <= high

    @property
    def wide(self) -> bool:
        """Whether the interval of the speedup is wide enough to hide a gain."""
        low, high = self.speedup_range or (1.0, 1.0)
        return high - low > 2 * NARROW


class Try(Struct, tag_field="schema", tag="busfare.try/1", kw_only=True):
    """The measurements. `varying_numbers`: how many numbers in the output are not compared (times, or
    varying between unchanged runs). `interrupted`: Ctrl-C ended the rounds early.
    """

    command: str
    date: str
    baseline: Baseline
    runs: list[Tried]
    refused: list[Refused]
    advice: Words | None
    call_sites: list[CallSite]
    varying_numbers: int
    interrupted: bool
    remarks: list[Words]

    @property
    def altered(self) -> bool:
        """Whether a change altered the output, or made the program fail or exceed the time limit."""
        return any(tried.output in ("altered", "failed", "timeout") for tried in self.runs)


class ProgramFailed(BusfareError):  # noqa: N818 (the program failed, not busfare)
    """The unchanged program fails."""


def tried(
    command: Sequence[str], question: Question, predictions: Predictions, progress: Progress | None
) -> Try:
    """Runs `command` as often as needed. Raises InputError or NoGpuError if it cannot be run, ProgramFailed if it fails
    unchanged. A KeyboardInterrupt after two or more rounds ends the measurement; the result says so.
    """
    program = Program(command, question.compare, question.timeout)

    def say(share: float, what: str) -> None:
        if progress:
            progress(share, what)

    with tempfile.TemporaryDirectory(prefix="busfare-try-") as folder, program.files_set_aside():
        say(0.0, "running unchanged")
        first = _checked(program.run(DRY), program)
        if missing := [path for path in question.compare if not path.is_file()]:
            raise InputError(f"{missing[0]}: the program does not write this file; check the path")
        say(0.1, "recording")
        recording = Path(folder) / "recording"
        recorded = program.recorded(recording, first.seconds)
        say(0.2, "predicting")
        fault = _fault(recorded, "the time limit")
        gains, refused, remarks = chosen_changes(question, recording, predictions, first, fault)
        interrupted, disturbances, unchanged, changed = _rounds(
            program, list(gains), question.runs, first, say
        )
        result = _result(program.command, question, unchanged, changed, gains, refused)
        result.baseline.recorded_seconds = None if fault else recorded.seconds
        result.interrupted, result.remarks = interrupted, [*remarks, *disturbances]
        best = max(result.runs, key=lambda row: row.speedup or 0.0, default=None)
        if (
            best is not None
            and best.certain
            and (best.speedup or 0) > 1
            and best.output in ("identical", "same")
        ):
            result.advice, result.call_sites = advice_for(best.change, recording, predictions, question)
    return result


def _fault(run: Run, limit: str) -> str:
    """How a run failed; empty if it did not."""
    if run.status == 0:
        return ""
    how = f"exceeds {limit}" if run.status is None else f"exits with status {run.status}"
    return how + (f"; last line: {run.last_line}" if run.last_line else "")


def _checked(run: Run, program: Program, when: str = "") -> Run:
    if fault := _fault(run, "--timeout"):
        raise ProgramFailed(f"{join(program.command)}: the unchanged program{when} {fault}")
    return run


def _rounds(
    program: Program, changes: Sequence[str], most: int, first: Run, say: Callable[[float, str], None]
) -> tuple[bool, list[Words], list[Run], dict[str, list[Run]]]:
    """Runs at most `most` rounds, every other round in reverse order; stops early when all speedups have narrow intervals.
    Does not repeat a change that makes the program fail. Returns whether Ctrl-C ended the rounds, remarks, and the runs.
    """
    if not changes:
        return False, [], [first], {}
    unchanged, changed = list[Run](), {change: list[Run]() for change in changes}
    failed, busy, remarks, interrupted = set[str](), [0.0], list[Words](), False

    def run_round(number: int) -> None:
        busy.append(busy_cores() or 0.0)
        order = ["", *changes][:: -1 if number % 2 else 1]
        for place, change in enumerate(order):
            if change in failed:
                continue
            share = 0.3 + 0.7 * (number + place / len(order)) / most
            say(share, f"round {number + 1} of at most {most}: {change or 'unchanged'}")
            if not change:
                when = f" (round {number + 1}; earlier runs succeeded)"
                unchanged.append(_checked(program.run(), program, when))
                continue
            run = program.run(change, first.seconds)
            changed[change].append(run)
            if run.status != 0:
                failed.add(change)

    for number in range(most):
        try:
            run_round(number)
        except KeyboardInterrupt:
            if number < KEPT_RUNS:
                raise
            interrupted, remarks = True, [statement("try.interrupted", rounds=number, most=most)]
            break
        working = [name for name in changes if name not in failed]
        halves = (_half_interval(_log_speedups(unchanged, changed[name])) for name in working)
        if not working or (number + 1 >= ENOUGH_RUNS and 2 * max(halves) < NARROW):
            break
    remarks += [statement("try.busy", cores=max(busy))] if max(busy) > BUSY_CORES else []
    return interrupted, remarks, unchanged, changed


def _timed(run: Run) -> float:
    """Time from the first CUDA driver call to the last, s; of the whole process if the library saw no call."""
    return run.seconds if run.cuda_seconds is None else run.cuda_seconds


def _half_interval(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of the mean (Student's t); infinite for a single value. Shape (runs,)."""
    if len(values) < 2:
        return math.inf
    return student_quantile((1 + CONFIDENCE) / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))


def _interval(times: Sequence[float]) -> list[float] | None:
    """95 % interval around the median, s; None for a single run. Shape (runs,)."""
    half = _half_interval([math.log(time) for time in times])
    return [median(times) * math.exp(sign * half) for sign in (-1, 1)] if math.isfinite(half) else None


def _log_speedups(unchanged: Sequence[Run], changed: Sequence[Run]) -> list[float]:
    """The log speedup of each round, whose runs share the state of the machine."""
    pairs = zip(unchanged, changed, strict=False)
    return [math.log(_timed(before) / _timed(after)) for before, after in pairs]


def _result(
    command: Sequence[str],
    question: Question,
    unchanged: Sequence[Run],
    changed: Mapping[str, Sequence[Run]],
    gains: Mapping[str, Gain],
    refused: list[Refused],
) -> Try:
    names = ["standard output", *map(str, question.compare)]
    by_output = zip(names, zip(*(run.outputs for run in unchanged), strict=True), strict=True)
    references = [Reference(name, runs) for name, runs in by_output]
    times = [_timed(run) for run in unchanged]
    startups = [run.startup_seconds for run in unchanged if run.startup_seconds is not None]
    baseline = Baseline(
        measured_seconds=median(times),
        measured_range_seconds=_interval(times),
        startup_seconds=median(startups) if startups else None,
        process_seconds=median(run.seconds for run in unchanged),
        runs=len(unchanged),
        recorded_seconds=None,
        pageable_bytes=unchanged[0].counts.get("pageable_bytes", 0),
    )
    return Try(
        command=join(command),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        baseline=baseline,
        runs=[
            _tried(change, gains[change], baseline, unchanged, runs, references)
            for change, runs in changed.items()
        ],
        refused=refused,
        advice=None,
        call_sites=[],
        varying_numbers=sum(reference.left_out for reference in references),
        interrupted=False,
        remarks=[],
    )


def _tried(
    change: str,
    gain: Gain,
    baseline: Baseline,
    unchanged: Sequence[Run],
    runs: Sequence[Run],
    references: Sequence[Reference],
) -> Tried:
    row = Tried(change=change, predicted_seconds=None, measured_seconds=None, output="identical")
    whole, least = baseline.measured_seconds, baseline.startup_seconds or 0.0
    if gain.seconds is None:
        row.reason = gain.reason or statement("try.no-recording")
    else:
        row.predicted_seconds = max(least, whole - gain.seconds)
        row.low_seconds, row.high_seconds = (max(least, whole - end) for end in (gain.high, gain.low))
        row.rung = "calibrated"
    last = runs[-1]
    row.pinning_seconds = last.counts.get("pinning_ns", 0) * NS
    row.changed_bytes = last.counts.get("changed_bytes", 0)
    row.kept_bytes = {reason: bytes_ for reason, (_, bytes_) in last.kept.items()}
    if last.status != 0:
        row.output = "failed" if last.status else "timeout"
        if last.status:
            ended = f"{last.status}: {last.last_line}".rstrip(": ")
            row.difference = Difference("exit status", 0, "0", ended)
        return row
    for run in runs:
        verdict, row.difference = compared(references, run.outputs)
        row.output = max(row.output, verdict, key=get_args(Verdict).index)
        if verdict == "altered":
            break
    times = [_timed(run) for run in runs]
    row.measured_seconds, row.measured_range_seconds = median(times), _interval(times)
    row.process_seconds = median(run.seconds for run in runs)
    logs = _log_speedups(unchanged, runs)
    row.speedup, half = math.exp(fmean(logs)), _half_interval(logs)
    row.speedup_range = [row.speedup * math.exp(sign * half) for sign in (-1, 1)]
    return row
