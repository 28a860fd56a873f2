"""The picture of a job: when its ranks wait for each other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from busfare.advise.amounts import time
from busfare.jobs.communication import RankTimes
from busfare.jobs.model import JobTimeline
from busfare.show.svg import COLOUR, LETTER, WIDTH, Scale, drawn, escaped, text, x_axis
from busfare.show.time_line_rows import meetings
from busfare.trace.lanes import Union

NS = 1e-9
#: Of the heat map: parts of the run, shades, the height of all rows and of the highest, pixels.
BINS, SHADES, HIGH, HIGHEST = 160, 8, 280, 22
WAITING, LATE = f'fill="{COLOUR["waits"]}"', 'class="late"'


@dataclass(frozen=True)
class HeatMap:
    """A row for each of `labels`: the share of each of BINS parts of the run that it waits, shape (rows, BINS), and the
    share that it waits for recordings to begin. `sums` stand behind the rows, `hovers` where they are pointed at.
    """

    labels: Sequence[str]
    waits: NDArray[np.float64]
    recordings: NDArray[np.float64]
    seconds: float
    sums: Sequence[str]
    hovers: Sequence[str]

    def markup(self) -> str:
        left = 12 + LETTER * max(map(len, self.labels))
        x = Scale(0.0, self.seconds, left, WIDTH - 16 - LETTER * max(map(len, self.sums)))
        high = min(HIGHEST, HIGH / len(self.labels))
        top, every = 30.0, int(-(-15 // high))  # labels do not overlap
        end = top + high * len(self.labels)
        parts = [*self._legend(), *x_axis(x, top, end, "time", "s", False)]
        whole = f'x="{x.start:.1f}" y="{top}" width="{x.end - x.start:.1f}" height="{end - top:.1f}"'
        parts.append(f'<rect class="quiet" {whole}/>')
        layers = ((self.recordings, LATE), (self.waits, WAITING))
        parts += [cell for shares, paint in layers for cell in _cells(shares, paint, x, top, high)]
        for row, (label, behind, hover) in enumerate(zip(self.labels, self.sums, self.hovers, strict=True)):
            y = top + high * row
            if row % every == 0:
                parts.append(text(left - 8, y + high / 2 + 4, label, "end"))
                parts.append(text(x.end + 8, y + high / 2 + 4, behind))
            box = f'x="0" y="{y:.1f}" width="{WIDTH}" height="{high:.1f}"'
            parts.append(f'<rect class="bare" {box}><title>{escaped(hover)}</title></rect>')
        return drawn(end + 44, parts)

    def _legend(self) -> Iterator[str]:
        yield text(12, 18, "share of time waiting:  0 %")
        for shade in range(SHADES):
            paint = f'{WAITING} fill-opacity="{(shade + 1) / SHADES}"'
            yield f'<rect x="{200 + 16 * shade}" y="6" width="16" height="14" {paint}/>'
        yield text(208 + 16 * SHADES, 18, "100 %")
        if self.recordings.any():
            yield f'<rect x="420" y="6" width="16" height="14" {LATE}/>'
            yield text(442, 18, "recordings begin at different times")


def _cells(shares: NDArray[np.float64], paint: str, x: Scale, top: float, high: float) -> Iterator[str]:
    """A path of `paint` for each shade: neighbours of one shade are one box."""
    shades = np.ceil(shares * SHADES - 1e-9).astype(int)
    boxes: dict[int, list[str]] = {}
    wide = (x.end - x.start) / shares.shape[1]
    for row, of_row in enumerate(shades):
        starts = np.flatnonzero(np.diff(of_row, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(of_row)], strict=True):
            at, y = x.start + wide * start, top + high * row
            box = f"M{at:.1f} {y:.1f}h{wide * (end - start):.1f}v{high - 1:.1f}H{at:.1f}z"
            boxes.setdefault(int(of_row[start]), []).append(box)
    for shade, drawn_boxes in sorted(boxes.items()):
        if shade:
            yield f'<path {paint} fill-opacity="{shade / SHADES}" d="{"".join(drawn_boxes)}"/>'


def heat_map(job: JobTimeline, ranks: Sequence[RankTimes]) -> HeatMap:
    """When the replayed ranks wait for others."""
    replayed = {rank.rank for rank in job.ranks}
    shown = sorted((rank for rank in ranks if rank.rank in replayed), key=lambda rank: rank.rank)
    edges = np.linspace(0, max(job.recorded_ns, 1), BINS + 1).round().astype(np.int64)
    waits, recordings = np.zeros((2, len(shown), BINS))
    for row, rank in enumerate(shown):
        met = meetings(job, rank.rank).sort("start_ns")
        starts, ends = met["start_ns"].to_numpy().copy(), met["last_ns"].to_numpy()
        # The first collective waits for the last recording to begin.
        begun = starts[:1].copy()
        until = np.minimum(begun + round(rank.recording_wait_seconds / NS), ends[:1])
        starts[:1] = until
        for shares, part in ((waits, Union.of(starts, ends)), (recordings, Union.of(begun, until))):
            shares[row] = part.covered_within(edges[:-1], edges[1:]) / np.maximum(np.diff(edges), 1)
    hovers = [
        f"rank {rank.rank}: waits {time(rank.waiting_seconds)} for others; they wait {time(rank.awaited_seconds)} for it"
        for rank in shown
    ]
    labels = [f"rank {rank.rank}" for rank in shown]
    sums = [f"waits {time(rank.waiting_seconds)}" for rank in shown]
    return HeatMap(labels, waits, recordings, job.recorded_ns * NS, sums, hovers)
