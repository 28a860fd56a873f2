"""What advice consists of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from busfare.advise.chosen import Chosen

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to change.

    `gain_seconds` is the time saved of the run as a whole, whatever ran side by side in it: where `by_replay`, that of
    the run replayed with the change, otherwise an upper bound. `bound_seconds` is what counting alone bounds, the GPU's
    time in most rules: a replay may find more, for the host's time in a call is saved, too. `with_loop_seconds` is the
    gain where the host's loop around the calls goes as well. `rests_on` are the
    conditions of the replay, `what_if` the options with which `busfare what-if` shows it. `touches` are the operations
    that the change is about, `overlaps_with` the ids of the other findings that touch some of the same; but
    where the gain is counted on top of another finding's, that is `on_top_of`, for these two do add up.
    """

    id: str
    title: str
    evidence: str
    change: str
    gain_seconds: float
    by_replay: bool = False
    bound_seconds: float | None = None
    rests_on: tuple[str, ...] = field(default=())
    what_if: tuple[str, ...] = field(default=())
    with_loop_seconds: float | None = None
    touches: Chosen | None = field(default=None, compare=False, repr=False)
    on_top_of: str | None = None
    overlaps_with: tuple[str, ...] = field(default=())
