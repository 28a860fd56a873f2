"""The operations of a trace as few enough bars to draw: a lane a GPU and kind of work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

import msgspec
import numpy as np
import polars as pl

from busfare.advise import amounts
from busfare.job.timeline import JobTimeline
from busfare.printable import printable
from busfare.report.svg import COLOUR, WIDTH, drawn, escaped, short, text
from busfare.trace import Trace
from busfare.trace.lanes import is_communication, is_transfer, is_work
from busfare.trace.totals import union_of
from busfare.trace.words import CLASSES, kind_codes, of_codes

#: What is closer together than this part of the run is drawn as one bar.
BARS_A_LANE = 1000
MOST_GPUS = 8
#: Of a job.
MOST_RANKS, MOST_JOINTS = 8, 400
LONGEST_NAME = 90


@dataclass(frozen=True)
class Lane:
    """A row of a time line: bars in seconds from its start; `hovers` of each are lines apart by '|' behind its name."""

    label: str
    colour: str
    starts: Sequence[float]
    lengths: Sequence[float]
    names: Sequence[str]
    hovers: Sequence[str]


@dataclass(frozen=True)
class Lanes:
    """Lanes over one axis of time; a page's script lets one zoom into them. `joints`: moments (seconds) at which lanes meet,
    the places of the first and of the last of them.
    """

    lanes: Sequence[Lane]
    axis: str
    predicted: bool = False
    joints: Sequence[tuple[float, int, int]] = ()
    units: int = field(default=1_000_000, repr=False)

    def svg(self) -> str:
        left, right, high = 190, WIDTH - 25, 40
        whole = (
            max((s + d for o in self.lanes for s, d in zip(o.starts, o.lengths, strict=True)), default=0.0)
            or 1e-9
        )
        end = 12 + high * len(self.lanes)
        names = list(dict.fromkeys(name for lane in self.lanes for name in lane.names))
        number, bars, labels = {name: n for n, name in enumerate(names)}, [], []
        for place, lane in enumerate(self.lanes):
            y = high * place + 5
            labels.append(text(left - 10, 12 + y + 18, short(lane.label), "end"))
            bars.append(f'<g fill="{lane.colour}" stroke="{lane.colour}">')
            for start, length, name, hover in zip(
                lane.starts, lane.lengths, lane.names, lane.hovers, strict=True
            ):
                a, w = round(start / whole * self.units), max(round(length / whole * self.units), 1)
                data = escaped(f"{number[name]}|{hover}")
                bars.append(f'<rect x="{a}" y="{y}" width="{w}" height="{high - 10}" data-t="{data}"/>')
            bars.append("</g>")
        joints = "".join(
            f"M{round(at / whole * self.units)} {high * first + 5}V{high * last + high - 5}"
            for at, first, last in self.joints
        )
        bars.append(f'<path class="joint" d="{joints}"/>' if joints else "")
        data = escape(msgspec.json.encode([printable(name) for name in names]).decode())
        box = f'x="{left}" y="12" width="{right - left}" height="{end - 12}"'
        inner = (
            f'<svg class="lanes" {box} preserveAspectRatio="none" '
            f'viewBox="0 0 {self.units} {end - 12}" data-seconds="{whole!r}" data-names="{data}">'
            f'<rect width="{self.units}" height="{end - 12}" fill="transparent"/>{"".join(bars)}'
            f'<rect class="chosen" height="{end - 12}" width="0"/></svg>'
        )
        hatch = f'<rect {box} fill="url(#hatch)" pointer-events="none"/>'
        ticks = []
        for n in range(6):
            x = left + (right - left) * n / 5
            ticks.append(f'<path class="grid" d="M{x:.1f} 12V{end}"/>')
            ticks.append(text(x, end + 16, amounts.time(whole * n / 5), "middle tick"))
        caption = text((left + right) / 2, end + 36, self.axis, "middle dim")
        return drawn(end + 44, [*ticks, *labels, inner, hatch if self.predicted else "", caption])


def lanes_of(trace: Trace, predicted: bool = False) -> Lanes:
    """Lanes of the busiest GPUs, in order of ordinal; empty ones are left out."""
    axis = f"{'predicted' if predicted else 'recorded'} time"
    if trace.operations.is_empty():
        return Lanes([], axis, predicted)
    kinds = of_codes(kind_codes(trace.operations), pl.Series(dtype=CLASSES))
    operations = trace.operations.with_columns(kind=kinds)
    first, last = int(operations["start_ns"].min()), int(operations["end_ns"].max())  # type: ignore[arg-type]
    resolution = max(1, (last - first) // BARS_A_LANE)
    busiest = operations.group_by("device").len().sort("len", descending=True).head(MOST_GPUS)["device"]
    direction = pl.col("direction").cast(pl.String)
    work = (
        pl.when(is_work())
        .then(pl.lit("kernels"))
        .when(is_communication())
        .then(pl.lit("communication"))
        .when(is_transfer())
        .then(pl.when(direction.is_in(["h2d", "d2h"])).then(direction).otherwise(pl.lit("other copies")))
    )
    operations = operations.with_columns(work=work)
    lanes = []
    for device in busiest.sort(nulls_last=True):
        for kind, colour in COLOUR.items():
            own = operations.filter(pl.col("device").eq_missing(device) & (pl.col("work") == kind))
            if own.height:
                label = f"GPU {device} {kind}" if len(busiest) > 1 else kind
                lanes.append(_lane(label, kind, colour, own, resolution, first))
    return Lanes(lanes, axis, predicted)


def _lane(label: str, work: str, colour: str, operations: pl.DataFrame, resolution: int, first: int) -> Lane:
    named = pl.col("name").cast(pl.String) if work in ("kernels", "communication") else pl.lit(work)
    start, end = pl.col("start_ns"), pl.col("end_ns")
    gap = (start - end.cum_max().shift() > resolution).fill_null(False)
    bars = (
        operations.sort("start_ns")
        .with_columns(bar=gap.cum_sum(), label=named.fill_null(""))
        .group_by("bar", maintain_order=True)
        .agg(start.first(), end.max(), count=pl.len(), label=pl.col("label").get((end - start).arg_max()))
    )
    starts, ends = bars["start_ns"].to_numpy(), bars["end_ns"].to_numpy()
    lengths = np.maximum(ends - starts, 1)
    busy = union_of(operations).covered_within(starts, ends) / lengths
    hovers = [
        amounts.time(length * 1e-9)
        + (f"|{amounts.several(n, 'operation')}, busy {share:.0%}" if n > 1 else "")
        for length, n, share in zip(lengths.tolist(), bars["count"], busy, strict=True)
    ]
    names = [name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…" for name in bars["label"]]
    return Lane(label, colour, ((starts - first) * 1e-9).tolist(), (lengths * 1e-9).tolist(), names, hovers)


def lanes_of_job(job: JobTimeline) -> Lanes:
    """Lanes of the first ranks: what each computes and copies, waits for and transfers; collectives join them."""
    shown = sorted(job.ranks, key=lambda one: one.rank)[:MOST_RANKS]
    resolution = max(1, job.recorded_ns // BARS_A_LANE)
    kind = pl.col("collective_kind").cast(pl.String).fill_null("communication").str.replace_all("_", "-")
    lanes: list[Lane] = []
    places: dict[int, list[int]] = {}
    ends: list[pl.DataFrame] = []
    for one in shown:
        number = next(n for n, part in enumerate(job.parts) if one.rank in part.ranks)
        part, from_ns = job.parts[number], int(job.starts_ns[number])
        shift = from_ns - part.timeline.origin_ns
        moved = pl.col("start_ns", "end_ns") + shift
        own = job.members.filter((pl.col("part") == number) & (pl.col("rank") == one.rank))
        # By the clock of the timeline: where each member is there.
        rows = {False: part.timeline.operations, True: part.timeline.calls}
        begun = pl.Series(
            [rows[is_call]["start_ns"][node] for node, is_call in own.select("node", "is_call").iter_rows()],
            dtype=pl.Int64,
        )
        meeting = own.select(
            "joint",
            name=kind,
            start_ns=begun + shift,
            wait=(pl.col("last_ns") - pl.col("start_ns")).clip(lower_bound=0).fill_null(0),
            whole=pl.col("end_ns") - pl.col("start_ns"),
        )
        joined = meeting.with_columns(last_ns=pl.col("start_ns") + pl.min_horizontal("wait", "whole"))
        operations = part.timeline.operations.with_columns(moved)
        carried = np.zeros(operations.height, bool)
        carried[own.filter(~pl.col("is_call"))["node"].to_numpy()] = True
        operations = operations.filter(~carried)
        copies = operations.filter(pl.col("kind").is_in(["copy", "migration"]))
        for what, colour, frame in (
            ("kernels", COLOUR["kernels"], operations.filter(pl.col("kind") == "kernel")),
            ("copies", COLOUR["h2d"], copies),
            ("waits", COLOUR["others"], joined.select("name", "start_ns", end_ns="last_ns")),
            ("transfers", COLOUR["communication"], joined.select(
                "name", start_ns="last_ns", end_ns=pl.col("start_ns") + pl.col("whole"))),
        ):  # fmt: skip
            frame = frame.filter(pl.col("end_ns") > pl.col("start_ns"))
            if frame.height:
                places.setdefault(one.rank, []).append(len(lanes))
                work = "copies" if what == "copies" else "kernels"
                lanes.append(_lane(f"rank {one.rank} {what}", work, colour, frame, resolution, 0))
        ends.append(joined.select("joint", "last_ns", rank=pl.lit(one.rank, pl.Int64)).drop_nulls("joint"))
    met = (
        pl.concat(ends)
        .group_by("joint")
        .agg(pl.col("last_ns").max(), pl.col("rank").min(), last=pl.col("rank").max())
    )
    met = met.filter(pl.col("rank") < pl.col("last")).sort("last_ns")
    step = max(1, met.height // MOST_JOINTS)
    joints = [
        (at * 1e-9, places[first][0], places[last][-1])
        for at, first, last in met[::step].select("last_ns", "rank", "last").iter_rows()
        if first in places and last in places
    ]
    return Lanes(lanes, "recorded time; lines: collectives, once the last rank has come", joints=joints)
