"""What another run of the same program adds to a trace: hashes of copied bytes, which slow down the run that takes them, and
bytes of kernels that Nsight Compute counted, as `ncu --csv --page raw --print-units base` prints them.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl

from busfare.errors import InputError
from busfare.trace.model import Trace
from busfare.trace.tables import COUNTERS, OPERATIONS_RECORDED, SHAPE, conform, empty

__all__ = ["COUNT", "counted_kernels", "printed_counters", "with_fingerprints_of"]

#: Copies that are alike in these are told apart by their order.
SAME = ["process_number", "device", "direction", "bytes"]
ADDED = ("fingerprint", "source_address", "destination_address")


def with_fingerprints_of(trace: Trace, other: Trace) -> Trace:
    """`trace` with the fingerprints of `other`: each copy those of the copy of its direction and size that came as the
    same one of all in order of their starts.

    Raises InputError where `other` has none, or another number of copies of a direction and size.
    """
    known = _numbered(other).filter(pl.col("fingerprint").is_not_null())
    if known.is_empty():
        raise InputError(f"{other.path}: has no fingerprints; record it with `busfare record --fingerprint`")
    own, theirs = _numbered(trace), _numbered(other)
    counts = known.select(SAME).unique()
    for name, copies in (("here", own), ("there", theirs)):
        counts = counts.join(copies.group_by(SAME).len(name), on=SAME, how="left", nulls_equal=True)
    unlike = counts.with_columns(pl.col("here", "there").fill_null(0)).filter(
        pl.col("here") != pl.col("there")
    )
    if unlike.height:
        row = unlike.sort(SAME).row(-1, named=True)
        raise InputError(
            f"{trace.path}: {row['here']} copies {row['direction']} of {row['bytes']} bytes, and {row['there']} in "
            f"{other.path}: the recordings differ; record the same work twice, once with --fingerprint"
        )
    told = known.select(*SAME, "number", told="fingerprint")
    found = own.join(told, on=[*SAME, "number"], how="left", nulls_equal=True).select("at", "told")
    operations = _rows(trace).join(found, on="at", how="left", maintain_order="left")
    return replace(trace, operations=operations.with_columns(fingerprint="told").drop("at", "told"))


def _rows(trace: Trace) -> pl.DataFrame:
    """The operations, all with the columns ADDED, and `at`, their row."""
    added = empty({name: OPERATIONS_RECORDED[name] for name in ADDED})
    return pl.concat([trace.operations, added], how="diagonal").with_row_index("at")


def _numbered(trace: Trace) -> pl.DataFrame:
    """The copies between host and GPU: `at` (row), `number` of those that are SAME, `fingerprint`."""
    copies = (
        _rows(trace)
        .filter(
            (pl.col("kind") == "copy")
            & pl.col("direction").is_in(["h2d", "d2h"])
            & pl.col("bytes").is_not_null()
        )
        .sort("start_ns", maintain_order=True)
    )
    copies = copies.with_columns(process_number=pl.col("process").rank("dense"))
    return copies.select("at", *SAME, "fingerprint", number=pl.int_range(pl.len()).over(SAME))


#: The column of `COUNTERS` for each metric.
METRICS = {
    "dram__bytes_read.sum": "dram_read_bytes",
    "dram__bytes_write.sum": "dram_write_bytes",
    "lts__t_bytes.sum": "l2_bytes",
}
#: How such a file is made.
COUNT = f"ncu --csv --page raw --print-units base --metrics {','.join(METRICS)} ./app > counters.csv"
NAME, SIDES = "Kernel Name", {"Grid Size": "grid", "Block Size": "block"}
#: Rows of one kernel whose bytes lie no further apart, as a share of the most that one of its metrics has, are alike.
ALIKE = 0.1


def counted_kernels(path: Path, trace: Trace) -> pl.DataFrame:
    """Rows of `COUNTERS` for the kernels of `trace` that the file has by name, grid and block: medians over its rows.

    A name is looked for without its parameters; where that is not there, without template arguments and namespaces, too.
    Left out are kernels whose rows differ, and those that share a bare name. Raises InputError where the file holds no
    table of these metrics, or none of the kernels.
    """
    rows = printed_counters(path)
    launches = trace.launches.with_row_index("launch").select(pl.col("launch").cast(pl.UInt32), *SHAPE)
    kernels = trace.operations.filter(kind="kernel")
    if "launch" in kernels.columns:
        kernels = kernels.join(launches, on="launch", how="left")
    kernels = conform(kernels, {"name": pl.String(), **SHAPE}).drop_nulls().unique(maintain_order=True)
    kernels, rows = _with_keys(kernels), _with_keys(rows.drop_nulls())
    named = kernels.join(rows, on=["plain", *SHAPE], suffix="_printed")
    others = kernels.join(named, on=["name", *SHAPE], how="anti")
    # One row may be of any of the kernels that share a bare name.
    alone = kernels.filter(pl.col("plain").n_unique().over("bare", *SHAPE) == 1)
    bare = others.join(alone, on=["name", *SHAPE], how="semi").join(
        rows, on=["bare", *SHAPE], suffix="_printed"
    )
    matched = pl.concat([named, bare], how="diagonal")
    if matched.is_empty():
        raise InputError(
            f"{path}: none of its kernels matches {trace.path} in name, grid and block; count the same program: {COUNT}"
        )
    bytes_ = pl.col(*METRICS.values())
    spread = pl.max_horizontal(bytes_.max() - bytes_.min()) <= ALIKE * pl.max_horizontal(bytes_.max())
    counted = matched.group_by("name", *SHAPE, maintain_order=True).agg(bytes_.median(), alike=spread)
    return conform(counted.filter("alike"), COUNTERS)


def printed_counters(path: Path) -> pl.DataFrame:
    """The rows of the file, one a launch, as columns of `COUNTERS`; null where a cell holds no number.

    Raises InputError where there is no table of these metrics in bytes.
    """
    try:
        text = path.read_text("utf-8-sig", "replace")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    lines = [line for line in text.splitlines() if not line.startswith("==")]  # ==PROF==, ==WARNING==
    # The program's own output may stand before the table.
    first = next((n for n, line in enumerate(lines) if NAME in line and NAME in _cells(line)), None)
    if first is None:
        raise InputError(f"{path}: not a kernel table of Nsight Compute; create one with: {COUNT}")
    columns = _cells(lines[first])
    if missing := [column for column in (*SIDES, *METRICS) if column not in columns]:
        raise InputError(f"{path}: its table lacks {', '.join(missing)}; create one with: {COUNT}")
    rows = list(_printed(path, columns, lines[first + 1 :]))
    if not rows:
        raise InputError(f"{path}: its table has no kernel; create one with: {COUNT}")
    printed = pl.DataFrame(rows, dict.fromkeys(COUNTERS, pl.String), orient="row")
    # Thousands have separators.
    numbers = pl.col(*METRICS.values()).str.replace_all(",", "").str.extract(r"^(\d+(?:\.\d*)?)$")
    return conform(printed.with_columns(numbers), COUNTERS)


def _printed(path: Path, columns: list[str], lines: list[str]) -> Iterator[list[str | None]]:
    """Name, sides and numbers of each kernel."""
    for cells in map(_cells, lines):
        if len(cells) != len(columns) or cells == columns:  # the program's output; the table of another run
            continue
        row = dict(zip(columns, cells, strict=True))
        if not row[NAME]:
            units = {row[metric] for metric in METRICS} - {"byte", ""}
            if units:
                raise InputError(
                    f"{path}: its metrics are in {', '.join(sorted(units))}, not in byte; add --print-units base"
                )
            continue
        sides = [re.findall(r"\d+", row[column]) for column in SIDES]
        yield [
            row[NAME],
            *(side for each in sides for side in (each if len(each) == 3 else [None] * 3)),
            *(row[metric] for metric in METRICS),
        ]


def _cells(line: str) -> list[str]:
    """The cells of a line; none where it is no row of a table."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _with_keys(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` with the columns `plain` and `bare`, by which their names are looked for."""
    names = rows["name"].unique(maintain_order=True)
    plain = [_plain(name) for name in names]
    keys = pl.DataFrame(
        {"name": names, "plain": plain, "bare": [_bare(name) for name in plain]},
        {"name": pl.String, "plain": pl.String, "bare": pl.String},
    )
    return rows.join(keys, on="name", how="left", maintain_order="left")


def _plain(name: str) -> str:
    """A function's name without parameters, return type and spaces; lambdas are spelled as CUPTI spells them."""
    name, depth = name.strip(), 0
    if name.endswith(")"):
        for place in range(len(name) - 1, 0, -1):
            depth += (name[place] == ")") - (name[place] == "(")
            if depth == 0:
                name = name[:place].rstrip()
                break
    for place in range(len(name) - 1, -1, -1):
        depth += (name[place] in ">)]}") - (name[place] in "<([{")
        if depth == 0 and name[place] == " ":
            name = name[place:]
            break
    return re.sub(r"\[lambda(\(.*?\))\(instance(\d+)\)\]", r"{lambda\1#\2}", re.sub(r"\s", "", name))


def _bare(plain: str) -> str:
    """The same without template arguments and namespaces."""
    nested = 1
    while nested:
        plain, nested = re.subn("<[^<>]*>", "", plain)
    return plain.partition("<")[0].rpartition("::")[2]
