"""What advice consists of."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to change. `gain_seconds` is an upper bound of the run time saved; None where nothing bounds it."""

    id: str
    title: str
    evidence: str
    change: str
    gain_seconds: float | None
