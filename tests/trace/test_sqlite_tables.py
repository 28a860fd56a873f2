"""Columns out of SQLite files that nobody vouches for."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from busfare.errors import InputError
from busfare.trace.readers.sqlite_tables import SqliteTables
from tests.trace.sqlite_file import Value, write_sqlite

INT, TEXT = pl.Int64(), pl.String()


def table(folder: Path, *values: Value, after: str = "") -> SqliteTables:
    return SqliteTables(
        write_sqlite(folder / "t.sqlite", {"T": ["a"]}, {"T": [{"a": v} for v in values]}, after)
    )


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (INT, (1, None, -5), [1, None, -5]),
        (INT, ((1 << 63) - 1, -(1 << 63)), [(1 << 63) - 1, -(1 << 63)]),
        (INT, (1, "2", 3.0, b"4"), [1, None, None, None]),
        (INT, ("a", "b"), [None, None]),
        (TEXT, ("a", None, "é"), ["a", None, "é"]),
        (TEXT, ("a", 5, 2.5, b"b"), ["a", None, None, None]),
        (TEXT, (b"a", b"b"), [None, None]),
    ],
)
def test_a_value_of_another_type_is_null(
    kind: pl.DataType, values: tuple[Value, ...], expected: list[Value], tmp_path: Path
) -> None:
    frame = table(tmp_path, *values).read("T", {"a": kind})
    assert frame.schema == {"a": kind}
    assert frame["a"].to_list() == expected


def test_columns_and_tables_that_are_missing(tmp_path: Path) -> None:
    tables = table(tmp_path, 1, 2)
    frame = tables.read("T", {"b": TEXT, "a": INT})
    assert frame.rows() == [(None, 1), (None, 2)]
    assert tables.read("T", {"b": INT}).rows() == []
    assert tables.read("U", {"b": INT}).schema == {"b": INT}
    assert tables.columns("U") == []


def test_names_of_tables_and_columns_are_quoted(tmp_path: Path) -> None:
    path = write_sqlite(tmp_path / "t.sqlite", {'T"; DROP TABLE T; --'.replace('"', ""): ["select"]}, {})
    with closing(sqlite3.connect(path)) as database:
        database.executescript('CREATE TABLE "a""b" ("c""d"); INSERT INTO "a""b" VALUES (7);')
    assert SqliteTables(path).read('a"b', {'c"d': INT}).rows() == [(7,)]


def test_views_virtual_tables_and_generated_columns_are_not_run(tmp_path: Path) -> None:
    bomb = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS a FROM n"
    tables = table(
        tmp_path,
        1,
        after=f"CREATE VIEW V AS {bomb}; CREATE VIRTUAL TABLE F USING fts5(a); "
        "CREATE TABLE G (a, b GENERATED ALWAYS AS (zeroblob(1000000000)) VIRTUAL);"
        "INSERT INTO G (a) VALUES (3);",
    )
    assert {"T", "G"} <= tables.names
    assert not {"V", "F"} & tables.names
    for made_up in ("V", "F"):
        with pytest.raises(InputError, match=f"{made_up} is a view"):
            tables.read(made_up, {"a": INT})
    assert tables.read("G", {"a": INT, "b": TEXT}).rows() == [(3, None)]


@pytest.mark.parametrize("text", [False, True])
def test_a_tree_that_reaches_its_leaves_again_and_again_ends(text: bool, tmp_path: Path) -> None:
    value: Value = "x" * 400 if text else 5
    path = table(tmp_path, *([value] * 4000)).path
    content = bytearray(path.read_bytes())
    size = struct.unpack(">H", content[16:18])[0]
    roots = [page for page in range(1, len(content) // size) if content[page * size] == 5]
    assert roots
    for page in roots:  # every child of an interior page becomes the same interior page, but for one leaf
        start = page * size
        count = struct.unpack(">H", content[start + 3 : start + 5])[0]
        pointers = struct.unpack(f">{count}H", content[start + 12 : start + 12 + 2 * count])
        leaf = content[start + pointers[0] : start + pointers[0] + 4]
        for pointer in pointers:
            content[start + pointer : start + pointer + 4] = leaf
    whole = bytes(content)
    path.write_bytes(whole)
    frame = SqliteTables(path).read("T", {"a": TEXT if text else INT})
    assert frame.height <= len(whole) // 6  # reached a few times over: still no more than the file could hold

    root = roots[0] * size
    content[root + 8 : root + 12] = struct.pack(">I", roots[0] + 1)  # its last child is itself
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match="damaged"):
        SqliteTables(path).read("T", {"a": TEXT if text else INT})


def doubling_tree(folder: Path, depth: int, value: Value) -> Path:
    """A file whose tree has `depth` levels of pages that each point to the same next page ten times."""
    path = table(folder, *([value] * 4)).path
    content = bytearray(path.read_bytes())
    size = 4096
    leaf = content[size : 2 * size]
    pages = []
    for level in range(depth):
        child = 3 + level
        page = bytearray(size)
        cells = b"".join(struct.pack(">IB", child, n + 1) for n in range(10))
        at = size - len(cells)
        page[0:12] = struct.pack(">BHHHBI", 5, 0, 10, at, 0, child)
        page[12:32] = struct.pack(">10H", *(at + 5 * n for n in range(10)))
        page[at:] = cells
        pages.append(page)
    content[size : 2 * size] = pages[0]
    for page in pages[1:]:
        content += page
    content += leaf
    content[28:32] = struct.pack(">I", len(content) // size)
    path.write_bytes(bytes(content))
    return path


@pytest.mark.parametrize(("value", "kind"), [(5, INT), ("x" * 900, TEXT)])
def test_a_tree_whose_branches_meet_gives_no_more_than_the_file_holds(
    value: Value, kind: pl.DataType, tmp_path: Path
) -> None:
    path = doubling_tree(tmp_path, 8, value)  # 11^8 × 4 rows, if they were read
    with pytest.raises(InputError, match="never ends"):
        SqliteTables(path).read("T", {"a": kind})


def test_a_file_in_write_ahead_mode_is_read_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "wal.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript("PRAGMA journal_mode = WAL; CREATE TABLE T (a); INSERT INTO T VALUES (5);")
    tables = SqliteTables(path)
    assert tables.read("T", {"a": INT}).rows() == [(5,)]
    tables.close()
    assert [file.name for file in tmp_path.iterdir()] == ["wal.sqlite"]


def test_what_a_writer_has_not_yet_moved_into_the_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "wal.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript("PRAGMA journal_mode = WAL; CREATE TABLE T (a); INSERT INTO T VALUES (5);")
        tables = SqliteTables(path)
        assert tables.read("T", {"a": INT}).rows() == [(5,)]
        tables.close()


@pytest.mark.parametrize("name", ["a b.sqlite", "a?mode=rwc.sqlite", "a#b.sqlite", "100%.sqlite", "é.sqlite"])
def test_a_name_with_signs_of_its_own_is_still_a_file(name: str, tmp_path: Path) -> None:
    path = write_sqlite(tmp_path / name, {"T": ["a"]}, {"T": [{"a": 1}]})
    assert SqliteTables(path).read("T", {"a": INT}).height == 1
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("length", [16, 99, 100, 4000, 4096, 5000])
def test_a_truncated_file_is_refused_or_read_and_never_else(length: int, tmp_path: Path) -> None:
    path = table(tmp_path, *(["x" * 100] * 200)).path
    path.write_bytes(path.read_bytes()[:length])
    try:
        tables = SqliteTables(path)
        frame = tables.read("T", {"a": TEXT})
    except InputError as error:
        assert "damaged or unreadable SQLite file" in str(error)
    else:
        assert frame.height < 200


def test_a_run_of_ones_anywhere_is_damage_and_no_lack_of_memory(tmp_path: Path) -> None:
    columns = [f"c{n}" for n in range(12)]
    rows = [dict.fromkeys(columns, 1000 * n) for n in range(80)]
    path = write_sqlite(tmp_path / "t.sqlite", {"T": columns}, {"T": rows})
    sound = path.read_bytes()
    refused = 0
    for at in range(4096, len(sound), 13):
        path.write_bytes(sound[:at] + b"\xff" * min(100, len(sound) - at) + sound[at + 100 :])
        try:
            SqliteTables(path).read("T", dict.fromkeys(columns[:3], INT))
        except InputError as error:
            assert "damaged or unreadable" in str(error)
            refused += 1
    assert refused > 10
