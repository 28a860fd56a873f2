"""The time line rebuilt from a trace, with its dependencies: played as it was, or changed."""

from busfare.replay.played import Played, critical_path, play
from busfare.replay.timeline import Timeline, timeline

__all__ = ["Played", "Timeline", "critical_path", "play", "timeline"]
