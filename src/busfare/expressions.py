"""Regular expressions that users write, searched for in time linear in the text, whatever the expression."""

from __future__ import annotations

import re

import polars as pl

from busfare.errors import InputError


def found_in(pattern: str, texts: pl.Series, option: str = "") -> pl.Series:
    """Whether `pattern` is found in each text; a null has none. Shape (len(texts),).

    The syntax is that of Rust's `regex`, without look-around and references back. Raises InputError for another, naming
    `option`.
    """
    try:
        return texts.cast(pl.String).str.contains(pattern).fill_null(False)
    except pl.exceptions.ComputeError as error:
        match = re.search(r"(?m)^(?:regex )?error: (?!regex parse)(.*)", str(error))
        why = match[1] if match else "it cannot be compiled"
        refused = f"{option} {pattern[:80]!r} is not a regular expression ({why}); correct it"
        raise InputError(refused.lstrip()) from None
