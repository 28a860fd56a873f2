"""The result of `diff`: two recorded runs of one program beside each other, and which part made it longer or shorter.

Everything in it is recorded; nothing is predicted. Seconds and bytes; None is 'not known', or 'not among the longest'.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import polars as pl
from msgspec.structs import asdict
from numpy.typing import NDArray

from busfare.answers.report import (
    Changed,
    Comparable,
    Diff,
    FindingChanged,
    Report,
    StatisticChanged,
    Unit,
    UnitChanged,
    path_name,
    unit_of,
)
from busfare.answers.units import FEWEST, SAME, Difference, batched, differences
from busfare.errors import InputError
from busfare.statements import Figure, Words, statement
from busfare.trace import Trace
from busfare.trace import totals as account
from busfare.trace.units import STRAY, Units, parts_of, shared_units

#: A part is worth a word from this share of the change on, and from that of the run.
OF_CHANGE, OF_RUN = 0.05, 0.01
MOST_NAMES = 200
#: Two recordings of one program have most of their kernels' time in kernels of the same names.
IN_COMMON = 0.5
#: Omissions without which the work of a run is not what its trace holds.
UNRECORDED = ("no-gpu-records", "copies-not-recorded")
NS = 1e-9
Run = TypeVar("Run")
#: Seconds, count and bytes, as far as they are known, by what has them.
ByName = Mapping[str, Mapping[str, Any]]


def diff_traces(before: Trace, after: Trace, reports: tuple[Report, Report]) -> Diff:
    """What changed from one run to the other, whose `reports` these are."""
    kernels = _rows(lambda trace: _named(account.top_kernels(trace, MOST_NAMES)), before, after)
    shared = shared_units(before, after)
    units = [
        _unit_changed(
            unit_of(before, old),
            unit_of(after, new),
            _parts((before, after), (old, new), len(shared)),
            len(shared),
        )
        for old, new in shared
    ]
    made = _diff(*reports, kernels, units)
    took = (pl.col("end_ns") - pl.col("start_ns")).sum() * NS
    called = pl.col("name").cast(pl.String)
    made.by_call = _rows(
        lambda trace: _named(trace.calls.group_by(called).agg(count=pl.len(), seconds=took)), before, after
    )
    return made


def read_report(path: Path) -> Report:
    """What `busfare report --json` wrote. Raises InputError where the file holds no such report of one run."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Report)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: not a report of one run ({error}); create one with `busfare report TRACE --json > old.json`"
        ) from None


def diff(before: Report, after: Report) -> Diff:
    """What changed from one report to the other. Kernels are those among the longest of both."""
    kernels = _rows(
        lambda report: {row.name or "?": asdict(row) for row in report.top_kernels}, before, after
    )
    pairs = [
        (old, new)
        for old in before.units
        for new in after.units
        if old.device == new.device and not {*old.names}.isdisjoint(new.names)
    ]
    units = [_unit_changed(*pair, [], len(pairs)) for pair in pairs]
    made = _diff(before, after, kernels, units)
    for kernel in kernels:  # of one of them alone: it may be in the other, further down
        if None in (kernel.before_seconds, kernel.after_seconds):
            kernel.what += " (not among the longest in both)"
    return made


def _diff(before: Report, after: Report, kernels: list[Changed], units: list[UnitChanged]) -> Diff:
    run = Changed(
        what="whole run", before_seconds=before.makespan_seconds, after_seconds=after.makespan_seconds
    )
    shares = _rows(
        lambda run: {part.part: {"seconds": part.seconds} for part in run.critical_path or ()}, before, after
    )
    paths = _rows(lambda report: {path_name(row): asdict(row) for row in report.by_path}, before, after)
    old, new = ({finding.id: finding for finding in report.findings} for report in (before, after))
    findings = [
        FindingChanged(id, (new.get(id) or old[id]).title, _gain(old.get(id)), _gain(new.get(id)))
        for id in dict.fromkeys([*old, *new])
    ]
    in_common = _in_common(kernels)
    if in_common < IN_COMMON:
        comparable: Comparable = "programs"
    elif units:
        comparable = "runs" if all(unit.count_before == unit.count_after for unit in units) else "units"
    else:
        comparable = "unknown"
    nothing = UnitChanged(name=None, device=None, reason=statement("diff.no-unit"))
    by_change = max(
        units, key=lambda unit: (unit.real or False, abs(unit.change_percent or 0.0)), default=nothing
    )
    whole = _why(run, shares if before.critical_path and after.critical_path else [])
    per_unit = [line for unit in units for line in _of_unit(unit)]
    fair = statement(
        f"diff.comparable-{comparable}", part=in_common, unit=_amount(by_change), count=by_change.count_after
    )
    return Diff(
        before=before.trace.path,
        after=after.trace.path,
        comparable=comparable,
        unit=by_change,
        units=units,
        makespan=run,
        why=_doubts(before, after)
        + {"runs": [*whole, fair, *per_unit], "unknown": [*whole, fair]}.get(comparable, [fair, *per_unit])
        + _paths(paths),
        critical_path=shares,
        work=_rows(_work, before, after),
        by_path=paths,
        by_kernel=kernels,
        by_call=[],
        findings=findings,
    )


def _gain(finding: Any) -> float | None:
    return None if finding is None else finding.predicted_gain_seconds


def _named(rows: pl.DataFrame) -> ByName:
    return {row["name"] or "?": row for row in rows.iter_rows(named=True)}


def _work(report: Report) -> ByName:
    moved = report.transfers
    rows = {
        "transfers": moved,
        "kernels": report.kernels,
        "communication": report.communication,
        "memory sets": report.sets,
    }
    work = {name: totals for name, counted in rows.items() if (totals := asdict(counted))["count"]}
    exposed = {"seconds": moved.exposed_seconds}
    return {"transfers": work.pop("transfers", {"seconds": 0.0}), "of them exposed": exposed, **work}


def _rows(of: Callable[[Run], ByName], before: Run, after: Run) -> list[Changed]:
    """What either run has, by name, the largest change first."""
    old, new = of(before), of(after)
    rows = [
        Changed(
            what=what,
            **{
                f"{when}_{key}": rows_of_run.get(what, {}).get(key)
                for when, rows_of_run in (("before", old), ("after", new))
                for key in ("seconds", "count", "bytes")
            },
        )
        for what in dict.fromkeys([*old, *new])
    ]
    return sorted(rows, key=lambda row: -abs(row.change_seconds))


def _doubts(*reports: Report) -> list[Words]:
    """What of a run is not in its trace, and may be all that differs."""
    doubts = []
    for report in reports:
        lacks = [report.trace.incomplete] if report.trace.incomplete else []
        lacks += [omission.what for omission in report.omissions if omission.id in UNRECORDED]
        doubts += [statement("diff.doubt", trace=report.trace.path, what=what) for what in lacks]
    return doubts


def _unit_changed(before: Unit, after: Unit, parts: list[Changed], runs: int) -> UnitChanged:
    """How a unit changed, by the first statistic that changed, or the median; `runs` pairs are tested together."""
    every = differences(before.batches, after.batches, runs)
    change = next((row for row in every if row.real), every[1] if every else None)
    old, new = (change.before, change.after) if change else (before.seconds, after.seconds)
    return UnitChanged(
        name=before.name,
        device=before.device,
        count_before=before.count,
        count_after=after.count,
        operations_before=before.operations,
        operations_after=after.operations,
        figure=change and change.figure,
        seconds_before=old,
        seconds_after=new,
        change_percent=100 * (new / old - 1) if old else None,
        statistics={row.figure: _statistic(row) for row in every if row.before},
        real=change and change.real,
        parts=parts,
    )


def _statistic(change: Difference) -> StatisticChanged:
    percent = 100 / change.before
    by, least = (change.after - change.before) * percent, change.least * percent
    return StatisticChanged(by, max(by - least, -100.0), by + least, change.growth * percent)


def _parts(traces: tuple[Trace, Trace], pair: tuple[Units, Units], runs: int) -> list[Changed]:
    """Kernels, transfers and idle time of a unit, if they changed by more than those of one run vary."""
    before, after = (parts_of(*run) for run in zip(traces, pair, strict=True))
    least, changed = SAME * float(np.median(pair[0].periods)), []
    for name, old in before.items():
        step = min(_step(old), _step(after[name]))
        unseen = max(least, step + 0.5) * NS  # between two whole nanoseconds
        every = differences(batched(old * NS), batched(after[name] * NS), runs, unseen, of_unit=False)
        if change := next((row for row in every if row.real), None):
            changed.append(Changed(what=name, before_seconds=change.before, after_seconds=change.after))
    return changed


def _step(times: NDArray[np.int64]) -> int:
    """The least difference between unlike times, at least a step of the recorder's clock; 0 where all are alike."""
    steps = np.diff(np.unique(times))
    return int(steps.min()) if len(steps) else 0


def _in_common(kernels: list[Changed]) -> float:
    """The share of all kernel time in kernels that both runs have, in the run where it is less; 1 where a run has none."""
    shares = []
    for when in ("before_seconds", "after_seconds"):
        took = [
            (getattr(row, when) or 0.0, None not in (row.before_seconds, row.after_seconds))
            for row in kernels
        ]
        if not (whole := sum(seconds for seconds, _ in took)):
            return 1.0
        shares.append(sum(seconds for seconds, shared in took if shared) / whole)
    return min(shares)


def _why(run: Changed, parts: list[Changed]) -> list[Words]:
    """How much the run changed, and which parts of its critical path did."""
    before, change = run.before_seconds or 0.0, run.change_seconds
    seconds = {"before": before, "after": run.after_seconds or 0.0, "change": change}
    if change == 0 or abs(change) < SAME * before:
        why = [statement("diff.as-long", **seconds)]
    elif before:
        why = [statement("diff.run", part=change / before, **seconds)]
    else:
        why = [statement("diff.run-from-nothing", **seconds)]
    least = max(OF_CHANGE * abs(change), OF_RUN * before)
    if large := [part for part in parts if abs(part.change_seconds) >= least]:
        changed = (statement("diff.part", part=part.what, seconds=part.change_seconds) for part in large[:4])
        why.append(statement("diff.critical-path", parts=tuple(changed)))
    return why


def _of_unit(unit: UnitChanged) -> list[Words]:
    """How much a unit of work changed, and which parts of it did."""
    figure = unit.figure or "median"
    judged = "few" if unit.real is None else "real" if unit.real else "same"
    where = statement("diff.on-gpu", device=unit.device) if unit.device is not None else ""
    statistic = unit.statistics.get(figure, StatisticChanged(0.0, 0.0, 0.0))
    figures = {
        "before": unit.seconds_before,
        "after": unit.seconds_after,
        "part": (unit.change_percent or 0.0) / 100,
        "visible": (statistic.high - statistic.change) / 100,
        "least": FEWEST + 1,
        "by": statement(f"diff.by-{figure}"),
    }
    lines = [statement(f"diff.unit-{judged}", name=unit.name, where=where, **figures)]
    if unit.statistics:
        stated = (
            statement(
                "diff.statistic",
                by=statement(f"diff.by-{figure}"),
                part=row.change / 100,
                low=row.low / 100,
                high=row.high / 100,
            )
            for figure, row in unit.statistics.items()
        )
        lines.append(statement("diff.unit-statistics", statistics=tuple(stated)))
    held = unit.operations_before or 0, unit.operations_after or 0
    if abs(held[1] - held[0]) > STRAY * max(held):
        lines.append(statement("diff.unit-operations", before=held[0], after=held[1]))
    changed = tuple(
        statement("diff.part", part=part.what, seconds=part.change_seconds) for part in unit.parts
    )
    return lines + ([statement("diff.unit-parts", parts=changed)] if changed else [])


def _paths(paths: list[Changed]) -> list[Words]:
    """Which copies are not what they were."""
    why, new = [], _only(paths, "after")
    for path in _only(paths, "before"):
        same = next((path_after for path_after in new if path_after.after_bytes == path.before_bytes), None)
        copies = _copies(path.before_count, path.before_bytes, path)
        why.append(
            statement("diff.moved", now=_spaced(same), **copies) if same else statement("diff.gone", **copies)
        )
        new = [path_after for path_after in new if path_after is not same]
    return why + [statement("diff.new", **_copies(path.after_count, path.after_bytes, path)) for path in new]


def _copies(number: int | None, size: int | None, path: Changed) -> dict[str, Figure]:
    return {"count": number or 0, "bytes": size or 0, "path": _spaced(path)}


def _amount(unit: UnitChanged) -> Words:
    if unit.name is None:
        return ""
    return statement("diff.amount", before=unit.count_before, after=unit.count_after)


def _spaced(path: Changed) -> str:
    return " ".join(path.what.split())


def _only(paths: list[Changed], when: str) -> list[Changed]:
    """Those with bytes in one of the runs alone."""
    absent_from = "after" if when == "before" else "before"
    return [p for p in paths if getattr(p, f"{when}_bytes") and not getattr(p, f"{absent_from}_count")]
