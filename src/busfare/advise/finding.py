"""What advice consists of."""

from __future__ import annotations

import msgspec

from busfare.advise.chosen import Chosen

__all__ = ["Finding"]


class Finding(msgspec.Struct, frozen=True):
    """One thing to change; names as in docs/json.md.

    `predicted_gain_seconds` is the time saved of the run as a whole, whatever ran side by side in it: where `by_replay`,
    that of the run replayed with the change, otherwise an upper bound. `bound_seconds` is what counting alone bounds, the
    GPU's time in most rules: a replay may find more, for the host's time in a call is saved, too. `rests_on` are the
    conditions of the replay, `what_if` the options with which `busfare what-if` shows it. `gain_with_loop_seconds`: where
    the host's loop around the calls goes as well. `overlaps_with`: ids of the other findings that touch some of the
    same operations; but where the gain is counted on top of another finding's, that is `on_top_of`, for these two do add
    up. `touches` (not in JSON) are the operations that the change is about.
    """

    id: str
    title: str
    evidence: str
    change: str
    predicted_gain_seconds: float
    by_replay: bool = False
    bound_seconds: float | None = None
    rests_on: tuple[str, ...] = ()
    what_if: tuple[str, ...] = ()
    gain_with_loop_seconds: float | None = None
    overlaps_with: tuple[str, ...] = ()
    touches: Chosen | None = None
    on_top_of: str | None = None
