"""Small sound databases for a fuzzer to start from:  first_inputs.py FOLDER

Every serial type, long texts with overflow pages, several levels of pages, added columns, all page sizes that matter.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

VALUES = [
    0,
    1,
    -1,
    127,
    -129,
    40_000,
    1 << 22,
    1 << 31,
    1 << 45,
    -(1 << 62),
    0.5,
    1e300,
    None,
    "",
    "short",
    b"\xff",
]


def write(path: Path, page_size: int, rows: int, long: int) -> None:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA page_size = {page_size}")
        database.execute("CREATE TABLE a (id INTEGER PRIMARY KEY, b TEXT, c, d INTEGER, e REAL)")
        for n in range(rows):
            value = VALUES[n % len(VALUES)]
            text = "é" * (long if n % 7 == 3 else n % 20)
            database.execute("INSERT INTO a VALUES (?, ?, ?, ?, ?)", [3 * n + 1, text, value, n, n / 3])
        database.execute("ALTER TABLE a ADD COLUMN f")
        database.execute("CREATE TABLE w (k TEXT PRIMARY KEY, v) WITHOUT ROWID")
        database.execute("INSERT INTO w VALUES ('x', 1)")
        wide = ", ".join(f"c{n}" for n in range(40))
        database.execute(f"CREATE TABLE wide ({wide})")
        for n in range(4):
            database.execute(
                f"INSERT INTO wide VALUES ({', '.join('?' * 40)})", [VALUES[(n + i) % 16] for i in range(40)]
            )
        database.commit()


def main() -> int:
    folder = Path(sys.argv[1])
    for page_size, rows, long in (
        (512, 40, 600),
        (512, 8, 30),
        (512, 250, 10),
        (1024, 20, 1500),
        (4096, 5, 10),
        (4096, 12, 3000),
    ):
        write(folder / f"{page_size}-{rows}-{long}.sqlite", page_size, rows, long)
    return 0


if __name__ == "__main__":
    sys.exit(main())
