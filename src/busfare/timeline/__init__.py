"""The timeline rebuilt from a trace, with its dependencies: played as it was, or changed."""

from busfare.timeline.build import timeline
from busfare.timeline.engine import (
    PART_NAMES,
    Decided,
    PathPart,
    Played,
    critical_path_shares,
    decided,
    limits,
    play,
    set_by,
    startup_seconds,
    unexplained_seconds,
)
from busfare.timeline.model import Timeline

__all__ = [
    "PART_NAMES", "Decided", "PathPart", "Played", "Timeline", "critical_path_shares", "decided", "limits", "play",
    "set_by", "startup_seconds", "timeline", "unexplained_seconds",
]  # fmt: skip
