"""API calls by what their names contain, each name looked at once."""

from __future__ import annotations

import numpy as np
import polars as pl

from busfare.account import _lanes

__all__ = ["calls_named"]


def calls_named(calls: pl.DataFrame, pattern: str) -> pl.DataFrame:
    """Process, correlation, times and waits_for of the calls whose name contains the regular expression `pattern`."""
    numbers = np.ascontiguousarray(calls["name"].to_physical().fill_null(0xFFFFFFFF).to_numpy())
    name_of, first_rows = _lanes.group([numbers])
    named = calls["name"][first_rows].cast(pl.String).str.contains(pattern).fill_null(False).to_numpy()
    columns = calls.select("process", "correlation", "start_ns", "end_ns", "waits_for")
    return columns.filter(named[name_of]) if named.any() else columns.clear()
