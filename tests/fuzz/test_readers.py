"""A short run of the fuzzer over every reader, and proof that it notices what it looks for."""

import os
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from busfare.errors import InputError
from busfare.trace import Trace, tables
from tests.fuzz import outcome
from tests.fuzz.corpus import CORPUS
from tests.fuzz.outcome import failure_of
from tests.fuzz.run import ALONE, input_number, supervise

SEED = 7
LAUNCHED = {**tables.OPERATIONS, **tables.OPERATIONS_OF_KERNELS}


@pytest.mark.parametrize("reader", CORPUS)
def test_mutated_files_give_a_sound_trace_or_a_line(reader: str) -> None:
    assert [f"{finding.number}: {finding.reason}" for finding in supervise(reader, 60, SEED)] == []


def test_threads_of_a_worker_do_not_use_up_its_memory_on_machines_of_many_cores() -> None:
    counts = "print(polars.thread_pool_size(), pyarrow.cpu_count(), pyarrow.io_thread_count())"
    command = [sys.executable, "-c", f"import polars, pyarrow; {counts}"]
    worker = subprocess.run(command, env=os.environ | ALONE, capture_output=True, text=True, check=True)
    assert worker.stdout.split() == ["1"] * 3


@pytest.mark.parametrize("reader", CORPUS)
def test_a_number_makes_the_same_input_again(reader: str, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    corpus = CORPUS[reader](tmp_path / "corpus")

    def content(path: Path) -> list[bytes]:
        return [file.read_bytes() for file in (sorted(path.iterdir()) if path.is_dir() else [path])]

    inputs = [content(input_number(number, SEED, corpus, tmp_path)) for number in (1, 2, 1)]
    assert inputs[0] == inputs[2] != inputs[1]


@pytest.mark.parametrize("reader", [reader for reader in CORPUS if reader != "node"])
def test_mutations_are_neither_all_refused_nor_all_harmless(reader: str, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    corpus = CORPUS[reader](tmp_path / "corpus")
    outcomes = []
    for number in range(40):
        try:
            trace = outcome.read(input_number(number, SEED, corpus, tmp_path))
        except InputError:
            outcomes.append("refused")
        else:
            outcomes.append("noted" if trace.omissions else "read")
    assert {"refused", "noted"} <= set(outcomes)


def trace_with(**changed: object) -> Trace:
    operations = tables.conform(
        pl.DataFrame({"kind": ["copy"], "start_ns": [0], "end_ns": [5]}), tables.OPERATIONS
    )
    operations = operations.with_columns(**{name: pl.lit(value) for name, value in changed.items()})
    return Trace(Path("x"), "nsys-sqlite", "", tables.conform(operations, tables.OPERATIONS))


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (lambda _, launches: 1 / 0, "ZeroDivisionError"),
        (lambda _, launches: sys.exit(0), "SystemExit"),
        (lambda _, launches: (_ for _ in ()).throw(InputError("two\nlines")), "not one line"),
        (lambda _, launches: (_ for _ in ()).throw(InputError("")), "not one line"),
        (lambda _, launches: trace_with(end_ns=-1), "impossible times"),
        (lambda _, launches: trace_with(end_ns=None), "null times"),
        (lambda _, launches: trace_with(bytes=-1), "impossible sizes"),
        (lambda _, launches: trace_with(kind=None), "null kind"),
        (lambda _, launches: Trace(Path("x"), "", "", pl.DataFrame({"start_ns": [0]})), "columns"),
        (lambda _, launches: Trace(Path("x"), "", "a\nb", tables.empty(LAUNCHED)), "producer"),
    ],
)
def test_the_fuzzer_sees_every_kind_of_failure(
    read: object, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(outcome, "read", read)
    assert reason in failure_of(tmp_path / "input")


def test_the_fuzzer_ends_what_waits_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(outcome, "STALLED_SECONDS", 0.2)
    monkeypatch.setattr(outcome, "read", lambda _, launches: time.sleep(60))
    assert "waited" in failure_of(tmp_path / "input")
