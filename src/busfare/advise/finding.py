"""What advice consists of: findings, what they are called and the changes that they advise (`advice.toml`)."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import msgspec

from busfare.advise.chosen import Chosen
from busfare.trace import Trace
from busfare.trace.totals import top_kernels

__all__ = ["Finding", "change_in", "finding", "language_of"]


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


@cache
def _words() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("advice.toml").read_text("utf-8"))


def finding(id: str, evidence: str, gain: float, touches: Chosen | None = None) -> Finding:
    """A finding by counting, in its own words; `gain`: at most, s."""
    words = _words()[id]
    return Finding(id, words["title"], evidence, words["change"], gain, touches=touches)


def language_of(trace: Trace) -> str | None:
    """The language of directives (OpenMP, OpenACC) that one of the ten longest kernels is from; None for other programs."""
    names = top_kernels(trace, 10)["name"]
    languages = _words()["languages"].items()
    return next(
        (each for each, pattern in languages if names.str.contains(pattern).fill_null(False).any()), None
    )


def change_in(language: str | None, found: Finding) -> str:
    """The change that a finding advises, in the words of a language of directives where it has some."""
    return _words()[found.id].get(language or "", found.change)
