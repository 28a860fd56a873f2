"""The timeline rebuilt from a trace, with its dependencies: played as it was, or changed."""

from busfare.timeline.build import timeline
from busfare.timeline.engine import (
    PART_NAMES,
    START_UP,
    UNEXPLAINED,
    Decided,
    PathPart,
    Played,
    critical_path_shares,
    decided,
    limits,
    part_seconds,
    play,
    set_by,
)
from busfare.timeline.model import Timeline

__all__ = [
    "PART_NAMES", "START_UP", "UNEXPLAINED", "Decided", "PathPart", "Played", "Timeline", "critical_path_shares",
    "decided", "limits", "part_seconds", "play", "set_by", "timeline",
]  # fmt: skip
