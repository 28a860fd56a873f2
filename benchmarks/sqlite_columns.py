"""Columns and reports of a large Nsight Systems export against SQLite's own C interface and others, in turn.

    python -m benchmarks.sqlite_columns [--rows N] [--runs N] [--shape SHAPE | --every-shape] [--interleaved]
        [--no-rivals] [--as-found] [--json FILE]

Every side reads the same columns from the same file, which lies in the page cache: exactly those that `report` reads of the
four large tables, and no more. The side that reads for a report checks that: it stops where the reader asks for another
column of one of these tables, or for fewer. Each measurement is a process of its own, and the sides take turns. SQLite
steps over the rows in compiled C (sqlite_steps.c, `-O3 -march=native`, the file mapped into memory). The others, in a
virtual environment of their own, out/rivals-sqlite, made at the first run, get the same queries.

busfare's modules are compiled first, as installing a package does. Before each of the sides another process touches
twice the columns' size of memory and lets it go: hosts of virtual machines take back what lies free for seconds, and
bring it in again at less than 1 GB/s, which would be counted to whoever comes first after a pause. `--as-found` leaves
that out.

Beside the wall time stands the processor's, which a busy machine stretches less.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import busfare
from benchmarks import nsys_export
from benchmarks.runs import ROOT, options_of, rival_python, spread, write
from busfare.trace.readers.nsys import STRINGS
from busfare.trace.readers.nsys import rows as of_nsys

OUT = ROOT / "out" / "bench"
#: Shapes on which a report is held against SQLite's steps.
HELD = ("ordinary", "unmatched", "unsorted")
PACKAGES = ("adbc-driver-sqlite", "connectorx", "pandas", "pyarrow")

COLUMNS = """
import json, sys, time
from pathlib import Path
import polars as pl
from busfare.trace.readers.tables import SqliteTables
tables = SqliteTables(Path(sys.argv[1]))
text = {"value", "name", "busLocation"}
begun, processor = time.perf_counter(), time.process_time()
kept = []
for table, columns, _ in json.loads(sys.argv[2]):
    kept.append(tables.read(table, {name: pl.String() if name in text else pl.Int64() for name in columns}))
print(time.perf_counter() - begun, time.process_time() - processor)
assert not tables.left_to_sqlite
"""
REPORT = """
import sys, time
from busfare.answers.report import summarise
from busfare.trace import read
begun, processor = time.perf_counter(), time.process_time()
summarise(read(sys.argv[1]))
print(time.perf_counter() - begun, time.process_time() - processor)
"""
READ = """
import json, sys, time
from busfare.trace import read
from busfare.trace.readers.tables import SqliteTables
requested = []
read_columns = SqliteTables._read
def noted(self, table, present):
    requested.append([table, sorted(present)])
    return read_columns(self, table, present)
SqliteTables._read = noted
begun, processor = time.perf_counter(), time.process_time()
kept = read(sys.argv[1])
print(time.perf_counter() - begun, time.process_time() - processor)
expected = [[table, sorted(columns)] for table, columns, _ in json.loads(sys.argv[2])]
large = [table for table, _ in expected]
assert sorted(row for row in requested if row[0] in large) == sorted(expected), requested
"""
OF_RIVALS = """
import json, sys, time
side, path, queries = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
if side == "pandas":
    import sqlite3, pandas
    with sqlite3.connect(path) as database:
        begun, processor = time.perf_counter(), time.process_time()
        kept = [pandas.read_sql_query(query, database) for query in queries]
elif side == "connectorx":
    import connectorx
    begun, processor = time.perf_counter(), time.process_time()
    kept = [connectorx.read_sql(f"sqlite://{path}", query, return_type="arrow") for query in queries]
elif side == "adbc":
    import adbc_driver_sqlite.dbapi as adbc
    with adbc.connect(path) as database, database.cursor() as cursor:
        begun, processor = time.perf_counter(), time.process_time()
        kept = [cursor.execute(query).fetch_arrow_table() for query in queries]
print(time.perf_counter() - begun, time.process_time() - processor)
"""


TOUCH = """
import mmap, sys
size = int(sys.argv[1])
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
for page in range(0, size, mmap.PAGESIZE):
    memory[page] = 1
memory.close()
"""


@dataclass
class Times:
    """Of each run: wall seconds, processor seconds, and the process's largest resident memory in bytes."""

    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)

    def add(self, wall: float, processor: float, memory: int) -> None:
        self.wall.append(wall)
        self.processor.append(processor)
        self.memory.append(memory)

    def raw(self) -> dict[str, object]:
        return {
            "wall_seconds": self.wall,
            "processor_seconds": self.processor,
            "peak_memory_bytes": self.memory,
        }


def main(arguments: list[str] | None = None) -> int:
    parser = options_of(__doc__, 5)
    parser.add_argument("--rows", type=int, default=1_350_000)
    parser.add_argument(
        "--interleaved", action="store_true", help="pages of the tables alternate in the file"
    )
    parser.add_argument("--shape", choices=nsys_export.SHAPES, default="ordinary")
    parser.add_argument("--no-rivals", action="store_true", help="SQLite's C interface only")
    parser.add_argument("--as-found", action="store_true", help="memory as the host happens to hold it ready")
    parser.add_argument("--every-shape", action="store_true", help=f"one after the other: {', '.join(HELD)}")
    options = parser.parse_args(arguments)
    shapes = HELD if options.every_shape else (options.shape,)
    of_shapes = {shape: _of_shape(shape, options) for shape in shapes}
    write(options, "sqlite_columns", of_shapes if options.every_shape else of_shapes[options.shape])
    return 0


def _of_shape(shape: str, options: argparse.Namespace) -> dict[str, object]:
    """Measures all sides on an export of that shape, and prints what they took."""
    file = export_of(options.rows, options.interleaved, shape)
    reads, queries = queries_of(file)
    rows = sum(height for _, _, height in reads)
    size = sum(8 * len(columns) * height for _, columns, height in reads)
    rivals = [] if options.no_rivals else ["adbc", "connectorx", "pandas"]
    sides = measure(file, reads, queries, options.runs, rivals, 0 if options.as_found else 2 * size)

    print(
        f"{shape}: {rows:,} rows, columns of {size / 1e6:.0f} MB, file of {file.stat().st_size / 1e6:.0f} MB; ",
        end="",
    )
    print("median (fastest – slowest) wall seconds, processor seconds, peak memory")
    steps = sides["SQLite's C interface steps"]
    for name, times in sides.items():
        ratio = statistics.median(steps.wall) / statistics.median(times.wall)
        least, most = min(steps.wall) / max(times.wall), max(steps.wall) / min(times.wall)
        print(
            f"{name:31}{spread(times.wall, 2):>24}{statistics.median(times.processor):9.2f} s"
            f"{statistics.median(times.memory) / 1e6:8.0f} MB{ratio:7.1f}× ({least:.1f} – {most:.1f})"
        )
    memory = statistics.median(sides["busfare report, command"].memory) / size
    print(f"peak memory of the report over its columns' size: {memory:.2f}")
    report = sides["busfare report, work alone"]
    wall, processor = (
        statistics.median(getattr(report, clock)) / statistics.median(getattr(steps, clock))
        for clock in ("wall", "processor")
    )
    print(f"report over SQLite's steps: {wall:.2f} of the wall time, {processor:.2f} of the processor's")
    return {
        "rows": rows,
        "columns_bytes": size,
        "file_bytes": file.stat().st_size,
        "sides": {name: times.raw() for name, times in sides.items()},
    }


def export_of(rows: int, interleaved: bool = False, shape: str = "ordinary") -> Path:
    """A generated export of about `rows` rows, made at the first use."""
    OUT.mkdir(parents=True, exist_ok=True)
    file = OUT / f"nsys-{rows}-{shape}{'-interleaved' if interleaved else ''}.sqlite"
    if not file.exists():
        print(f"writing {file.relative_to(ROOT)}", file=sys.stderr)
        nsys_export.write(file.with_suffix(".part"), rows, interleaved, shape).rename(file)
    return file


def queries_of(file: Path) -> tuple[list[tuple[str, list[str], int]], list[str]]:
    """Table, columns and rows of what a report of a large export looks at, and the same as queries."""
    wanted: dict[str, list[str]] = {
        STRINGS: ["id", "value"],
        of_nsys.CALLS_TABLE: [*of_nsys.CALL_COLUMNS],
        of_nsys.KERNELS: [*of_nsys.OF_OPERATIONS, "demangledName"],
        of_nsys.COPIES: [*of_nsys.COPY_COLUMNS],
    }
    with closing(sqlite3.connect(file)) as database:
        reads = [
            (table, columns, int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]))
            for table, columns in wanted.items()
        ]
    quoted = [", ".join(f'"{name}"' for name in columns) for _, columns, _ in reads]
    return reads, [f"SELECT {names} FROM {table}" for names, (table, _, _) in zip(quoted, reads, strict=True)]


def compiled_steps() -> Path:
    """The program that steps through SQLite's C interface. Installs what it needs where it may."""
    subprocess.run([ROOT / "scripts" / "system_packages.sh", "libsqlite3-dev"], check=True)
    OUT.mkdir(parents=True, exist_ok=True)
    program = OUT / "sqlite_steps"
    source = Path(__file__).with_name("sqlite_steps.c")
    subprocess.run(
        [os.environ.get("CC", "cc"), "-O3", "-march=native", source, "-o", program, "-lsqlite3"], check=True
    )
    return program


def measure(
    file: Path,
    reads: list[tuple[str, list[str], int]],
    queries: list[str],
    runs: int,
    rivals: list[str],
    at_hand: int,
) -> dict[str, Times]:
    """Every side in turn, `runs` times, after one round that warms the page cache up; each with `at_hand` bytes of free
    memory that was touched just before.
    """
    compileall.compile_dir(Path(busfare.__file__).parent, quiet=1)
    python, text = sys.executable, json.dumps(queries)
    sides: dict[str, list[str | Path]] = {
        "SQLite's C interface steps": [compiled_steps(), file, *queries],
        "busfare's columns": [python, "-c", COLUMNS, file, json.dumps(reads)],
        "busfare's reading for a report": [python, "-c", READ, file, json.dumps(reads)],
        "busfare report, work alone": [python, "-c", REPORT, file],
        "busfare report, command": [python, "-m", "busfare", "report", file, "--json"],
    }
    if rivals:
        rival = rival_python("rivals-sqlite", *PACKAGES)
        sides |= {name: [rival, "-c", OF_RIVALS, name, file, text] for name in rivals}
    times = {name: Times() for name in sides}
    for round_ in range(runs + 1):
        for name, command in sides.items():
            if at_hand:
                subprocess.run([python, "-c", TOUCH, str(at_hand)], check=True)
            taken = _run([str(part) for part in command], inside=name != "busfare report, command")
            if round_:
                times[name].add(*taken)
    return times


def measure_alone(command: list[str], runs: int) -> Times:
    """One side, which times its inside, after one run that warms the page cache up."""
    times = Times()
    for round_ in range(runs + 1):
        taken = _run(command, inside=True)
        if round_:
            times.add(*taken)
    return times


def _run(command: list[str], inside: bool) -> tuple[float, float, int]:
    """Wall and processor seconds and peak memory; seconds as the process says, if it times its inside."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command[:2])
    processor = used.ru_utime + used.ru_stime
    if inside and len(printed.split()) == 2:
        wall, processor = (float(word) for word in printed.split())
    elif inside:  # a line a query
        wall = sum(float(line.split()[0]) for line in printed.splitlines())
    return wall, processor, used.ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main())
