"""Mutations, each drawn from a seeded generator, so that a seed and a number give the same input again."""

import gzip
import shutil
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import cast

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet

__all__ = ["mutated"]

NUMBERS = [
    *[0, 1, -1, 127, 255, 256, 65535, 4294967295],
    *[1 << 31, (1 << 31) - 1, 1 << 53, 1 << 60, (1 << 63) - 1],
]
CELLS: list[int | float | str | bytes | None] = [
    *[*NUMBERS, -(1 << 63), -(1 << 31), None, 0.5, -1e308, 1e308, float("inf"), float("nan")],
    *["", "x", "5", "-1", "é\ufffd", "a\nb", "\0", b"", b"\xff\xfe", "x" * 5000, b"\0" * 3000],
]
#: How SQLite refuses a mutation.
REFUSALS = (sqlite3.Error, OverflowError, LookupError, TypeError, AttributeError, UnicodeError)
SPANS = [1, 1, 2, 4, 8, 100, 1000]
JSON_WORDS = [
    *b'null true NaN -Infinity 1e999 -0 1e-999 [] {} "" " { } [ ] , : \\ \\u \\ud800 \0 \xef\xbb\xbf'.split(
        b" "
    ),
    *[b"9" * 30, b"[" * 3000, b'{"a":' * 3000, b"// x"],
    *b'"ph":"X", "cat":"kernel", "ts":"5", "dur":-5, "args":5, "args":{"bytes":-1},'.split(b" "),
]
CSV_WORDS = [
    *b'"" " , ,,, \r \0 \xff Agent 99 -1 0x 1e999 "Function" "Guid", "Address"'.split(b" "),
    b"9" * 30,
    b"\n" * 50,
]
TOML_WORDS = [*b'nan inf -1 1e999 \'\' [[component]] [x \0 """ \xff'.split(b" "), b"= 5", b"[" * 2000]


def mutated(seed: Path, target: Path, dice: Random) -> Path:
    """Writes a mutation of the sound `seed` as `target`, a file or a directory as the seed is."""
    if seed.is_dir():
        _directory(seed, target, dice)
        return target
    content = seed.read_bytes()
    if content.startswith(b"SQLite format 3"):
        _sqlite(content, target, dice)
    elif content.startswith(b"\x1f\x8b"):
        if dice.random() < 0.5:
            content = gzip.compress(_text(gzip.decompress(content), dice, JSON_WORDS), 1, mtime=0)
        target.write_bytes(_bytes(content, dice) if dice.random() < 0.7 else content)
    else:
        words = {".toml": TOML_WORDS, ".csv": CSV_WORDS}.get(seed.suffix, JSON_WORDS)
        target.write_bytes(_text(content, dice, words) if dice.random() < 0.7 else _bytes(content, dice))
    return target


def _bytes(content: bytes, dice: Random) -> bytes:
    """Truncation, flipped bits, runs of bytes, pieces moved, doubled and cut out."""
    data = bytearray(content)
    for _ in range(dice.choice([1, 1, 2, 4, 16])):
        at = dice.randrange(len(data) + 1)
        span = dice.choice(SPANS)
        what = dice.randrange(7)
        if what == 0:
            del data[at:]
        elif what == 1 and at < len(data):
            data[at] ^= 1 << dice.randrange(8)
        elif what == 2:
            data[at : at + span] = bytes([dice.choice([0, 255, dice.randrange(256)])]) * span
        elif what == 3:
            data[at : at + span] = dice.randbytes(span)
        elif what == 4:
            data[at:at] = data[at : at + span]
        elif what == 5:
            del data[at : at + span]
        else:
            data[at : at + 4] = struct.pack(dice.choice("<>") + "I", dice.choice(NUMBERS) & 0xFFFFFFFF)
    return bytes(data)


def _text(content: bytes, dice: Random, words: list[bytes]) -> bytes:
    """Words put in or put in place of others, lines doubled, swapped and lost."""
    for _ in range(dice.choice([1, 1, 2, 5])):
        at = dice.randrange(len(content) + 1)
        what = dice.randrange(4)
        if what == 0:
            content = content[:at] + dice.choice(words) + content[at:]
        elif what == 1:
            ends = [content.find(c, at + 1) for c in (b",", b"\n", b"}")]
            end = min((i for i in ends if i > 0), default=at)
            start = max(content.rfind(c, 0, at) for c in (b":", b"=", b"["))
            content = content[: start + 1] + dice.choice(words) + content[end:]
        elif what == 2:
            lines = content.splitlines(keepends=True)
            first, second = dice.randrange(len(lines) or 1), dice.randrange(len(lines) or 1)
            if lines:
                lines[first], lines[second] = lines[second], lines[first]
            content = b"".join(lines)
        else:
            content = content[:at] + content[at + dice.choice(SPANS) :]
    return content


def _sqlite(content: bytes, target: Path, dice: Random) -> None:
    kind = dice.randrange(10)
    target.write_bytes(content)
    if kind < 5:
        with closing(sqlite3.connect(target, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("PRAGMA synchronous = OFF")
            for _ in range(dice.choice([1, 2, 5])):
                # A mutation that SQLite refuses, or that finds nothing left to change, changes nothing.
                with suppress(*REFUSALS):
                    dice.choice(SQL_MUTATIONS)(database, dice)
    if kind in (4, 5, 6, 7):
        target.write_bytes(_pages(target.read_bytes(), dice))
    elif kind > 7:
        target.write_bytes(_bytes(content, dice))


def _tables(database: sqlite3.Connection) -> list[str]:
    return [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]


def _column(database: sqlite3.Connection, table: str, dice: Random) -> str:
    return str(dice.choice(database.execute(f'PRAGMA table_info("{table}")').fetchall())[1])


def _wrong_cells(database: sqlite3.Connection, dice: Random) -> None:
    table = dice.choice(_tables(database))
    column = _column(database, table, dice)
    where = dice.choice(["1", "rowid % 2", "rowid = 1", "rowid > 3"])
    database.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE {where}', [dice.choice(CELLS)])


def _swapped_columns(database: sqlite3.Connection, dice: Random) -> None:
    table = dice.choice(_tables(database))
    first, second = _column(database, table, dice), _column(database, table, dice)
    database.execute(f'UPDATE "{table}" SET "{first}" = "{second}", "{second}" = "{first}"')


def _swapped_tables(database: sqlite3.Connection, dice: Random) -> None:
    first, second = dice.choice(_tables(database)), dice.choice(_tables(database))
    database.execute(f'ALTER TABLE "{first}" RENAME TO "between"')
    database.execute(f'ALTER TABLE "{second}" RENAME TO "{first}"')
    database.execute(f'ALTER TABLE "between" RENAME TO "{second}"')


def _doubled_rows(database: sqlite3.Connection, dice: Random) -> None:
    table = dice.choice(_tables(database))
    database.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}" LIMIT 200')


def _lost_table_or_rows(database: sqlite3.Connection, dice: Random) -> None:
    database.execute(f'{dice.choice(["DROP TABLE", "DELETE FROM"])} "{dice.choice(_tables(database))}"')


def _lost_or_renamed_column(database: sqlite3.Connection, dice: Random) -> None:
    table = dice.choice(_tables(database))
    column = _column(database, table, dice)
    database.execute(f'ALTER TABLE "{table}" {dice.choice(["DROP COLUMN", "RENAME COLUMN"])} "{column}" '
                     + dice.choice(["", 'TO "other"']))  # fmt: skip


def _schema_text(database: sqlite3.Connection, dice: Random) -> None:
    """Edits what the file says of its own tables: the text, the root page, the kind, the name."""
    database.execute("PRAGMA writable_schema = ON")
    table = dice.choice(_tables(database))
    (text,) = database.execute("SELECT sql FROM sqlite_schema WHERE name = ?", [table]).fetchone()
    instead = dice.choice(["CREATE VIRTUAL TABLE", "create\ntable", "x", "CREATE VIEW"])
    words = [b"(", b")", b",", b"\n", b"'", b"--", b" AS (abs(a))", b" DEFAULT 5"]
    behind = dice.choice([" WITHOUT ROWID", " STRICT", ";", "\n\nx", ", b GENERATED ALWAYS AS (a)"])
    column, value = dice.choice(
        [
            ("sql", text.replace("CREATE TABLE", instead)),
            ("sql", _text(text.encode(), dice, words)),
            ("sql", text + behind),
            ("sql", dice.choice(CELLS)),
            ("rootpage", dice.choice([*NUMBERS, *range(2, 30)])),
            ("type", dice.choice(["view", "index", "trigger", "", None])),
            ("name", dice.choice([*_tables(database), "", "a\nb", None, "sqlite_stat1"])),
        ]
    )
    if isinstance(value, bytes) and column == "sql":
        value = value.decode("utf-8", "replace")
    database.execute(f"UPDATE sqlite_schema SET {column} = ? WHERE name = ?", [value, table])


SQL_MUTATIONS: list[Callable[[sqlite3.Connection, Random], None]] = [
    *[_wrong_cells, _wrong_cells, _wrong_cells, _swapped_columns, _swapped_tables, _doubled_rows],
    *[_lost_table_or_rows, _lost_or_renamed_column, _schema_text],
]


def _pages(content: bytes, dice: Random) -> bytes:
    """Headers of the file and of pages, cell pointers and child pointers, loops among them."""
    data = bytearray(content)
    size = struct.unpack(">H", data[16:18])[0] or 4096
    pages = max(1, len(data) // size)
    for _ in range(dice.choice([1, 1, 3, 10])):
        page = dice.randrange(pages)
        start = page * size + (100 if page == 0 else 0)
        what = dice.randrange(7)
        if what == 0:  # the file's header: page size, versions, page count, free list, encoding
            field = dice.choice([16, 17, 18, 19, 20, 28, 31, 35, 36, 44, 47, 56, 59])
            data[field] = dice.choice([0, 1, 2, 3, 255])
        elif what == 1:
            data[start] = dice.choice([0, 2, 5, 10, 13, 255])
        elif what == 2:
            data[start + 1 : start + 8] = dice.randbytes(7)
        elif what == 3:
            data[start + 3 : start + 5] = struct.pack(">H", dice.choice([0, 1, 5, 500, 65535]))
        elif what == 4:  # the last child: itself, an ancestor, a page of another table
            child = dice.choice([page + 1, dice.randrange(pages + 2), 0xFFFFFFFF])
            data[start + 8 : start + 12] = struct.pack(">I", child)
        elif what == 5:
            cell = start + 8 + 2 * dice.randrange(40)
            data[cell : cell + 2] = struct.pack(">H", dice.randrange(size))
        else:  # a child pointer or the start of a record, where one may be
            cell = page * size + dice.randrange(size - 4)
            data[cell : cell + 4] = struct.pack(">I", dice.choice([page + 1, dice.randrange(pages + 2)]))
    return bytes(data[: len(content)])


def _directory(seed: Path, target: Path, dice: Random) -> None:
    shutil.copytree(seed, target)
    for _ in range(dice.choice([1, 1, 2, 5])):
        files = sorted(target.iterdir())
        if not files:
            return
        file, source = dice.choice(files), dice.choice(files)
        what = dice.randrange(8)
        if what == 0:
            file.unlink()
        elif what == 1:
            content = file.read_bytes()
            file.write_bytes(source.read_bytes())
            source.write_bytes(content)
        elif what < 5:
            file.write_bytes(_bytes(file.read_bytes(), dice))
        elif what == 5:  # the footer, where the sizes and offsets stand
            content = bytearray(file.read_bytes())
            for _ in range(dice.choice([1, 4])):
                if len(content) > 400:
                    content[-dice.randrange(1, 400)] = dice.randrange(256)
            file.write_bytes(content)
        elif file.suffix == ".csv":
            file.write_bytes(_text(file.read_bytes(), dice, CSV_WORDS))
        else:
            _changed_columns(file, dice)


def _changed_columns(file: Path, dice: Random) -> None:
    """The same table with a column of another type, another name or none."""
    with suppress(pa.ArrowException, OSError, ValueError, OverflowError):  # damaged already: stays as it is
        parquets = file.suffix == ".parquet"
        table = cast(
            pa.Table, parquet.read_table(file) if parquets else feather.read_table(file, memory_map=False)
        )
        at = dice.randrange(table.num_columns)
        height = table.num_rows
        values = (float(dice.choice(NUMBERS)), "x", b"\xff", [1, 2], {"a": 1})
        columns: list[pa.Array] = [
            pa.nulls(height),
            *(pa.array([value] * height) for value in values),
            pa.array([dice.choice(NUMBERS)] * height, pa.uint64() if dice.random() < 0.5 else pa.int64())
            if dice.random() < 0.5
            else pa.array([True] * height),
            pa.array([1] * height, pa.timestamp("ns")),
            pa.array([1] * height, pa.decimal128(38)),
            pa.array(["x"] * height).dictionary_encode(),
        ]
        name = dice.choice([table.column_names[at], "other", table.column_names[0]])
        removed = dice.random() < 0.2
        table = table.remove_column(at) if removed else table.set_column(at, name, dice.choice(columns))
        if parquets:
            parquet.write_table(table, file)
        else:
            feather.write_feather(table, file, compression="uncompressed")
