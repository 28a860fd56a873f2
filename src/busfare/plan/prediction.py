"""What one strategy is predicted to take."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Prediction"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one strategy takes; `by` names the equation, or the schedule."""

    strategy: str
    streams: int
    seconds: float
    by: str
