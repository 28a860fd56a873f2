"""What the results of several commands consist of: counts, paths, predictions with their ranges, findings.

Seconds, bytes, bytes per second; None is 'not known'.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec
import polars as pl
from msgspec import UNSET, Struct, UnsetType

from busfare.advise import CallSite, Finding, amounts
from busfare.cost.ranges import finding_between, seconds_between
from busfare.nodes import Node
from busfare.statements import Words

Row = TypeVar("Row")

GAIN_IS = {
    True: "replay: what the run, replayed with the change and all else as it was, saves",
    False: "upper bound: what the change could save at most, if it cost nothing and nothing else stood in its way",
}


def rows_of(row: type[Row], rows: pl.DataFrame | Iterable[Any]) -> list[Row]:
    """Rows of a frame, or of other types with the same attributes, as rows of a result."""
    values = rows.to_dicts() if isinstance(rows, pl.DataFrame) else list(rows)
    # To msgspec named tuples are arrays.
    values = [one._asdict() if hasattr(one, "_asdict") else one for one in values]
    return msgspec.convert(values, list[row], from_attributes=True)  # type: ignore[valid-type]


class Ranged(Struct, kw_only=True):
    """The 80 % range of the prediction that stands beside it, and the rung that it stands on."""

    low_seconds: float | None = None
    high_seconds: float | None = None
    rung: str | None = None
    reason: str | UnsetType = UNSET  # only where there is no range

    def shown(self, seconds: float) -> str:
        """'12.3 ms (11.1–13.9)'."""
        return amounts.between(seconds, self.low_seconds, self.high_seconds)


class Predicted(Ranged, kw_only=True):
    """A predicted time with its range."""

    predicted_seconds: float

    def __str__(self) -> str:
        return self.shown(self.predicted_seconds)


class Path(Struct, kw_only=True):
    """What was moved between two kinds of memory."""

    direction: str | None
    source_memory: str | None
    destination_memory: str | None
    count: int
    bytes: int
    seconds: float
    bytes_per_second: float | None


class Sized(Struct):
    """A decade of sizes; the upper is exclusive."""

    lower_bytes: int
    upper_bytes: int
    count: int
    seconds: float


class RangedFinding(Ranged, kw_only=True):
    """A finding, with the range of its gain."""

    id: str
    title: Words
    evidence: Words
    change: Words
    predicted_gain_seconds: float
    gain_is: str
    by_replay: bool
    bound_seconds: float | None
    rests_on: list[Words]
    what_if: list[str]
    overlaps_with: list[str]
    call_sites: list[CallSite]


def ranged(
    finding: Finding, run_seconds: float, node: Node | None, options: Sequence[str] = ()
) -> RangedFinding:
    """`finding` in a run of `run_seconds` recorded on `node`; `options` are those that `what-if` needs beside its own."""
    gain, by_replay = finding.predicted_gain_seconds, finding.by_replay
    between = finding_between(gain, by_replay, finding.what_if, run_seconds, node, finding.touched_seconds)
    low, high = between or (None, None)
    keys = msgspec.structs.asdict(finding)
    keys |= seconds_between(low, high, "calibrated", "nothing in the trace bounds it")
    keys |= {
        "gain_is": GAIN_IS[by_replay],
        "what_if": [*finding.what_if, *(options if finding.what_if else ())],
    }
    return msgspec.convert(keys, RangedFinding)
