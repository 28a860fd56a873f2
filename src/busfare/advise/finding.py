"""What advice consists of: a finding, the operations that it looks at, and its words (`advice.toml`)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare import cost
from busfare.advise.amounts import Ranged, several
from busfare.advise.call_sites import CallSite
from busfare.cost.models import Seconds, as_copies_of
from busfare.cost.ranges import finding_between, seconds_between
from busfare.nodes import Node
from busfare.questions import WhatIf
from busfare.trace import Trace
from busfare.trace.columns import numbered, plain
from busfare.trace.lanes import Times, Union, is_work
from busfare.trace.totals import top_kernels

__all__ = [
    "Chosen", "Finding", "RangedFinding", "change_in", "finding", "language_of", "ranged", "rows_of", "rows_of_calls",
]  # fmt: skip

NS = 1e-9
#: What a price needs, and no more.
COLUMNS = (
    *("kind", "direction", "start_ns", "end_ns", "bytes", "source_memory", "destination_memory", "device"),
    *("peer_device", "copy_count"),
)

GAIN_IS = {
    True: "replay: what the run, replayed with the change and all else as it was, saves",
    False: "upper bound: what the change could save at most, if it cost nothing and nothing else stood in its way",
}


@dataclass(frozen=True)
class Chosen:
    """Some operations of a trace, in their order; only what is asked of them is fetched. Shape (rows,)."""

    trace: Trace
    rows: NDArray[np.uint32]

    @property
    def height(self) -> int:
        return len(self.rows)

    @cached_property
    def starts(self) -> Times:
        """Nanoseconds; shape (rows,)."""
        return self.trace.lanes.starts[self.rows]

    @cached_property
    def ends(self) -> Times:
        """Nanoseconds; shape (rows,)."""
        return self.trace.lanes.ends[self.rows]

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes, -1 where they are not known; shape (rows,)."""
        return self.trace.lanes.sizes[self.rows]

    def where(self, wanted: NDArray[np.bool_]) -> Chosen:
        """Those for which `wanted` is true."""
        return Chosen(self.trace, self.rows[wanted])

    def beside(self, others: Chosen) -> Chosen:
        """These, and then others of the same table."""
        return Chosen(self.trace, np.concatenate([self.rows, others.rows]))

    @cached_property
    def _sums(self) -> dict[str, NDArray[np.int64]]:
        """By lane: count, bytes, ns, and the place of the first one among these."""
        lanes = self.trace.lanes.groups.height
        lane = self.trace.lanes.lane_of[self.rows]
        first = np.full(lanes, -1, np.int64)
        first[lane[::-1]] = np.arange(self.height - 1, -1, -1)  # what is written last stays
        sums = {
            "bytes": np.bincount(lane, np.maximum(self.sizes, 0), lanes),
            "ns": np.bincount(lane, self.ends - self.starts, lanes),
        }
        sums = {name: values.astype(np.int64) for name, values in sums.items()}
        return {"count": np.bincount(lane, minlength=lanes), "first": first} | sums

    def bytes(self) -> int:
        """All that are known."""
        return int(self._sums["bytes"].sum())

    def seconds(self) -> float:
        """The sum of their durations."""
        return int(self._sums["ns"].sum()) * NS

    def rate(self) -> float | None:
        """Bytes per second of those durations, None where they are 0."""
        return self.bytes() / self.seconds() if self.seconds() else None

    def __str__(self) -> str:
        """'2,000 copies'."""
        return several(self.height, "copy")

    @cached_property
    def exposed(self) -> float:
        """Seconds in which one of them runs and no kernel computes, on any GPU."""
        return self.trace.lanes.not_beside(self.rows, is_work()) * NS

    @cached_property
    def of_run(self) -> float:
        """Seconds in which at least one of these transfers runs: their time on the length of the run."""
        if self.trace.lanes.transfers_alone:
            return self.seconds()
        return self.trace.lanes.not_beside(self.rows, pl.lit(False)) * NS

    def repriced(self, node: Node, memory: str | None = None) -> Seconds:
        """Seconds that each of these copies would take by the data sheet of `node`, with host memory of kind `memory`.

        What it took where the node has no price. Shape (rows,). Copies that cost alike are priced once.
        """
        keys: list[NDArray[Any]] = [self.trace.lanes.lane_of[self.rows], self.sizes]
        for column in self.columns("copy_count", "peer_device"):
            if column.null_count() < len(column):
                keys += plain(column)
        kind_of, first = numbered(keys)
        prices = _prices(self.columns(*COLUMNS, places=first), node, memory)[kind_of]
        return np.where(np.isnan(prices), (self.ends - self.starts) * NS, prices)

    def in_one(self, node: Node, memory: str | None = None) -> float:
        """At least what the run takes for these copies when all of one direction and GPU are one: the longest of these, in
        seconds by the data sheet of `node`.
        """
        lanes = np.flatnonzero(self._sums["count"])
        lanes = lanes[np.argsort(self._sums["first"][lanes])]
        firsts = self.columns(*COLUMNS, places=self._sums["first"][lanes])
        firsts = firsts.with_columns(bytes=self._sums["bytes"][lanes])
        alike = firsts.group_by("direction", "device", maintain_order=True)
        whole = alike.agg(pl.exclude("bytes").first(), pl.col("bytes").sum()).select(COLUMNS)
        took = ((whole["end_ns"] - whole["start_ns"]) * NS).to_numpy()
        prices = _prices(whole, node, memory)
        return float(np.where(np.isnan(prices), took, prices).max(initial=0.0))

    def saved(self, seconds: Seconds | None) -> float:
        """At most what the run saves when these copies take `seconds` each (none: nothing at all): of each moment once,
        however many of them run in it, and only of those in which no kernel computes.
        """
        if seconds is None:
            return self.exposed
        if self.seconds() <= self.of_run * (1 + 1e-9):  # one at a time
            return max(0.0, min(self.seconds() - float(seconds.sum()), self.exposed))
        shorter = np.maximum((self.ends - self.starts) - np.rint(seconds / NS).astype(np.int64), 0)
        return Union.of(self.ends - shorter, self.ends).minus(self.trace.lanes.union(is_work())) * NS

    def columns(self, *names: str, places: NDArray[np.int64] | None = None) -> pl.DataFrame:
        """Some columns of them; with `places`, of those that stand there."""
        return self.trace.operations.select(names)[self.rows if places is None else self.rows[places]]


def _prices(copies: pl.DataFrame, node: Node, memory: str | None) -> Seconds:
    """Seconds by the data sheet of `node`, with host memory of kind `memory`; NaN where it has none. Shape (rows,)."""
    if memory is not None:
        copies = as_copies_of(copies, memory)
    return cost.model("datasheet").seconds(copies, node)


def rows_of(trace: Trace, lanes: pl.Expr, least: int | None = None, most: int | None = None) -> Chosen:
    """The operations of these lanes; with a limit, of those sizes only."""
    return Chosen(trace, trace.lanes.rows(lanes, least, most))


def rows_of_calls(trace: Trace, lanes: pl.Expr, pattern: str) -> Chosen:
    """The operations of these lanes that a call submitted whose name contains the regular expression `pattern`."""
    return Chosen(trace, trace.submitted(pattern, lanes))


class Finding(msgspec.Struct, frozen=True):
    """One thing to change; names as in docs/json.md.

    `predicted_gain_seconds` is the time saved of the run as a whole, whatever ran side by side in it: where `by_replay`,
    that of the run replayed with the change, otherwise an upper bound. `bound_seconds` is what counting alone bounds, the
    GPU's time in most rules: a replay may find more, for the host's time in a call is saved, too. `rests_on` are the
    conditions of the replay, `what_if` the question that `busfare what-if` answers by it. `overlaps_with`: ids of the other
    findings that touch some of the same operations; but where the gain is counted on top of another finding's, that is
    `on_top_of`, for these two do add up. Not in JSON: `touches` and `calls` are the operations that the change is about, and
    rows of the calls; `touched_seconds`: for how long of the run something that the replayed change touches was under way
    (None: maybe all of it).
    """

    id: str
    title: str
    evidence: str
    change: str
    predicted_gain_seconds: float
    by_replay: bool = False
    bound_seconds: float | None = None
    rests_on: tuple[str, ...] = ()
    what_if: WhatIf | None = None
    overlaps_with: tuple[str, ...] = ()
    touches: Chosen | None = None
    calls: NDArray[np.uint32] | None = None
    touched_seconds: float | None = None
    on_top_of: str | None = None
    call_sites: tuple[CallSite, ...] = ()


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


class RangedFinding(Ranged, kw_only=True):
    """A finding, with the range of its gain."""

    id: str
    title: str
    evidence: str
    change: str
    predicted_gain_seconds: float
    gain_is: str
    by_replay: bool
    bound_seconds: float | None
    rests_on: list[str]
    what_if: list[str]
    overlaps_with: list[str]
    call_sites: list[CallSite]


def ranged(
    finding: Finding, run_seconds: float, node: Node | None, unrecorded: float | None = None
) -> RangedFinding:
    """`finding` in a run of `run_seconds` recorded on `node`; `unrecorded` as of `questions.Report`."""
    gain, by_replay = finding.predicted_gain_seconds, finding.by_replay
    between = finding_between(gain, by_replay, (), run_seconds, node, finding.touched_seconds)
    low, high = between or (None, None)
    keys = msgspec.structs.asdict(finding)
    keys |= seconds_between(low, high, "calibrated", "nothing in the trace bounds it")
    keys |= {
        "gain_is": GAIN_IS[by_replay],
        "what_if": replace(finding.what_if, unrecorded=unrecorded).option_words() if finding.what_if else [],
    }
    return msgspec.convert(keys, RangedFinding)
