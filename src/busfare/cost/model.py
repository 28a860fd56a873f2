"""What a cost model is, and the models by name: those built in, and those that other packages register."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

import polars as pl

from busfare.cost.batch import Seconds
from busfare.cost.calibrated import Calibrated
from busfare.cost.copies import FORMULAS, ByFormula
from busfare.errors import InputError
from busfare.nodes import Node

__all__ = ["GROUP", "CostModel", "Seconds", "as_copies_of", "model", "model_names"]

#: The entry-point group in which a package names its factories.
GROUP = "busfare.cost_models"


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
