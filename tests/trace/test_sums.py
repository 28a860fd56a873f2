"""Large exports are added up while they are read: the report is that of the whole tables, which are read otherwise."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import nsys_export
from benchmarks.nsys_export import CALLS, COPIES, KERNELS
from busfare.answers.report import summarise
from busfare.errors import InputError
from busfare.trace import _columns, large, read
from busfare.trace._sqlite_columns import Scan, Stop, UnreadableError
from busfare.trace.readers.nsys import scan as nsys_scan
from busfare.trace.readers.nsys.scan import Scanning, threads
from busfare.trace.readers.sqlite_file import SqliteFile
from tests.published import published
from tests.trace.test_sqlite_direct import unlike


@pytest.fixture(autouse=True)
def nothing_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "REPLAYED_ROWS", -1)  # as in a trace of millions
    monkeypatch.setattr(
        nsys_scan, "SMALL", 1 << 24
    )  # in which ids lie closer to each other than there are calls


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nsys_export.write(tmp_path_factory.mktemp("export") / "t.sqlite", 27_000)


@pytest.fixture
def changed(export: Path, tmp_path: Path) -> Iterator[tuple[Path, sqlite3.Connection]]:
    """A copy of the export, open for changes."""
    path = tmp_path / "t.sqlite"
    path.write_bytes(export.read_bytes())
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        yield path, database


def rounded(result: object) -> object:
    """`result` with its floats to nine digits: sums of like lanes come in another order."""
    return json.loads(msgspec.json.encode(result), parse_float=lambda text: f"{float(text):.9e}")


def is_summed(path: Path) -> bool:
    """Whether a trace is read as sums, its report that of the whole tables in any case, but for lines of the program."""
    trace = read(path, sums_above=0)
    whole = summarise(read(path))
    if trace.sums is not None:  # which do not know every call
        for finding in whole.findings:
            finding.call_sites = []
    assert rounded(summarise(trace)) == rounded(whole)
    return trace.sums is not None


@pytest.mark.parametrize("shape", nsys_export.SHAPES)
def test_generated_exports_of_every_shape(shape: str, tmp_path: Path) -> None:
    assert is_summed(nsys_export.write(tmp_path / "t.sqlite", 27_000, shape == "ordinary", shape))


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_generated_export_is_sound(interleaved: bool, tmp_path: Path) -> None:
    path = nsys_export.write(tmp_path / "t.sqlite", 2_700, interleaved)
    trace = read(path)
    kinds = dict(trace.operations["kind"].value_counts().iter_rows())
    assert (kinds, trace.calls.height, trace.omissions) == ({"kernel": 800, "copy": 400}, 1_500, [])
    assert [unlike(path, table) for table in nsys_export.COLUMNS] == [[], [], []]


@pytest.mark.conformance
@pytest.mark.parametrize("path", published("nsys", "*.sqlite"), ids=lambda path: path.stem)
def test_published_exports(path: Path) -> None:
    ranks = read(path).operations.select("process", "device").n_unique()
    assert is_summed(path) == (ranks == 1)


def test_a_trace_that_is_not_large_is_read_whole(export: Path) -> None:
    whole = read(export)
    rows = whole.calls.height + whole.operations.height
    assert read(export, rows - 1).sums is not None
    assert read(export, rows).sums is None
    assert read(export).sums is None


def test_calls_that_wait_or_copy_are_kept(export: Path) -> None:
    whole, lean = read(export).calls, read(export, sums_above=0).calls
    names = set(lean["name"].cast(str))
    assert names == {"cudaMemcpy", "cudaStreamSynchronize", "cudaDeviceSynchronize"}
    kept = whole.filter(whole["name"].cast(str).is_in(sorted(names)))
    assert lean.drop("thread", "waits_for").equals(kept.drop("thread", "waits_for"))


WHOLE = {
    "a start that is null": f"UPDATE {KERNELS} SET start = NULL WHERE rowid = 700",
    "an end before the start": f'UPDATE {KERNELS} SET "end" = start - 5 WHERE rowid = 700',
    "a call's end before its start": f'UPDATE {CALLS} SET "end" = start - 5 WHERE rowid = 9000',
    "a time out of all bounds": f"UPDATE {CALLS} SET start = -4611686018427387904 WHERE rowid = 3",
    "a size below zero": f"UPDATE {COPIES} SET bytes = -1 WHERE rowid = 5",
    "a size that is null": f"UPDATE {COPIES} SET bytes = NULL WHERE rowid = 5",
    "an impossible size": f"UPDATE {COPIES} SET bytes = 1 << 45 WHERE rowid = 5",
    "a copy of no known kind": f"UPDATE {COPIES} SET copyKind = 77 WHERE rowid = 5",
    "a call without a name": f"UPDATE {CALLS} SET nameId = 1 WHERE rowid = 9000",
    "a name that is null": f"UPDATE {CALLS} SET nameId = NULL WHERE rowid = 9000",
    "an id of two names": "ALTER TABLE StringIds RENAME TO Named; CREATE TABLE StringIds AS SELECT * FROM Named; "
    "INSERT INTO StringIds SELECT id, 'again' FROM Named LIMIT 1",
    "an id of no name": "ALTER TABLE StringIds RENAME TO Named; CREATE TABLE StringIds AS SELECT * FROM Named; "
    "INSERT INTO StringIds VALUES (9000000, NULL)",
    "ids far apart": "INSERT INTO StringIds VALUES (1 << 40, 'far')",
    "a name of two lines": "INSERT INTO StringIds VALUES (9000000, 'cudaMemcpy' || char(10))",
    "waits of no process": 'CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION AS SELECT start, "end", 0 AS deviceId, '
    "1 AS contextId, 7 AS streamId, correlationId, NULL AS globalPid, 3 AS syncType, rowid AS eventId, rowid AS eventSyncId "
    f"FROM {CALLS} WHERE rowid % 11 = 0",
    "a kernel without a name": f"UPDATE {KERNELS} SET demangledName = 1 WHERE rowid = 700",
    "a correlation that is null": f"UPDATE {CALLS} SET correlationId = NULL WHERE rowid = 9000",
    "a negative correlation": f"UPDATE {KERNELS} SET correlationId = -2 WHERE rowid = 700",
    "a text where a time should be": f"UPDATE {CALLS} SET start = 'soon' WHERE rowid = 9000",
    "another clock": f'UPDATE {CALLS} SET start = start + 900000000000, "end" = "end" + 900000000000',
    "a column of another table's name": f"ALTER TABLE {KERNELS} RENAME COLUMN globalPid TO pid",
    "no calls": f"DELETE FROM {CALLS}",
    "no operations": f"DELETE FROM {KERNELS}; DELETE FROM {COPIES}",
    "graphs as a whole": 'CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE AS SELECT start, "end", deviceId, contextId, '
    f"streamId, correlationId, globalPid, 7 AS graphId FROM {KERNELS} WHERE rowid < 5",
}
SUMMED = {
    "kernels out of order": f'UPDATE {KERNELS} SET start = start + 100000, "end" = "end" + 100000 WHERE rowid = 700',
    "pages out of order": f'UPDATE {COPIES} SET start = start + 900000000, "end" = "end" + 900000000 WHERE rowid < 900',
    "copies between GPUs": f"UPDATE {COPIES} SET copyKind = 10, dstDeviceId = 1 WHERE rowid % 7 = 0",
    "batches of copies": f"UPDATE {COPIES} SET copyCount = 3 WHERE rowid % 7 = 0",
    "correlations far apart": f"UPDATE {CALLS} SET correlationId = 1 << 40 WHERE rowid = 9000",
    "correlations beyond what is numbered": f"UPDATE {CALLS} SET correlationId = correlationId * 1000003",
    "calls that were cut off": f"DELETE FROM {CALLS} WHERE rowid < 700",
    "operations of no call": f"UPDATE {KERNELS} SET correlationId = 0 WHERE rowid % 9 = 0",
    "migrations": f"UPDATE {COPIES} SET copyKind = 11 + rowid % 2, correlationId = 0 WHERE rowid % 3 = 0",
    "memory kinds that are null": f"UPDATE {COPIES} SET srcKind = NULL WHERE rowid % 5 = 0",
    "copies to symbols": f"UPDATE {CALLS} SET nameId = 9000000 WHERE rowid % 7 = 0;"
    "INSERT INTO StringIds VALUES (9000000, 'cudaMemcpyToSymbolAsync_v3020')",
    "several operations of a call": f"UPDATE {COPIES} SET correlationId = correlationId - correlationId % 4",
    "calls out of order": f'UPDATE {CALLS} SET start = start - 70000, "end" = "end" + 90000 WHERE rowid % 100 = 9',
    "like starts": f"UPDATE {KERNELS} SET start = start - start % 50000; UPDATE {COPIES} SET start = start - start % 50000",
    "sets": 'CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET AS SELECT start, "end", deviceId, contextId, streamId, '
    f"correlationId, globalPid, 4096 AS bytes, 2 AS memKind FROM {KERNELS} WHERE rowid % 5 = 0",
    "waits": 'CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION AS SELECT start, "end", 0 AS deviceId, 1 AS contextId, '
    "7 AS streamId, correlationId, globalTid AS globalPid, 3 AS syncType, rowid AS eventId, rowid AS eventSyncId "
    f"FROM {CALLS} WHERE rowid % 11 = 0",
    "waits of no call": 'CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION AS SELECT start, "end", 0 AS deviceId, '
    "1 AS contextId, 7 AS streamId, NULL AS correlationId, NULL AS globalPid, 3 AS syncType, rowid AS eventId, "
    f"rowid AS eventSyncId FROM {CALLS} WHERE rowid % 11 = 0",
    "correlations that no call can have": "CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT AS SELECT 0 AS deviceId, "
    "1 AS contextId, 7 AS streamId, (1 << 50) - rowid % 2 * (1 << 51) AS correlationId, globalTid AS globalPid, "
    f"rowid AS eventId, rowid AS eventSyncId FROM {CALLS} WHERE rowid % 11 = 0",
    "records without their calls": "CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT AS SELECT 0 AS deviceId, 1 AS contextId, "
    "7 AS streamId, correlationId + 5000000 AS correlationId, globalTid AS globalPid, rowid AS eventId, "
    f"rowid AS eventSyncId FROM {CALLS} WHERE rowid % 11 = 0",
    "ranges": "CREATE TABLE NVTX_EVENTS AS SELECT start, NULL AS \"end\", 59 AS eventType, 'x' AS text, NULL AS textId, "
    f"globalTid, 0 AS domainId FROM {CALLS} WHERE rowid % 11 = 0",
}


@pytest.mark.parametrize("statement", WHOLE.values(), ids=WHOLE)
def test_what_is_to_be_repaired_is_read_whole(
    statement: str, changed: tuple[Path, sqlite3.Connection]
) -> None:
    path, database = changed
    database.executescript(statement)
    assert not is_summed(path)


@pytest.mark.parametrize("statement", SUMMED.values(), ids=SUMMED)
def test_what_adds_up_as_it_is(statement: str, changed: tuple[Path, sqlite3.Connection]) -> None:
    path, database = changed
    database.executescript(statement)
    assert is_summed(path)


def test_communication_is_told_apart(changed: tuple[Path, sqlite3.Connection]) -> None:
    path, database = changed
    (name,) = database.execute(f"SELECT demangledName FROM {KERNELS} LIMIT 1").fetchone()
    database.execute("UPDATE StringIds SET value = 'ncclDevKernel_SendRecv()' WHERE id = ?", (name,))
    carried = summarise(read(path, sums_above=0)).communication.count
    (count,) = database.execute(f"SELECT count(*) FROM {KERNELS} WHERE demangledName = ?", (name,)).fetchone()
    assert carried == count > 0
    # The export has two processes: what several ranks communicate is matched operation by operation.
    assert not is_summed(path)
    database.execute(f"UPDATE {KERNELS} SET globalPid = (SELECT min(globalPid) FROM {KERNELS}), deviceId = 0")
    database.execute(f"UPDATE {COPIES} SET globalPid = (SELECT min(globalPid) FROM {KERNELS}), deviceId = 0")
    assert is_summed(path)


def test_a_file_that_is_cut_while_it_is_read(changed: tuple[Path, sqlite3.Connection]) -> None:
    path, database = changed
    database.close()
    trace = read(path, sums_above=0)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 8)
    with pytest.raises(InputError, match="changed while it was read"):
        summarise(trace)


@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5), st.integers(0, 2))), st.booleans()
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(-5, 5),
)
def test_parts_are_merged_as_a_stable_sort_would(
    parts: list[tuple[list[tuple[int, int, int]], bool]], less: int
) -> None:
    given_parts, expected = [], []
    for number, (rows, sized) in enumerate(parts):
        rows = sorted(rows, key=lambda row: row[0])
        starts = np.array([row[0] for row in rows], np.int64)
        ends = starts + np.array([row[1] for row in rows], np.int64)
        lanes = np.array([row[2] for row in rows], np.uint32)
        sizes = ends * 7 if sized else None
        names, marks = [10 * number, 10 * number + 1, 10 * number + 1], [0, 2, 6]
        given_parts.append((starts, ends, lanes, sizes, names, marks))
        expected += [
            (start - less, end - less, names[lane], end * 7 if sized else -1, marks[lane])
            for start, end, lane in zip(starts.tolist(), ends.tolist(), lanes.tolist(), strict=True)
        ]
    expected.sort(key=lambda row: row[0])
    count = len(expected)
    whole = [np.empty(count, kind) for kind in (np.int64, np.int64, np.uint32, np.int64)]
    sized_rows = np.empty(sum(row[3] != -1 for row in expected), np.uint32)
    marked = _columns.merge_timed(given_parts, less, [2, 4], *whole, sized_rows)
    assert list(zip(*(column.tolist() for column in whole), strict=True)) == [row[:4] for row in expected]
    for mark, rows in zip((2, 4), marked, strict=True):
        assert rows.tolist() == [at for at, row in enumerate(expected) if row[4] & mark]
    assert sized_rows.tolist() == [at for at, row in enumerate(expected) if row[3] != -1]


def scan_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "scan"]


def test_nothing_heavy_is_imported_before_a_scan_begins(export: Path) -> None:
    code = (
        "import sys, busfare.cli, busfare.cli.report\n"
        "from pathlib import Path\n"
        "from busfare.jobs import How, one_trace\n"
        "from busfare.trace.readers.nsys.scan import begin\n"
        "from busfare.trace.readers.sqlite_file import SqliteFile\n"
        "scanning = begin(SqliteFile(one_trace([Path(sys.argv[1])])), 0)\n"
        "heavy = [name for name in ('numpy', 'polars', 'msgspec', 'rich') if name in sys.modules]\n"
        "print(scanning is not None, len(scanning.result().calls) > 0, heavy)"
    )
    done = subprocess.run([sys.executable, "-c", code, export], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "True True []"


def test_a_scan_that_cannot_be_made_gives_nothing_and_what_fails_is_told() -> None:
    def unreadable(_: Stop) -> Scan:
        raise UnreadableError("rows to be repaired")

    def failing(_: Stop) -> Scan:
        raise MemoryError

    assert Scanning(unreadable, {}, 0).result() is None
    with pytest.raises(MemoryError):
        Scanning(failing, {}, 0).result()


def test_a_scan_ends_with_the_reading_that_failed(
    changed: tuple[Path, sqlite3.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise InputError("no such thing")

    monkeypatch.setattr("busfare.trace.readers.nsys.read.read", fail)
    with pytest.raises(InputError, match="no such thing"):
        read(changed[0], sums_above=0)
    assert scan_threads() == []
    changed[1].execute("CREATE TABLE later (a)")  # nobody holds the file's lock any longer


def test_small_exports_and_others_files_are_not_scanned(export: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE StringIds (id, value)")
    assert nsys_scan.begin(SqliteFile(export), 100_000) is None
    assert nsys_scan.begin(SqliteFile(other), 0) is None


@pytest.mark.parametrize("said", ["3", "0", "many", ""])
def test_as_many_threads_as_polars_would_start(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLARS_MAX_THREADS", raising=False)
    free = threads()
    monkeypatch.setenv("POLARS_MAX_THREADS", said)
    assert free >= 1
    assert threads() == (3 if said == "3" else free)
