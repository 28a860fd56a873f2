"""Blocks that documents share: findings, paths and sizes, omissions, communication, sentences on gains and intervals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonpath
from shlex import join, quote
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from busfare.advise.amounts import Predicted, Ranged, count, percent, several, signed_percent, size, time
from busfare.advise.jobs import JobFinding
from busfare.answers.job import JobReport
from busfare.answers.report import Path, Report, Sized, path_name
from busfare.answers.verdict import described, owned_seconds
from busfare.answers.what_if import RecordingCost
from busfare.jobs.communication import Clock, Collective, Left, RankTimes
from busfare.jobs.stragglers import Straggler
from busfare.show.document import Block, Entries, Entry, Figure, Items, Table, Text, cell, table, words
from busfare.show.svg import COLOUR, COLOURS, Bar, Bars, BarSeries, Line, drawn_as, escaped
from busfare.show.words import joined, text
from busfare.statements import Words, sentences, statement
from busfare.timeline import PathPart, limits
from busfare.trace import Omission
from busfare.trace.readers import record_again

if TYPE_CHECKING:
    from busfare.answers.measure import results

RUNGS = {
    "datasheet": "data sheets",
    "typical": "values typical of the GPU generation",
    "probed": "measurements of the machine",
    "calibrated": "the recorded times of this trace",
}
MOST_RANKS, MOST_WAITING, DRAWN_RANKS = 10, 5, 64
#: Smaller parts would be invisible.
LEAST_DRAWN = 0.001
PATH_NOTE = "The critical path: the chain of calls, operations and waits that decides how long the run takes."
#: Parts of a rank's run, as they are drawn.
PARTS = {
    "kernels": ("kernels_seconds", COLOUR["kernels"]),
    "waiting for other ranks": ("waiting_seconds", COLOUR["waits"]),
    "waiting for recordings to begin": ("recording_wait_seconds", COLOUR["others"]),
    "communication that no kernel hides": ("exposed_transfer_seconds", COLOUR["copies"]),
}


@dataclass(frozen=True)
class Shares:
    """Critical paths by their names; the one called predicted is hatched."""

    paths: Mapping[str, Sequence[PathPart]]

    def markup(self) -> str:
        most = max((sum(part.seconds for part in path) for path in self.paths.values()), default=0.0) or 1.0
        bars, legend = [], dict[str, list[str]]()
        for name, path in self.paths.items():
            shown = [part for part in path if part.share >= LEAST_DRAWN]
            parts = "".join(
                f'<i style="width:{part.seconds / most:.2%};background-color:{COLOUR[drawn_as(part.part)]}" '
                f'title="{escaped(f"{part.part}: {time(part.seconds)}, {percent(part.share, 1)}")}"></i>'
                for part in shown
            )
            whole = time(sum(part.seconds for part in path))
            hatched = " hatched" if name == "predicted" else ""
            bars.append(
                f'<div class="name">{escaped(name)}, {whole}</div><div class="share{hatched}">{parts}</div>'
            )
            for part in shown:
                share = percent(part.share) if part.share >= 0.0005 else "&lt; 0.1 %"
                legend.setdefault(part.part, []).append(share)
        # With several paths, the tooltip of each part shows its share.
        written = {part: shares[0] if len(self.paths) == 1 else "" for part, shares in legend.items()}
        entries = "".join(
            f'<li><i style="background:{COLOUR[drawn_as(part)]}"></i>{escaped(part)} {share}</li>'
            for part, share in written.items()
        )
        return f'<div class="shares">{"".join(bars)}<ul class="legend">{entries}</ul></div>'


def what_to_do(
    result: Report | JobReport,
    gain: Callable[[Any], str],
    by: str,
    remarks: Sequence[str] = (),
    where: Callable[[Any], str] = lambda finding: "",
) -> Entries | Text:
    """The findings, each with its `gain`, or a sentence if there are none. `by`: what the gains are based on. `where`: names
    the trace of a job in which a finding gains most.
    """
    if not result.findings:
        return Text(_without_findings(result), "bold", title="What to do")
    ids, entries = [finding.id for finding in result.findings], []
    for finding in result.findings:
        of = finding.largest if isinstance(finding, JobFinding) else finding
        place, *places = [*map(str, of.call_sites)] or [""]
        more = [*places, *_gain_notes(finding.overlaps_with, ids, of.rests_on)]
        evidence = where(finding) + of.evidence
        trace = quote(_what_if_path(result, finding))
        command = f"busfare what-if {trace} {join(of.what_if)}" if of.what_if else ""
        entries.append(
            Entry(finding.title, gain(finding), evidence, of.change, place, command, more, finding.id)
        )
    return Entries(entries, "What to do", f"predicted gains, {by}", remarks)


def _what_if_path(result: Report | JobReport, finding: Any) -> str:
    """The trace in which `what-if` gains that; the folder of the ranks, if all of them were replayed together."""
    if isinstance(result, Report):
        return result.trace.path
    if result.gains_of_whole_job:
        return commonpath([rank.path for rank in result.ranks])
    return str(finding.largest.path)


def likely(gain: Ranged) -> str:
    """', likely 5–60 ms'; '' without a known range."""
    if gain.low_seconds is None or gain.high_seconds is None:
        return ""
    low, high = (time(end).split(" ") for end in (gain.low_seconds, gain.high_seconds))
    ends = f"{low[0]}–{' '.join(high)}" if low[1] == high[1] else f"{' '.join(low)}–{' '.join(high)}"
    return f", likely {ends}"


def may_be_nothing(gain: Ranged) -> str:
    """Marks a gain whose range begins at 0."""
    return "" if gain.low_seconds else ", may save nothing"


def _without_findings(result: Report | JobReport) -> str:
    """Why there is no advice. A trace without recorded copies allows none on copies."""
    missing = {omission.id for omission in result.omissions}
    if "copies-not-recorded" in missing and not result.transfers.count:
        return "The trace has calls that copy but no copies: no advice on copies is possible."
    if "copying-kernels" in missing and not result.transfers.count:
        return "Copies ran as kernels without recorded sizes: no advice on copies is possible."
    if "no-calls" in missing and not result.transfers.count and result.kernels.count:
        return "The trace has kernels but no calls: copies may be missing."
    if any(w.count for w in (result.kernels, result.communication, result.transfers, result.graph_work)):
        nothing = "No worthwhile change to transfers was found"
        owned = [part for part in (isinstance(result, Report) and result.critical_path) or () if part.owner]
        if isinstance(result, Report) and (cpu := limits(owned)["cpu"]) >= 0.5:
            owner, how = max(owned, key=owned_seconds), record_again(result.trace.format).activity
            then = f"{text(described(owner))}{f'; record it with {how} to see more' if how else ''}"
            return f"{nothing}: the CPU takes {percent(cpu)} of the run. Next: {then}."
        then = "`busfare project TRACE --to NODE` shows what another machine saves"
        return f"{nothing}. Next: {then}."
    return "The trace has no kernels and no transfers: no advice is possible."


def _gain_notes(overlaps_with: Sequence[str], ids: Sequence[str], rests_on: Sequence[str]) -> list[str]:
    """Which other findings of `ids` affect some of the same operations, and what the gain assumes."""
    sentences = []
    if places := [str(number) for number, id in enumerate(ids, 1) if id in overlaps_with]:
        listed = joined(places, " and ")
        sentences.append(f"Affects the same operations as {listed}: the gains do not add up.")
    if rests_on:
        sentences.append(f"Assumptions: {'; '.join(rests_on)}.")
    return sentences


def change(old: float, new: float | None) -> str:
    """The change from one time to another: '+1.2 %'."""
    return signed_percent(new / old - 1) if old and new is not None else "–"


def bar(of: "float | Predicted | results.WithPrediction") -> Bar:
    """Seconds that were recorded or measured; or a predicted time with its whisker."""
    if isinstance(of, (int, float)):
        return Bar(of, time(of))
    label = cell(of, "predicted_seconds")
    return Bar(of.predicted_seconds, label, of.low_seconds, of.high_seconds, predicted=True)


def ranking_bars(
    rows: Mapping[str, Predicted], axis: str = "predicted time", mark: float | None = None
) -> Bars:
    """Predictions by their names."""
    return Bars(
        list(rows), [BarSeries("predicted", COLOUR["whole run"], [*map(bar, rows.values())])], axis, mark=mark
    )


def predicted_lines(x: Sequence[float], named: Mapping[str, Sequence[float | None]]) -> list[Line]:
    """Lines through predictions at the same `x`, by their names."""
    return [
        Line(name, COLOURS[n % len(COLOURS)], x, values, predicted=True)
        for n, (name, values) in enumerate(named.items())
    ]


def paths(rows: Sequence[Path], title: str, most: int | None = None) -> Table:
    """Transfers by direction and memory kinds."""
    figures = {"count": "count", "bytes": "bytes", "time": "seconds", "rate": "bytes_per_second"}
    return table(rows, title, {"path": path_name}, figures, most=most)


def bar_of(share: float) -> str:
    """A part of 1 as a bar of at most 12 columns, in eighths of them."""
    eighths = round(8 * 12 * share)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def sizes(rows: Sequence[Sized]) -> Table:
    """Transfers in each decade of size, by count and by time [A19 figure 1]."""
    counts, seconds = sum(r.count for r in rows) or 1, sum(r.seconds for r in rows) or 1.0
    return table(
        rows,
        "Transfers by size",
        {"size": lambda row: f"{size(row.lower_bytes)} – {size(row.upper_bytes)}"},
        {"count": "count"},
        {"by count": lambda row: bar_of(row.count / counts)},
        {"time": "seconds"},
        {"by time": lambda row: bar_of(row.seconds / seconds)},
    )


#: Options that fix an omission.
FIXES = {"guessed-node": "; override with --from"}


def omitted(omissions: Sequence[Omission], title: str = "Limits of this trace") -> list[Items]:
    """What was skipped, repaired or unknown; no block if the list is empty."""
    sentences = []
    for o in omissions:
        times = f" ({count(o.count)}×)" if o.count else ""
        traces = o.traces if isinstance(o, Left) else 0
        of = f" ({several(traces, 'trace')}{'; first shown' * (traces > 1)})" if traces else ""
        sentences.append(f"{o.id}{times}: {o.what}{FIXES.get(o.id, '')}{of}")
    return [Items(sentences, title)] if sentences else []


def ranges(row: Ranged) -> str:
    """What the intervals of a result mean, and what they are based on."""
    if row.low_seconds is None:
        return f"Predicted without an interval: {row.reason}."
    if row.rung == "not validated":
        return "Kernel times have only two bounds (not validated): no kernel was measured on GPUs of both vendors."
    stands = RUNGS.get(str(row.rung), row.rung)
    return f"In brackets: 80 % prediction intervals, from held-out measurements; based on {stands}."


def recorder(cost: RecordingCost) -> str:
    """How much recorder overhead was subtracted, in a sentence."""
    taken = f"Recorder overhead: {time(cost.call_seconds)} per call subtracted"
    if cost.gap_seconds:
        taken += f", {time(cost.gap_seconds)} per gap on the GPU"
    if cost.host_slowdown != 1:
        taken += f", and CPU times scaled by {cost.host_slowdown:.2f} from the recorded process"
    bare = time(cost.unrecorded_seconds)
    if not 0.99 * cost.unrecorded_seconds <= cost.replayed_seconds <= 1.01 * cost.unrecorded_seconds:
        return (
            f"{taken}. The run takes {bare} without the recorder. The rest of the difference is neither in calls nor in "
            f"gaps: gains refer to a run of {time(cost.replayed_seconds)}."
        )
    return f"{taken}. The run takes {bare} without the recorder."


def machine(facts: dict[str, object]) -> Table:
    """What the system reports about itself."""
    gpus = facts.get("gpus")
    rows = [(key, _fact(key, value)) for key, value in facts.items() if key != "gpus"]
    if isinstance(gpus, list):
        rows += [
            (f"GPU {n} {key}", _fact(key, value)) for n, gpu in enumerate(gpus) for key, value in gpu.items()
        ]
    return Table(words("fact", "value"), rows, "System information", face="page")


def _fact(key: str, value: object) -> str:
    if value is None or value == []:
        return "–"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return size(value) if key.endswith("bytes") and isinstance(value, int) else str(value)


def who_is_late(
    collectives: Sequence[Collective],
    ranks: Sequence[RankTimes],
    straggler: Straggler | None,
    omissions: Sequence[Omission | Left],
) -> list[Text]:
    """The rank late because of its own work, if any; then all ranks' waits and transfers. Nothing without collectives."""
    if not collectives:
        return []
    blocks = [Text(_waited(collectives))]
    if any(row.arrive_seconds is not None for row in collectives):
        waited = sum(rank.waiting_seconds for rank in ranks)
        absent = sum(omission.count or 0 for omission in omissions if omission.id == "absent-ranks")
        late = statement(f"waits.{'absent' if absent else 'none-late'}", seconds=waited, count=absent)
        if straggler:
            late = _late(straggler, ranks, waited)
        blocks.insert(0, Text(text(late), "bold"))
    return blocks


def _late(straggler: Straggler, ranks: Sequence[RankTimes], waited: float) -> Words:
    """At how many collectives the rank is late, and its part of the waiting, which is most of it or not."""
    if straggler.causes_most(waited):
        evidence = statement("straggling-rank.evidence", **asdict(straggler))
        return sentences(evidence, statement("waits.of-all", seconds=waited))
    longest = max(ranks, key=lambda rank: rank.awaited_seconds)
    behind = longest.rank != straggler.rank and 2 * longest.awaited_seconds > waited
    shares = {"share": straggler.awaited_seconds / waited, "most_share": longest.awaited_seconds / waited}
    figures = asdict(straggler) | shares | {"seconds": waited, "most": longest.rank}
    if straggler.count == 1:
        return statement("waits.late-once", **figures)
    return statement(f"waits.late-often{'-behind' * behind}", **figures)


def communication_blocks(
    collectives: Sequence[Collective], ranks: Sequence[RankTimes], clocks: Sequence[Clock]
) -> list[Block]:
    """Tables and figures of the communication between ranks; none without collectives."""
    if not collectives:
        return []
    recordings = sum(rank.recording_wait_seconds for rank in ranks)
    note = "Arrive: waiting for the last rank. Transfer: the time after that. Last: the rank that is last most often."
    single = len({row.communicator for row in collectives}) == 1
    blocks: list[Block] = [
        table(
            collectives,
            f"Collectives and messages {f'of communicator {collectives[0].communicator}' if single else 'by communicator'} "
            "(recorded; sums over its ranks)",
            {
                **({} if single else {"communicator": "communicator"}),
                "kind": lambda row: (row.kind or "several").replace("_", "-"),
            },
            {
                "ranks": lambda row: "?" if row.ranks is None else count(row.ranks),
                "count": "count",
                "bytes": "bytes",
                "arrive": "arrive_seconds",
                "transfer": lambda row: time(
                    row.seconds if row.transfer_seconds is None else row.transfer_seconds
                ),
                "last": lambda row: (
                    "–" if row.last_rank is None else f"{row.last_rank} ({row.last[0].count} of {row.count})"
                ),
                "bus rate": "bus_bytes_per_second",
            },
            notes=[note, *([text(statement("waits.recordings", seconds=recordings))] if recordings else [])],
            most=MOST_RANKS,
            face="details",
        ),
        table(
            sorted(ranks, key=lambda rank: -rank.waiting_seconds),
            "Ranks by waiting time (recorded)",
            {"rank": lambda row: f"{row.rank}" + (f" on {row.host}" if row.host else "")},
            {
                "whole run": "makespan_seconds",
                "kernels": "kernels_seconds",
                "communication": "communication_seconds",
                "waiting": "waiting_seconds",
                "exposed communication": "exposed_transfer_seconds",
            },
            most=MOST_WAITING,
        ),
    ]
    if 1 < len(ranks) <= DRAWN_RANKS:
        series = []
        for name, (field, colour) in PARTS.items():
            parts = [(rank.rank, getattr(rank, field)) for rank in ranks]
            bars = [Bar(seconds, hover=f"rank {rank}: {time(seconds)} {name}") for rank, seconds in parts]
            series.append(BarSeries(name, colour, bars))
        bars_of = Bars([f"rank {rank.rank}" for rank in ranks], series, "of each rank's run", stacked=True)
        blocks.append(Figure("ranks", bars_of, "Where each rank's run goes"))
    tied = [clock.uncertainty_ns for clock in clocks if clock.uncertainty_ns is not None]
    if len(tied) > 1 and max(tied):
        most, rank = max((abs(clock.offset_ns), clock.rank) for clock in clocks)
        sentence = f"Clocks are aligned at the ends of collectives: shifted by up to {time(most * 1e-9)} (rank {rank}), "
        sentence += f"with an uncertainty of at most {time(max(tied) * 1e-9)}."
        blocks.append(Text(sentence, "dim", title="Clocks", face="details"))
    return blocks


def _waited(collectives: Sequence[Collective]) -> str:
    matched = [row for row in collectives if row.arrive_seconds is not None]
    wait = sum(row.arrive_seconds or 0.0 for row in matched)
    transfer = sum(row.transfer_seconds or 0.0 for row in matched)
    whole = wait + transfer
    if not matched or not whole:
        return "No collective has more than one of its ranks here: waiting between ranks is unknown."
    number = count(sum(row.count for row in matched))
    return (
        f"Collectives and messages between ranks ({number}) took {time(whole)}, summed over all ranks: "
        f"{time(wait)} ({percent(wait / whole)}) waiting for the last rank to arrive, and {time(transfer)} transferring."
    )
