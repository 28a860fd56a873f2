"""What transfers of one path take by size: lines piece by piece, what each further copy adds, and their fit [W14 §V]."""

from itertools import pairwise
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from busfare.nodes.component import Count, FloatArray, Ordinal, Seconds, SecondsPerByte, Size, Sourced

Direction = Literal["h2d", "d2h", "d2d", "p2p"]
MemoryKind = Literal["pageable", "pinned", "managed", "mapped", "device"]
#: Operations of several ranks; `send_receive` is between two of them.
Collective = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send_receive"
]
#: What a further copy adds when the calls before it hide everything but the copy engine's own start [W14 table I, g].
DEFAULT_LATENCY_S = {"h2d": 2.503e-6, "d2h": 2.674e-6, "d2d": 2.503e-6, "p2p": 2.674e-6, "set": 2.503e-6}
#: More pieces predict held-out sizes no better (docs/models.md).
MOST_PIECES = 3
#: Another piece must lower the root-mean-square error to this share, or it is not worth its three numbers …
WORTH = 0.6
#: … and medians of quiet cases repeat within this: no piece is added below it.
NEAR = 0.002
#: Lines that differ by more where they should meet are of different ways to copy: there is a jump.
JUMP = 0.05
#: No link moves a byte in less than this, in seconds; G may not be zero in a node file.
LEAST_GAP = 1e-15


class Pieces(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Piece i holds sizes up to and including `up_to_bytes[i]`; the last one, which has no such end, all larger."""

    latency_overhead_s: tuple[Seconds, ...]
    gap_per_byte_s: tuple[SecondsPerByte, ...]
    up_to_bytes: tuple[Size, ...] = ()

    def seconds(self, sizes: ArrayLike) -> FloatArray:
        """(L+o) + bytes · G for each of `sizes` bytes, in their shape."""
        return self.latency_overhead(sizes) + self.gap_per_byte(sizes) * np.asarray(sizes, np.float64)

    def latency_overhead(self, sizes: ArrayLike = 0.0) -> FloatArray:
        """L+o (s) of the piece that holds each of `sizes` bytes."""
        return self._by_piece(self.latency_overhead_s, sizes)

    def gap_per_byte(self, sizes: ArrayLike) -> FloatArray:
        """G (s/B) of the piece that holds each of `sizes` bytes."""
        return self._by_piece(self.gap_per_byte_s, sizes)

    def _by_piece(self, values: tuple[float, ...], sizes: ArrayLike) -> FloatArray:
        which = np.searchsorted(np.asarray(self.up_to_bytes, np.float64), np.asarray(sizes, np.float64))
        chosen: FloatArray = np.asarray(values, np.float64)[which]
        return chosen

    @property
    def lines(self) -> dict[str, Any]:
        """The figures alone, as the arguments of any kind of curve."""
        return {key: getattr(self, key) for key in Pieces.__annotations__}

    @property
    def only_long(self) -> bool:
        """Whether only long copies were measured, whose L+o cannot be told."""
        return not self.latency_overhead_s[0]

    @property
    def long_gap_per_byte_s(self) -> float:
        """G of the longest copies, s/B."""
        return self.gap_per_byte_s[-1]


class Together(Pieces, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`streams` equal copies at once, one a stream: seconds until all have ended, over the bytes of one."""

    streams: Count


class CollectiveCurve(Pieces, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A collective of `ranks` GPUs in all on `hosts` such nodes: s over nccl-tests' bytes. `nvls`: reduced in the switch."""

    kind: Collective
    ranks: Annotated[int, msgspec.Meta(ge=2, le=65536)]
    hosts: Count = 1
    nvls: bool = False


class Curve(Pieces, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One path and memory kind: seconds = L+o + bytes · G, with an L+o and a G for each piece of the sizes.

    An L+o of 0 says that only long copies were measured. `issue_interval_s` is, by the number of streams that hold one
    copy each, what each further copy adds beside its bytes' G; under 1 stream, copies back to back in it: g. `detail`
    holds curves of whole sets of streams, which are nearer for short copies. `timing` says what the clock held: the whole
    call, or the device alone. `faults`: pages of managed memory that move when they are touched, in place of prefetches.
    `after_kernel_s` is added where a kernel, and no copy, goes before in the stream; `event_wait_s` to a kernel of another
    stream that waits for the copy.
    """

    direction: Direction
    memory: MemoryKind
    faults: bool = False
    issue_interval_s: dict[Count, Seconds] = msgspec.field(default_factory=dict)
    detail: tuple[Together, ...] = ()
    after_kernel_s: Seconds = 0.0
    event_wait_s: Seconds = 0.0
    timing: Literal["call", "device"] = "device"
    gpu: Ordinal | None = None
    peer: Ordinal | None = None

    def issue_interval(self, streams: ArrayLike) -> FloatArray:
        """What each further copy adds (s) beside its bytes where `streams` streams hold one copy each. What all further
        copies add together is linear in their number between those measured; L+o where none was.
        """
        streams = np.asarray(streams, np.float64)
        if not self.issue_interval_s:
            return np.full(np.shape(streams), self.latency_overhead_s[0])
        counts = sorted(count for count in self.issue_interval_s if count > 1)
        single_stream = self.issue_interval_s.get(1, self.issue_interval_s[max(self.issue_interval_s)])
        if not counts:
            return np.full(np.shape(streams), single_stream)
        sums = np.array([0.0, *((count - 1) * self.issue_interval_s[count] for count in counts)])
        last = self.issue_interval_s[counts[-1]]
        between = np.interp(streams, [1.0, *counts], sums) / np.maximum(streams - 1, 1)
        several = np.where(streams > counts[-1], last, between)
        return np.asarray(np.where(streams <= 1, single_stream, several))

    def together(self, copies: ArrayLike, sizes: ArrayLike) -> FloatArray:
        """Seconds of `copies` equal copies of `sizes` bytes each at once, one a stream [W14 §V]."""
        copies, sizes = np.broadcast_arrays(np.asarray(copies, np.float64), np.asarray(sizes, np.float64))
        if not self.detail:
            further = self.issue_interval(copies) + self.long_gap_per_byte_s * sizes
            return self.seconds(sizes) + (copies - 1) * further
        counts = np.array([1.0, *(row.streams for row in self.detail)])
        curves = np.stack([self.seconds(sizes), *(row.seconds(sizes) for row in self.detail)])
        above = np.clip(np.searchsorted(counts, copies), 1, len(counts) - 1)
        share = (copies - counts[above - 1]) / (counts[above] - counts[above - 1])
        low, high = (np.take_along_axis(curves, at[np.newaxis], 0)[0] for at in (above - 1, above))
        return np.asarray(low + share * (high - low))

    @classmethod
    def line(cls, direction: Direction, memory: MemoryKind, latency_s: float, gap_s: float) -> "Curve":
        """One piece, seconds and seconds per byte."""
        return cls(
            direction=direction, memory=memory, latency_overhead_s=(latency_s,), gap_per_byte_s=(gap_s,)
        )

    def started(self) -> "Curve":
        """The same with the copy engine's own start as L+o where only long copies were measured."""
        if not self.only_long:
            return self
        start = DEFAULT_LATENCY_S[self.direction]
        starts = tuple(latency or start for latency in self.latency_overhead_s)
        return msgspec.structs.replace(self, latency_overhead_s=starts)

    def scaled(self, factor: float) -> "Curve":
        """The same with every G times `factor`; starts and intervals as they are."""
        slower = tuple(
            msgspec.structs.replace(
                row, gap_per_byte_s=tuple(min(gap * factor, 1.0) for gap in row.gap_per_byte_s)
            )
            for row in self.detail
        )
        gaps = tuple(gap * factor for gap in self.gap_per_byte_s)
        return msgspec.structs.replace(self, gap_per_byte_s=gaps, detail=slower)


def fit(
    sizes: FloatArray, seconds: FloatArray, doubt: FloatArray | None = None, most: int = MOST_PIECES
) -> Pieces:
    """The fewest pieces that describe `seconds` over `sizes` (bytes, rising, parallel), of least squared relative errors.

    `doubt` is how far off each point may be, as a share of it: one that few samples know counts for less. Raises
    ValueError for no sizes.
    """
    if len(sizes) == 0:
        raise ValueError("nothing to fit")
    doubt = np.zeros_like(seconds) if doubt is None else doubt
    least = min(2, len(sizes))
    costs, lines = _lines(sizes, seconds, np.maximum(doubt, NEAR) / NEAR, least)
    error, best = _pieces(sizes, costs, lines, 1)
    for count in range(2, min(most, len(sizes) // least) + 1):
        less, candidate = _pieces(sizes, costs, lines, count)
        if error > NEAR and less < WORTH * error:
            error, best = less, candidate
    return best


def _lines(
    sizes: FloatArray, seconds: FloatArray, doubt: FloatArray, least: int
) -> tuple[FloatArray, FloatArray]:
    """Squared errors of the best line through points [start, end), shape (n, n + 1), and its L+o and G."""
    weight = 1 / (seconds * doubt) ** 2
    scale = sizes[-1]  # sizes in units in which the sums keep their digits
    x = sizes / scale
    products = (
        weight,
        weight * x,
        weight * x * x,
        weight * seconds,
        weight * x * seconds,
        weight * seconds**2,
    )
    sums = [np.concatenate(([0.0], np.cumsum(column))) for column in products]
    start, end = np.meshgrid(np.arange(len(x)), np.arange(len(x) + 1), indexing="ij")
    w, wx, wxx, wy, wxy, wyy = (column[end] - column[start] for column in sums)
    determinant = w * wxx - wx * wx
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(determinant > 1e-12 * w * wxx, (w * wxy - wx * wy) / determinant, 0.0)
        slope = np.maximum(np.nan_to_num(slope), 0.0)
        fixed = (wy - slope * wx) / w
        slope = np.where(fixed < 0, wxy / wxx, slope)  # a line that starts below zero is one through zero
    fixed = np.maximum(np.nan_to_num(fixed), 0.0)
    costs = wyy - 2 * (fixed * wy + slope * wxy) + fixed**2 * w + 2 * fixed * slope * wx + slope**2 * wxx
    costs = np.where(end - start < least, np.inf, np.maximum(costs, 0.0))
    return costs, np.stack([fixed, np.maximum(slope / scale, LEAST_GAP)])


def _pieces(sizes: FloatArray, costs: FloatArray, lines: FloatArray, count: int) -> tuple[float, Pieces]:
    """The `count` lines of least cost in all, by dynamic programming over where each ends; their error comes first, the
    root-mean-square relative one on the points themselves.
    """
    total = len(sizes)
    best, came = costs[0], []
    for _ in range(1, count):
        sums = best[:-1, np.newaxis] + costs
        came.append(np.argmin(sums, axis=0))
        best = np.min(sums, axis=0)
    edges = [total]
    for before in reversed(came):
        edges.insert(0, int(before[edges[0]]))
    edges.insert(0, 0)
    joined = [(float(lines[0, a, b]), float(lines[1, a, b])) for a, b in pairwise(edges)]
    ends = tuple(
        _boundary(left, right, sizes[at - 1], sizes[at])
        for (left, right), at in zip(pairwise(joined), edges[1:-1], strict=True)
    )
    fixed, slope = zip(*joined, strict=True)
    fitted = Pieces(latency_overhead_s=fixed, gap_per_byte_s=slope, up_to_bytes=ends)
    return float(np.sqrt(best[total] / total)), fitted


def _boundary(left: tuple[float, float], right: tuple[float, float], low: float, high: float) -> int:
    """Where two neighbouring lines meet, if that is between the sizes that they end at. Else, where they hardly differ
    there, half way (in octaves): nothing says which is nearer. A jump comes right after the lower size.
    """
    if left[1] != right[1]:
        meet = (left[0] - right[0]) / (right[1] - left[1])
        if low <= meet < high:
            return int(meet)
    half = float(np.floor(np.sqrt(low * high)))
    left_seconds, right_seconds = (fixed + slope * half for fixed, slope in (left, right))
    return int(half if abs(left_seconds / right_seconds - 1) < JUMP else low)
