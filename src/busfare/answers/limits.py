"""Limits on a report, for use where a program is tested again and again."""

import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from busfare.answers.job import JobReport
from busfare.answers.report import Report
from busfare.answers.units import Statistic
from busfare.errors import FieldError, InputError, LimitPassed
from busfare.quantities import parse_bytes, parse_seconds

Result = Report | JobReport


class Limited(NamedTuple):
    """Of a run or job: `amount`, seconds unless `counted`, and its `share` of the time of all traces, or the slowest."""

    amount: Callable[[Result], float] | None
    share: Callable[[Result], float] | None = None
    counted: bool = False


def _gain(result: Result) -> float:
    return max((finding.predicted_gain_seconds for finding in result.findings), default=0.0)


def _part(seconds: float, whole: float) -> float:
    return seconds / whole if whole else 0.0


def _run(result: Result) -> tuple[float, float]:
    """The run's seconds, twice; of a job, those of all its traces together and those of its slowest."""
    run = result.makespan_seconds
    return (run, run) if isinstance(run, (int, float)) else (run.sum, run.most)


def _of_units(result: Result) -> Report:
    """A report with units of work. Raises InputError for that of a job, and where no unit was found."""
    if isinstance(result, JobReport):
        raise InputError("`fail_if` iteration: limits one run; give it with one trace")
    if not result.units:
        path = result.trace.path
        raise InputError(f"{path}: `fail_if` iteration: no unit of work repeats; limit makespan instead")
    return result


def _unit(result: Result) -> float:
    """Seconds of a unit of work, on the GPU where it takes longest."""
    return max(unit.seconds for unit in _of_units(result).units)


def _unit_growth(result: Result) -> tuple[float, str]:
    """By which part of itself a unit of work got longer, by the statistic and on the GPU where that is most; only growth
    beyond the variation within a run counts. Raises InputError where that is not known.
    """
    report = _of_units(result)
    units = report.baseline.units if report.baseline else []
    judged = [unit for unit in units if unit.real is not None]
    if not judged:
        why = "too few units of work" if units else f"the baseline shares no unit of work with it; {COMPARE}"
        raise InputError(f"{report.trace.path}: `fail_if` iteration > +VALUE%: {why}")
    changes = [
        (row.change, figure)
        for unit in judged
        for figure, row in unit.statistics.items()
        if row.growth > 0 or row.high < 0
    ]
    percent, figure = max(changes, default=(0.0, "median"))
    return percent / 100, STATISTICS[figure]


LIMITED = {
    "exposed": Limited(
        lambda r: r.transfers.exposed_seconds, lambda r: _part(r.transfers.exposed_seconds, _run(r)[0])
    ),
    "transfers": Limited(lambda r: r.transfers.seconds, lambda r: _part(r.transfers.seconds, _run(r)[0])),
    "share-of-gpu-time": Limited(None, lambda r: r.transfers.share_of_gpu_time),
    "gain": Limited(_gain, lambda r: _part(_gain(r), _run(r)[1])),
    "kernels": Limited(lambda r: r.kernels.seconds),
    "communication": Limited(lambda r: r.communication.seconds),
    "iteration": Limited(_unit),
    "makespan": Limited(lambda r: _run(r)[1]),
    "bytes": Limited(lambda r: r.transfers.bytes, counted=True),
    "count": Limited(lambda r: r.transfers.count, counted=True),
    "findings": Limited(lambda r: len(r.findings), counted=True),
}
#: What a message calls the statistics of units.
STATISTICS: dict[Statistic, str] = {
    "mean": "mean",
    "median": "median",
    "low": "10th percentile",
    "high": "90th percentile",
}
#: Changes this many times above a limit, and of so many percent, are not passed over because a run's units differ.
DOUBTFUL, DOUBTFUL_PERCENT = 2, 5
COMPARE = "compare the two traces with busfare diff"
COMPARISONS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
PERCENT = re.compile(r"([+-]?\d{1,9}(?:\.\d+)?)\s*%")
FORM = re.compile(r"\s*([a-z-]+)\s*(>=|<=|>|<)\s*(\S.*?)\s*")


class Limit(NamedTuple):
    """`text` as given; passed if `of(report)` compares so with `value`, or if it `grows`, so much beyond the baseline."""

    text: str
    of: Callable[[Result], float]
    compare: Callable[[float, float], bool]
    value: float
    unit: str
    grows: bool = False


def parse_limit(text: str) -> Limit:
    """'exposed > 20%', 'makespan > 3s', 'bytes > 1GB', 'makespan > +5%' (than the baseline's). Raises InputError else."""
    match = FORM.fullmatch(text)
    if match is None:
        raise InputError(f"`fail_if` {text[:60]!r}: write NAME > VALUE, as in 'exposed > 20%'")
    name, sign, value = match.groups()
    grows, limited = value.startswith("+"), LIMITED.get(name, Limited(None))
    if value.endswith("%") and (of := limited.amount if grows else limited.share):
        percent = PERCENT.fullmatch(value[grows:])
        if percent is None:
            raise InputError(f"`fail_if` {text[:60]!r}: {value[:20]!r} is not a percentage; write it as 20%")
        return Limit(text, of, COMPARISONS[sign], float(percent[1]) / 100, "%", grows)
    if limited.amount:
        try:
            number = parse_bytes(value) if limited.counted else parse_seconds(value)
        except InputError as error:
            raise FieldError("fail_if", f" {error}") from None
        return Limit(text, limited.amount, COMPARISONS[sign], number, "" if limited.counted else " s")
    hint = "; it needs a percentage" if limited.share else f"; one of {', '.join(LIMITED)}"
    raise InputError(f"`fail_if` {text[:60]!r}: {name!r} cannot have this limit{hint}")


def _refuse_unlike(result: Result, text: str, baseline: Report) -> None:
    """Raises InputError if a report and its baseline have different amounts of work, so that sums are not comparable. If
    they share no unit of work, also if either has a unit, or if all kernels run several times as often.
    """
    if not isinstance(result, Report) or not result.baseline:
        return
    unit, why = result.baseline.unit, ""
    if result.baseline.comparable == "units":
        why = (
            f"the baseline holds {unit.count_before} units of work and this trace {unit.count_after}; use 'iteration > "
            "+5%', which compares one unit, or record the same number"
        )
    elif result.baseline.comparable == "unknown":
        if result.units or baseline.units:
            why = (
                f"the baseline and this trace share no unit of work and may hold different amounts; {COMPARE}"
            )
        elif (factor := _times_as_often(baseline, result)) != 1:
            why = f"every kernel runs {factor:.3g} times as often as in the baseline; {COMPARE}"
    if why:
        raise InputError(f"{result.trace.path}: `fail_if` {text!r}: {why}")


def _refuse_unclear(result: Result, text: str, compare: Callable[[float, float], bool], limit: float) -> None:
    """Raises InputError if the mean or median of a unit changed by more than DOUBTFUL times the limit, but units of a single
    run differ as much: passing would hide a slowdown of a part of the run.
    """
    report = _of_units(result)
    for unit in report.baseline.units if report.baseline else []:
        for figure in ("mean", "median"):
            row = unit.statistics.get(figure)
            doubtful = row and row.growth <= 0 and row.change > DOUBTFUL_PERCENT
            if row and doubtful and compare(row.change / 100, DOUBTFUL * limit):
                raise InputError(
                    f"{report.trace.path}: `fail_if` {text!r}: cannot be checked: the {figure} of a unit changed by "
                    f"{row.change:+.3g} %, but units of one run differ as much; {COMPARE}, or record more units"
                )


def _times_as_often(before: Report, after: Report) -> float:
    """The factor by which the report launches all shared kernels more often than the baseline; 1 without a common factor."""
    counts = {kernel.name: kernel.count for kernel in before.top_kernels}
    factors = {row.count / counts[row.name] for row in after.top_kernels if row.name in counts}
    return factors.pop() if len(factors) == 1 else 1.0


def check(result: Result, limits: Sequence[Limit], baseline: Report | None = None) -> None:
    """Raises LimitPassed, naming every limit that the report passes, and InputError where nothing was recorded."""
    what = "the job" if isinstance(result, JobReport) else result.trace.path
    traces = result.traces.read if isinstance(result, JobReport) else 1
    without = [getattr(o, "traces", 1) for o in result.omissions if o.id == "no-gpu-records"]
    if limits and without and without[0] >= traces:
        raise InputError(
            f"{what}: `fail_if` cannot be checked: no GPU activity was recorded; record it, as the report explains"
        )
    passed = []
    for text, of, compare, limit, unit, grows in limits:
        value, which = _unit_growth(result) if grows and of is _unit else (of(result), "")
        if grows and baseline and of is not _unit:
            _refuse_unlike(result, text, baseline)
            old = of(baseline)
            value = value / old - 1 if old else math.copysign(math.inf, value) if value else 0.0
        if grows and of is _unit and not compare(value, limit):
            _refuse_unclear(result, text, compare, limit)
        if compare(value, limit):
            shown = f"{100 * value:.4g}%" if unit == "%" else f"{value:.6g}{unit}"
            passed.append(f"{text} (it is {shown}{which and ', ' + which})")
    if passed:
        raise LimitPassed(f"{what}: limit exceeded: {'; '.join(passed)}")
