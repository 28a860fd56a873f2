"""What advice consists of."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to change.

    `gain_seconds` is the run time saved: where `by_replay`, that of the run replayed with the change, otherwise an
    upper bound; None where nothing bounds it. `bound_seconds` is what counting alone bounds, the GPU's time in most
    rules: a replay may find more, for the host's time in a call is saved, too. `rests_on` are the
    conditions of the replay, `what_if` the options with which `busfare what-if` shows it.
    """

    id: str
    title: str
    evidence: str
    change: str
    gain_seconds: float | None
    by_replay: bool = False
    bound_seconds: float | None = None
    rests_on: tuple[str, ...] = field(default=())
    what_if: tuple[str, ...] = field(default=())
