"""PyTorch's operators in a Kineto trace, and which of them launched each kernel."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace._kineto_events import MISSING, EventScanner
from busfare.trace.columns import first_rows
from busfare.trace.launches import innermost, list_text
from busfare.trace.tables import OPERATORS

#: What a signature has beside the name of the operator: lists of dimensions, types, and values.
LISTS: tuple[Any, ...] = (list[list[Any]], list[Any], list[Any])


def operators_of(
    scanner: EventScanner, operations: pl.DataFrame, external: pl.Series, calls: pl.DataFrame
) -> tuple[pl.Series, pl.DataFrame]:
    """Column `launch` of the operations, the operator of each kernel, as a row of the second result: of `OPERATORS`.

    It is the one that the kernel's External id (`external`, one an operation) names, else the innermost around the call
    that launched it. Where that is none of `aten` and has no shapes, the innermost one around it with shapes stands for
    it. Kernels of graphs have none: the graph's launch is no part of the operators that were captured.
    """
    called = pl.DataFrame(scanner.operators)
    called = called.with_columns(pl.when(pl.all() != MISSING).then(pl.all())).with_columns(
        end_ns=pl.col("start_ns") + pl.col("duration_ns")
    )
    launched = operations.with_columns(external=external).with_row_index("row")
    launched = launched.filter((pl.col("kind") == "kernel") & pl.col("graph_node").is_null())
    by_id = launched["external"].fill_null(0).to_numpy()
    row = _first(called["external"], by_id)
    # Until 2023 the id is the call's, whose number may be that of any operator.
    row[by_id == launched["correlation"].fill_null(0).to_numpy()] = -1
    lost = np.flatnonzero(row < 0)
    if len(lost) and called.height:
        row[lost] = _around_calls(called, launched["correlation"].fill_null(0).to_numpy()[lost], calls)
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


def _first(have: pl.Series, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first row of each wanted number; -1 where there is none, and of those not above 0."""
    rows = first_rows(have.fill_null(0).to_numpy().view(np.uint64), wanted.view(np.uint64))
    rows[wanted <= 0] = -1
    return rows


def _around_calls(
    called: pl.DataFrame, correlations: NDArray[np.int64], calls: pl.DataFrame
) -> NDArray[np.int64]:
    """The innermost operators around the calls of these correlations; -1 where there is none."""
    rows = _first(calls["correlation"], correlations)
    points = calls.select("process", "thread", "start_ns")[rows[rows >= 0]]
    rows[rows >= 0] = innermost(called, points).cast(pl.Int64).fill_null(-1).to_numpy()
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
    try:
        text = msgspec.json.decode(name, type=str)
    except (msgspec.MsgspecError, UnicodeError):
        text = None
    return text, *(list_text(part, kind) for part, kind in zip(lists, LISTS, strict=True))
