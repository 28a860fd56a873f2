"""A result on a terminal, a line a run; and as a page, where an iteration's time goes [U11 figure 11]."""

from __future__ import annotations

import json
from html import escape
from math import log2
from typing import Any

Row = dict[str, Any]

LIMIT = "limit, predicted: what the link moves both ways or the kernels in GPU memory must at least, whichever takes longer"
#: Parts of an iteration, in the order they are stacked: words and colour; colours differ in lightness too.
PARTS = {
    "fft_1d": ("1D FFT", "#0072b2"),
    "fft_2d": ("2D FFT", "#56b4e9"),
    "kernels": ("kernels", "#0072b2"),
    "coarse_levels": ("coarse levels", "#56b4e9"),
    "outstanding_communication": ("outstanding communication", "#d55e00"),
    "waited_for_ghost_cells": ("waiting for ghost cells", "#d55e00"),
    "synchronous_local_copies": ("synchronous local copies", "#009e73"),
    "device_phases": ("transforms and copies, not told apart", "#009e73"),
    "copies": ("copies", "#009e73"),
    "barrier": ("barrier", "#cc79a7"),
    "rest": ("everything else", "#c8c8c8"),
}
WORDS = (
    "Measured by the programs themselves, on the hosts' clock (kernels and copies on the GPU's), every result compared "
    "with NAS's official values. Bars: the parts of an iteration, means over ranks and iterations of a run whose parts "
    "were timed. Diamonds: the median iteration of a run whose parts were not, for timing them takes a little time too. "
    "Red lines: the limit, predicted from rates and the fewest bytes that an iteration moves."
)
#: Of the lines of a scaling plot: colour-blind people tell them apart, and a mark stands on each point.
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
STYLE = (
    "body{font:15px system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:left}"
    "svg text{font-size:12px}.dim{color:#555}"
)


def plain(text: str) -> str:
    """`text` with nothing in it that a terminal would obey."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale or unit == "µs":
            return f"{value / scale:.3g} {unit}"
    raise AssertionError("the last unit takes all")


def rate(value: float) -> str:
    return f"{value / 1e12:.3g} TB/s" if value >= 1e12 else f"{value / 1e9:.3g} GB/s"


def heading(result: Row) -> str:
    """'NAS FT on NVIDIA H200, driver 580.159.04'."""
    name = result["schema"].removeprefix("busfare.bench-").partition("/")[0].upper()
    driver = f", driver {result['driver']}" if result["driver"] else ""
    return f"NAS {name} on " + (f"{result['gpu']}{driver}" if result["gpu"] else "processors, no GPU")


def named(run: Row) -> str:
    """'funneled, 4 ranks, slabs'; with the number of GPUs where it is not one."""
    ranks, gpus = _several(run["ranks"], "rank"), f"{run['gpus']} GPUs" if run["gpus"] > 1 else ""
    nodes = -(-run["ranks"] // (run["ranks_per_node"] or run["ranks"]))
    on_nodes = f"{nodes} nodes" if nodes > 1 else ""
    return ", ".join(part for part in (run["mode"], ranks, on_nodes, gpus, run["algorithm"]) if part)


def _several(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def variant(run: Row) -> str:
    """What the program was asked or chose beyond that: 'exchange device, fused off'."""
    words = {True: "on", False: "off"}
    pairs = run["variant"].items()
    return ", ".join(f"{key.replace('_', ' ')} {words[v] if isinstance(v, bool) else v}" for key, v in pairs)


HEAD = ("run", "class", "variant", "iteration", "limit", "by", "of it", "verified")


def cells(run: Row) -> tuple[str, ...]:
    """A run as the columns of HEAD."""
    limit = run["limit"]
    by = (
        (seconds(limit["predicted_seconds"]), limit["by"], f"{run['limit_share_percent']:.0f} %")
        if limit
        else ("–",) * 3
    )
    verified = {True: "yes", False: "NO", None: "not compared"}[run["verified"]]
    return (named(run), run["class"], variant(run), seconds(run["measured_iteration_seconds"]), *by, verified)


def sentences(result: Row) -> list[str]:
    """What the limits rest on, what is faster than what, and what was left out."""
    rates = result["rates"]
    on_gpu = any(run["gpus"] for run in result["runs"])
    why = "no rates were measured or given (--rates)" if on_gpu else "no run used a GPU"
    lines = [f"No limit is predicted: {why}."]
    if rates:
        link, memory = rate(rates["each_way_bytes_per_second"]), rate(rates["memory_bytes_per_second"])
        several = rates.get("all_gpus")
        if several:
            link += (
                f" (of each of {several['gpus']} GPUs at once {rate(several['each_way_bytes_per_second'])})"
            )
        lines = [f"{LIMIT}; {link} each way, {memory} of memory ({rates['source']})."]
    measured = [
        link_rate for run in result["runs"] for link_rate in run.get("measured_link_bytes_per_second") or ()
    ]
    if measured:
        lines.append(
            f"Beside the runs the link gave {rate(min(measured))} to {rate(max(measured))} each way; each run's limit "
            "rests on what was measured just before and after it."
        )
    for gain in result["gains"]:
        gpus = f", {gain['gpus']} GPUs" if gain["gpus"] > 1 else ""
        lines.append(
            f"class {gain['class']}, {_several(gain['ranks'], 'rank')}{gpus}: {gain['way']} "
            f"{gain['measured_times_as_fast']:.2f} times as fast as {gain['over']} (measured)"
        )
    lines += checksums(result["runs"])
    if not result["all_verified"]:
        lines.append("NOT VERIFIED: a run missed the official values")
    return lines + [f"left out: {row['case']}: {row['why']}" for row in result["left_out"]]


def checksums(runs: list[Row]) -> list[str]:
    """For each class what NAS compares, of its first run, and the largest error of all runs; older results have none."""
    lines = []
    for size in dict.fromkeys(run["class"] for run in runs):
        alike = [run for run in runs if run["class"] == size]
        errors = [run["error"] for run in alike if run["error"] is not None]
        error = f"; largest relative error {max(errors):.1e}" if errors else ""
        sums, norm = alike[0].get("checksums"), alike[0].get("norm")
        if sums:
            real, imaginary = sums[-1]
            lines.append(f"class {size}: checksum {len(sums)} is {real:.12e}, {imaginary:.12e}{error}")
        elif norm is not None:
            lines.append(f"class {size}: norm {norm:.13e}{error}")
    return lines


def text(result: Row) -> str:
    """The result for a terminal."""
    rows = [HEAD, *(cells(run) for run in result["runs"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([heading(result), "", *lines, "", *sentences(result)])


def page(result: Row) -> str:
    """The result as one file of HTML, with a drawing a class."""
    title = escape(heading(result))
    head = "".join(f"<th>{name}</th>" for name in HEAD)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells(run)) + "</tr>"
        for run in result["runs"]
    )
    body = [
        f"<h1>{title}</h1><p class=dim>{escape(str(result['date']))} · {escape(str(result['command']))}</p>"
    ]
    body += [
        f"<table><tr>{head}</tr>{rows}</table>",
        *(f"<p>{escape(line)}</p>" for line in sentences(result)),
    ]
    for size in dict.fromkeys(run["class"] for run in result["runs"]):
        body.append(f"<h2>Class {escape(size)}: where an iteration's time goes</h2>")
        body.append(_drawing([run for run in result["runs"] if run["class"] == size]))
        body.append(_scaling(size, [run for run in result["runs"] if run["class"] == size]))
    facts = escape(json.dumps(result["facts"], ensure_ascii=False))
    body.append(f"<p class=dim>{WORDS}</p><p class=dim>{facts}</p>")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
        f"<body>{''.join(body)}</body></html>\n"
    )


def _drawing(runs: list[Row]) -> str:
    """A bar a run, its parts stacked; the limit a line across it, the median iteration a diamond."""
    label_width, bar_width, step, bar = 330, 560, 34, 20
    limits = [run["limit"]["predicted_seconds"] if run["limit"] else 0.0 for run in runs]
    sums = [sum(run["measured_parts_seconds"].values()) for run in runs]
    most = max(*sums, *limits, *(run["measured_iteration_seconds"] for run in runs)) or 1.0
    drawn = []

    def x(value: float) -> float:
        return label_width + bar_width * value / most

    for number, (run, limit) in enumerate(zip(runs, limits, strict=True)):
        y, at = number * step + 8, 0.0
        label = ", ".join(part for part in (named(run), variant(run)) if part)
        drawn.append(
            f'<text x="{label_width - 8}" y="{y + 15}" text-anchor="end">{escape(label[:60])}</text>'
        )
        for part, (words, colour) in PARTS.items():
            took = run["measured_parts_seconds"].get(part, 0.0)
            drawn.append(
                f'<rect x="{x(at):.1f}" y="{y}" width="{x(took) - label_width:.1f}" height="{bar}" fill="{colour}">'
                f"<title>{words}: {seconds(took)}, measured</title></rect>"
            )
            at += took
        if limit:
            drawn.append(
                f'<line x1="{x(limit):.1f}" x2="{x(limit):.1f}" y1="{y - 4}" y2="{y + bar + 4}" stroke="#d00000" '
                f'stroke-width="3"><title>limit, predicted: {seconds(limit)}</title></line>'
            )
        median = run["measured_iteration_seconds"]
        drawn.append(
            f'<path d="M{x(median):.1f} {y + 4}l5 6l-5 6l-5 -6z"><title>median iteration, measured: {seconds(median)}'
            "</title></path>"
        )
    used = [part for part in PARTS if any(run["measured_parts_seconds"].get(part) for run in runs)]
    key = "".join(f'<span style="color:{PARTS[part][1]}">■</span> {PARTS[part][0]} &nbsp; ' for part in used)
    height, width = len(runs) * step + 12, label_width + bar_width + 20
    return f'<p>{key}</p><svg width="{width}" height="{height}" role="img">{"".join(drawn)}</svg>'


def _scaling(size: str, runs: list[Row]) -> str:
    """Strong scaling [U11 figures 10, 12]: the median iteration by the number of ranks, a line for each mode and order.

    Both axes are logarithmic. Dashed where ranks bring processors or GPUs of their own: half the time for twice the ranks.
    Empty where no line has two points.
    """
    lines: dict[str, dict[int, float]] = {}
    for run in runs:
        name = ", ".join(part for part in (run["mode"], run["algorithm"]) if part)
        ranks, took = run["ranks"], run["measured_iteration_seconds"]
        points = lines.setdefault(name, {})
        points[ranks] = min(took, points.get(ranks, took))
    if all(len(points) < 2 for points in lines.values()):
        return ""
    at = [(ranks, took) for points in lines.values() for ranks, took in points.items()]
    ranks_from, ranks_to = log2(min(ranks for ranks, _ in at)), log2(max(ranks for ranks, _ in at))
    low, high = log2(min(took for _, took in at)) - 0.2, log2(max(took for _, took in at)) + 0.2
    left, top, width, height = 90, 14, 480, 300

    def place(ranks: float, took: float) -> tuple[float, float]:
        across = (log2(ranks) - ranks_from) / (ranks_to - ranks_from)
        return left + width * across, top + height * (high - log2(took)) / (high - low)

    bottom = top + height
    drawn = [
        f'<clipPath id="plot-{escape(size)}"><rect x="{left}" y="{top}" width="{width}" height="{height}"/></clipPath>'
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#999"/>'
        f'<text x="{left + width / 2}" y="{bottom + 34}" text-anchor="middle">ranks</text>'
    ]
    for ranks in sorted({ranks for ranks, _ in at}):
        x, _ = place(ranks, at[0][1])
        drawn.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{ranks}</text>')
    for tick in (2.0**low, 2.0 ** ((low + high) / 2), 2.0**high):
        _, y = place(at[0][0], tick)
        drawn.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{seconds(tick)}</text>')
    for number, (name, points) in enumerate(lines.items()):
        colour, row = LINES[number % len(LINES)], top + 14 + 18 * number
        first, last = min(points), max(points)
        ideal = [place(first, points[first]), place(last, points[first] * first / last)]
        if name.startswith(("cpu", "single")):
            clip = f"url(#plot-{escape(size)})"
            drawn.append(_line(ideal, colour, f' stroke-dasharray="3 4" clip-path="{clip}"'))
        drawn.append(
            _line([place(ranks, points[ranks]) for ranks in sorted(points)], colour, ' stroke-width="2"')
        )
        for ranks, took in points.items():
            x, y = place(ranks, took)
            drawn.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{escape(name)}, '
                f"{_several(ranks, 'rank')}: {seconds(took)}, measured</title></circle>"
            )
        drawn.append(
            f'<text x="{left + width + 14}" y="{row}"><tspan fill="{colour}">●</tspan> {escape(name)}</text>'
        )
    return (
        f"<h2>Class {escape(size)}: scaling</h2><p>Median iteration, measured. "
        f"Dashed: half the time for twice the ranks.</p>"
        f'<svg width="{left + width + 200}" height="{bottom + 44}" role="img">{"".join(drawn)}</svg>'
    )


def _line(points: list[tuple[float, float]], colour: str, style: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}"{style}/>'
