"""Limits on a report, for use where a program is tested again and again."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from busfare.errors import InputError, LimitPassed
from busfare.job.results import JobReport
from busfare.quantities import parse_bytes, parse_seconds
from busfare.report.summary import Report

Result = Report | JobReport
#: What can be limited: of a share, a part of 1; of the others, seconds, bytes or a count.
SHARES: dict[str, Callable[[Result], float]] = {
    "exposed": lambda r: _part(r.transfers.exposed_seconds, _run(r)),
    "transfers": lambda r: _part(r.transfers.seconds, _run(r)),
    "share-of-gpu-time": lambda r: r.transfers.share_of_gpu_time,
    "gain": lambda r: _part(_best_gain(r), _longest(r)),
}
SECONDS: dict[str, Callable[[Result], float]] = {
    "exposed": lambda r: r.transfers.exposed_seconds,
    "transfers": lambda r: r.transfers.seconds,
    "kernels": lambda r: r.kernels.seconds,
    "communication": lambda r: r.communication.seconds,
    "makespan": lambda r: _longest(r),
    "gain": lambda r: _best_gain(r),
}
AMOUNTS: dict[str, Callable[[Result], float]] = {
    "bytes": lambda r: r.transfers.bytes,
    "count": lambda r: r.transfers.count,
    "findings": lambda r: len(r.findings),
}
COMPARISONS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
FORM = re.compile(r"\s*([a-z-]+)\s*(>=|<=|>|<)\s*(\S.*?)\s*")
KNOWN = ", ".join(dict.fromkeys([*SHARES, *SECONDS, *AMOUNTS]))


@dataclass(frozen=True)
class Limit:
    """`text` as the user wrote it; passed where `of(report)` compares so with `value`."""

    text: str
    of: Callable[[Result], float]
    compare: Callable[[float, float], bool]
    value: float
    unit: str


def parse_limit(text: str) -> Limit:
    """'exposed > 20%', 'makespan > 3s', 'bytes > 1GB', 'count > 100'. Raises InputError for anything else."""
    match = FORM.fullmatch(text)
    if match is None:
        raise InputError(f"--fail-if {text[:60]!r}: write NAME > VALUE, as in 'exposed > 20%'")
    name, sign, value = match.groups()
    compare = COMPARISONS[sign]
    if value.endswith("%") and name in SHARES:
        try:
            return Limit(text, SHARES[name], compare, float(value[:-1]) / 100, "%")
        except ValueError:
            raise InputError(f"--fail-if {text[:60]!r}: {value[:20]!r} is no percentage") from None
    if name in SECONDS:
        return Limit(text, SECONDS[name], compare, parse_seconds(value), "s")
    if name in AMOUNTS:
        return Limit(text, AMOUNTS[name], compare, float(parse_bytes(value)), "")
    hint = "; it needs a percentage" if name in SHARES else f"; one of {KNOWN}"
    raise InputError(f"--fail-if {text[:60]!r}: {name!r} cannot be limited so{hint}")


def check(result: Result, limits: Sequence[Limit]) -> None:
    """Raises LimitPassed, naming every limit that the report passes, and InputError where nothing was recorded."""
    what = "the job" if isinstance(result, JobReport) else result.trace.path
    traces = result.traces.read if isinstance(result, JobReport) else 1
    without = [getattr(o, "traces", 1) for o in result.omissions if o.id == "no-gpu-records"]
    if limits and without and without[0] >= traces:
        raise InputError(
            f"{what}: --fail-if cannot be answered: no GPU activity was recorded; record it, as the report says"
        )
    passed = []
    for limit in limits:
        value = limit.of(result)
        if limit.compare(value, limit.value):
            passed.append(f"{limit.text} (it is {_said(value, limit.unit)})")
    if passed:
        raise LimitPassed(f"{what}: limit passed: {'; '.join(passed)}")


def _said(value: float, unit: str) -> str:
    return f"{100 * value:.4g}%" if unit == "%" else f"{value:.6g}{' s' if unit else ''}"


def _part(seconds: float, whole: float) -> float:
    return seconds / whole if whole else 0.0


def _run(result: Result) -> float:
    """The run's seconds; of a job, those of all its traces together."""
    return result.makespan_seconds.sum if isinstance(result, JobReport) else result.makespan_seconds


def _longest(result: Result) -> float:
    """The run's seconds; of a job, those of its slowest trace."""
    return result.makespan_seconds.most if isinstance(result, JobReport) else result.makespan_seconds


def _best_gain(result: Result) -> float:
    return max((finding.predicted_gain_seconds for finding in result.findings), default=0.0)
