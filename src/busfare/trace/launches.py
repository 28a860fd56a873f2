"""How kernels were launched: distinct launches, PyTorch's operators behind them, GPU memory allocated meanwhile."""

from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace._kineto_events import MISSING, EventScanner
from busfare.trace.columns import decoded_json, first_pairs, first_rows, numbered, occurs, plain
from busfare.trace.model import Trace
from busfare.trace.sites import around_calls, innermost
from busfare.trace.tables import LAUNCH_SHAPE, LAUNCHES, OPERATORS, REACH, Schema, conform
from busfare.trace.words import NONE, Words, with_printable

#: Sides of the largest grid, and threads of the largest block [CUDA: compute capabilities; HIP has no larger ones].
MOST_BLOCKS = {"grid_x": (1 << 31) - 1, "grid_y": (1 << 16) - 1, "grid_z": (1 << 16) - 1}
MOST_THREADS = 1024
#: AMD's CDNA has 512 vector registers a thread; no GPU's shared memory has come near a megabyte.
MOST_REGISTERS, MOST_SHARED_BYTES = 512, 1 << 20
#: A range of PyTorch's `emit_nvtx`: aten::mm, seq = 12, op_id = 34, sizes = [[64, 128], [128, 32]], input_op_ids = …
RANGE = r"^(?P<operator>aten::[\w.]+)(?:,.*?\bsizes = (?P<shapes>\[[\[\]\d, -]*\]))?"


def first_records(operations: pl.DataFrame) -> pl.Series:
    """Whether each operation is no second record of a kernel's launch, with the same times; shape (operations,)."""
    kernel = (pl.col("kind") == "kernel") & pl.col("correlation").is_not_null()
    if not operations.select((kernel & pl.col("start_ns").is_duplicated()).any()).item():
        return pl.repeat(True, operations.height, eager=True)
    record = pl.struct("process", "correlation", "device", "stream", "name", "start_ns", "end_ns")
    return operations.select(~kernel | record.is_first_distinct()).to_series()


def without_call(trace: Trace) -> int:
    """How many operations have no call in the trace that may have launched them."""
    if trace.calls.is_empty():
        return 0
    has_call = occurs(trace.calls, trace.operations)
    orphans = len(has_call) - int(np.count_nonzero(has_call))
    if orphans:
        # The driver makes migrations without a call.
        words = Words(trace.operations)
        migrations = words.among("kind", "migration") | (words.codes("kind") == NONE)
        orphans -= int(np.count_nonzero(migrations & ~has_call))
    return orphans


def number_launches(trace: Trace) -> None:
    """Makes the table of launches, and in the operations the column `launch` of the columns of `LAUNCH_SHAPE`.

    A reader may already have given operators, as the rows of that table that `launch` names. What no launch can have is
    null: sides of grids and blocks together, as one alone says nothing.
    """
    operations = trace.operations
    if "launch" not in operations.columns:
        operations = operations.with_columns(launch=_launched_in_ranges(trace))
    operators = conform(trace.launches, OPERATORS)
    of_launch = (*LAUNCH_SHAPE, *REACH, "launch")
    shape = conform(operations, {**LAUNCH_SHAPE, **REACH, "launch": pl.UInt32()})
    shape = shape.with_columns(_sound()).with_row_index("row").with_columns(kind=operations["kind"])
    launched = (pl.col("kind") == "kernel") & pl.any_horizontal(pl.col(*of_launch).is_not_null())
    of_kernels = shape.filter(launched).drop("kind")
    columns = [of_kernels[name] for name in of_launch]
    number_of, firsts = numbered([numbers for column in columns for numbers in plain(column)])
    launches = of_kernels[pl.Series(firsts)]
    named = operators.with_row_index("launch")
    trace.launches = conform(launches.join(named, on="launch", how="left", maintain_order="left"), LAUNCHES)
    for name in OPERATORS:
        trace.launches = with_printable(trace.launches, name)
    rows = of_kernels["row"].to_numpy()
    launch = pl.repeat(None, operations.height, dtype=pl.UInt32, eager=True).scatter(rows, number_of)
    trace.operations = operations.drop(*LAUNCH_SHAPE, *REACH, strict=False).with_columns(launch=launch)


def _sound() -> list[pl.Expr]:
    """Columns of `LAUNCH_SHAPE`, null where they are what no launch can have."""
    block = ("block_x", "block_y", "block_z")
    threads = pl.col("block_x").cast(pl.Int64) * pl.col("block_y") * pl.col("block_z")
    blocks = pl.all_horizontal(pl.col(side).is_between(1, most) for side, most in MOST_BLOCKS.items())
    sides = pl.all_horizontal(pl.col(side).is_between(1, MOST_THREADS) for side in block)
    return [
        pl.when(blocks).then(pl.col(*MOST_BLOCKS)),
        pl.when(sides & (threads <= MOST_THREADS)).then(pl.col(block)),
        pl.when(pl.col("registers").is_between(1, MOST_REGISTERS)).then("registers"),
        pl.when(pl.col("shared_bytes").is_between(0, MOST_SHARED_BYTES)).then("shared_bytes"),
    ]


def grids_in_blocks(frame: pl.DataFrame, in_items: pl.Expr) -> pl.DataFrame:
    """`frame` with grids counted in blocks, also where they are `in_items`, as HSA counts them; null for blocks of none."""
    sides = [(pl.col(f"grid_{side}"), pl.col(f"block_{side}")) for side in "xyz"]
    return frame.with_columns(
        pl.when(in_items).then((grid + block - 1) // pl.when(block > 0).then(block)).otherwise(grid)
        for grid, block in sides
    )


def _launched_in_ranges(trace: Trace) -> pl.Series:
    """Of each operation the row in `trace.launches`, made here, of the operator around its call, of NVTX ranges."""
    texts = trace.markers["name"].unique().drop_nulls()
    texts = texts.filter(texts.cast(pl.String).str.starts_with("aten::"))
    if texts.is_empty() or trace.calls.is_empty():
        return pl.repeat(None, trace.operations.height, dtype=pl.UInt32, eager=True).alias("launch")
    groups = pl.col("name").cast(pl.String).str.extract_groups(RANGE)
    named = texts.to_frame().with_columns(groups.struct.unnest()).drop_nulls("operator")
    operators = named.select("operator", "shapes").unique(maintain_order=True).with_row_index("launch")
    named = named.join(operators, on=["operator", "shapes"], how="left", nulls_equal=True)
    ranges = trace.markers.join(named.select("name", "launch"), on="name", how="inner", maintain_order="left")
    shapes = [_list_text(text, list[list[Any]]) for text in operators["shapes"]]
    trace.launches = conform(operators.with_columns(pl.Series("shapes", shapes, dtype=pl.String)), LAUNCHES)
    around = around_calls(ranges, trace.calls, first_pairs(trace.calls, trace.operations))
    called = pl.when(trace.operations["graph_node"].is_null()).then(around)
    return ranges["launch"].gather(pl.select(called).to_series())


#: What a signature of Kineto has beside the name of the operator: lists of dimensions, types, and values.
LISTS: tuple[Any, ...] = (list[list[Any]], list[Any], list[Any])


def operators_of(
    scanner: EventScanner, operations: pl.DataFrame, external: pl.Series, calls: pl.DataFrame
) -> tuple[pl.Series, pl.DataFrame]:
    """Column `launch` of the operations, the operator of each kernel, as a row of the second result: of `OPERATORS`.

    It is the one that the kernel's External id (`external`, one an operation) names, else the innermost around the call
    that launched it. Where that is none of `aten` and has no shapes, the innermost one around it with shapes stands for
    it. Kernels of graphs have none: the graph's launch is no part of the operators that were captured.
    """
    called = scanned(scanner.operators)
    launched = operations.with_columns(external=external).with_row_index("row")
    launched = launched.filter((pl.col("kind") == "kernel") & pl.col("graph_node").is_null())
    by_id = launched["external"].fill_null(0).to_numpy()
    row = _first(called["external"], by_id)
    # Until 2023 the id is the call's, whose number may be that of any operator.
    row[by_id == launched["correlation"].fill_null(0).to_numpy()] = -1
    lost = np.flatnonzero(row < 0)
    if len(lost) and called.height:
        call = _first(calls["correlation"], launched["correlation"].fill_null(0).to_numpy()[lost])
        row[lost] = around_calls(called, calls, call).cast(pl.Int64).fill_null(-1).to_numpy()
    row = _with_shapes(row, called, scanner.signatures)
    signature = np.where(row >= 0, called["signature"].to_numpy()[row] if called.height else 0, -1)
    used, number = np.unique(signature, return_inverse=True)
    operators = [_operator(scanner.signatures[some]) if some >= 0 else (None,) * 4 for some in used.tolist()]
    launch = np.full(operations.height, -1, np.int64)
    launch[launched["row"].to_numpy()] = np.where(row >= 0, number, -1)
    return (
        pl.Series("launch", launch).replace(-1, None).cast(pl.UInt32),
        pl.DataFrame(operators, schema=dict(OPERATORS), orient="row"),
    )


def scanned(columns: dict[str, NDArray[np.int64]]) -> pl.DataFrame:
    """Columns of spans of the scanner, with `end_ns`; null where an event says nothing."""
    spans = pl.DataFrame(columns).with_columns(pl.when(pl.all() != MISSING).then(pl.all()))
    return spans.with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))


def _first(have: pl.Series, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first row of each wanted number; -1 where there is none, and of those not above 0."""
    rows = first_rows(have.fill_null(0).to_numpy(), wanted).astype(np.int64)
    rows[wanted <= 0] = -1
    return rows


def _with_shapes(
    row: NDArray[np.int64], called: pl.DataFrame, signatures: list[tuple[bytes, bytes, bytes, bytes]]
) -> NDArray[np.int64]:
    shaped = np.array([bool(shapes) for _, shapes, *_ in signatures], np.bool_)
    enough = shaped | np.array([name.startswith(b'"aten::') for name, *_ in signatures], np.bool_)
    if enough.all() or not shaped.any():
        return row
    signature = called["signature"].to_numpy()
    poor = np.unique(row[row >= 0])
    poor = poor[~enough[signature[poor]]]
    spans = np.flatnonzero(shaped[signature])
    points = called.select("process", "thread", "start_ns", "end_ns")[poor]
    around = innermost(called[spans], points)
    within = called["end_ns"][spans].gather(around) >= points["end_ns"]
    place = np.arange(called.height)
    place[poor] = np.where(within.fill_null(False), spans[around.fill_null(0).to_numpy()], poor)
    return np.where(row >= 0, place[row], -1)


def _operator(signature: tuple[bytes, bytes, bytes, bytes]) -> tuple[str | None, ...]:
    """A row of `OPERATORS`."""
    name, *lists = signature
    return decoded_json(name, str), *(_list_text(part, kind) for part, kind in zip(lists, LISTS, strict=True))


def _list_text(text: str | bytes | None, kind: Any) -> str | None:
    """The JSON list `text` without spaces, or None where it is not of type `kind`."""
    listed = decoded_json(text, kind)
    return None if listed is None else msgspec.json.encode(listed).decode()


#: What readers give: `bytes` is below 0 where they are freed, `device` null where every GPU may reach them; `in_stream`:
#: made and freed in the order of a stream, by a host that does not wait for it.
ALLOCATIONS: Schema = {
    "process": pl.Int32(),
    "device": pl.Int32(),
    "start_ns": pl.Int64(),
    "bytes": pl.Int64(),
    "in_stream": pl.Boolean(),
}
#: Kinds of memory that allocations of a GPU are of.
OF_GPU = ("device", "array", "managed", "static")
#: No GPU has more, and sums of many stay numbers.
MOST_BYTES = 1 << 44
_GPU = ["process", "device"]


def with_allocated(operations: pl.DataFrame, allocations: pl.DataFrame) -> pl.DataFrame:
    """`operations` with `allocated_bytes` of kernels: the most that their process held of their GPU's memory when one of
    that name and launch ended; of memory that is freed in a stream's order the most until then, for hosts free it before
    kernels have run.

    Null where not every allocation was seen: where none was, more was freed than allocated, or more was copied at once.
    """
    kernels = operations.with_row_index("row").filter(kind="kernel").drop_nulls([*_GPU, "end_ns"])
    held = _allocated(allocations, kernels.select(_GPU).unique(), operations)
    if held.is_empty():
        return operations
    held, kernels = held.rename({"start_ns": "end_ns"}), kernels.sort("end_ns")
    ended = kernels.join_asof(held, on="end_ns", by=_GPU, check_sortedness=False)
    alike = [*_GPU, "name", *(name for name in LAUNCH_SHAPE if name in operations.columns)]
    most = ended.select("row", pl.col("allocated_bytes").max().over(alike))
    numbered_rows = operations.with_row_index("row")
    return numbered_rows.join(most, on="row", how="left", maintain_order="left").drop("row")


def _allocated(allocations: pl.DataFrame, gpus: pl.DataFrame, operations: pl.DataFrame) -> pl.DataFrame:
    """`allocated_bytes` of each of `gpus` (process, device) from each `start_ns` on, by time, where they can be true."""
    sound = allocations.filter(pl.col("bytes").is_between(-MOST_BYTES, MOST_BYTES)).drop_nulls("start_ns")
    anywhere = sound.filter(pl.col("device").is_null()).drop("device").join(gpus, on="process")
    changes = pl.concat([sound.join(gpus, on=_GPU, how="semi"), anywhere.select(sound.columns)])
    in_stream = pl.col("in_stream").fill_null(False)
    waited, unwaited = (pl.when(those).then("bytes").otherwise(0) for those in (~in_stream, in_stream))
    waited, unwaited = waited.cum_sum(), unwaited.cum_sum()
    held = changes.sort("start_ns").with_columns(
        least=pl.min_horizontal(waited, unwaited).over(_GPU),
        allocated_bytes=(waited + unwaited.cum_max()).over(_GPU),
    )
    sides = [pl.col(f"{side}_memory").is_in(OF_GPU) for side in ("source", "destination")]
    copied = operations.filter(pl.any_horizontal(sides)).group_by(_GPU).agg(copied=pl.col("bytes").max())
    whole = held.group_by(_GPU).agg(pl.col("least").min(), most=pl.col("allocated_bytes").max())
    enough = pl.col("copied").fill_null(0) <= pl.col("most")
    whole = whole.join(copied, on=_GPU, how="left").filter(pl.col("least") >= 0, enough)
    held = held.join(whole, on=_GPU, how="semi", maintain_order="left")
    return held.select(*_GPU, "start_ns", "allocated_bytes")
