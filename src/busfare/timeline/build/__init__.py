"""A trace as a timeline that can be changed and played: columns of calls and operations with what each waits for."""

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.nodes import Node
from busfare.timeline import _core
from busfare.timeline.build.first_calls import startup
from busfare.timeline.build.links import alone, shared_links
from busfare.timeline.build.waiting import acts, gaps_behind_work, waits, with_polling_waits
from busfare.timeline.build.work import (
    between_calls,
    class_of,
    engines,
    handed_over,
    issued,
    observed_before,
    outermost,
    unit_of,
    without_pollers,
)
from busfare.timeline.model import LINK_COLUMNS, LONGEST_NS, Columns, Timeline, at_rest
from busfare.trace import Trace
from busfare.trace.lanes import Union
from busfare.trace.omissions import INCOMPLETE, omission
from busfare.trace.tables import CALLS, conform
from busfare.trace.words import HOST_FUNCTION, Names, calls_named

__all__ = ["timeline"]

TIMES = ("start_ns", "end_ns")
#: Calls of MPI carry such numbers, below all that a profiler gives.
RANGE_CORRELATION = -(1 << 40)


def timeline(trace: Trace, node: Node | None = None, alone_there: bool = True) -> Timeline:
    """`trace` taken apart; `node` is where it was recorded, `alone_there` or beside others, to whom links are left.
    Raises InputError where it holds nothing with times.
    """
    trace, moved = _within_a_year(with_mpi_calls(trace) if alone_there else trace)
    working_calls = without_pollers(trace.calls.with_row_index("row"))
    host = outermost(with_polling_waits(working_calls, trace.operations, trace.markers))
    work = issued(trace, host)
    calls, operations = host.calls, work.operations
    if operations.height == 0 and calls.height == 0:
        cut = any(noted.id in INCOMPLETE for noted in trace.omissions)
        raise InputError(
            f"{trace.path}: nothing in this trace has timestamps, and there is nothing to replay"
            + " (the file is truncated or damaged)" * cut
        )
    times = pl.concat([frame.select(TIMES) for frame in (calls, operations)])
    origin, end = int(times["start_ns"].min()), int(times["end_ns"].max())  # type: ignore[arg-type]
    done = acts(trace, host, work)
    waiting_for = waits(host, work, done, trace.lacks_kernels)
    after, released = _stand_ins(operations, origin)
    engine, slots = engines(work, trace)
    call_after = handed_over(calls)
    gap = between_calls(calls, call_after, origin)
    busy = Union.of(*(operations[name].to_numpy() for name in TIMES))
    # A call does its work behind what it starts up.
    started = startup(host, work, waiting_for.kind)
    calls = calls.with_columns(pl.col("start_ns") + started)
    names = Names.of_calls(calls)
    recorded: Columns = {
        f"{table}_{name.removesuffix('_ns')}": (frame[name] - origin if origin else frame[name]).to_numpy()
        for table, frame in (("call", calls), ("operation", operations))
        for name in TIMES
    }
    at_start = at_rest(
        calls.height,
        operations.height,
        work.streams.height,
        call_thread=calls["thread_number"],
        call_gap=gap + started,
        call_after=call_after,
        call_wait=waiting_for.kind,
        call_wait_key=waiting_for.key,
        call_act=done.kind,
        call_act_stream=done.stream,
        call_act_event=done.event,
        operation_call=operations["call"],
        operation_launched=operations["launched"],
        operation_stream=operations["stream_number"],
        operation_engine=engine,
        operation_duration=recorded["operation_end"] - recorded["operation_start"],
        operation_turn=recorded["operation_start"],
        operation_after=after,
        operation_released=released,
        stream_device=work.streams["device_number"],
        stream_context=work.streams["context_number"],
        stream_kind=work.streams["kind_number"],
        engine_slots=slots,
    )
    recorded |= {
        # What calls take that may have waited says nothing of others of their name.
        "call_class": np.where(
            waiting_for.unknown, np.uint8(255), np.minimum(names.of, 254).astype(np.uint8)
        ),
        "operation_class": class_of(operations),
        "operation_unit": unit_of(operations),
    }
    explained = _core.explain(at_start, recorded)
    columns = {
        name: explained.get(name, values) for name, values in at_start.items() if name not in LINK_COLUMNS
    }
    columns |= {"call_gap": gap, "call_startup": started}
    del at_start
    links = shared_links(operations, node) if node is not None and alone_there else None
    if links is not None:
        links, columns = alone(links, columns, operations, recorded)
    launched = operations["launched"]
    used = work.streams[operations["stream_number"].unique()]
    notes = {
        "replay-launches": operations.height - launched.sum(),
        "replay-graphs": (operations["graph_node"].is_not_null() & launched).sum(),
        "replay-waits": waiting_for.guessed,
        "replay-waits-unknown": waiting_for.unknown.sum(),
        "replay-events": done.lost,
        "replay-pollers": trace.calls.height - working_calls.height,
        "replay-inferred-events": done.inferred,
        "replay-host-functions": calls_named(calls, HOST_FUNCTION, names).height,
        "replay-late": moved,
        "replay-spins": operations.height
        and gaps_behind_work(calls["start_ns"].to_numpy() - started, gap, busy),
        "replay-streams": (~used["kind_known"]).sum() if used.height > 1 else 0,
        "replay-contradictions": explained["waits_dropped"] + explained["orders_dropped"],
        "replay-narrowed": explained["waits_narrowed"],
    }
    return Timeline(
        trace=trace,
        origin_ns=origin,
        recorded_ns=end - origin,
        columns=columns,
        operations=operations,
        calls=calls,
        call_name=names.of,
        call_names=[name or "" for name in names.texts],
        usual_order_ns=explained["typical_order"],
        omissions=[omission(key, int(count)) for key, count in notes.items() if count],
        node=node,
        links=links,
    )


def with_mpi_calls(trace: Trace) -> Trace:
    """`trace` with MPI's calls behind its own; their correlations say which of its markers they are."""
    ranges = trace.mpi_calls.unique("marker")
    if ranges.is_empty():
        return trace
    calls = trace.markers[ranges["marker"]].with_columns(
        correlation=RANGE_CORRELATION - ranges["marker"].cast(pl.Int64), waits_for=pl.lit("none")
    )
    return replace(trace, calls=pl.concat([trace.calls, conform(calls, CALLS)], how="diagonal"))


def _within_a_year(trace: Trace) -> tuple[Trace, int]:
    """`trace` with times cut a year after its first, and how many rows that moved. No working clock gives such times."""
    tables = {name: getattr(trace, name) for name in ("operations", "calls", "events")}
    times = pl.concat([frame.select(TIMES) for frame in tables.values()])
    end = (times["start_ns"].min() or 0) + LONGEST_NS
    moved = times.filter(pl.any_horizontal(pl.col(*TIMES) > end)).height
    if not moved:
        return trace, 0
    kept = {name: frame.with_columns(pl.col(*TIMES).clip(upper_bound=end)) for name, frame in tables.items()}
    return replace(trace, **kept), moved


def _stand_ins(operations: pl.DataFrame, origin: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Observed order for work inside graph launches and for work that no recorded call launched."""
    launched = operations["launched"].to_numpy()
    in_graph = operations["graph_node"].is_not_null().to_numpy() & launched
    after = np.full(operations.height, -1, np.int32)
    if in_graph.any():
        groups = np.where(in_graph, operations["call"].to_numpy().astype(np.int64) + 1, 0)
        after = np.where(in_graph, observed_before(operations, groups), after).astype(np.int32)
    if not launched.all():
        processes = operations.select(pl.col("process").fill_null(-1).rank("dense"))["process"].to_numpy()
        before = observed_before(operations, processes.astype(np.int64))
        after = np.where(launched, after, before).astype(np.int32)
    alone = ~launched & (after < 0)
    released = np.zeros(operations.height, np.int64)
    released[alone] = operations["start_ns"].to_numpy()[alone] - origin
    return after, released
