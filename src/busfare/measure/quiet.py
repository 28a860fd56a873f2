"""Nothing any more: every visit counts."""

from __future__ import annotations

from busfare.measure.raw import Record

__all__ = ["quiet", "quiet_pace_s", "quiet_share"]


def quiet_pace_s(record: Record) -> float | None:
    """No pace is measured."""
    return None


def quiet_share(record: Record) -> float | None:
    """No pace is measured."""
    return None


def quiet(record: Record) -> Record:
    """All visits count."""
    return record
