"""Copies that go: all of a direction or kind, and small values that travel with a kernel's launch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.timeline.changes.change import Applied, Asked, Change, Option, Setting
from busfare.timeline.changes.prefetch import kernels_held
from busfare.timeline.edit import (
    among,
    bytes_of,
    calls_named,
    with_durations,
    without_operations,
)
from busfare.timeline.model import Timeline
from busfare.trace.api_calls import SYMBOL_COPY
from busfare.trace.words import Words

__all__ = ["ARGUMENT_BYTES", "OPTIONS", "PLACE", "REMOVABLE", "AsArguments", "Remove", "asked"]

REMOVABLE = ("h2d", "d2h", "d2d", "p2p", "copy", "set", "migration")
#: What every CUDA device takes as a kernel's arguments; newer ones take 32 KiB (CUDA C++ programming guide).
ARGUMENT_BYTES = 4096
PLACE = 10
OPTIONS = (
    Option(
        "--remove",
        "Do without h2d, d2h, d2d, p2p, copy, set or migration; may be repeated.",
        "WHAT",
        multiple=True,
    ),
    Option("--as-arguments", "Small values for the next kernel, and for symbols, travel with its launch."),
)
Mask = NDArray[np.bool_]


def asked(options: Asked) -> list[Change]:
    """Raises InputError for what cannot be removed."""
    changes: list[Change] = []
    for what in options.several("remove"):
        if what not in REMOVABLE:
            raise InputError(f"--remove {what[:40]!r}: one of {', '.join(REMOVABLE)}")
        changes.append(Remove(what))
    return changes + ([AsArguments()] if options.flag("as_arguments") else [])


@dataclass(frozen=True)
class Remove:
    """Operations of one direction or kind are gone, with the calls that made them."""

    what: str

    @property
    def title(self) -> str:
        return f"no {self.what}"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--remove", self.what)

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        removed = among(timeline, "direction", self.what) | among(timeline, "kind", self.what)
        duration = np.where(removed, 0, timeline.columns["operation_duration"])
        changed = with_durations(timeline, kernels_held(timeline, duration))
        return Applied(without_operations(changed, removed), int(removed.sum()), bytes_of(timeline, removed))


@dataclass(frozen=True)
class AsArguments:
    """Small copies to the GPU between two kernels of a stream travel as the second one's arguments, and so do copies to
    symbols: they and their calls are gone.
    """

    @property
    def title(self) -> str:
        return "small values as kernel arguments"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--as-arguments",)

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        removed = _symbols(timeline) | _before_kernels(timeline)
        return Applied(
            without_operations(timeline, removed),
            int(removed.sum()),
            bytes_of(timeline, removed),
            [
                "the values fit into kernel arguments (4 KiB, 32 KiB on newer GPUs), and only the next kernel needs them"
            ],
        )


def _symbols(timeline: Timeline) -> Mask:
    """Copies to __constant__ and __device__ symbols, by call or by memory; shape (operations,)."""
    words = Words(timeline.operations)
    launched = timeline.columns["operation_launched"] != 0
    called = np.zeros(timeline.operations.height, bool)
    if timeline.calls.height:
        by_name = calls_named(timeline, SYMBOL_COPY)
        called[launched] = by_name[timeline.columns["operation_call"][launched]]
    static = words.among("destination_memory", "static")
    return np.asarray(words.among("kind", "copy") & (called | static))


def _before_kernels(timeline: Timeline) -> Mask:
    """Launched copies to the GPU whose stream's next kernel takes them and all like them since the one before, of
    ARGUMENT_BYTES at most together; shape (operations,).
    """
    words = Words(timeline.operations)
    sizes = timeline.operations["bytes"].fill_null(ARGUMENT_BYTES + 1).to_numpy()
    small = words.among("kind", "copy") & words.among("direction", "h2d") & (sizes <= ARGUMENT_BYTES)
    small &= timeline.columns["operation_launched"] != 0
    kernels = words.among("kind", "kernel")
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
