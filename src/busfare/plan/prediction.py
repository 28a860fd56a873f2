"""What one strategy is predicted to take."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Prediction"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one strategy takes; `by` names the equation, or the schedule. `streams`: of `three-streams` the chunks.

    `assumes`: fields of the problem that nobody gave, and that its seconds rest on.
    """

    strategy: str
    streams: int
    seconds: float
    by: str
    assumes: tuple[str, ...] = ()
