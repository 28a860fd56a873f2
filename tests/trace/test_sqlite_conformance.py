"""Every table of every published SQLite trace, value by value, as SQLite itself answers."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.trace.test_sqlite_direct import unlike

pytestmark = pytest.mark.conformance

SHARED = os.environ.get("BUSFARE_SHARED")


def files() -> list[Path]:
    if SHARED is None:
        return []
    found = sorted(Path(SHARED, "data/traces").rglob("*"))
    return [path for path in found if path.is_file() and path.open("rb").read(15) == b"SQLite format 3"]


def test_there_are_traces_to_compare() -> None:
    if SHARED is None:
        pytest.skip("BUSFARE_SHARED does not say where the published traces are")
    assert len(files()) == 13


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_every_value_of_every_table_is_sqlites_own(path: Path) -> None:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    assert tables
    assert {table: found for table in tables if (found := unlike(path, table))} == {}
