"""Charts as SVG: bars and lines. Recorded or measured: solid; predicted: hatched or dashed. Colours differ in lightness."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from busfare.advise import amounts
from busfare.printable import printable

#: Of lines and bars that a legend tells apart. After Okabe and Ito: distinct to those who see no red or no green.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c")
#: What each colour means wherever it is not a legend that says so. What is predicted has the same, hatched or dashed.
COLOUR = {
    "kernels": "#56b4e9", "communication": "#2b2f8f", "h2d": "#e69f00", "d2h": "#009e73",
    "other copies": "#d982b5", "memory sets": "#e3d04a", "copies": "#d55e00", "calls": "#6d7782",
    "waits": "#9a66d4", "launches": "#f5c7ab", "gaps between operations": "#86683c",
    "CPU time between API calls": "#8f2748", "CPU wake-up": "#c9ced4", "start-up": "#b7c278",
    "ranges": "#a8c4b8", "whole run": "#7a8b2f", "others": "#b5a59c",
}  # fmt: skip
#: Parts of a critical path that are drawn as something else is.
DRAWN_AS = {"unexplained waits": "waits", "CPU time in API calls": "calls", "other": "others"}
WIDTH, LETTER, LINE = 1000, 7.2, 22
LONGEST_LABEL, LONGEST_WHISKER = 40, 1.6
#: Lines differ by more than colour.
PREDICTED_DASH = "7 5"


@dataclass(frozen=True)
class Bar:
    """`low` and `high` are the ends of its whisker; `label` stands behind it, `hover` where it is pointed at."""

    value: float | None
    label: str = ""
    low: float | None = None
    high: float | None = None
    predicted: bool = False
    hover: str = ""


@dataclass(frozen=True)
class BarSeries:
    """Bars of one colour, one a label."""

    name: str
    colour: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Bars:
    """Bars to the right of their labels, beside each other or stacked. `unit`: s, B, B/s or what to write behind numbers.
    `mark` draws a dotted line there; the axis's words say what it is. `whole`: the numbers are counts.
    """

    labels: Sequence[str]
    series: Sequence[BarSeries]
    axis: str
    unit: str = "s"
    stacked: bool = False
    mark: float | None = None
    whole: bool = False

    def markup(self) -> str:
        bars_per_label = 1 if self.stacked else len(self.series)
        bars = max(len(self.labels) * bars_per_label, 1)
        thick = 9 if bars > 60 else 13 if bars > 24 else 18
        row = thick * bars_per_label + 8
        left = min(LETTER * max((len(short(label)) for label in self.labels), default=0) + 18, 330)
        right = 30 + LETTER * max((len(bar.label) for s in self.series for bar in s.bars), default=0)
        kinds = [{bar.predicted for bar in s.bars if bar.value is not None} for s in self.series]
        needs_legend = len(self.series) > 1 or len(set().union(*kinds)) > 1
        styles = ["both" if len(kind) > 1 else "hatched" if True in kind else "solid" for kind in kinds]
        legend, top = _legend(
            [(s.name, s.colour, style) for s, style in zip(self.series, styles, strict=True)]
            if needs_legend
            else []
        )
        end = top + row * len(self.labels)
        x = Scale(0.0, self._most(), left, WIDTH - right)
        parts = [legend, *x_axis(x, top, end, self.axis, self.unit, self.whole)]
        for number, label in enumerate(self.labels):
            y, start = top + row * number, 0.0
            parts.append(text(left - 8, y + row / 2 + 4, short(label), "end", hover=label))
            for place, series in enumerate(self.series):
                bar = series.bars[number]
                at = y + 4 + (0 if self.stacked else thick * place)
                parts += _bar(x, start, bar, at, thick, series.colour)
                start += (bar.value or 0.0) if self.stacked else 0.0
        if self.mark is not None:
            parts.append(_rule(x.at(self.mark), top, end))
        return drawn(end + 44, parts)

    def _most(self) -> float:
        values = [[bar.value or 0.0 for bar in s.bars] for s in self.series]
        tops = map(sum, zip(*values, strict=True)) if self.stacked else (v for of in values for v in of)
        highest = max([*tops, self.mark or 0.0], default=0.0)
        # A whisker that is longer yet ends in an arrow at the edge: bars are to be seen.
        whiskers = max((bar.high or 0.0 for s in self.series for bar in s.bars), default=0.0)
        return max(highest, min(whiskers, LONGEST_WHISKER * highest)) or 1.0


def _bar(x: "Scale", start: float, bar: Bar, y: float, thick: float, colour: str) -> Iterator[str]:
    if bar.value is None:
        return
    left, right = x.at(start), x.at(start + bar.value)
    box = f'x="{left:.1f}" y="{y:.1f}" width="{max(right - left, 0.5):.1f}" height="{thick - 2}"'
    hover = f"<title>{escaped(bar.hover or bar.label)}</title>"
    yield f'<rect {box} fill="{colour}">{hover}</rect>'
    if bar.predicted:
        yield f'<rect {box} fill="url(#hatch)">{hover}</rect>'
    if bar.low is not None and bar.high is not None:
        low, high = x.at(start + bar.low), x.at(start + bar.high)
        middle = y + thick / 2 - 1
        tip = "m0 -4v8" if high <= x.end + 0.1 else "m-6 -4l6 4l-6 4"  # an arrow: it goes on beyond the edge
        right = max(right, min(high, x.end))
        ends = f"M{low:.1f} {middle - 4:.1f}v8m0 -4H{min(high, x.end):.1f}{tip}"
        yield f'<path class="whisker" d="{ends}"/>'
    if bar.label:
        yield text(right + 6, y + thick / 2 + 3, bar.label)


@dataclass(frozen=True)
class Line:
    """Points that a line joins, unless `apart`; predicted ones are dashed. `hollow`: circles, not dots, to tell two of one
    colour apart. `hovers`: what each point says.
    """

    name: str
    colour: str
    x: Sequence[float]
    y: Sequence[float | None]
    predicted: bool = False
    apart: bool = False
    hovers: Sequence[str] = ()
    hollow: bool = False

    def drawable(self, y_log: bool) -> list[tuple[float, float]]:
        """The points that axes can show."""
        return [
            (a, b)
            for a, b in zip(self.x, self.y, strict=True)
            if b is not None and math.isfinite(b) and (b > 0 or not y_log) and a > 0
        ]


@dataclass(frozen=True)
class Lines:
    """Lines over a logarithmic axis x, and y as asked. `marks`: dotted vertical lines at x > 0. `whole`: x is a count."""

    lines: Sequence[Line]
    x_axis: str
    y_axis: str
    x_unit: str = ""
    y_unit: str = "s"
    y_log: bool = True
    marks: Sequence[float] = ()
    whole: bool = False

    def markup(self) -> str:
        styles = {True: "dashed", False: "line"}
        legend, top = _legend(
            [
                (o.name, o.colour, "dot" if o.apart else "hollow" if o.hollow else styles[o.predicted])
                for o in self.lines
            ]
        )
        points = [line.drawable(self.y_log) for line in self.lines]
        every = [point for drawn_points in points for point in drawn_points]
        if not every:
            return drawn(60, [text(10, 30, "no figures to draw")])
        end = top + 330
        x = Scale.over([a for a, _ in every], 80, WIDTH - 25, True)
        y = Scale.over([b for _, b in every], end, top, self.y_log)
        parts = [legend, *x_axis(x, top, end, self.x_axis, self.x_unit, self.whole)]
        for value in y.ticks():
            parts.append(f'<path class="grid" d="M80 {y.at(value):.1f}H{WIDTH - 25}"/>')
            parts.append(text(72, y.at(value) + 4, amount(value, self.y_unit), "end"))
        parts.append(text(8, top - 8, self.y_axis, "dim"))
        for line, drawn_points in zip(self.lines, points, strict=True):
            places = [(x.at(a), y.at(b)) for a, b in drawn_points]
            dash = f' stroke-dasharray="{PREDICTED_DASH}"' if line.predicted else ""
            if not line.apart and places:
                path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
                parts.append(f'<path class="line" stroke="{line.colour}" d="{path}"{dash}/>')
            size = 5 if line.apart else 3
            for n, (a, b) in enumerate(places):
                hover = line.hovers[n] if n < len(line.hovers) else amount(drawn_points[n][1], self.y_unit)
                title = f"<title>{escaped(f'{line.name}: {hover}')}</title>"
                parts.append(
                    f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{size}" {_dot(line.colour, line.hollow)}>{title}</circle>'
                )
        parts += [_rule(x.at(value), top, end) for value in self.marks if value > 0]
        return drawn(end + 44, parts)


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` along an axis from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float, log: bool) -> "Scale":
        """Over all of `values`, from zero unless logarithmic or some are below it."""
        low, high = min(values), max(values)
        if log:
            return cls(low / 1.1, high * 1.1, start, end, True)
        low, high = min(low, 0.0), max(high, 0.0)
        return cls(low, high + (0.05 * (high - low) or 1.0), start, end)

    def at(self, value: float) -> float:
        of: Callable[[float], float] = math.log if self.log else float
        low, high = of(self.low), of(self.high)
        return self.start + (self.end - self.start) * (of(value) - low) / (high - low)

    def ticks(self, whole: bool = False) -> list[float]:
        """Where to write numbers; `whole`: at whole ones alone."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            decades = math.log10(self.high / self.low)
            every = max(1, (last - first) // 8)
            steps = (1,) if decades > 4 else (1, 2, 5) if decades > 1 else (1, 1.5, 2, 3, 4, 5, 7)
            multiples = [step * 10.0**power for power in range(first, last + 1, every) for step in steps]
            values = self._shown(multiples, whole)
            if len(values) > 2:
                return values
        raw = (self.high - self.low) / 6
        size = 10.0 ** math.floor(math.log10(raw))
        step = next(size * n for n in (1, 2, 5, 10) if size * n >= raw)
        first = math.ceil(self.low / step)
        return self._shown([step * n for n in range(first, first + 12)], whole)

    def _shown(self, values: Iterable[float], whole: bool) -> list[float]:
        """Those that are on the axis."""
        there = [value for value in values if self.low <= value <= self.high * (1 + 1e-9)]
        return [value for value in there if abs(value - round(value)) < 1e-9] if whole else there


def drawn_as(part: str) -> str:
    """The name of the colour of a part of a critical path."""
    return DRAWN_AS.get(part, part)


def amount(value: float, unit: str) -> str:
    """A value with its unit."""
    if unit == "s":
        return amounts.time(value)
    if unit in ("B", "B/s"):
        return amounts.size(value) + unit[1:]
    if unit == "FLOP/s":
        return amounts.flops(value)
    number = f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return f"{number}{unit and ' '}{unit}".replace("-", "−", 1)


def x_axis(x: Scale, top: float, end: float, words: str, unit: str, whole: bool) -> Iterator[str]:
    """Lines, numbers and words below."""
    for value in x.ticks(whole):
        yield f'<path class="grid" d="M{x.at(value):.1f} {top}V{end}"/>'
        yield text(x.at(value), end + 16, amount(value, unit), "middle")
    yield text((x.start + x.end) / 2, end + 36, words, "middle dim")


def _rule(x: float, top: float, end: float) -> str:
    return f'<path class="mark" d="M{x:.1f} {top}V{end}"/>'


def _legend(entries: Sequence[tuple[str, str, str]]) -> tuple[str, float]:
    """Its drawing, and how high it is. Each entry: name, colour, and solid, hatched, both, line, dashed, hollow or dot."""
    parts, x, y = [], 10.0, 6.0
    for name, colour, style in entries:
        wide = 34 + LETTER * len(name)
        if x + wide > WIDTH and x > 10:
            x, y = 10.0, y + LINE
        dash = f' stroke-dasharray="{PREDICTED_DASH}"' if style == "dashed" else ""
        if style in ("line", "dashed", "hollow"):
            parts.append(f'<path class="line" stroke="{colour}" d="M{x} {y + 7}h24"{dash}/>')
            if style == "hollow":
                parts.append(f'<circle cx="{x + 12}" cy="{y + 7}" r="3" {_dot(colour, True)}/>')
        elif style == "dot":
            parts.append(f'<circle cx="{x + 12}" cy="{y + 7}" r="5" fill="{colour}"/>')
        else:
            parts.append(f'<rect x="{x}" y="{y}" width="24" height="14" fill="{colour}"/>')
        if style in ("hatched", "both"):
            half = 12 if style == "both" else 0
            parts.append(f'<rect x="{x + half}" y="{y}" width="{24 - half}" height="14" fill="url(#hatch)"/>')
        parts.append(text(x + 30, y + 12, name))
        x += wide + 14
    return "".join(parts), y + (LINE + 20 if entries else 6)


def _dot(colour: str, hollow: bool) -> str:
    return f'class="hollow" stroke="{colour}"' if hollow else f'fill="{colour}"'


def short(label: str) -> str:
    """With an ellipsis in the middle: names of kernels differ at both ends."""
    if len(label) <= LONGEST_LABEL:
        return label
    return label[: LONGEST_LABEL * 2 // 3] + "…" + label[-LONGEST_LABEL // 3 :]


def escaped(words: str, but: str = "") -> str:
    """Words of any origin as text of a page, where nothing of them is markup; characters of `but` stay as they are."""
    return escape(printable(words, but))


def text(x: float, y: float, words: str, kind: str = "", hover: str = "") -> str:
    """Words at a place; `kind`: end, middle, dim, as in the page's style."""
    title = f"<title>{escaped(hover)}</title>" if hover and hover != words else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escaped(words)}{title}</text>'


def drawn(height: float, parts: Iterable[str]) -> str:
    """The whole picture."""
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}">{"".join(parts)}</svg>'
