"""The time line rebuilt from a trace, with its dependencies: played as it was, or changed."""

from busfare.timeline.played import Played, critical_path, critical_path_shares, play, unexplained_seconds
from busfare.timeline.timeline import Timeline, timeline

__all__ = [
    "Played",
    "Timeline",
    "critical_path",
    "critical_path_shares",
    "play",
    "timeline",
    "unexplained_seconds",
]
