"""A load cut into equal chunks: the terms of the closed forms, with what copies of many streams wait for."""

from __future__ import annotations

import numpy as np

from busfare.node.arrays import FloatArray
from busfare.plan.equations import Cut, MappedWork
from busfare.plan.line import Line
from busfare.plan.machine import Machine
from busfare.plan.work import Lines, Load

__all__ = ["cut_of", "mapped_work"]

#: A copy waits for the other way's turns for this share of its own bytes' time at most [*scale* of a megabyte in 2 to 16
#: chunks, eight runs on H100s and H200s].
_MOST_TURN = 0.5


def cut_of(load: Load, machine: Machine, lines: Lines, streams: FloatArray) -> Cut:
    """The terms of the closed forms for equal chunks in `streams` streams.

    A way without data has neither L+o nor g. Where there are several arrays each way, each chunk has as many
    copies, and every copy but the first adds g.
    """
    h2d_size, d2h_size = load.h2d_bytes / streams / load.copies_in, load.d2h_bytes / streams / load.copies_out
    h2d_latency, h2d_gap_byte = lines.h2d.at(h2d_size)
    d2h_latency, d2h_gap_byte = lines.d2h.at(d2h_size)
    into, out = ((bytes_ > 0).astype(np.float64) for bytes_ in (load.h2d_bytes, load.d2h_bytes))
    h2d_moving, d2h_moving = load.h2d_bytes * h2d_gap_byte, load.d2h_bytes * d2h_gap_byte
    # g of copies that follow another of their own chunk, and of those that begin a chunk.
    h2d_within = (load.copies_in - 1) * machine.h2d.gap * into * streams
    d2h_within = (load.copies_out - 1) * machine.d2h.gap * out * streams
    h2d_gap = lines.h2d.gap_of(streams, h2d_size, machine.h2d.gap) * into
    d2h_gap = lines.d2h.gap_of(streams, d2h_size, machine.d2h.gap) * out
    waits = machine.waits(streams, lines.after_copy * into)
    # One unit of the GPU hands out the copies of all streams: those of each way wait for the other's turns too, but
    # for short ones, whose turns come while others are under way.
    h2d_turns = h2d_gap + np.minimum(_turn(lines.d2h, streams) * out, _MOST_TURN * h2d_moving / streams)
    d2h_turns = d2h_gap + np.minimum(_turn(lines.h2d, streams) * into, _MOST_TURN * d2h_moving / streams)
    # Beside copies the other way each copy adds more, whichever stream it is in; of short ones no more than their bytes.
    into_slowed = _in_streams(lines.h2d_slowdown, lines.h2d_streams, streams)
    out_slowed = _in_streams(lines.d2h_slowdown, lines.d2h_streams, streams)
    copies_in, copies_out = load.copies_in * into * streams, load.copies_out * out * streams
    h2d_more = np.minimum(max(lines.h2d_gap_shared - machine.h2d.gap, 0.0) * copies_in, h2d_moving)
    d2h_more = np.minimum(max(lines.d2h_gap_shared - machine.d2h.gap, 0.0) * copies_out, d2h_moving)
    return Cut(
        streams,
        h2d_moving + h2d_within,
        load.kernel,
        d2h_moving + d2h_within,
        h2d_latency * into,
        # What copies out start from is a kernel.
        np.maximum(d2h_latency + lines.d2h.after_kernel + waits, 0.0) * out,
        h2d_gap,
        d2h_gap,
        _slowdown(
            h2d_moving,
            load.h2d_bytes * lines.h2d.long_gap * into_slowed * (into_slowed > 1),
            h2d_within + h2d_gap * (streams - 1),
            h2d_within + h2d_turns * (streams - 1) + h2d_more,
        ),
        _slowdown(
            d2h_moving,
            load.d2h_bytes * lines.d2h.long_gap * out_slowed * (out_slowed > 1),
            d2h_within + d2h_gap * (streams - 1),
            d2h_within + d2h_turns * (streams - 1) + d2h_more,
        ),
        load.kernels_together,
    )


def _in_streams(slowdown: float, measured: tuple[tuple[int, float], ...], streams: FloatArray) -> FloatArray:
    """How much longer a byte takes while copies go the other way: `slowdown` in one stream each way, and by the number
    of streams as `measured`, along a line in its logarithm.
    """
    counts, factors = zip((1, slowdown), *measured, strict=True)
    return np.interp(np.log(streams), np.log(counts), np.maximum(factors, slowdown))


def _turn(line: Line, streams: FloatArray) -> FloatArray:
    """What handing out a copy of another stream takes (s): what each adds that has hardly a byte. None where no rows
    were measured, or where one stream carries all.
    """
    if not line.rows:
        return np.zeros(1)
    return line.gap_of(streams, np.ones(1), 0.0)


def _slowdown(
    moving: FloatArray, moving_shared: FloatArray, gaps: FloatArray, gaps_shared: FloatArray
) -> FloatArray:
    """How much longer copies take while the other way moves data: their bytes at the link's pace then, which leaves
    alone what is slower anyhow, and their gaps.
    """
    alone = moving + gaps
    shared = np.maximum(moving, moving_shared) + np.maximum(gaps, gaps_shared)
    return np.where(alone > 0, shared / np.where(alone > 0, alone, 1.0), 1.0)


def mapped_work(load: Load, lines: Lines) -> MappedWork:
    """The terms of [W14 eq 6]."""
    h2d_latency, h2d_gap = lines.h2d.at(load.h2d_bytes)
    d2h_latency, d2h_gap = lines.d2h.at(load.d2h_bytes)
    return MappedWork(
        load.h2d_bytes * h2d_gap,
        load.kernel,
        load.d2h_bytes * d2h_gap,
        h2d_latency * (load.h2d_bytes > 0),
        d2h_latency * (load.d2h_bytes > 0),
    )
