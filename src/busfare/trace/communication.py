"""Kernels that carry data between GPUs, by their names: a collective or a message is no computing."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace.api_calls import COMMUNICATION
from busfare.trace.tables import KINDS
from busfare.trace.words import Words

__all__ = ["CLASSES", "is_communication", "kind_codes"]

#: The kinds of operations as a trace's sums tell them apart.
CLASSES = pl.Enum([*KINDS, "communication"])


def is_communication(name: pl.Expr) -> pl.Expr:
    """Whether a kernel of this name carries data between GPUs; false for none."""
    return name.cast(pl.String).str.contains(COMMUNICATION).fill_null(False)


def kind_codes(operations: pl.DataFrame) -> NDArray[np.uint8]:
    """The place of each operation's kind among those of CLASSES; each name is looked at once. Shape (rows,)."""
    codes = Words(operations).codes("kind")
    numbers = operations["name"].to_physical()
    if numbers.null_count() == len(numbers):
        return codes
    every = np.arange(int(numbers.max()) + 1)  # type: ignore[arg-type]
    known = pl.Series(every, dtype=numbers.dtype).cat.to(operations.schema["name"])
    flags = known.to_frame("name").select(is_communication(pl.col("name"))).to_series().to_numpy()
    if not flags.any():
        return codes
    flags = np.append(flags, False)
    named = flags[(numbers.fill_null(len(flags) - 1) if numbers.null_count() else numbers).to_numpy()]
    named &= codes == KINDS.index("kernel")
    return np.where(named, np.uint8(len(KINDS)), codes)
