"""What several documents share: tables of paths and sizes, omissions, and the sentences about gains and ranges."""

from __future__ import annotations

from collections.abc import Sequence

from busfare.advise.amounts import count, rate, size, time
from busfare.report.document import Cells, Items, Table, numbers, table, words
from busfare.report.results import Omission, Part, RecordingCost, path_name
from busfare.report.svg import Bar
from busfare.results import Path, Predicted, Ranged, Sized

RUNGS = {
    "datasheet": "data sheets",
    "typical": "what is typical of the generation",
    "probed": "what was measured on the machine",
    "calibrated": "the recorded times of this trace",
}


def percent(change: float) -> str:
    """'+1.2%', and no minus before nothing."""
    return f"{round(change, 3) + 0.0:+.1%}"


def bar(row: Predicted | None, seconds: float | None = None) -> Bar:
    """A predicted time with its whisker; or `seconds` that were recorded."""
    if row is None:
        return Bar(seconds, "" if seconds is None else time(seconds))
    return Bar(row.predicted_seconds, str(row), row.low_seconds, row.high_seconds, predicted=True)


def paths(rows: Sequence[Path], title: str, most: int | None = None) -> Table:
    """Transfers by direction and memory kinds."""
    figures: Cells[Path] = {
        "count": lambda row: count(row.count),
        "bytes": lambda row: size(row.bytes),
        "time": lambda row: time(row.seconds),
        "rate": lambda row: rate(row.bytes_per_second),
    }
    return table(rows, title, {"path": path_name}, figures, most=most)


def bar_of(share: float) -> str:
    """A part of 1 as a bar of at most 12 columns, in eighths of them."""
    eighths = round(8 * 12 * share)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def sizes(rows: Sequence[Sized]) -> Table:
    """Transfers in each decade of size, by count and by time [A19 figure 1]."""
    counts, seconds = sum(r.count for r in rows) or 1, sum(r.seconds for r in rows) or 1.0
    columns = words("size") + numbers("count") + words("by count") + numbers("time") + words("by time")
    cells = [
        (
            f"{size(r.lower_bytes)} – {size(r.upper_bytes)}",
            count(r.count),
            bar_of(r.count / counts),
            time(r.seconds),
            bar_of(r.seconds / seconds),
        )
        for r in rows
    ]
    return Table(columns, cells, "Transfers by size")


def parts(title: str, recorded: Sequence[Part], predicted: Sequence[Part] | None = None) -> Table:
    """A critical path, longest part first; or two of them beside each other."""
    before = {part.part: part for part in recorded}
    if predicted is None:
        rows = [(p.part, time(p.seconds), f"{p.share:.1%}") for p in recorded if p.share >= 0.001]
        return Table(words(title) + numbers("time", "of the run"), rows)
    after = {part.part: part for part in predicted}
    cells = [
        (name, *(time(own[name].seconds) if name in own else "0 s" for own in (before, after)))
        for name in dict.fromkeys([*before, *after])
    ]
    return Table(words(title) + numbers("recorded", "predicted"), cells)


def omitted(omissions: Sequence[Omission], title: str = "What this trace does not tell") -> list[Items]:
    """What was skipped, repaired or unknown; nothing where nothing was."""
    sentences = [f"{o.id}: {f'{count(o.count)} ' if o.count else ''}{o.what}" for o in omissions]
    return [Items(sentences, title)] if sentences else []


def ranges(row: Ranged) -> str:
    """What the ranges of a result are and stand on."""
    if row.low_seconds is None:
        return f"Predicted without a range: {row.reason}."
    stands = RUNGS.get(str(row.rung), row.rung)
    return f"In brackets: 80 % ranges, from how far predictions by {stands} lay from held-out measurements."


def recorder(cost: RecordingCost) -> str:
    """What was taken out for the recorder, in a sentence."""
    taken = f"{time(cost.call_seconds)} a call taken out for the recorder"
    if cost.gap_seconds:
        taken += f", {time(cost.gap_seconds)} out of each gap on the GPU"
    if cost.host_pace != 1:
        taken += f", and the host's own time {cost.host_pace:.2f} times that of the recorded process"
    bare = time(cost.unrecorded_seconds)
    if cost.replayed_seconds > 1.01 * cost.unrecorded_seconds:
        return (
            f"{taken}; unrecorded, the run takes {bare}: the rest of the difference is not in calls or gaps."
        )
    return f"{taken}: unrecorded, the run takes {bare}."


def overlaps(overlaps_with: Sequence[str], ids: Sequence[str]) -> list[str]:
    """Which other findings, of those with `ids`, touch some of the same operations; nothing where none does."""
    places = [str(number) for number, id in enumerate(ids, 1) if id in overlaps_with]
    if not places:
        return []
    verb = "touch" if len(places) > 1 else "touches"
    listed = " and ".join(filter(None, (", ".join(places[:-1]), places[-1])))
    return [f"Touches operations that {listed} {verb}, too: the gains do not add up."]


def conditions(what_if: Sequence[str], rests_on: Sequence[str]) -> list[str]:
    """Under which the gain holds, and the command that shows it; nothing where it was not replayed."""
    if not what_if:
        return []
    command = f"See `busfare what-if TRACE {' '.join(what_if)}`."
    return [f"Holds if {'; '.join(rests_on)}. {command}" if rests_on else command]


def machine(facts: dict[str, object]) -> Table:
    """What the system says of itself."""
    gpus = facts.get("gpus")
    rows = [(key, str(value)) for key, value in facts.items() if key != "gpus"]
    if isinstance(gpus, list):
        rows += [(f"GPU {n} {key}", str(value)) for n, gpu in enumerate(gpus) for key, value in gpu.items()]
    return Table(words("fact", "value"), rows, "What the system says", face="page")
