"""The result of `diff`: two recorded runs of one program beside each other, and which part made it longer or shorter.

Everything in it is recorded; nothing is predicted. Seconds and bytes; None is 'not known', or 'not among the longest'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import polars as pl
from msgspec.structs import asdict

from busfare.answers.report import Changed, Diff, FindingChanged, Report, path_name
from busfare.errors import InputError
from busfare.statements import Figure, Words, statement
from busfare.trace import Trace
from busfare.trace import totals as account

#: A part is worth a word from this share of the change on, and from that of the run.
OF_CHANGE, OF_RUN = 0.05, 0.01
#: A smaller share of the run does not show in three digits.
SAME = 0.0005
MOST_NAMES = 200
#: Omissions without which the work of a run is not what its trace holds.
UNRECORDED = ("no-gpu-records", "copies-not-recorded")
NS = 1e-9
Run = TypeVar("Run")
#: Seconds, count and bytes, as far as they are known, by what has them.
ByName = Mapping[str, Mapping[str, Any]]


def diff_traces(before: Trace, after: Trace, reports: tuple[Report, Report]) -> Diff:
    """What changed from one run to the other, whose `reports` these are."""
    made = diff(*reports)
    made.by_kernel = _beside(lambda one: _named(account.top_kernels(one, MOST_NAMES)), before, after)
    took = (pl.col("end_ns") - pl.col("start_ns")).sum() * NS
    called = pl.col("name").cast(pl.String)
    made.by_call = _beside(
        lambda one: _named(one.calls.group_by(called).agg(count=pl.len(), seconds=took)), before, after
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
    run = Changed(
        what="whole run", before_seconds=before.makespan_seconds, after_seconds=after.makespan_seconds
    )
    parts = _beside(
        lambda one: {part.part: {"seconds": part.seconds} for part in one.critical_path or ()}, before, after
    )
    paths = _beside(lambda one: {path_name(row): asdict(row) for row in one.by_path}, before, after)
    both = [{finding.id: finding for finding in one.findings} for one in (before, after)]
    findings = [
        FindingChanged(id, (both[1].get(id) or both[0][id]).title, *(_gain(one.get(id)) for one in both))
        for id in dict.fromkeys([*both[0], *both[1]])
    ]
    kernels = _beside(lambda one: {row.name or "?": asdict(row) for row in one.top_kernels}, before, after)
    for kernel in kernels:  # of one of them alone: it may be in the other, further down
        if None in (kernel.before_seconds, kernel.after_seconds):
            kernel.what += " (not among the longest in both)"
    return Diff(
        before=before.trace.path,
        after=after.trace.path,
        makespan=run,
        why=_doubts(before, after)
        + _why(run, parts if before.critical_path and after.critical_path else [], paths),
        critical_path=parts,
        work=_beside(_work, before, after),
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
    work = {name: one for name, own in rows.items() if (one := asdict(own))["count"]}
    exposed = {"seconds": moved.exposed_seconds}
    return {"transfers": work.pop("transfers", {"seconds": 0.0}), "of them exposed": exposed, **work}


def _beside(of: Callable[[Run], ByName], before: Run, after: Run) -> list[Changed]:
    """What either run has, by name, the largest change first."""
    old, new = of(before), of(after)
    rows = [
        Changed(
            what=what,
            **{
                f"{when}_{key}": own.get(what, {}).get(key)
                for when, own in (("before", old), ("after", new))
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


def _why(run: Changed, parts: list[Changed], paths: list[Changed]) -> list[Words]:
    """How much the run changed, which parts of its critical path did, and which copies are not what they were."""
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
    new = _only(paths, "after")
    for path in _only(paths, "before"):
        same = next((other for other in new if other.after_bytes == path.before_bytes), None)
        copies = _copies(path.before_count, path.before_bytes, path)
        why.append(
            statement("diff.moved", now=_spaced(same), **copies) if same else statement("diff.gone", **copies)
        )
        new = [other for other in new if other is not same]
    for path in new:
        why.append(statement("diff.new", **_copies(path.after_count, path.after_bytes, path)))
    return why


def _copies(number: int | None, size: int | None, path: Changed) -> dict[str, Figure]:
    return {"count": number or 0, "bytes": size or 0, "path": _spaced(path)}


def _spaced(path: Changed) -> str:
    return " ".join(path.what.split())


def _only(paths: list[Changed], when: str) -> list[Changed]:
    """Those with bytes in one of the runs alone."""
    other = "after" if when == "before" else "before"
    return [p for p in paths if getattr(p, f"{when}_bytes") and not getattr(p, f"{other}_count")]
