"""Results of `bench` as SVG for the guide: `python validation/bench.py --plots docs` writes them from results/bench/.

Bars and solid lines were measured, ticks and dashed lines predicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

__all__ = ["draw"]

#: Colours that the colour-blind tell apart, and dash patterns beside them.
COLOURS = {
    "explicit": "#8c8c8c", "mapped": "#e69f00", "streams": "#0072b2", "three-streams": "#56b4e9", "hybrid": "#cc79a7",
    "pageable": "#8c8c8c", "pinned": "#0072b2", "managed": "#d55e00", "managed-prefetch": "#e69f00",
    "zero-copy": "#009e73", "registered": "#56b4e9", "batched": "#cc79a7",
}  # fmt: skip
STRATEGIES = ("explicit", "mapped", "streams", "three-streams", "hybrid")
#: Registered and batched memory lie on pinned memory's line.
METHODS = ("pageable", "pinned", "managed", "managed-prefetch", "zero-copy")
PANEL = (270, 190)
#: Left, top, right and bottom of a panel, around what is drawn.
EDGE = (46, 30, 10, 34)


def draw(result: dict[str, Any], path: Path, folder: Path) -> Path:
    """Writes the picture of one result into `folder`, named after its file. Raises OSError where it cannot."""
    written = folder / f"bench-{path.stem}.svg"
    picture = _strategies if "strategies" in result["schema"] else _methods
    written.write_text(picture(result), encoding="utf-8")
    return written


def _strategies(result: dict[str, Any]) -> str:
    """A panel a cell: each strategy at its fastest, over the slower of link and kernel."""
    panels = []
    for cell in result["cells"]:
        limit = max(cell["measured_link_seconds"], cell["measured_kernel_seconds"])
        best = []
        for name in STRATEGIES:
            own = [v for v in cell["versions"] if v["strategy"] == name]
            if own:
                best.append(min(own, key=lambda v: float(v["measured_seconds"])))
        panels.append(_bars(cell["name"], best, limit))
    return _page(panels, f"{_said(result)}: time over the limit", STRATEGIES, 3)


def _bars(title: str, best: Sequence[dict[str, Any]], limit: float) -> str:
    width, height = _inner()
    shares = [v["measured_seconds"] / limit for v in best]
    due = [None if v["predicted_seconds"] is None else v["predicted_seconds"] / limit for v in best]
    top = max(1.0, *shares, *(share for share in due if share)) * 1.08
    drawn = [_title(title), _across(height * (1 - 1 / top), "the limit")]
    step = width / max(len(best), 1)
    for n, (version, share, planned) in enumerate(zip(best, shares, due, strict=True)):
        left, tall = EDGE[0] + (n + 0.15) * step, height * share / top
        drawn.append(
            f'<rect x="{left:.1f}" y="{EDGE[1] + height - tall:.1f}" width="{0.7 * step:.1f}" height="{tall:.1f}" '
            f'fill="{COLOURS[version["strategy"]]}"/>'
        )
        label = f"{share:.2f}" if version["streams"] == 1 else f"{share:.2f} ({version['streams']})"
        drawn.append(_text(left + 0.35 * step, EDGE[1] + height + 14, label, "middle", 10))
        if planned is not None:
            at = EDGE[1] + height * (1 - planned / top)
            drawn.append(
                f'<path d="M{left - 0.1 * step:.1f} {at:.1f}h{0.9 * step:.1f}" stroke="black" stroke-width="2"/>'
            )
    return "".join(drawn)


def _methods(result: dict[str, Any]) -> str:
    """Copies and kernel over the size, once and fifty times; then over the accesses."""
    panels = []
    for accesses in (1, 50):
        cells = [c for c in result["cells"] if c["accesses"] == accesses]
        lines = {name: _points(cells, name, "bytes") for name in METHODS}
        said = f"{accesses} access{'es' * (accesses > 1)} an element"
        panels.append(_lines(f"{said}: ms over MB", lines, 1e-6))
    crossing = result["crossover"]
    if crossing is not None:
        cells = [c for c in result["cells"] if c["elements"] == crossing["elements"]]
        lines = {name: _points(cells, name, "accesses") for name in ("pinned", "zero-copy")}
        panels.append(_lines(f"{crossing['elements']:,} ints: ms over accesses", lines, 1.0))
    return _page(panels, f"{_said(result)}: copies and kernel", METHODS, 3)


def _points(
    cells: Iterable[dict[str, Any]], method: str, key: str
) -> list[tuple[float, float, float | None]]:
    """Sizes or accesses, seconds measured, and seconds predicted."""
    found = [
        (float(cell[key]), float(m["measured_gpu_seconds"]), m["predicted_gpu_seconds"])
        for cell in cells
        for m in cell["methods"]
        if m["method"] == method and m["measured_gpu_seconds"] > 0
    ]
    return sorted(found)


def _lines(title: str, lines: dict[str, list[tuple[float, float, float | None]]], unit: float) -> str:
    """Both axes logarithmic; `unit` is what a step along x is worth on its labels."""
    points = [point for own in lines.values() for point in own]
    if not points:
        return _title(title)
    width, height = _inner()
    left, right = log10(min(p[0] for p in points)), log10(max(p[0] for p in points))
    seconds = [s for p in points for s in p[1:] if s]
    low, high = floor(log10(min(seconds))), ceil(log10(max(seconds)))

    def place(x: float, y: float) -> str:
        across = (log10(x) - left) / max(right - left, 1e-9)
        up = (log10(y) - low) / max(high - low, 1e-9)
        return f"{EDGE[0] + width * across:.1f},{EDGE[1] + height * (1 - up):.1f}"

    drawn = [_title(title)]
    for power in range(low, high + 1):
        up = (power - low) / max(high - low, 1e-9)
        drawn.append(_across(height * (1 - up), f"{10 ** (power + 3):g}"))
    for x in (min(p[0] for p in points), max(p[0] for p in points)):
        across, _, _ = place(x, 10.0**low).partition(",")
        drawn.append(_text(float(across), EDGE[1] + height + 14, f"{x * unit:,.0f}", "middle", 10))
    for name, own in lines.items():
        colour = COLOURS[name]
        solid = " ".join(place(x, y) for x, y, _ in own)
        dashed = " ".join(place(x, y) for x, _, y in own if y)
        drawn.append(f'<polyline points="{solid}" fill="none" stroke="{colour}" stroke-width="2"/>')
        drawn.append(f'<polyline points="{dashed}" fill="none" stroke="{colour}" stroke-dasharray="4 3"/>')
    return "".join(drawn)


def _said(result: dict[str, Any]) -> str:
    played = "VIRTUAL, nothing measured: " if result["virtual"] else ""
    return f"{played}{result['gpu']}, {result['date'][:10]}"


def _inner() -> tuple[float, float]:
    return PANEL[0] - EDGE[0] - EDGE[2], PANEL[1] - EDGE[1] - EDGE[3]


def _title(text: str) -> str:
    return _text(PANEL[0] / 2, 18, text, "middle", 12)


def _text(x: float, y: float, text: str, anchor: str, size: int) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _across(at: float, label: str) -> str:
    """A line across the panel, `at` below the top of what is drawn."""
    y = EDGE[1] + at
    line = f'<path d="M{EDGE[0]} {y:.1f}H{PANEL[0] - EDGE[2]}" stroke="#bbb"/>'
    return line + _text(EDGE[0] - 4, y + 4, label, "end", 9)


def _page(panels: Sequence[str], title: str, names: Sequence[str], columns: int) -> str:
    """Panels in rows under a title and a legend."""
    rows = -(-len(panels) // columns)
    width, height = columns * PANEL[0], 60 + rows * PANEL[1]
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(width / 2, 20, title, "middle", 14),
    ]
    for n, name in enumerate(names):
        at = 20 + n * 125
        drawn.append(f'<rect x="{at}" y="36" width="12" height="12" fill="{COLOURS[name]}"/>')
        drawn.append(_text(at + 18, 46, name, "start", 11))
    drawn.append(_text(20 + len(names) * 125, 46, "black or dashed: predicted", "start", 11))
    for n, panel in enumerate(panels):
        x, y = n % columns * PANEL[0], 60 + n // columns * PANEL[1]
        drawn.append(f'<g transform="translate({x} {y})">{panel}</g>')
    return "\n".join([*drawn, "</svg>\n"])
