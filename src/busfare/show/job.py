"""The document of `report` on many traces, and its figures: ranks relative to the median, and the health of their links."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from operator import itemgetter
from os.path import commonpath
from pathlib import PurePath

from busfare.advise.amounts import count, percent, rate, ratio, several, size, time
from busfare.advise.jobs import TOGETHER, JobFinding
from busfare.answers.job import JobReport
from busfare.jobs.model import JobTimeline
from busfare.jobs.reduce import NS, SOUND, Called, Outlier, Ranked, Slow, Spreading
from busfare.show.blocks import (
    communication_blocks,
    likely,
    may_be_nothing,
    omitted,
    paths,
    sizes,
    what_to_do,
    who_is_late,
)
from busfare.show.document import Block, Cells, Document, Figure, Items, Text, Tiles, amount, table
from busfare.show.job_pictures import heat_map
from busfare.show.svg import COLOUR, Bar, Bars, BarSeries
from busfare.show.time_line_rows import job_time_line
from busfare.show.words import text as worded_text
from busfare.show.words import worded
from busfare.statements import statement

Name = Callable[[Called], str]
#: What the figures are called.
WORDS = {
    "makespan_seconds": "whole run", "kernel_seconds": "kernels", "communication_seconds": "communication",
    "transfer_seconds": "transfers", "exposed_seconds": "exposed transfers", "transfer_bytes": "bytes moved",
}  # fmt: skip
#: Figures whose outermost traces are drawn.
DRAWN = ("makespan_seconds", "exposed_seconds")
MOST = 10
#: Omissions by which the traces are not all ranks of one job, and those that the report begins with.
APART = ("separate-runs", "unrelated-traces")
FIRST = (*APART, "missing-ranks", "incomplete-traces")
#: Of a page's cards, and the least share of the ranks' time of most of them.
MOST_CARDS, WORTH_SAYING = 5, 0.01
EXPLAINED = (
    "Recorded: read from the traces. Predicted: by a cost model. Exposed: a transfer runs and no kernel computes. "
    "Sums are over all traces; medians and quartiles are within half a percent."
)


def job_document(
    result: JobReport, together: JobTimeline | None = None, figures: Sequence[tuple[Ranked, list[int]]] = ()
) -> Document:
    """The report. `together`: the job to draw. `figures`: of each trace (`Job.figures`)."""
    result = worded(result)
    traces, health = result.traces, result.link_health
    facts = [
        ", ".join(f"{number:,} {name}" for name, number in traces.formats.items()),
        several(result.hosts, "host") if result.hosts else "hosts not named",
        several(result.ranks_seen, "rank") if result.ranks_seen else "ranks not named",
        ", ".join(gpu.name for gpu in result.gpus[:3]) or "GPU not named",
    ]
    blocks: list[Block] = []
    apart = any(o.id in APART for o in result.omissions)
    files = sorted(figures, key=lambda row: row[0].path) if apart else []
    name = _names(result, [trace for trace, _ in files])
    whose = (
        "of the whole job, with all ranks replayed together"
        if result.gains_of_whole_job
        else "each in the trace with the largest gain"
    )

    def where(finding: JobFinding) -> str:
        return "" if finding.id in TOGETHER else f"Most in {name(finding.largest)}: "

    alone = {} if result.gains_of_whole_job else {of.path: values[0] * NS for of, values in figures}
    findings = what_to_do(result, lambda finding: _gain(finding, result, alone), whose, where=where)
    if traces.failed:
        blocks.append(Text(f"{several(traces.failed, 'file')} could not be read (listed below)", "bold"))
    details = [*_spreads(result.spread, name), *_health(result)]
    if result.by_path:
        details.append(paths(result.by_path, "Transfers of all traces by path", MOST))
        details.append(sizes(result.size_histogram))
    details += omitted(result.omissions, "Limits of this report")
    late = who_is_late(result.collectives, result.ranks, result.straggler, result.omissions)
    lines = (
        [Text("These traces are not ranks of one job."), *late]
        if apart
        else [*late, Text(_shares(result, name))]
    )
    headline, _, rest = " ".join(line.text for line in lines).partition(". ")
    blocks += [Text(f"{headline}.", "verdict", face="page"), Text(rest, face="page")]
    blocks += [replace(line, face="terminal") for line in lines]
    pictures: list[Block] = []
    if together:
        pictures.append(Figure("waits", heat_map(together, result.ranks), "When ranks wait for each other"))
        pictures.append(Figure("timeline", job_time_line(together, result.findings), "The ranks' timelines"))
    slow = [_slow_link(link, name) for link in health.slow]
    blocks += [
        *([Items(slow, "Slow links", most=MOST)] if slow else []),
        *pictures[:1],
        findings,
        _cards(result, name),
        *pictures[1:],
        *communication_blocks(result.collectives, result.ranks, result.clocks),
        *(replace(block, face="details" if block.face == "both" else "folded") for block in details),
    ]
    if result.failures:
        failures = [f"{failure.path}: {failure.why}" for failure in result.failures]
        blocks.append(Items(failures, "Files that could not be read", most=MOST))
    read = several(traces.read, "trace")
    folder = [commonpath([PurePath(rank.path).parent for rank in result.ranks])] if result.ranks else []
    if apart:  # what each is made of, by its own run
        rows = [(name(of), *(time(value * NS) for value in values[:-1])) for of, values in files]
        columns = {title: itemgetter(at) for at, title in enumerate(WORDS.values(), 1) if at < len(WORDS)}
        blocks.insert(0, table(rows, "Files (recorded)", {"file": itemgetter(0)}, columns, most=MOST))
    blocks[:0] = [Text(f"{count(o.count)} {o.what}.", "bold") for o in result.omissions if o.id in FIRST]
    of = "of separate runs" if apart else "of a job"
    return Document(f"busfare: {read}", f"{read} {of}", " · ".join(facts), blocks, EXPLAINED, folder)


def _shares(result: JobReport, name: Name) -> str:
    """What all runs together are made of, and the longest of them."""
    moved, whole = result.transfers, result.makespan_seconds.sum or 1.0
    shares = {
        "kernels": result.kernels.seconds / whole,
        "communication": result.communication.seconds / whole,
        "transfers": moved.seconds / whole,
        "exposed": moved.exposed_seconds / whole,
    }
    longest = {"seconds": result.slowest.value, "bytes": moved.bytes}
    return worded_text(statement("verdict.job", longest=name(result.slowest), **shares, **longest))


def _names(result: JobReport, traces: Sequence[Called]) -> Name:
    """The names of the shown traces: the part of the path that distinguishes them."""
    some: list[Called] = [result.slowest, *traces, *(finding.largest for finding in result.findings)]
    some += [r for row in result.spread for r in (*row.largest, *row.smallest, *row.outliers.listed)]
    parts = {trace.path: PurePath(trace.path).parts for trace in (*some, *result.link_health.slow)}
    spare = min(map(len, parts.values())) - 1
    front = _alike(parts.values(), spare)
    # A single trace needs only the name of its file.
    back = _alike([names[::-1] for names in parts.values()], spare - front) if len(parts) > 1 else 0
    short = {path: "/".join(names[front : len(names) - back]) for path, names in parts.items()}
    return lambda trace: trace.called(short[trace.path])


def _alike(paths: Iterable[Sequence[str]], most: int) -> int:
    """The number of parts that all paths begin with, at most `most`."""
    alike = (len(set(column)) == 1 for column in islice(zip(*paths, strict=False), most))
    return sum(takewhile(bool, alike))


def _cards(result: JobReport, name: Name) -> Tiles:
    """What matters in this job: its slowest trace, then what takes at least 1 % of the ranks' time, and slow links."""
    moved, health, late = result.transfers, result.link_health, result.straggler
    whole = result.makespan_seconds.sum or 1.0
    waits = sum(rank.waiting_seconds for rank in result.ranks)
    exposed = sum(rank.exposed_transfer_seconds for rank in result.ranks)
    parts = (
        (waits, "the ranks wait for each other"),
        (exposed, "they transfer, and no kernel computes"),
        (moved.exposed_seconds, f"exposed transfers of {size(moved.bytes)} between host and GPU"),
    )
    cards = [(time(result.slowest.value), f"slowest: {name(result.slowest)}")]
    cards += (
        [(f"rank {late.rank}", f"arrives last at {late.count:,} of {several(late.of, 'collective')}")]
        if late
        else []
    )
    cards += [
        (percent(seconds / whole), f"of the ranks' time: {what} ({time(seconds)})")
        for seconds, what in parts
        if seconds >= WORTH_SAYING * whole
    ]
    if health.slow:
        cards.append(
            (f"{len(health.slow):,}", f"slow links of {sum(group.links for group in health.groups):,}")
        )
    return Tiles(cards[:MOST_CARDS])


def _spreads(spreads: Sequence[Spreading], name: Name) -> list[Block]:
    shown = [row for row in spreads if row.most or row.figure != "communication_seconds"]
    figures: Cells[Spreading] = {
        key: lambda row, key=key: amount(getattr(row, key), row.figure)
        for key in ("least", "median", "p95", "most", "mean")
    } | {"outliers": "outliers.count"}
    blocks: list[Block] = [
        table(shown, "Spread over the traces", {"recorded": lambda row: WORDS[row.figure]}, figures)
    ]
    for row in shown:
        what = WORDS[row.figure]
        if row.outliers.listed and row.outliers.above is not None:
            most: Cells[Outlier] = {what: lambda o, key=row.figure: amount(o.value, key)} | {
                "of the median": lambda o: ratio(o.of_median)
            }
            title = f"Outliers by {what} (above {amount(row.outliers.above, row.figure)})"
            blocks.append(table(row.outliers.listed, title, {"trace": name}, most, most=MOST))
        if row.figure in DRAWN and row.most:
            blocks.append(_largest(row, what, name))
    return blocks


def _largest(row: Spreading, what: str, name: Name) -> Figure:
    """The traces with the largest values of a figure."""
    largest = [Bar(r.value, amount(r.value, row.figure), hover=r.path) for r in row.largest]
    named = Bars(
        [name(r) for r in row.largest],
        [BarSeries(what, COLOUR["copies" if row.figure == "exposed_seconds" else "whole run"], largest)],
        f"{what}; dotted: median",
        "B" if row.figure.endswith("bytes") else "s",
        mark=row.median,
    )
    return Figure(f"largest-{row.figure}", named, f"Largest values: {what}")


def _health(result: JobReport) -> list[Block]:
    health = result.link_health
    if not health.groups:
        return [Text("Link health: unknown, because there is no large pinned copy (16 MiB or more).", "dim")]
    sound = f"Every link reaches {percent(SOUND)} of its peers' median and of the data sheet."
    groups = table(
        health.groups,
        "Link health: best rate of large pinned copies on each link",
        {"GPU": lambda group: group.gpu or "not named", "direction": "direction"},
        {
            "links": "links",
            "slowest": "least_bytes_per_second",
            "median": "median_bytes_per_second",
            "fastest": "most_bytes_per_second",
            "data sheet": "data_sheet_bytes_per_second",
        },
        notes=[] if health.slow else [sound],
    )
    return [groups]


def _slow_link(link: Slow, name: Name) -> str:
    """'GPU 3 of rank 3 on b12, h2d: 12 GB/s, 50 % of the median of this link and its 31 peers, 23 % of the data sheet'."""
    to = "" if link.peer_device is None else f" to GPU {link.peer_device}"
    sentence = f"GPU {link.device}{to} of {name(link)}, {link.direction}: {rate(link.bytes_per_second)}"
    if link.share_of_peers is not None:
        sentence += f", {percent(link.share_of_peers)} of the median of this link and its {several(link.peers, 'peer')}"
    if link.share_of_data_sheet is not None:
        sentence += f", {percent(link.share_of_data_sheet)} of the data sheet"
    return sentence


def _gain(finding: JobFinding, result: JobReport, alone: dict[str, float]) -> str:
    """'about 1.2 s (30 %), likely 1–1.4 s; in 17 traces': the job's gain, or a trace's `alone`: its run, s, by path."""
    seconds = finding.predicted_gain_seconds
    run = alone.get(finding.largest.path, result.makespan_seconds.most)
    about = "about" if finding.largest.by_replay else "up to"
    share = f" ({percent(seconds / run)})" if run else ""
    nothing = may_be_nothing(finding)
    return (
        f"{about} {time(seconds)}{share}{nothing or likely(finding)}; in {several(finding.traces, 'trace')}"
    )
