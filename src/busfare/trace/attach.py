"""What another run of the same program adds to a trace: hashes of copied bytes, which slow down the run that takes them, and
bytes of kernels that Nsight Compute counted, as `ncu --csv --page raw --print-units base` prints them.
"""

import csv
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import polars as pl

from busfare.errors import InputError
from busfare.printable import printable
from busfare.trace.model import Trace
from busfare.trace.tables import COUNTERS, OPERATIONS_RECORDED, SHAPE, conform, empty
from busfare.trace.words import function_name

#: Copies that are alike in these are told apart by their order.
SAME = ["process_number", "device", "direction", "bytes"]
ADDED = ("fingerprint", "source_address", "destination_address")


def with_fingerprints_of(trace: Trace, rerun: Trace) -> Trace:
    """`trace` with the fingerprints of `rerun`: copies of one direction and size are matched in order of their starts.
    Raises InputError if `rerun` has no fingerprints, or a different number of copies of a direction and size.
    """
    hashed = _numbered(rerun).filter(pl.col("fingerprint").is_not_null())
    if hashed.is_empty():
        raise InputError(f"{rerun.path}: has no fingerprints; record it with `busfare record --fingerprint`")
    here, there = _numbered(trace), _numbered(rerun)
    counts = hashed.select(SAME).unique()
    for name, copies in (("here", here), ("there", there)):
        counts = counts.join(copies.group_by(SAME).len(name), on=SAME, how="left", nulls_equal=True)
    counts = counts.with_columns(pl.col("here", "there").fill_null(0))
    unlike = counts.filter(pl.col("here") != pl.col("there"))
    if unlike.height:
        row = unlike.sort(SAME).row(-1, named=True)
        raise InputError(
            f"{trace.path}: {row['here']} copies {row['direction']} of {row['bytes']} bytes, and {row['there']} in "
            f"{rerun.path}: the recordings differ; record the same work twice, once with `busfare record --fingerprint`"
        )
    hashes = hashed.select(*SAME, "number", hashed="fingerprint")
    matched = here.join(hashes, on=[*SAME, "number"], how="left", nulls_equal=True).select("at", "hashed")
    operations = _rows(trace).join(matched, on="at", how="left", maintain_order="left")
    return replace(trace, operations=operations.with_columns(fingerprint="hashed").drop("at", "hashed"))


def _rows(trace: Trace) -> pl.DataFrame:
    """The operations, all with the columns ADDED, and `at`, their row."""
    added = empty({name: OPERATIONS_RECORDED[name] for name in ADDED})
    return pl.concat([trace.operations, added], how="diagonal").with_row_index("at")


def _numbered(trace: Trace) -> pl.DataFrame:
    """The copies between host and GPU: `at` (row), `number` of those that are SAME, `fingerprint`."""
    copies = _rows(trace).filter(pl.col("direction").is_in(["h2d", "d2h"]), kind="copy").drop_nulls("bytes")
    copies = copies.sort("start_ns", maintain_order=True)
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
NAME, NAMED, SIDES = "Kernel Name", "name", {"Grid Size": "grid", "Block Size": "block"}
#: Rows of one kernel whose bytes lie no further apart, as a share of the most that one of its metrics has, are alike.
ALIKE = 0.1
#: A whole number as Nsight Compute prints it, and what it prints where it has none.
NUMBER, NO_NUMBER = re.compile(r"\d{1,18}|\d{1,3}(,\d{3}){1,5}"), ("", "n/a", "nan", "-nan", "inf", "(nan)")


def counted_kernels(path: Path, trace: Trace) -> pl.DataFrame:
    """Rows of `COUNTERS` for all kernels of `trace`: by the rows of the file of its name, grid and block, medians over them.

    A name is looked for without its parameters; where that is not there, without template arguments and namespaces, too.
    Raises InputError where the file holds no table of these metrics, or none of the kernels.
    """
    rows = _with_keys(printed_counters(path).drop_nulls([NAMED, *SHAPE]))
    launches = trace.launches.with_row_index("launch").select(pl.col("launch").cast(pl.UInt32), *SHAPE)
    kernels = trace.operations.filter(kind="kernel")
    if "launch" in kernels.columns:
        kernels = kernels.join(launches, on="launch", how="left")
    key = [NAMED, *SHAPE]
    kernels = conform(kernels, {NAMED: pl.String(), **SHAPE})
    kernels = _with_keys(kernels.group_by(key, maintain_order=True).len("launches"))
    by_name = kernels.join(rows, on=["plain", *SHAPE], suffix="_printed")
    rest = kernels.join(by_name, on=key, how="anti")
    bare_rows = rows.join(kernels, on=["plain", *SHAPE], how="anti")
    by_bare_name = rest.join(bare_rows, on=["bare", *SHAPE], suffix="_printed")
    matched = pl.concat([by_name, by_bare_name], how="diagonal")
    if matched.is_empty():
        raise InputError(
            f"{path}: none of its kernels matches {trace.path} in name, grid and block; count the same program: {COUNT}"
        )
    # One row may be of any of the kernels that share a bare name.
    several = kernels.filter(pl.col("plain").n_unique().over("bare", *SHAPE) > 1)
    several = several.join(by_bare_name, on=key, how="semi")
    bytes_ = pl.col(*METRICS.values())
    readable = matched.drop_nulls([*METRICS.values()])
    spread = pl.max_horizontal(bytes_.max() - bytes_.min()) <= ALIKE * pl.max_horizontal(bytes_.max())
    counted = readable.group_by(key, maintain_order=True).agg(bytes_.median(), alike=spread)
    unlike = counted.filter(~pl.col("alike"))
    reasons = {"shared-name": several, "rows-differ": unlike, "no-number": matched, "no-row": kernels}
    sure = counted.filter("alike").join(several, on=key, how="anti")
    every = kernels.join(sure, on=key, how="left", maintain_order="left")
    for reason, frame in reasons.items():
        marks = frame.select(key).unique().with_columns(pl.lit(reason).alias(reason))
        every = every.join(marks, on=key, how="left", nulls_equal=True, maintain_order="left")
    why = pl.when(pl.col("alike").is_null()).then(pl.coalesce(*reasons))
    return conform(every.with_columns(uncounted=why), COUNTERS)


def printed_counters(path: Path) -> pl.DataFrame:
    """The rows of the file, one a launch, as columns of `COUNTERS`; null where a cell holds no number. Raises InputError
    where there is no table of these metrics in bytes, and where a row or a number is damaged.
    """
    try:
        text = path.read_text("utf-8-sig", "replace")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    rows = list(_printed(path, text.splitlines()))
    if not rows:
        raise InputError(f"{path}: its table has no kernel; create one with: {COUNT}")
    wanted = [NAMED, *SHAPE, *METRICS.values()]
    printed = pl.DataFrame(rows, dict.fromkeys(wanted, pl.String), orient="row")
    return conform(printed, {name: COUNTERS[name] for name in wanted})


def _printed(path: Path, lines: list[str]) -> Iterator[list[str | None]]:
    """Name, sides and numbers of each kernel; the program's own output may stand before, between and behind the tables."""
    columns: list[str] = []
    in_bytes = False
    last = max((number for number, line in enumerate(lines) if line.startswith('"')), default=-1)
    for number, line in enumerate(lines):
        if line.startswith("=="):  # ==PROF==, ==WARNING==
            continue
        cells = _cells(line)
        if NAME in cells:
            columns, in_bytes = cells, False
            if missing := [column for column in (*SIDES, *METRICS) if column not in columns]:
                raise InputError(f"{path}: its table lacks {', '.join(missing)}; create one with: {COUNT}")
            continue
        cut = line.count('"') % 2 or (len(cells) < len(columns) and number == last)
        if columns and line.startswith('"') and cut:
            raise InputError(f"{path}: line {number + 1} is cut in the middle of a row; count again: {COUNT}")
        if len(cells) != len(columns) or not columns:
            continue
        row = dict(zip(columns, cells, strict=True))
        if not any(row[column] for column in (NAME, *SIDES)):  # of units
            if units := {row[metric] for metric in METRICS} - {"byte"}:
                named = ", ".join(sorted(units - {""})) or "no unit"
                raise InputError(f"{path}: its metrics are in {named}, not in byte; add --print-units base")
            in_bytes = True
            continue
        if not in_bytes:
            raise InputError(f"{path}: its table has no row of units; create one with: {COUNT}")
        sides = [re.findall(r"\d+", row[column]) for column in SIDES]
        yield [
            row[NAME] or None,
            *(side for three in sides for side in (three if len(three) == 3 else [None] * 3)),
            *(_number(path, number, metric, row[metric].strip()) for metric in METRICS),
        ]
    if not columns:
        raise InputError(f"{path}: not a kernel table of Nsight Compute; create one with: {COUNT}")


def _number(path: Path, line: int, column: str, cell: str) -> str | None:
    """The digits of a cell, None where it holds no number. Raises InputError for what may be read in two ways."""
    if NUMBER.fullmatch(cell):
        return cell.replace(",", "")
    if cell.lower() in NO_NUMBER:
        return None
    raise InputError(
        f"{path}: line {line + 1}, {column}: {printable(cell[:40])!r} is not a whole number of bytes (1234 or 1,234); "
        "count again with LC_ALL=C"
    )


def _cells(line: str) -> list[str]:
    """The cells of a line; none where it is no row of a table."""
    with suppress(csv.Error):
        return next(csv.reader([line]), [])
    return []


def _with_keys(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` with the columns `plain` and `bare`, by which their names are looked for."""
    plain = {name: function_name(name) for name in rows["name"].unique(maintain_order=True)}
    keys = [(name, spelt, _bare(spelt)) for name, spelt in plain.items()]
    frame = pl.DataFrame(keys, dict.fromkeys(("name", "plain", "bare"), pl.String), orient="row")
    return rows.join(frame, on="name", how="left", maintain_order="left")


def _bare(plain: str) -> str:
    """The same without template arguments and namespaces."""
    nested = 1
    while nested:
        plain, nested = re.subn("<[^<>]*>", "", plain)
    return plain.partition("<")[0].rpartition("::")[2]
