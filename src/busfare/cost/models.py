"""What a cost model is, the models by name (those built in, and those that other packages register), and what one copy costs
by all of them.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, get_args

import polars as pl

from busfare.cost.batch import Seconds
from busfare.cost.calibrated import Calibrated
from busfare.cost.copies import FORMULAS, ByFormula, measured_copy
from busfare.cost.ranges import ranged, rung_of, seconds_between
from busfare.errors import InputError
from busfare.nodes import Cpu, Node
from busfare.nodes.transfers import Direction, MemoryKind

__all__ = [
    "GROUP", "CostModel", "Seconds", "as_copies_of", "model", "model_names", "one_copy", "price", "trusted",
]  # fmt: skip

#: The entry-point group in which a package names its factories.
GROUP = "busfare.cost_models"
#: What is said of copies that no file has a rate for: between two memories, and within one.
UNMEASURED = (
    "the rate of pageable copies was not measured here; published large ones move 1.6 to 33 GB/s",
    "the rate of copies within this memory was not measured; engines often move far less than it could",
)
#: Exact as a float, and beyond any memory.
MOST_BYTES = 2**53


class CostModel(Protocol):
    """Anything that prices operations. Third parties register theirs under the entry-point group
    `busfare.cost_models`.

    An entry point names a callable `(latency_from: Node | None, recorded_on: Node | None) -> CostModel`.
    """

    @property
    def name(self) -> str:
        """The word that picks the model."""
        ...

    def seconds(self, operations: pl.DataFrame, node: Node) -> Seconds:
        """Seconds of each operation on `node`: shape (rows,), float64, NaN where the model does not apply."""
        ...


Factory = Callable[..., CostModel]
_BY_FORMULA: dict[str, Factory] = {name: partial(ByFormula, name) for name in FORMULAS}
#: The one for machines that nobody measured first, then that for a recorded trace.
_BUILT_IN: dict[str, Factory] = {
    "datasheet": _BY_FORMULA["datasheet"],
    "calibrated": Calibrated,
    **_BY_FORMULA,
}


def _plugins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in _BUILT_IN}


def model_names() -> list[str]:
    """The names of all models, built in first."""
    return [*_BUILT_IN, *sorted(_plugins())]


def model(name: str, *, latency_from: Node | None = None, recorded_on: Node | None = None) -> CostModel:
    """The model called `name`, with L+o from `latency_from` and, for a trace, the node it was recorded on.

    Raises InputError naming the known models, or saying why a plug-in cannot be used.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name](latency_from=latency_from, recorded_on=recorded_on)
    factory = _loaded(name)
    try:
        return factory(latency_from=latency_from, recorded_on=recorded_on)
    except Exception as error:
        raise InputError(f"model {name!r}: its plug-in cannot be made ({error}); mend or remove it") from None


def _loaded(name: str) -> Factory:
    point = _plugins().get(name)
    if point is None:
        near = difflib.get_close_matches(name, model_names(), 1)
        mend = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(model_names())}"
        raise InputError(f"model {name!r}: not known; {mend}")
    try:
        factory = point.load()
    except Exception as error:
        raise InputError(
            f"model {name!r}: its plug-in {point.value} fails to load ({error}); mend or remove it"
        ) from None
    if not callable(factory):
        raise InputError(f"model {name!r}: its plug-in {point.value} is no factory; see docs/models.md")
    return factory  # type: ignore[no-any-return]


def as_copies_of(operations: pl.DataFrame, memory: str) -> pl.DataFrame:
    """The operations as copies between host and device, with host memory of a kind."""
    kind = pl.lit(memory, dtype=operations.schema["source_memory"])
    h2d, d2h = (pl.col("direction") == direction for direction in ("h2d", "d2h"))
    return operations.with_columns(
        kind=pl.lit("copy", dtype=operations.schema["kind"]),
        source_memory=pl.when(h2d).then(kind).otherwise("source_memory"),
        destination_memory=pl.when(d2h).then(kind).otherwise("destination_memory"),
    )


def one_copy(direction: str, memory: str, bytes_: Sequence[int]) -> pl.DataFrame:
    """Operations, one a size, that copy `bytes_` bytes between GPU 0 and the host, itself, or GPU 1."""
    host = direction in ("h2d", "d2h")
    return pl.DataFrame(
        {
            "kind": "copy",
            "direction": direction,
            "bytes": pl.Series(bytes_, dtype=pl.Int64),
            "source_memory": memory if direction == "h2d" or not host else "device",
            "destination_memory": memory if direction == "d2h" or not host else "device",
            "device": 0,
            "peer_device": 1 if direction == "p2p" else None,
            "copy_count": 1,
            "start_ns": pl.Series([None] * len(bytes_), dtype=pl.Int64),
            "end_ns": pl.Series([None] * len(bytes_), dtype=pl.Int64),
        }
    )


def trusted(
    node: Node, direction: str, memory: str, prices: Sequence[dict[str, Any]]
) -> dict[str, str] | None:
    """The `model` among `prices` to go by, and `why`; None where neither `loggp` nor `datasheet` has a price.

    The others are what a paper published (`ahead`) and baselines that leave packets, staging or latency out.
    """
    names = {row["model"] for row in prices}
    if "loggp" in names:
        return {"model": "loggp", "why": "this path was measured on this node"}
    if "datasheet" not in names:
        return None
    gpu, cpu = node.gpu(0), next((c for c in node.components if isinstance(c, Cpu)), None)
    within = gpu.unified_memory and direction != "p2p"
    table, rate = (gpu, gpu.copy_bandwidth_bytes_per_s) if within else (cpu, measured_copy(node))
    source = node.provenance(table, "copy_bandwidth_bytes_per_s") if table and rate else None
    if within or (memory == "pageable" and direction in ("h2d", "d2h")):
        why = source.cite if source else UNMEASURED[within]
    else:
        why = "nothing was measured here; it is what the wires carry, packets and slowest part counted"
    return {"model": "datasheet", "why": why}


def price(
    node: Node, direction: str, memory: str, bytes_: int, latency_from: Node | None = None
) -> list[dict[str, Any]]:
    """`model`, `seconds` with their range and rung, and `bytes_per_second` of one copy, by every model that applies.

    Raises InputError for a direction, memory kind or size that no copy has.
    """
    for what, value, known in (("direction", direction, Direction), ("memory", memory, MemoryKind)):
        if value not in get_args(known):
            raise InputError(f"{what} {value!r}: not known; one of {', '.join(get_args(known))}")
    if not 0 <= bytes_ <= MOST_BYTES:
        raise InputError(f"bytes {bytes_}: give a size from 0 to {MOST_BYTES}")
    operations = one_copy(direction, memory, [bytes_])
    prices = []
    for name in model_names():
        try:
            asked = model(name, latency_from=latency_from)
        except InputError:  # needs a trace, or is a plug-in that cannot be used: it does not apply here
            continue
        seconds = float(asked.seconds(operations, node)[0])
        if math.isfinite(seconds):
            rate = bytes_ / seconds if seconds > 0 else None
            low, high = (float(factor[0]) * seconds for factor in ranged(operations, name, node))
            ranges = seconds_between(low, high, rung_of(name))
            prices.append({"model": name, "seconds": seconds, **ranges, "bytes_per_second": rate})
    return prices
