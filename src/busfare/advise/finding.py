"""What advice consists of: a finding, the operations that it looks at, and the places that call them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare import cost
from busfare.advise.amounts import Ranged, several, size, time
from busfare.cost.models import as_copies_of
from busfare.cost.ranges import gain_between, seconds_between
from busfare.nodes import FloatArray, Node
from busfare.questions import WhatIf
from busfare.statements import Statement, Words, sentences
from busfare.trace import Trace
from busfare.trace.columns import first_pairs, numbered, plain
from busfare.trace.lanes import Times, Union, is_work
from busfare.trace.sites import stacks
from busfare.trace.tables import CALLS_LOCATED
from busfare.trace.totals import top_kernels

NS = 1e-9
#: What a price needs, and no more.
COLUMNS = (
    *("kind", "direction", "start_ns", "end_ns", "bytes", "source_memory", "destination_memory", "device"),
    *("peer_device", "copy_count"),
)
#: What compilers call the kernels of a region: nvc and nvfortran, Clang and what is made from it, GCC, Cray.
LANGUAGES = {
    "OpenMP": r"^nvkernel_\w+_F\d+L\d+|^__omp_offloading_|\$_omp_fn\$",
    "OpenACC": r"_\d+_gpu(__red)?$|^__pgi_uacc_|\$_oacc_fn\$|\$ck_L\d+",
}

Rows = NDArray[np.int64]
#: What a change costs stands with it from this share of its gain on; below, with the evidence.
WORTH_A_LINE = 0.1
#: Of a finding so many are named.
MOST_SITES = 5
#: Numbers that count steps, batches or layers, and what PyTorch's `emit_nvtx` says of each call: ranges that differ in
#: nothing else are one.
COUNTED, OF_CALL = r"(\b|_)\d+\b", r", (seq|op_id|sizes) = .*$"


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

    def where(self, wanted: NDArray[np.bool_]) -> "Chosen":
        """Those for which `wanted` is true."""
        return Chosen(self.trace, self.rows[wanted])

    def and_then(self, following: "Chosen") -> "Chosen":
        """These, and then others of the same table."""
        return Chosen(self.trace, np.concatenate([self.rows, following.rows]))

    def bytes(self) -> int:
        """All that are known."""
        return int(np.maximum(self.sizes, 0).sum())

    def seconds(self) -> float:
        """The sum of their durations."""
        return int((self.ends - self.starts).sum()) * NS

    def rate(self) -> float | None:
        """Bytes per second of those durations, None where they are 0."""
        return self.bytes() / self.seconds() if self.seconds() else None

    def figures(self) -> dict[str, float | None]:
        """What a sentence names of them."""
        return {
            "count": self.height,
            "bytes": self.bytes(),
            "seconds": self.seconds(),
            "bytes_per_second": self.rate(),
        }

    @cached_property
    def exposed(self) -> float:
        """Seconds in which one of them runs and no kernel computes, on any GPU."""
        return self.trace.lanes.uncovered_ns(self.rows, is_work()) * NS

    @cached_property
    def of_run(self) -> float:
        """Seconds in which at least one of these transfers runs: their time on the length of the run."""
        if self.trace.lanes.transfers_alone:
            return self.seconds()
        return self.trace.lanes.uncovered_ns(self.rows, pl.lit(False)) * NS

    def repriced(self, node: Node, memory: str | None = None) -> FloatArray:
        """Seconds that each of these copies would take by the data sheet of `node`, with host memory of kind `memory`. What
        it took where the node has no price. Shape (rows,). Copies that cost alike are priced once.
        """
        keys: list[NDArray[Any]] = [self.trace.lanes.lane_of[self.rows], self.sizes]
        for column in self.columns("copy_count", "peer_device"):
            if column.null_count() < len(column):
                keys += plain(column)
        kind_of, first = numbered(keys)
        prices = _prices(self.columns(*COLUMNS, places=first), node, memory)[kind_of]
        return np.where(np.isnan(prices), (self.ends - self.starts) * NS, prices)

    def merged_seconds(self, node: Node, memory: str | None = None) -> float:
        """The least time of these copies, all of a direction and GPU being one: the longest, s, by `node`'s data sheet."""
        alike = self.columns(*COLUMNS).group_by("direction", "device", maintain_order=True)
        whole = alike.agg(pl.exclude("bytes").first(), pl.col("bytes").sum()).select(COLUMNS)
        took = ((whole["end_ns"] - whole["start_ns"]) * NS).to_numpy()
        prices = _prices(whole, node, memory)
        return float(np.where(np.isnan(prices), took, prices).max(initial=0.0))

    def saved(self, seconds: FloatArray | None) -> float:
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


def _prices(copies: pl.DataFrame, node: Node, memory: str | None) -> FloatArray:
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


class CallSite(msgspec.Struct, frozen=True):
    """Calls from one place in the program, and what they caused; names as in docs/json.md."""

    site: str | None
    module: str | None
    ranges: list[str]
    count: int
    bytes: int | None
    seconds: float

    def __str__(self) -> str:
        """'At train.py:42 load_batch, in epoch › step: 6 copies, 231 MB, 20 ms'."""
        inside = " › ".join([*self.ranges, *([self.module] if self.module else [])])
        place = ", in ".join(filter(None, (self.site and f"At {self.site}", inside)))
        what = several(self.count, "call" if self.bytes is None else "copy")
        moved = f", {size(self.bytes)}" if self.bytes else ""
        return f"{place if self.site else f'In {place}'}: {what}{moved}, {time(self.seconds)}"


class Finding(msgspec.Struct, frozen=True):
    """One thing to change; names as in docs/json.md.

    `predicted_gain_seconds`: time saved of the whole run, from a replay with the change if `by_replay`, otherwise an upper
    bound. `bound_seconds`: the most that the change can gain: the gain without its operations, or the time in which any
    operation that it touches was running. `rests_on`: the conditions of the replay. `what_if`: the question of `busfare
    what-if` that gives this gain. `overlaps_with`: ids of other findings that touch some of the same operations. Not in
    JSON: `touches` and `calls`: the operations of the change, and rows of the calls; `first_seconds`: the gain of another
    finding whose change must come first; `cost`: what the change itself costs; `cost_error`: as in `Applied`.
    """

    id: str
    title: Statement
    evidence: Words
    change: Statement
    predicted_gain_seconds: float
    by_replay: bool = False
    bound_seconds: float | None = None
    rests_on: tuple[Words, ...] = ()
    what_if: WhatIf | None = None
    overlaps_with: tuple[str, ...] = ()
    touches: Chosen | None = None
    calls: NDArray[np.uint32] | None = None
    first_seconds: float = 0.0
    cost: Statement | None = None
    cost_error: tuple[float, float] = (0.0, 0.0)
    call_sites: tuple[CallSite, ...] = ()


def finding(
    id: str,
    evidence: Sequence[Words],
    gain: float,
    touches: Chosen | None = None,
    title: str = "title",
    change: str = "change",
) -> Finding:
    """A finding by counting; `gain`: at most, s; `title` and `change`: which of its statements."""
    stated = Statement(f"{id}.{title}"), sentences(*evidence), Statement(f"{id}.{change}")
    return Finding(id, *stated, gain, touches=touches)


def language_of(trace: Trace) -> str | None:
    """The language of directives (OpenMP, OpenACC) that one of the ten longest kernels is from; None for other programs."""
    names = top_kernels(trace, 10)["name"]
    marked = (key for key, mark in LANGUAGES.items() if names.str.contains(mark).fill_null(False).any())
    return next(marked, None)


def call_sites(trace: Trace, findings: Sequence[Finding]) -> list[tuple[CallSite, ...]]:
    """Of each finding the places that its operations, or else its calls, are called from; what takes longest first. None
    where the trace says nothing of where its calls are made, or not which call made which operation.
    """
    calls, ranges = trace.calls, trace.markers.drop_nulls("end_ns")
    if calls.is_empty() or ("site" not in calls.columns and ranges.is_empty()):
        return [()] * len(findings)
    caused = [_caused(trace, finding) for finding in findings]
    touched = np.zeros(calls.height, np.bool_)
    for rows, *_ in caused:
        touched[rows] = True
    if not touched.any():
        return [()] * len(findings)
    names, name = _names(ranges)
    stack = np.zeros(calls.height, np.int64)
    around, stack[touched] = stacks(ranges, calls.filter(pl.Series(touched)), name)
    within = [[names[code] for code in codes] for codes in around]
    return [_grouped(calls, *what, stack, within) for what in caused]


def _caused(trace: Trace, finding: Finding) -> tuple[Rows, Rows, Rows | None]:
    """Rows of the calls, the nanoseconds that each took or caused, and the bytes that it moved."""
    touches, calls = finding.touches, finding.calls
    if touches is not None and touches.height:
        rows = first_pairs(trace.calls, touches.columns("process", "correlation")).astype(np.int64)
        paired = rows >= 0
        return rows[paired], (touches.ends - touches.starts)[paired], np.maximum(touches.sizes[paired], 0)
    rows = np.zeros(0, np.int64) if calls is None else calls.astype(np.int64)
    times = trace.calls.select("start_ns", "end_ns")[rows]
    return rows, (times["end_ns"] - times["start_ns"]).to_numpy(), None


def _grouped(
    calls: pl.DataFrame, rows: Rows, ns: Rows, sizes: Rows | None, stack: Rows, within: list[list[str]]
) -> tuple[CallSite, ...]:
    if not len(rows):
        return ()
    located = {name: calls[name][rows] for name in CALLS_LOCATED if name in calls.columns}
    codes = [column.to_physical().cast(pl.Int64).fill_null(-1).to_numpy() for column in located.values()]
    number, first = numbered([stack[rows], *codes])
    count, total = np.bincount(number), np.bincount(number, ns)
    moved = None if sizes is None else np.bincount(number, sizes)
    sites: list[CallSite] = []
    for group in np.argsort(-total, kind="stable").tolist():
        at = int(first[group])
        site, module = (located[name][at] if name in located else None for name in CALLS_LOCATED)
        ranges = within[stack[rows[at]]]
        if site is not None or ranges:
            bytes_ = None if moved is None else int(moved[group])
            sites.append(CallSite(site, module, ranges, int(count[group]), bytes_, float(total[group]) * NS))
        if len(sites) == MOST_SITES:
            break
    return tuple(sites)


def _names(ranges: pl.DataFrame) -> tuple[list[str], Rows]:
    """The different names of ranges, with what counts them left out, and which one each range has."""
    names = ranges["name"].cast(pl.String).fill_null("(unnamed)")
    names = names.str.replace(OF_CALL, "").str.replace_all(COUNTED, "${1}*")
    texts = names.unique(maintain_order=True)
    return texts.to_list(), names.cast(pl.Enum(texts)).to_physical().cast(pl.Int64).to_numpy()


class Advised(Ranged, kw_only=True):
    """What one run shows, what to change and what that gains."""

    evidence: Words
    change: Words
    predicted_gain_seconds: float
    by_replay: bool
    rests_on: list[Words]
    what_if: list[str]
    call_sites: list[CallSite] = msgspec.field(default_factory=list)


class RangedFinding(Advised, kw_only=True):
    """A finding, with the range of its gain."""

    id: str
    title: Words
    bound_seconds: float | None
    overlaps_with: list[str]


def ranged(finding: Finding, repeated: Mapping[str, Any] | None = None) -> RangedFinding:
    """`finding` with the range of its gain. `repeated`: options of the report that its command repeats, by field."""
    bound = finding.bound_seconds if finding.by_replay else None
    low, high = gain_between(finding.predicted_gain_seconds, bound, finding.cost_error)
    keys = msgspec.structs.asdict(finding) | seconds_between(low, high, "calibrated")
    question = finding.what_if and replace(finding.what_if, **(repeated or {}))
    keys["what_if"] = question.option_words() if question else []
    if finding.cost is not None:
        most = cast(float, finding.cost.figures["high_seconds"])
        says = "change" if most > WORTH_A_LINE * finding.predicted_gain_seconds else "evidence"
        keys[says] = sentences(keys[says], cast(Words, finding.cost))
    return msgspec.convert(keys, RangedFinding)
