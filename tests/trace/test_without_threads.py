"""Where the system gives no more threads, native code works in those that there are."""

import resource
import subprocess
import sys
from pathlib import Path

from tests.trace.test_sqlite_tables import filled

#: Reads many rows and adds up many intervals, first with threads and then without, and compares.
PROGRAM = """
import resource, sys, threading
from pathlib import Path

import numpy as np
import polars as pl

from busfare.trace import _columns
from busfare.trace.readers.tables import INT, TEXT, SqliteTables

starts = np.arange(600_000)
lanes, sets = np.zeros(len(starts), np.uint32), np.array([1], np.uint64)

def work():
    rows = SqliteTables(Path(sys.argv[1])).read("T", {"a": INT, "b": TEXT})
    return rows, _columns.lengths(starts, starts + 3, lanes, sets, 1).tolist()

rows, lengths = work()
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (STACK >> 1), resource.RLIM_INFINITY))
try:
    threading.Thread(target=print).start()
except RuntimeError:
    print("no thread")
again, lengths_again = work()
print(rows.equals(again), rows.height, lengths == lengths_again)
"""
#: Of a thread: more than the C library keeps of threads that have ended, bytes.
STACK = 512 << 20


def test_what_threads_share_is_done_without_them(tmp_path: Path) -> None:
    rows = [(n, f"text number {n} of many") for n in range(150_000)]
    filled(tmp_path / "t.sqlite", "a INTEGER, b TEXT", rows)
    command = [sys.executable, "-c", PROGRAM.replace("STACK", str(STACK)), str(tmp_path / "t.sqlite")]
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (STACK, hard)),
    )  # fmt: skip
    assert done.stdout.splitlines() == ["no thread", "True 150000 True"], done.stderr
