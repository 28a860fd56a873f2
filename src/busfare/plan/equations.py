"""The closed forms of overlap [W14 eq 1–6], of the explicit copy, and of the number of streams.

Every time is in seconds. The arrays of a `Cut` broadcast against each other, so that one call answers for many
kernels and many numbers of streams at once. The functions raise nothing.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np

from busfare.node.arrays import FloatArray

__all__ = [
    "Cut",
    "MappedWork",
    "Terms",
    "best_streams",
    "eq1",
    "eq2",
    "eq3",
    "eq4",
    "eq5",
    "eq5_shared",
    "eq6",
    "eq6_shared",
    "explicit",
]

#: Of how many bytes a kernel on mapped memory reads before it writes as many: a share of what its first threads read, where
#: a node's was not measured.
FIRST_SHARE = 0.4
#: Of what reads of mapped memory do to its writes: their requests, a packet of 24 to 28 bytes for each 128 that are read,
#: are 13 % of a way out that full reads slow by 27 % [five probes of an H100 and two H200s].
REQUESTS_SHARE = 0.5


class Cut(NamedTuple):
    """Work cut into `streams` equal chunks, one a stream.

    `h2d` and `d2h` are B·G of the whole problem, `kernel` is t_E of all chunks together; `h2d_latency` is L+o of
    one copy, `h2d_gap` the g of each further one. `h2d_slowdown` (≥ 1): how much longer all that takes while the other
    way moves data too.
    """

    streams: FloatArray
    h2d: FloatArray
    kernel: FloatArray
    d2h: FloatArray
    h2d_latency: FloatArray
    d2h_latency: FloatArray
    h2d_gap: FloatArray
    d2h_gap: FloatArray
    h2d_slowdown: FloatArray | float = 1.0
    d2h_slowdown: FloatArray | float = 1.0
    #: Seconds of all kernels where those of several streams fill the GPU together; None: they take turns.
    kernels_together: FloatArray | None = None

    @property
    def all_kernels(self) -> FloatArray:
        """The kernels back to back, or side by side."""
        return self.kernel if self.kernels_together is None else self.kernels_together

    @property
    def all_in(self) -> FloatArray:
        """(L+o) + B_hd·G_hd + g(n−1): all copies into the device, back to back."""
        return self.h2d_latency + self.h2d + self.h2d_gap * (self.streams - 1)

    @property
    def all_out(self) -> FloatArray:
        """(L+o) + B_dh·G_dh + g(n−1)."""
        return self.d2h_latency + self.d2h + self.d2h_gap * (self.streams - 1)

    @property
    def first_in(self) -> FloatArray:
        """(L+o) + B_hd/n·G_hd: the first chunk's copy, before which nothing can be computed."""
        return self.h2d_latency + self.h2d / self.streams

    @property
    def last_out(self) -> FloatArray:
        """(L+o) + B_dh/n·G_dh."""
        return self.d2h_latency + self.d2h / self.streams

    @property
    def one_kernel(self) -> FloatArray:
        """t_E/n."""
        return self.kernel / self.streams


def explicit(cut: Cut) -> FloatArray:
    """Copies in, kernel, copies out, one after the other [W14 §III]: a Cut of one stream."""
    return cut.h2d_latency + cut.h2d + cut.kernel + cut.d2h_latency + cut.d2h


def eq1(cut: Cut) -> FloatArray:
    """[W14 eq 1] Implicit synchronisation; the kernel dominates."""
    return cut.first_in + cut.kernel + cut.all_out


def eq2(cut: Cut) -> FloatArray:
    """[W14 eq 2] Implicit synchronisation; transfers dominate."""
    return cut.all_in + cut.one_kernel + cut.all_out


def eq3(cut: Cut) -> FloatArray:
    """[W14 eq 3] One copy engine; the kernel dominates."""
    return cut.first_in + cut.kernel + cut.last_out


def eq4(cut: Cut) -> FloatArray:
    """[W14 eq 4] One copy engine; transfers dominate."""
    one_way = np.maximum(
        cut.all_in + cut.one_kernel + cut.last_out, cut.first_in + cut.one_kernel + cut.all_out
    )
    return np.maximum(cut.all_in + cut.all_out, one_way)


def eq5(cut: Cut) -> FloatArray:
    """[W14 eq 5] Two copy engines, as published: one G each way throughout."""
    into = cut.all_in + cut.one_kernel + cut.last_out
    out = cut.first_in + cut.one_kernel + cut.all_out
    return np.maximum(np.maximum(into, cut.first_in + cut.all_kernels + cut.last_out), out)


def eq5_shared(cut: Cut) -> FloatArray:
    """eq 5 with each way slowed only while the other way moves data too. Ours.

    W14 puts the slowed G into eq 5 for the whole run, which is too much where one way has less to move: the rest
    of the longer way has the link to itself. So has the way in until the first copy out moves a byte, which is all of it
    where copies are as short as what lies between. With slow-downs of 1 this is eq 5.
    """
    h2d_slowdown, d2h_slowdown = np.asarray(cut.h2d_slowdown), np.asarray(cut.d2h_slowdown)
    in_busy = (cut.h2d + cut.h2d_gap * (cut.streams - 1)) * h2d_slowdown
    out_busy = (cut.d2h + cut.d2h_gap * (cut.streams - 1)) * d2h_slowdown
    before_out = cut.first_in + cut.one_kernel + cut.d2h_latency
    together = np.maximum(cut.all_in - before_out, 0.0) * h2d_slowdown
    both_in = np.minimum((1 - 1 / cut.streams) * out_busy, together)
    both_out = np.minimum(np.minimum((1 - 1 / cut.streams) * in_busy, out_busy), together)
    into = cut.all_in + (1 - 1 / h2d_slowdown) * both_in + cut.one_kernel + cut.last_out
    out = cut.first_in + cut.one_kernel + cut.all_out + (1 - 1 / d2h_slowdown) * both_out
    longest: FloatArray = np.maximum(np.maximum(into, cut.first_in + cut.all_kernels + cut.last_out), out)
    return longest


class MappedWork(NamedTuple):
    """A kernel on mapped memory: `h2d` and `d2h` are B·G with every access that crosses the link counted."""

    h2d: FloatArray
    kernel: FloatArray
    d2h: FloatArray
    h2d_latency: FloatArray
    d2h_latency: FloatArray


def eq6(work: MappedWork) -> FloatArray:
    """[W14 eq 6] The kernel reads and writes host memory itself; the longest of the three hides the others."""
    fixed = work.h2d_latency + work.d2h_latency
    return fixed + np.maximum(np.maximum(work.h2d, work.kernel), work.d2h)


def eq6_shared(
    work: MappedWork,
    h2d_slowdown: FloatArray,
    d2h_slowdown: FloatArray,
    rounds: FloatArray | float = np.inf,
    first_share: float = FIRST_SHARE,
) -> FloatArray:
    """eq 6 with each way slowed (factors ≥ 1) as both ways' full load slows it. Ours; with factors of 1 and no end of
    rounds it is eq 6.

    A kernel mixes its reads and writes all along: the way with less to move is loaded to a share of its pace. Waiting
    then grows faster than the load, as in any queue: by its square. The way out also carries the requests of the
    reads, in proportion to them: REQUESTS_SHARE of what slows it. But the threads that begin have nothing to
    write, and the last ones nothing to read: of one of `rounds` in which the GPU holds all threads, `first_share`
    moves one way after the other.
    """
    in_busy, out_busy = work.h2d * h2d_slowdown, work.d2h * d2h_slowdown
    larger = np.maximum(np.maximum(in_busy, out_busy), 1e-30)
    load = np.minimum(in_busy, out_busy) / larger
    requests = REQUESTS_SHARE * np.minimum(in_busy / np.maximum(out_busy, 1e-30), 1.0)
    into = work.h2d * (1 + (h2d_slowdown - 1) * load**2)
    out = work.d2h * (1 + (d2h_slowdown - 1) * (requests + (1 - REQUESTS_SHARE) * load**2))
    alone = np.maximum(work.h2d + work.d2h - np.maximum(into, out), 0.0)
    return eq6(work._replace(h2d=into, d2h=out)) + first_share / np.maximum(rounds, 1.0) * alone


class Terms(NamedTuple):
    """The terms of one `Cut` as plain numbers."""

    streams: float
    h2d: float
    kernel: float
    d2h: float
    h2d_latency: float
    d2h_latency: float
    h2d_gap: float
    d2h_gap: float


def best_streams(equation: int, terms: Terms) -> float | None:
    """The number of streams that [W14 §VI] derives for eq 1, 2, 4 or 5, as a real number of one at least.

    For eq 4 it is the smallest number that still helps, for the others the largest. None where no number follows:
    eq 3 only falls, and so does each equation without a gap.
    """
    into, kernel, out, gap_in, gap_out = terms.h2d, terms.kernel, terms.d2h, terms.h2d_gap, terms.d2h_gap
    in_leads = into >= out
    squared = {
        1: (into, gap_out),
        2: (kernel, gap_in + gap_out),
        5: (out + kernel, gap_in) if in_leads else (into + kernel, gap_out),
    }
    if equation in squared:
        hidden, gap = squared[equation]
        return max(1.0, sqrt(hidden / gap)) if gap > 0 else None
    if equation != 4:
        return None
    # B·G + g(n−1) = t_E/n + B·G/n, of the lesser way: a quadratic in n.
    lesser, gap = (out, gap_out) if in_leads else (into, gap_in)
    if gap <= 0:
        return None
    half = (lesser - gap) / (2 * gap)
    return max(1.0, sqrt(half * half + (kernel + lesser) / gap) - half)
