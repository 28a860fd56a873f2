"""Copies that go: all of a direction or kind, and small values that travel with a kernel's launch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.timeline.changes.change import Applied, Change, Setting, applied, taken_out
from busfare.timeline.changes.prefetch import kernels_held
from busfare.timeline.edit import among, calls_named, of_calls, with_durations, without_operations
from busfare.timeline.model import Timeline
from busfare.trace.api_calls import SYMBOL_COPY

__all__ = ["ARGUMENT_BYTES", "as_arguments", "remove"]

REMOVABLE = ("h2d", "d2h", "d2d", "p2p", "copy", "set", "migration")
#: What every CUDA device takes as a kernel's arguments; newer ones take 32 KiB (CUDA C++ programming guide).
ARGUMENT_BYTES = 4096
FITS = (
    "the values fit into kernel arguments (4 KiB, 32 KiB on newer GPUs), and only the next kernel needs them"
)
Mask = NDArray[np.bool_]


def remove(what: str) -> Change:
    """Operations of one direction or kind are gone, with their calls. Raises InputError for what cannot be removed."""
    if what not in REMOVABLE:
        raise InputError(f"--remove {what[:40]!r}: one of {', '.join(REMOVABLE)}")

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        removed = among(timeline, "direction", what) | among(timeline, "kind", what)
        duration = np.where(removed, 0, timeline.columns["operation_duration"])
        changed = with_durations(timeline, kernels_held(timeline, duration))
        return applied(timeline, without_operations(changed, removed), removed)

    return Change(f"no {what}", ("--remove", what), apply)


def as_arguments() -> Change:
    """Small copies to the GPU between two kernels of a stream travel as the second one's arguments, and so do copies to
    symbols: they and their calls are gone.
    """

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        return taken_out(timeline, _symbols(timeline) | _before_kernels(timeline), FITS)

    return Change("small values as kernel arguments", ("--as-arguments",), apply)


def _symbols(timeline: Timeline) -> Mask:
    """Copies to __constant__ and __device__ symbols, by call or by memory; shape (operations,)."""
    called = of_calls(timeline, calls_named(timeline, SYMBOL_COPY))
    return among(timeline, "kind", "copy") & (called | among(timeline, "destination_memory", "static"))


def _before_kernels(timeline: Timeline) -> Mask:
    """Launched copies to the GPU whose stream's next kernel takes them and all like them since the one before, of
    ARGUMENT_BYTES at most together; shape (operations,).
    """
    sizes = timeline.operations["bytes"].fill_null(ARGUMENT_BYTES + 1).to_numpy()
    small = among(timeline, "kind", "copy") & among(timeline, "direction", "h2d") & (sizes <= ARGUMENT_BYTES)
    small &= timeline.columns["operation_launched"] != 0
    kernels = among(timeline, "kind", "kernel")
    found = np.zeros(len(small), bool)
    streams = timeline.columns["operation_stream"]
    for stream in np.unique(streams[small]):
        rows = np.flatnonzero(streams == stream)
        behind = np.cumsum(kernels[rows])  # the copies before a stream's kernel number n have n - 1 here
        chosen = small[rows]
        together = np.bincount(behind[chosen], weights=sizes[rows][chosen], minlength=int(behind[-1]) + 1)
        fits = (together <= ARGUMENT_BYTES) & (np.arange(len(together)) < behind[-1])
        found[rows[chosen & fits[behind]]] = True
    return found
