"""What recording cost a run, taken out of it again."""

from __future__ import annotations

from typing import Any

from busfare.timeline import Timeline
from busfare.timeline.recording_cost import unrecorded

__all__ = ["without_recorder"]

NS = 1e-9


def without_recorder(run: Timeline, unrecorded_seconds: float) -> tuple[Timeline, dict[str, Any]]:
    """`run` as it is when it takes `unrecorded_seconds`, and what was taken out; keys as in docs/json.md."""
    bare = unrecorded(run, round(unrecorded_seconds / NS))
    return bare.timeline, {
        "unrecorded_seconds": unrecorded_seconds,
        "call_seconds": bare.call_ns * NS,
        "gap_seconds": bare.timeline.closer_ns * NS,
        "host_pace": bare.pace,
        "replayed_seconds": bare.makespan_ns * NS,
    }
