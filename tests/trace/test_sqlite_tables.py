"""Tables of SQLite files, straight from their pages and by SQLite."""

import os
import sqlite3
import struct
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from busfare.errors import InputError
from busfare.trace import _sqlite_columns
from busfare.trace._sqlite_columns import UnreadableError
from busfare.trace.readers.tables import Pages, SqliteTables
from tests.trace.sqlite_file import Value, write_sqlite

INT, REAL, TEXT = pl.Int64(), pl.Float64(), pl.String()


def filled(path: Path, columns: str, rows: Sequence[Sequence[Value]], before: str = "") -> Path:
    """A file with a table T of these columns and rows."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(f"{before}; CREATE TABLE T ({columns})")
        marks = ", ".join("?" * len(rows[0]))
        database.executemany(f"INSERT INTO T VALUES ({marks})", rows)
        database.commit()
    return path


def script(path: Path, text: str) -> Path:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(text)
    return path


def table(folder: Path, *values: Value, after: str = "") -> SqliteTables:
    rows = {"T": [{"a": value} for value in values]}
    return SqliteTables(write_sqlite(folder / "t.sqlite", {"T": ["a"]}, rows, after))


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
    assert tables.read("T", {"b": TEXT, "a": INT}).rows() == [(None, 1), (None, 2)]
    assert tables.read("T", {"b": INT}).rows() == []
    assert tables.read("U", {"b": INT}).schema == {"b": INT}
    assert tables.columns("U") == []


def test_names_of_tables_and_columns_are_quoted(tmp_path: Path) -> None:
    path = write_sqlite(tmp_path / "t.sqlite", {'T"; DROP TABLE T; --'.replace('"', ""): ["select"]}, {})
    script(path, 'CREATE TABLE "a""b" ("c""d"); INSERT INTO "a""b" VALUES (7);')
    assert SqliteTables(path).read('a"b', {'c"d': INT}).rows() == [(7,)]


def test_views_that_select_columns_are_read_unless_their_tables_are_read(tmp_path: Path) -> None:
    after = "CREATE VIEW V AS SELECT a, 'x' AS b FROM T; CREATE TABLE U_1 (a); CREATE VIEW U AS SELECT a FROM U_1;"
    tables = table(tmp_path, 1, None, 3, after=after)
    expected = [(1, "x", None), (None, "x", None), (3, "x", None)]
    assert tables.read("V", {"a": INT, "b": TEXT, "c": INT}).rows() == expected
    assert tables.names == {"T", "V", "U_1"}
    assert tables.read("T", {"a": INT})["a"].to_list() == [1, None, 3]  # nothing is forbidden afterwards


def test_a_view_that_never_ends_is_stopped(tmp_path: Path) -> None:
    columns = ", ".join(f"T AS t{number}" for number in range(12))
    total = " + ".join(f"t{number}.a" for number in range(12))
    view = f"CREATE VIEW V AS SELECT t0.a FROM {columns} WHERE {total} < 0;"
    tables = table(tmp_path, *range(40), after=view)
    with pytest.raises(InputError, match="V is a view that does more"):
        tables.read("V", {"a": INT})


@pytest.mark.parametrize("journal", [False, True])
def test_numbers_that_a_table_keeps_as_text_are_numbers(journal: bool, tmp_path: Path) -> None:
    after = "CREATE TABLE N (a TEXT, b VARCHAR(9), c TEXT); INSERT INTO N VALUES (12, '-3', 'x'), ('soon', NULL, 'y');"
    tables = table(tmp_path, 1, after=after)
    if journal:
        tables.pages = None
    kinds = {"a": INT, "b": pl.Int32(), "c": TEXT}
    assert tables.read("N", kinds).rows() == [(12, -3, "x"), (None, None, "y")]
    assert tables.read("N", kinds).schema == kinds


def test_a_path_that_is_not_utf8_is_read(tmp_path: Path) -> None:
    path = table(tmp_path, 1, 2).path
    strange = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff%20#?.db"))
    path.rename(strange)
    assert SqliteTables(strange).read("T", {"a": INT})["a"].to_list() == [1, 2]


def test_views_virtual_tables_and_generated_columns_are_not_run(tmp_path: Path) -> None:
    bomb = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS a FROM n"
    after = f"CREATE VIEW V AS {bomb}; CREATE VIRTUAL TABLE F USING fts5(a); CREATE TABLE G "
    after += "(a, b GENERATED ALWAYS AS (zeroblob(1000000000)) VIRTUAL); INSERT INTO G (a) VALUES (3);"
    tables = table(tmp_path, 1, after=after)
    assert {"T", "G"} <= tables.names
    assert "F" not in tables.names
    for name, what in (("V", "V is a view that does more"), ("F", "F is a virtual table")):
        with pytest.raises(InputError, match=what):
            tables.read(name, {"a": INT})
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


@pytest.mark.parametrize("moved", [True, False])
def test_a_file_in_write_ahead_mode_is_read_and_no_further_file_is_left(moved: bool, tmp_path: Path) -> None:
    """Also where its writer has not yet moved the rows into the file."""
    path = tmp_path / "wal.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript("PRAGMA journal_mode = WAL; CREATE TABLE T (a); INSERT INTO T VALUES (5);")
        if moved:
            database.close()
        tables = SqliteTables(path)
        assert tables.read("T", {"a": INT}).rows() == [(5,)]
        tables.close()
    assert [file.name for file in tmp_path.iterdir()] == ["wal.sqlite"]


@pytest.mark.parametrize("name", ["a b.sqlite", "a?mode=rwc.sqlite", "a#b.sqlite", "100%.sqlite", "é.sqlite"])
def test_a_name_with_special_characters_is_still_a_file(name: str, tmp_path: Path) -> None:
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


KINDS: tuple[tuple[pl.DataType, type | tuple[type, ...]], ...] = (
    (INT, int),
    (REAL, (int, float)),
    (TEXT, str),
)


def connected(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    database.text_factory = lambda text: text.decode("utf-8", "replace")
    return database


def answers(database: sqlite3.Connection, table: str, column: str) -> list[Any]:
    """SQLite's own, in order of rowid, whatever index there is."""
    return [v for (v,) in database.execute(f'SELECT "{column}" FROM "{table}" NOT INDEXED ORDER BY rowid')]


def as_kind(values: list[Any], kind: pl.DataType, accepted: type | tuple[type, ...]) -> list[Any]:
    kept = [v if isinstance(v, accepted) else None for v in values]
    return [None if v is None else float(v) for v in kept] if kind == REAL else kept


def unlike(path: Path, table: str) -> list[str]:
    """What differs between the direct columns of `table` and SQLite's answers."""
    differing = []
    with closing(connected(path)) as database:
        pages = Pages(path, database)
        for column in [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]:
            values = answers(database, table, column)
            for kind, accepted in KINDS:
                try:
                    read = pages.read(table, {column: kind})[column].to_list()
                except UnreadableError as error:
                    if "rowid" not in str(error):
                        differing.append(f"{column} as {kind}: {error}")
                    continue
                if read != as_kind(values, kind, accepted):
                    differing.append(f"{column} as {kind}")
        differing += unlike_together(pages, database, table)
    return differing


def unlike_together(pages: Pages, database: sqlite3.Connection, table: str) -> list[str]:
    """What differs where all columns are read at once as whole numbers, and as those of 32 bits."""
    columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
    wide = pages.read(table, dict.fromkeys(columns, INT))
    differing = [
        f"{column} beside others"
        for column in columns
        if wide[column].to_list() != as_kind(answers(database, table, column), INT, int)
    ]
    narrow = wide.cast(pl.Int32, strict=False)
    for column in columns:
        try:
            small = pages.read(table, {column: pl.Int32()})
        except UnreadableError as error:
            assert "rowid" in str(error)
            continue
        if small[column].to_list() != narrow[column].to_list():
            differing.append(f"{column} in 32 bits")
    return differing


def test_headers_come_and_go_and_may_be_long(tmp_path: Path) -> None:
    # More kinds of headers than are remembered; and one whose last wanted type lies beyond what is remembered of it.
    sizes = [None, 0, 1, 5, -300, 1 << 20, -(1 << 30), 1 << 40, -(1 << 60)]
    rows = [[sizes[(row * (n + 3) // (n + 1)) % len(sizes)] for n in range(40)] for row in range(3000)]
    path = filled(tmp_path / "t.sqlite", ", ".join(f"c{n}" for n in range(40)), rows)
    with closing(sqlite3.connect(path)) as database:
        pages = Pages(path, database)
        for last in (7, 39):
            columns = [f"c{n}" for n in range(last + 1)]
            read = pages.read("T", dict.fromkeys(columns, INT))
            assert read.rows() == [tuple(row[: last + 1]) for row in rows]


values = st.one_of(
    st.none(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.sampled_from([0, 1, 127, 128, -128, -129, 32767, 32768, 1 << 23, -(1 << 31), 1 << 47, -(1 << 47) - 1]),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.integers(0, 3000).map(lambda n: "é" * n),
    st.binary(max_size=40),
)
declared = st.sampled_from(["", "INTEGER", "INT", "REAL", "TEXT", "NUMERIC", "BLOB", "DOUBLE", "VARCHAR(5)"])


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    page_size=st.sampled_from([512, 1024, 4096, 65536]),
    kinds=st.lists(declared, min_size=1, max_size=6),
    data=st.data(),
)
def test_every_value_equals_that_of_sqlite(page_size: int, kinds: list[str], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(*[values for _ in kinds]), max_size=60))
    key = data.draw(
        st.sampled_from(
            ["", "id INTEGER PRIMARY KEY, ", "id INT PRIMARY KEY, ", "id INTEGER PRIMARY KEY DESC, "]
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.sqlite")
        with closing(sqlite3.connect(path)) as database:
            database.execute(f"PRAGMA page_size = {page_size}")
            columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(kinds))
            database.execute(f"CREATE TABLE T ({key}{columns})")
            marks = ", ".join("?" * (len(kinds) + bool(key)))
            for number, row in enumerate(rows):
                database.execute(
                    f"INSERT INTO T VALUES ({marks})", [*([7 * number - 20] if key else []), *row]
                )
            if data.draw(st.booleans()):
                database.execute("ALTER TABLE T ADD COLUMN later TEXT")
                database.execute(
                    f"INSERT INTO T VALUES ({marks}, 'x')", [*([10_000] if key else []), *[5] * len(kinds)]
                )
            database.execute("DELETE FROM T WHERE rowid % 5 = 2")
            database.commit()
        assert unlike(path, "T") == []


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=20))
@settings(deadline=None)
def test_text_that_is_no_utf8_is_replaced_as_python_does(texts: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.sqlite")
        filled(path, "a", [(text,) for text in texts])
        script(path, "UPDATE T SET a = CAST(a AS TEXT)")
        with closing(connected(path)) as database:
            read = Pages(path, database).read("T", {"a": TEXT})["a"].to_list()
    assert read == [text.decode("utf-8", "replace") for text in texts]


def many_rows(path: Path, rows: int = 3000) -> Path:
    values = [(n * 1000, "x" * (900 if n % 50 == 7 else n % 30), n / 3) for n in range(rows)]
    return filled(path, "a, b, c", values, before="PRAGMA page_size = 512")


def test_many_rows_on_many_pages_by_several_threads(tmp_path: Path) -> None:
    rows = [(n if n % 3 else None, f"text number {n} of many") for n in range(150_000)]
    assert unlike(filled(tmp_path / "t.sqlite", "a INTEGER, b TEXT", rows), "T") == []


NUMBERS = [0, 1, 2, 5, 10, 13, 127, 128, 255, 0x81FF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF]


def fields(content: bytes) -> dict[str, list[tuple[int, int]]]:
    """Where each kind of field stands in the pages of table T: offset, bytes."""
    size = 512
    ranges: dict[str, list[tuple[int, int]]] = {}
    for page in range(1, len(content) // size):
        at = page * size
        kind = content[at]
        if kind not in (5, 13):
            continue
        for name, offset, length in (("type", 0, 1), ("freeblock", 1, 2), ("count", 3, 2), ("content", 5, 2)):
            ranges.setdefault(f"page {name}", []).append((at + offset, length))
        head = 12 if kind == 5 else 8
        if kind == 5:
            ranges.setdefault("right child", []).append((at + 8, 4))
        count = struct.unpack_from(">H", content, at + 3)[0]
        for i in range(count):
            pointer = at + head + 2 * i
            ranges.setdefault("cell pointer", []).append((pointer, 2))
            cell = at + struct.unpack_from(">H", content, pointer)[0]
            if kind == 5:
                ranges.setdefault("child", []).append((cell, 4))
                continue
            long = content[cell] >= 0x80
            ranges.setdefault("payload size", []).append((cell, 2 if long else 1))
            record = cell + (2 if long else 1)
            while content[record] >= 0x80:  # the rowid
                record += 1
            record += 1
            ranges.setdefault("header size", []).append((record, 1))
            ranges.setdefault("serial type", []).extend((record + n, 1) for n in (1, 2, 3))
            if long and i + 1 <= count:
                payload = (content[cell] & 0x7F) << 7 | content[cell + 1]
                if payload > size - 35:
                    least = (size - 12) * 32 // 255 - 23
                    local = least + (payload - least) % (size - 4)
                    local = local if local <= size - 35 else least
                    ranges.setdefault("overflow pointer", []).append((record + local, 4))
    return ranges


FIELDS = (
    *("page type", "page freeblock", "page count", "page content", "right child", "cell pointer", "child"),
    *("payload size", "header size", "serial type", "overflow pointer"),
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return many_rows(tmp_path_factory.mktemp("sound") / "t.sqlite").read_bytes()


@pytest.mark.parametrize("field", FIELDS)
def test_a_damaged_field_is_refused_or_read_as_by_sqlite(field: str, sound: bytes, tmp_path: Path) -> None:
    places = fields(sound)[field]
    path = tmp_path / "t.sqlite"
    refused = 0
    for at, length in places[:: max(1, len(places) // 6)]:
        for number in NUMBERS:
            content = bytearray(sound)
            content[at : at + length] = (number & ((1 << 8 * length) - 1)).to_bytes(length, "big")
            path.write_bytes(content)
            refused += not same_as_sqlite(path)
    assert refused or field in ("page freeblock", "page content", "serial type")


def same_as_sqlite(path: Path) -> bool:
    """Whether T was read past SQLite; then its values are SQLite's, if that can read it at all."""
    with closing(connected(path)) as database:
        try:
            frame = Pages(path, database).read("T", {"a": INT, "b": TEXT, "c": REAL})
        except UnreadableError:
            return False
        try:
            rows = database.execute("SELECT a, b, c FROM T").fetchall()
        except (sqlite3.Error, UnicodeDecodeError, MemoryError):
            return True  # SQLite looks at more than the columns that were asked for
    expected = list(zip(*rows, strict=True)) or [(), (), ()]
    for column, (kind, accepted), theirs in zip(frame, KINDS_OF_T, expected, strict=True):
        name, ours, wanted = column.name, column.to_list(), as_kind(list(theirs), kind, accepted)
        assert len(ours) == len(wanted), name
        for a, b in zip(ours, wanted, strict=True):
            assert a == b or repr(a) == repr(b) == "nan", name
    return True


KINDS_OF_T = (KINDS[0], KINDS[2], KINDS[1])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("CREATE TABLE T (a PRIMARY KEY, b) WITHOUT ROWID; INSERT INTO T VALUES (5, 'x');", "no page of a table"),
        ("CREATE TABLE T (a, b); INSERT INTO T VALUES (5, 'x'); ALTER TABLE T ADD COLUMN c DEFAULT 7;", "default"),
        ("PRAGMA encoding = 'UTF-16'; CREATE TABLE T (a, b); INSERT INTO T VALUES (5, 'x');", "UTF-8"),
    ],
)  # fmt: skip
def test_what_is_not_read_here_sqlite_reads(text: str, why: str, tmp_path: Path) -> None:
    tables = SqliteTables(script(tmp_path / "t.sqlite", text))
    wanted = {name: TEXT if name == "b" else INT for name in tables.columns("T")}
    assert tables.read("T", wanted).rows() == [(5, "x", 7)[: len(wanted)]]
    assert why in tables.left_to_sqlite


def test_a_stored_generated_column_shifts_no_column(tmp_path: Path) -> None:
    columns = "a, v AS (a + 1) VIRTUAL, s AS (a + 2) STORED, b"
    filling = f"CREATE TABLE T ({columns}); INSERT INTO T (a, b) VALUES (1, 9);"
    tables = SqliteTables(script(tmp_path / "t.sqlite", filling))
    assert tables.read("T", {"a": INT, "b": INT}).rows() == [(1, 9)]
    assert tables.left_to_sqlite == ""


def test_a_transaction_in_a_journal_is_left_to_sqlite(tmp_path: Path) -> None:
    path = script(tmp_path / "t.sqlite", "CREATE TABLE T (a); INSERT INTO T VALUES (5);")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.executescript("BEGIN IMMEDIATE; INSERT INTO T VALUES (6);")
        tables = SqliteTables(path)
        assert tables.read("T", {"a": INT}).rows() == [(5,)]
        assert "journal" in tables.left_to_sqlite
        tables.close()


def test_no_writer_gets_in_while_a_file_is_read(tmp_path: Path) -> None:
    path = script(tmp_path / "t.sqlite", "CREATE TABLE T (a); INSERT INTO T VALUES (5);")
    tables = SqliteTables(path)
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as writer:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            writer.execute("INSERT INTO T VALUES (6)")
        assert tables.read("T", {"a": INT}).rows() == [(5,)]
        tables.close()
        writer.execute("INSERT INTO T VALUES (6)")


def test_a_file_cut_while_it_is_open_is_an_error_and_no_crash(tmp_path: Path) -> None:
    path = many_rows(tmp_path / "t.sqlite")
    file = _sqlite_columns.Database(str(path))
    os.truncate(path, 512 * 20)
    with pytest.raises(UnreadableError, match="cut while it was read"):
        file.read(2, [_sqlite_columns.Wanted(0, _sqlite_columns.Kind.INTEGER)], 2)


def test_a_wide_row_and_many_columns_at_once(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(300)]
    rows = [["é" * 40 if (n + i) % 9 == 0 else n * 1000 + i for i in range(300)] for n in range(30)]
    assert unlike(filled(tmp_path / "t.sqlite", ", ".join(names), rows), "T") == []


def test_places_out_of_order_are_refused(tmp_path: Path) -> None:
    path = many_rows(tmp_path / "t.sqlite", 5)
    wanted = [_sqlite_columns.Wanted(i, _sqlite_columns.Kind.INTEGER) for i in (1, 1)]
    with pytest.raises(UnreadableError, match="out of order"):
        _sqlite_columns.Database(str(path)).read(2, wanted, 1)


@pytest.mark.parametrize("declared", ["start", "start REAL", "start TEXT"])
def test_times_are_whole_nanoseconds_however_they_are_stored(declared: str, tmp_path: Path) -> None:
    values = (1.5, "97386", "8.75", 3, None, "soon", "inf", "9" * 400)
    path = filled(tmp_path / "t.sqlite", f"{declared}, id", [(value, 7.5) for value in values])
    frame = SqliteTables(path).read("T", {"start": INT, "id": INT})
    assert frame["start"].to_list() == [2, 97386, 9, 3, None, None, None, None]
    assert frame["id"].null_count() == len(values), "what is no time is not rounded"
