"""Limits on a report, for use where a program is tested again and again."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from busfare.errors import InputError, LimitPassed
from busfare.job.results import JobReport
from busfare.quantities import parse_bytes, parse_seconds
from busfare.report.summary import Report

Result = Report | JobReport
#: What can be limited: of a run, or of a job.
AMOUNTS: dict[str, Callable[[Result], float]] = {
    "exposed": lambda r: r.transfers.exposed_seconds,
    "transfers": lambda r: r.transfers.seconds,
    "kernels": lambda r: r.kernels.seconds,
    "communication": lambda r: r.communication.seconds,
    "makespan": lambda r: _run(r)[1],
    "gain": lambda r: max((finding.predicted_gain_seconds for finding in r.findings), default=0.0),
    "bytes": lambda r: r.transfers.bytes,
    "count": lambda r: r.transfers.count,
    "findings": lambda r: len(r.findings),
}
#: Those that are no seconds.
COUNTED = ("bytes", "count", "findings")
#: What can be limited in percent: of the time of all traces together, or of the slowest one's.
SHARES: dict[str, Callable[[Result], float]] = {
    "exposed": lambda r: _part(r.transfers.exposed_seconds, _run(r)[0]),
    "transfers": lambda r: _part(r.transfers.seconds, _run(r)[0]),
    "share-of-gpu-time": lambda r: r.transfers.share_of_gpu_time,
    "gain": lambda r: _part(AMOUNTS["gain"](r), _run(r)[1]),
}
COMPARISONS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
PERCENT = re.compile(r"([+-]?\d{1,9}(?:\.\d+)?)\s*%")
FORM = re.compile(r"\s*([a-z-]+)\s*(>=|<=|>|<)\s*(\S.*?)\s*")
KNOWN = (
    "exposed",
    "transfers",
    "share-of-gpu-time",
    "gain",
    "kernels",
    "communication",
    "makespan",
    *COUNTED,
)


class Limit(NamedTuple):
    """`text` as the user wrote it; passed where `of(report)` compares so with `value`, or, where it `grows`, with that of
    the baseline and so much more.
    """

    text: str
    of: Callable[[Result], float]
    compare: Callable[[float, float], bool]
    value: float
    unit: str
    grows: bool = False


def parse_limit(text: str) -> Limit:
    """'exposed > 20%', 'makespan > 3s', 'bytes > 1GB', 'count > 100', 'makespan > +5%' (than the baseline's). Raises
    InputError for anything else.
    """
    match = FORM.fullmatch(text)
    if match is None:
        raise InputError(f"--fail-if {text[:60]!r}: write NAME > VALUE, as in 'exposed > 20%'")
    name, sign, value = match.groups()
    grows = value.startswith("+")
    if value.endswith("%") and name in (AMOUNTS if grows else SHARES):
        percent = PERCENT.fullmatch(value[grows:])
        if percent is None:
            raise InputError(f"--fail-if {text[:60]!r}: {value[:20]!r} is no percentage; write one as 20%")
        of = AMOUNTS[name] if grows else SHARES[name]
        return Limit(text, of, COMPARISONS[sign], float(percent[1]) / 100, "%", grows)
    if name in AMOUNTS:
        counted = name in COUNTED
        number = float(parse_bytes(value, "--fail-if")) if counted else parse_seconds(value, "--fail-if")
        return Limit(text, AMOUNTS[name], COMPARISONS[sign], number, "" if counted else " s")
    hint = "; it needs a percentage" if name in SHARES else f"; one of {', '.join(KNOWN)}"
    raise InputError(f"--fail-if {text[:60]!r}: {name!r} cannot be limited so{hint}")


def check(result: Result, limits: Sequence[Limit], baseline: Report | None = None) -> None:
    """Raises LimitPassed, naming every limit that the report passes, and InputError where nothing was recorded."""
    what = "the job" if isinstance(result, JobReport) else result.trace.path
    traces = result.traces.read if isinstance(result, JobReport) else 1
    without = [getattr(o, "traces", 1) for o in result.omissions if o.id == "no-gpu-records"]
    if limits and without and without[0] >= traces:
        raise InputError(
            f"{what}: --fail-if cannot be answered: no GPU activity was recorded; record it, as the report says"
        )
    passed = []
    for text, of, compare, limit, unit, grows in limits:
        value = of(result)
        if grows and baseline:
            old = of(baseline)
            value = value / old - 1 if old else math.copysign(math.inf, value) if value else 0.0
        if compare(value, limit):
            said = f"{100 * value:.4g}%" if unit == "%" else f"{value:.6g}{unit}"
            passed.append(f"{text} (it is {said})")
    if passed:
        raise LimitPassed(f"{what}: limit passed: {'; '.join(passed)}")


def _part(seconds: float, whole: float) -> float:
    return seconds / whole if whole else 0.0


def _run(result: Result) -> tuple[float, float]:
    """The run's seconds, twice; of a job, those of all its traces together and those of its slowest."""
    run = result.makespan_seconds
    return (run, run) if isinstance(run, (int, float)) else (run.sum, run.most)
