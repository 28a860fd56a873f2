"""The time line rebuilt from a trace, with its dependencies: played as it was, or changed."""

from busfare.timeline.build import timeline
from busfare.timeline.model import Timeline
from busfare.timeline.play import PathPart, Played, critical_path_shares, play, unexplained_seconds

__all__ = [
    "PathPart",
    "Played",
    "Timeline",
    "critical_path_shares",
    "play",
    "timeline",
    "unexplained_seconds",
]
