"""A scan begins before numpy and Polars are imported, and never outlives the reading that began it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks import nsys_export
from busfare.errors import InputError
from busfare.trace import read
from busfare.trace._sqlite_columns import Scan, Stop, UnreadableError
from busfare.trace.readers.nsys import scan as nsys_scan
from busfare.trace.readers.tables.sqlite_file import SqliteFile
from busfare.trace.readers.tables.sqlite_scan import Scanning, threads
from tests.trace import build_directory, build_kineto, build_nsys


def scan_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "scan"]


def test_nothing_heavy_is_imported_before_a_scan_begins(tmp_path: Path) -> None:
    export = nsys_export.write(tmp_path / "t.sqlite", 27_000)
    code = (
        "import sys, busfare.cli, busfare.cli.report\n"
        "from pathlib import Path\n"
        "from busfare.job import How, one_trace\n"
        "from busfare.trace.readers.nsys.scan import begin\n"
        "from busfare.trace.readers.tables.sqlite_file import SqliteFile\n"
        "scanning = begin(SqliteFile(one_trace([Path(sys.argv[1])])), 0)\n"
        "heavy = [name for name in ('numpy', 'polars', 'msgspec', 'rich') if name in sys.modules]\n"
        "print(scanning is not None, len(scanning.result().calls) > 0, heavy)"
    )
    done = subprocess.run([sys.executable, "-c", code, export], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "True True []"


def test_a_scan_that_cannot_be_made_gives_nothing_and_what_fails_is_told() -> None:
    def unreadable(_: Stop) -> Scan:
        raise UnreadableError("rows to be sorted out")

    def failing(_: Stop) -> Scan:
        raise MemoryError

    assert Scanning(unreadable, {}).result() is None
    with pytest.raises(MemoryError):
        Scanning(failing, {}).result()


def test_a_scan_ends_with_the_reading_that_failed(tmp_path: Path) -> None:
    export = nsys_export.write(tmp_path / "t.sqlite", 27_000)

    def fail() -> None:
        raise InputError("no such thing")

    with pytest.raises(InputError, match="no such thing"):
        read(export, sums=True, meanwhile=fail)
    assert scan_threads() == []
    with closing(sqlite3.connect(export, timeout=0)) as writer:  # nobody holds the file's lock any longer
        writer.execute("CREATE TABLE later (a)")


@pytest.mark.parametrize("form", ["export", "directory", "kineto"])
def test_what_is_to_be_done_meanwhile_is_done_once(form: str, tmp_path: Path) -> None:
    path = build_nsys.small_export().write(tmp_path / "t.sqlite")
    if form == "directory":
        path = build_directory.export_directory(path, tmp_path / "tables", ".parquet")
    elif form == "kineto":
        path = build_kineto.write_kineto(tmp_path / "t.json", build_kineto.small_events())
    done: list[str] = []
    trace = read(path, meanwhile=lambda: done.append("here"))
    assert done == ["here"] and trace.operations.height


def test_small_exports_and_others_files_are_not_scanned(tmp_path: Path) -> None:
    export = nsys_export.write(tmp_path / "t.sqlite", 27_000)
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE StringIds (id, value)")
    assert nsys_scan.begin(SqliteFile(export), 100_000) is None
    assert nsys_scan.begin(SqliteFile(other), 0) is None
    assert scan_threads() == []


@pytest.mark.parametrize("said", ["3", "0", "many", ""])
def test_as_many_threads_as_polars_would_start(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLARS_MAX_THREADS", raising=False)
    free = threads()
    monkeypatch.setenv("POLARS_MAX_THREADS", said)
    assert free >= 1
    assert threads() == (3 if said == "3" else free)
