"""Call stacks of a recorded process: where in the program each call is made."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import polars as pl

from busfare.trace import sites
from busfare.trace.columns import first_rows
from busfare.trace.readers.recorded.process import RecordedProcess, at

#: Function, file and line, the innermost that was inlined first, of places: module and address.
Lines = dict[tuple[int, int], list[tuple[str, str, int]]]


def located(calls: pl.DataFrame, process: RecordedProcess) -> pl.DataFrame:
    """`calls` with the column `site` of `CALLS_LOCATED`, where stacks were recorded."""
    table = process.recording.table("call_stacks")
    if not len(table) or calls.is_empty():
        return calls
    known = _sites(process)
    numbers = np.array(sorted(known), np.uint64)
    texts = pl.Series([known[number] for number in numbers.tolist()], dtype=pl.Categorical)
    wanted = calls["correlation"].fill_null(0).to_numpy().view(np.uint64)
    stack = at(table["stack"], first_rows(table["correlation"], wanted))
    row = pl.Series(first_rows(numbers, stack)).replace(-1, None)
    return calls.with_columns(texts.gather(row).alias("site"))


def _sites(process: RecordedProcess) -> dict[int, str]:
    """The site of each stack that has one."""
    strings, lines = process.recording.strings, _lines(process)
    table = process.recording.table("stacks")
    order = np.lexsort((table["depth"], table["stack"]))
    columns = (table[name][order].tolist() for name in ("stack", "module", "address", "symbol"))
    found: dict[int, str] = {}
    for stack, module, address, symbol in zip(*columns, strict=True):
        name = strings.get(module, "")
        if stack in found or sites.is_library_module(name):
            continue
        frames = lines.get((module, address)) or [(strings.get(symbol, f"+{address:#x}"), "", 0)]
        own = (sites.of_native(function, name, file, line) for function, file, line in frames)
        if (site := next(filter(None, own), None)) is not None:
            found[stack] = site
    return found


def _lines(process: RecordedProcess) -> Lines:
    strings, table = process.recording.strings, process.recording.table("lines")
    order = np.lexsort((table["depth"], table["address"]))
    columns = (table[name][order].tolist() for name in ("module", "address", "function", "file", "line"))
    lines: Lines = defaultdict(list)
    for module, address, function, file, line in zip(*columns, strict=True):
        lines[module, address].append((strings.get(function, ""), strings.get(file, ""), line))
    return lines
