"""The document of a probe: the node's parameters beside what was measured, and what is wrong with the machine."""

from collections import Counter
from collections.abc import Sequence

from busfare.advise.amounts import percent, rate, several, signed_percent, size, time
from busfare.answers.measure import ProbeResult, ResidualCase
from busfare.nodes import CollectiveCurve, Contention, Cost, Curve, Kernels
from busfare.show.blocks import machine
from busfare.show.document import Block, Cells, Document, Figure, Table, Text, numbers, table, words
from busfare.show.svg import COLOUR, COLOURS, Line, Lines

PROBED = (
    "Measured: the interquartile mean of raw samples, by the device clock (pageable copies: host clock). Predicted: "
    "from the parameters of the node file, on sizes not used for the fit."
)


def probe_document(result: ProbeResult) -> Document:
    """The node's parameters, their residuals, and what is wrong with the machine."""
    node = result.node
    played = (
        f"VIRTUAL: {result.facts.get('plays')} is simulated; nothing was measured. " if result.virtual else ""
    )
    tables = (
        _paths(node.curves),
        _shares(node.contentions),
        _costs(node.costs),
        _kernels(node.kernels),
        _collectives(node.collectives),
    )
    blocks: list[Block] = [table for table in tables if table.rows]
    for n, h in enumerate(result.health):
        measured, due = h.measured_bytes_per_second, h.predicted_bytes_per_second
        rates = f"{rate(measured)} of {rate(due)} by the data sheet ({percent(measured / due)})"
        sentence = f"GPU {h.gpu} {h.direction}: {rates}: {h.verdict or 'sound'}"
        blocks.append(Text(sentence, title="Is it sound?" if not n else ""))
    for name, errors in (("pinned", result.residuals), ("pageable", result.residuals.pageable)):
        if errors.count and errors.median_percent is not None:
            cases = several(errors.count, f"{name} case")
            figures = f"median {percent(errors.median_percent / 100)}, largest {percent((errors.max_percent or 0) / 100)}"
            blocks.append(Text(f"Residuals on {cases}, not used for the fit: {figures}"))
    blocks += [Text(f"DISTURBED: {sentence}", "bold") for sentence in result.disturbances]
    reasons = Counter(row.why for row in result.left_out)
    blocks += [Text(f"left out, {several(count, 'case')}: {why}") for why, count in reasons.items()]
    blocks += [*_figures(result), machine(result.facts)]
    return Document(f"busfare probe: {node.name}", played + node.title, "", blocks, PROBED)


def _paths(curves: Sequence[Curve]) -> Table:
    rows = [
        (
            str(c.gpu or 0),
            f"{c.direction} {c.memory}"
            + (f" → GPU {c.peer}" if c.peer is not None else "")
            + (" by page faults" if c.faults else ""),
            time(c.latency_overhead_s[0]),
            time(c.issue_interval_s[1]) if 1 in c.issue_interval_s else "–",
            rate(1 / c.long_gap_per_byte_s),
            str(len(c.gap_per_byte_s)),
        )
        for c in curves
    ]
    return Table(words("GPU", "path") + numbers("L+o", "g", "large copies", "pieces"), rows)


def _shares(contention: Sequence[Contention]) -> Table:
    """What each direction keeps of its own rate."""
    rows = [
        (str(c.gpu or 0), situation, percent(shares.h2d, 0), percent(shares.d2h, 0))
        for c in contention
        for situation, shares in (
            ("copies go both ways", c.both),
            ("copies, while a kernel uses mapped memory the other way", c.copy_beside_mapped),
            ("chunks of many streams go both ways", c.across_streams and c.in_many_streams().both),
            ("a kernel reads and writes mapped memory", c.mapped_both),
            ("such a kernel, while copies go the other way", c.mapped_beside_copy),
        )
        if shares
    ]
    return Table(words("GPU", "share of its rate, while") + numbers("into the GPU", "out of it"), rows)


def _costs(costs: Sequence[Cost]) -> Table:
    figures: Cells[Cost] = {
        "on the host": lambda c: time(c.call_s),
        "per MiB": lambda c: "–" if c.call_per_byte_s is None else time(c.call_per_byte_s * 2**20),
        "on the GPU": lambda c: "–" if c.device_s is None else time(c.device_s),
        "copies wait, per MiB": lambda c: time(c.wait_per_byte_s * 2**20) if c.wait_per_byte_s else "–",
    }
    return table(costs, "", {"GPU": "gpu", "call": "call"}, figures)


def _collectives(curves: Sequence[CollectiveCurve]) -> Table:
    rows = [
        (curve.kind, str(curve.ranks), time(curve.latency_overhead_s[0]), rate(1 / curve.long_gap_per_byte_s))
        for curve in curves
    ]
    return Table(words("collective") + numbers("GPUs", "start", "rate of large ones"), rows)


def _kernels(kernels: Sequence[Kernels]) -> Table:
    """What kernels reach: seconds, bytes and operations a second."""
    rows: list[tuple[str, str, str]] = []
    for section in kernels:
        gpu = str(section.gpu or 0)
        for name, seconds in (
            ("an empty kernel", section.launch_s),
            ("interval between launches", section.launch_interval_s),
        ):
            rows += [(gpu, name, time(seconds))] if seconds is not None else []
        streams = [*section.memory_bytes_per_s.items(), ("read of L2", section.l2_bytes_per_s)]
        rows += [(gpu, f"stream: {name}", rate(value)) for name, value in streams if value]
        rows += [(gpu, name, f"{value / 1e12:.4g} TFLOP/s") for name, value in section.flops_per_s.items()]
        for g in section.gemm:
            sides = f"{g.m} × {g.n} × {g.k}"
            name = f"GEMM {g.type} {sides if g.batch == 1 else f'{g.batch} × ({sides})'}"
            rows.append((gpu, name, f"{time(g.seconds)}, {g.flops / g.seconds / 1e12:.4g} TFLOP/s"))
        rows += [
            (gpu, f"pass: {p.kind}, {size(p.bytes)}", f"{time(p.seconds)}, {rate(p.bytes / p.seconds)}")
            for p in section.passes
        ]
    return Table(words("GPU", "kernels") + numbers("reach"), rows)


def _figures(result: ProbeResult) -> list[Figure]:
    """Bandwidth and time of one copy against its size, and the residuals."""
    curves: dict[tuple[int, str, str], list[tuple[int, float]]] = {}
    for case in sorted(result.cases, key=lambda c: c.bytes):
        seconds = case.api_seconds if case.memory == "pageable" else case.device_seconds
        if case.mode in ("copies", "kernel") and case.count == 1 and case.direction != "p2p" and seconds:
            curves.setdefault((case.gpu, case.direction, case.memory), []).append((case.bytes, seconds))
    kinds = sorted({(gpu, memory) for gpu, _, memory in curves})
    figures = []
    for name, title in (("bandwidth", "Bandwidth of one copy"), ("latency", "Time of one copy")):
        lines = [
            Line(
                f"GPU {gpu} {direction} {memory}",
                COLOURS[kinds.index((gpu, memory)) % len(COLOURS)],
                [bytes_ for bytes_, _ in points],
                [bytes_ / seconds if name == "bandwidth" else seconds for bytes_, seconds in points],
                hollow=direction == "d2h",
            )
            for (gpu, direction, memory), points in sorted(curves.items())
        ]
        unit = "B/s" if name == "bandwidth" else "s"
        chart = Lines(lines, "bytes of the copy", "measured; circles: to the host", "B", unit)
        figures.append(Figure(name, chart, title))
    return [*figures, *_residuals(result.residual_cases)]


def _residuals(cases: Sequence[ResidualCase]) -> list[Figure]:
    if not cases:
        return []
    measured = [c.measured_seconds for c in cases]
    errors = [100 * (c.predicted_seconds / c.measured_seconds - 1) for c in cases]
    hovers = [f"{c.case}: {signed_percent(error / 100, 2)}" for c, error in zip(cases, errors, strict=True)]
    line = Line("error", COLOUR["copies"], measured, errors, apart=True, hovers=hovers)
    chart = Lines([line], "measured time", "error, %", "s", "%", y_log=False)
    return [Figure("residuals", chart, "Predicted over measured, on sizes not used for the fit")]
