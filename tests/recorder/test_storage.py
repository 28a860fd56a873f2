"""Reads and writes of files, by real programs whose GPU is the stand-in's, and by a stand-in for cuFile.

The programs print what they did: each call's kind, address, bytes, thread and file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import busfare
from busfare.errors import InputError
from busfare.measure.record import environment, recording
from busfare.trace import Trace, read
from busfare.trace.storage import read_into

from .conftest import Built, Launch, Run
from .test_messages import compiled

BYTES = 900_001
CHUNK = 1 << 18
LEAST = 1 << 16
Row = tuple[str, int, int, int, str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(os.urandom(BYTES))
    return path


class Recorder:
    """Runs programs with `--storage`, or with other options."""

    def __init__(self, built: Built, variables: dict[str, str], folder: Path) -> None:
        self.built, self.variables, self.folder = built, variables, folder

    def __call__(self, *command: str | Path, status: int = 0, **options: Any) -> Run:
        to = self.folder / f"run-{len(list(self.folder.glob('run-*')))}"
        asked = environment(f"{to}/", library=self.built.library, **{"storage": True} | options)
        words = [str(word) for word in command]
        done = subprocess.run(
            words,
            env=self.variables | asked | {"FAKE_CUPTI_SYSTEM_CLOCK": "1"},
            capture_output=True, text=True, errors="replace", timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == status, (done.returncode, done.stderr)
        return Run(done.returncode, done.stdout, done.stderr, sorted(to.glob("*")))

    def scenario(self, name: str, *words: str | Path, **options: Any) -> tuple[Trace, list[Row]]:
        """A scenario of storage_program.cpp: the trace, and what the program says that it did."""
        run = self(self.built.folder / "testing" / "storage_program", name, *words, **options)
        assert len(run.files) == 1, run.error
        return read(run.files[0]), said(run.output)


def said(output: str) -> list[Row]:
    lines = (line.split("\t", 4) for line in output.splitlines())
    return [(call, int(at), int(size), int(thread), path) for call, at, size, thread, path in lines]


def noted(trace: Trace) -> list[Row]:
    return trace.storage.select("kind", "address", "bytes", "thread", pl.col("path").cast(pl.String)).rows()


@pytest.fixture
def recorder(built: Built, variables: dict[str, str], tmp_path: Path) -> Recorder:
    return Recorder(built, variables, tmp_path)


@pytest.mark.parametrize("memory", ["pageable", "pinned"])
def test_a_file_that_is_read_and_copied_to_the_gpu(recorder: Recorder, file: Path, memory: str) -> None:
    trace, did = recorder.scenario(memory, file)
    assert noted(trace) == did
    assert [row[2] for row in did] == [CHUNK, CHUNK, CHUNK, BYTES - 3 * CHUNK]
    rows = trace.storage
    assert (rows["end_ns"] > rows["start_ns"]).all() and rows["start_ns"].is_sorted()
    copies = trace.operations.filter(pl.col("bytes") > 512)
    # Each read is over before the call of its copy begins, and the next one begins behind that.
    called = trace.calls["start_ns"][1:-1]
    assert (rows["end_ns"] <= called).all() and (rows["start_ns"][1:] >= called[:-1]).all()
    assert copies["source_address"].to_list() == rows["address"].to_list()
    assert read_into(trace).to_list() == [memory] * 4


def test_nothing_is_noted_unless_it_is_asked_for(
    recorder: Recorder, built: Built, launch: Launch, file: Path
) -> None:
    trace, did = recorder.scenario("pageable", file, storage=False)
    assert len(did) == 4 and trace.storage.is_empty()
    assert "libbusfare_storage" not in environment("run.bf", library=built.library).get("LD_PRELOAD", "")
    program = str(built.folder / "testing" / "storage_program")
    done = launch("-o", "run.bf", "--storage", program=[program, "pinned", str(file)])
    assert done.returncode == 0, done.stderr
    assert busfare.read(file.parent / "run.bf").storage.height == 4


def test_every_call(recorder: Recorder, file: Path) -> None:
    """What is smaller, at the file's end or an error is not noted; errno stays what it was (or the program would end)."""
    trace, did = recorder.scenario("every-call", file, file.with_name("results.bin"))
    assert noted(trace) == did
    assert Counter(row[0] for row in did) == {"read": 4, "write": 4}


def test_calls_of_several_pieces(recorder: Recorder, file: Path) -> None:
    """Each piece has a row with its share of the call's time; C++'s streams write so, too."""
    trace, did = recorder.scenario("pieces", file, file.with_name("results.bin"))
    assert noted(trace) == did
    rows = trace.storage
    starts, ends = rows["start_ns"].to_list(), rows["end_ns"].to_list()
    assert all(end <= start for end, start in zip(ends[:-1], starts[1:], strict=True))
    assert ends[0] == starts[1]  # one call
    whole = rows.filter(pl.col("bytes") == CHUNK)
    assert (whole["end_ns"] > whole["start_ns"]).all()


def test_files_that_become_memory(recorder: Recorder, file: Path) -> None:
    """What copies took from there; another file, or other memory, in their place is not theirs."""
    other = file.with_name("other.bin")
    other.write_bytes(bytes(BYTES))
    trace, did = recorder.scenario("mapped", file, other)
    assert noted(trace) == did
    rows = trace.storage
    assert rows["kind"].to_list() == ["mapped"] * 3
    assert rows["end_ns"].is_null().to_list() == [False, False, True]
    assert rows["end_ns"][0] == rows["start_ns"][1] < rows["end_ns"][1]
    storage = busfare.report(trace).storage
    assert storage.by_kind == [] and storage.files == []
    found = [(one.path, one.mapped_bytes, one.count, one.bytes) for one in storage.mapped]
    assert found == [(str(file), 6 * CHUNK, 2, 2 * CHUNK), (str(other), CHUNK, 1, 4096)]
    copies = trace.operations.filter(pl.col("bytes") == CHUNK)[:2]
    seconds = (copies["end_ns"] - copies["start_ns"]).sum() * 1e-9
    assert storage.mapped[0].seconds == pytest.approx(seconds)
    assert storage.mapped[0].bytes_per_second == pytest.approx(2 * CHUNK / seconds)
    command = [sys.executable, "-m", "busfare", "report", str(trace.path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Files mapped into memory" in shown and "Reads and writes of files" not in shown


def test_mappings_of_python_and_of_numpy(recorder: Recorder, file: Path) -> None:
    program = (
        "import ctypes, mmap, sys; ctypes.CDLL('libcuda.so.1').cuInit(0)\n"
        "with open(sys.argv[1], 'rb') as file: kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
        "import numpy; again = numpy.memmap(sys.argv[1], mode='r')\n"
        "del again; kept.close()"
    )
    trace = read(recorder(sys.executable, "-c", program, file).files[0])
    rows = trace.storage.filter(pl.col("path").cast(pl.String) == str(file))
    assert rows.select("kind", "bytes").rows() == [("mapped", BYTES)] * 2
    assert rows["end_ns"].null_count() == 0


def test_reads_whose_buffers_are_checked(recorder: Recorder, file: Path, tmp_path: Path) -> None:
    program = compiled(
        "cc", "fortified.c", tmp_path / "fortified", "-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"
    )
    names = subprocess.run(["nm", "-D", str(program)], capture_output=True, text=True, check=True).stdout
    assert all(name in names for name in ("__read_chk", "__pread_chk", "__pread64_chk", "__fread_chk"))
    assert read(recorder(program, file, "100000").files[0]).storage["bytes"].to_list() == [100_000] * 4
    # Who asks for more than fits is still ended.
    assert "overflow" in recorder(program, file, str(CHUNK + 1), status=-6).error


def test_what_is_no_file_is_left_alone(recorder: Recorder, file: Path) -> None:
    """Pipes and sockets; a read that a signal interrupts, and one that gets a part."""
    trace, did = recorder.scenario("no-files", file)
    assert did == [] and trace.storage.is_empty() and trace.operations.height == 2


def test_a_descriptor_that_is_closed_and_used_for_another_file(recorder: Recorder, file: Path) -> None:
    trace, did = recorder.scenario("reused", file, file.with_name("second"))
    assert noted(trace) == did
    assert len({row[4] for row in did}) == 3


def test_reads_before_the_first_call_of_cuda(recorder: Recorder, file: Path) -> None:
    trace, did = recorder.scenario("early", file)
    assert noted(trace) == did and len(did) == 4
    assert (trace.storage["end_ns"] < 0).all()


def test_a_read_before_any_constructor(recorder: Recorder, file: Path) -> None:
    trace, did = recorder.scenario("first", file)
    assert noted(trace) == did and len(did) == 1


def test_of_too_many_early_reads_the_first_are_kept(recorder: Recorder, file: Path) -> None:
    trace, _ = recorder.scenario("many-early", file)
    assert trace.storage.height == 16_384
    assert {o.id: o.count for o in trace.omissions}["early-storage-lost"] == 5


def test_a_program_without_cuda_is_left_alone(recorder: Recorder, file: Path) -> None:
    run = recorder(recorder.built.folder / "testing" / "storage_program", "no-cuda", file)
    assert len(said(run.output)) == 4 and run.files == [] and run.error == ""


def test_many_threads(recorder: Recorder, file: Path) -> None:
    trace, did = recorder.scenario("threads", file)
    assert Counter(noted(trace)) == Counter(did)
    assert len(did) == 8 * 200 and len({row[3] for row in did}) == 8


def test_a_forked_child_is_not_the_parents_recording(recorder: Recorder, file: Path) -> None:
    """And reads at its own pace: nobody takes its notes."""
    trace, did = recorder.scenario("fork", file)
    assert noted(trace) == did and len(did) == 8


def test_a_child_that_uses_cuda_has_its_own_reads_and_not_its_parents(recorder: Recorder, file: Path) -> None:
    run = recorder(recorder.built.folder / "testing" / "storage_program", "fork-first", file)
    of_parent, of_child = (said(part) for part in run.output.split("forks\n"))
    assert len(run.files) == 1
    assert noted(read(run.files[0])) == of_child and len(of_child) == 4
    assert {row[3] for row in of_child} != {row[3] for row in of_parent}


def test_the_recorders_own_writes_are_not_noted(recorder: Recorder, built: Built, tmp_path: Path) -> None:
    run = recorder(built.program, "threads", "4000", flush_every=0.02)
    assert run.files[0].stat().st_size > 10 * LEAST
    assert read(run.files[0]).storage.is_empty()


@pytest.mark.parametrize("name", ["new\nline\x1b[2J", "<script>alert(1)<", "caf\udce9", "-o x.bin"])
def test_hostile_names_of_files(recorder: Recorder, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(os.urandom(BYTES))
    program = recorder.built.folder / "testing" / "storage_program"
    trace = read(recorder(program, "pageable", path).files[0])
    known = trace.storage["path"].cast(pl.String).unique().to_list()
    assert len(known) == 1 and known[0].startswith(str(tmp_path)) and len(known[0]) >= len(str(path))
    shown = tmp_path / "report.html"
    command = [sys.executable, "-m", "busfare", "report", str(trace.path), "--html", str(shown)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"\x1b[2J" not in done.stdout
    page = shown.read_text("utf-8")
    assert "Files that took longest" in page and "<script>alert" not in page and "\x1b" not in page


def test_a_window_leaves_out_what_is_outside(recorder: Recorder, file: Path) -> None:
    assert recorder.scenario("pageable", file, delay=30.0)[0].storage.is_empty()


class Cufile:
    """The stand-in for cuFile, and programs that use it."""

    def __init__(self, recorder: Recorder, folder: Path) -> None:
        self.recorder, self.folder = recorder, folder
        self.library = compiled(
            "cc", "fake_cufile.c", folder / "libcufile.so.0", "-shared", "-fPIC", "-Wl,-soname,libcufile.so.0"
        )

    def program(self, *options: str) -> Path:
        linked = [] if "-DBY_NAME" in options else [str(self.library)]
        return compiled(
            "cc", "cufile_program.c", self.folder / "cufile", *options, *linked, f"-Wl,-rpath,{self.folder}"
        )

    def traced(self, run: Run, file: Path) -> None:
        """Two calls, and none of the reads and writes inside them."""
        rows, buffer = noted(read(run.files[0])), int(run.output)
        thread = rows[-1][3]
        own = [row for row in rows if str(self.folder) in row[4]]  # an interpreter reads its modules, too
        assert own == [
            ("cufile-read", buffer + 4096, 1 << 17, thread, str(file)),
            ("cufile-write", buffer + 64, 1 << 18, thread, str(file.with_name("out.bin"))),
        ]


@pytest.fixture
def cufile(recorder: Recorder, tmp_path: Path) -> Cufile:
    return Cufile(recorder, tmp_path)


def test_calls_of_cufile(cufile: Cufile, file: Path) -> None:
    run = cufile.recorder(cufile.program(), file, file.with_name("out.bin"))
    cufile.traced(run, file)


def test_cufile_that_a_module_alone_loaded(cufile: Cufile, file: Path) -> None:
    module = cufile.program("-shared", "-fPIC")
    words = f"{str(file).encode()!r}, {str(file.with_name('out.bin')).encode()!r}"
    run = cufile.recorder(
        sys.executable, "-c", f"import ctypes; assert not ctypes.CDLL({str(module)!r}).storage({words})"
    )
    cufile.traced(run, file)


def test_cufile_found_by_dlsym_goes_past_and_works(cufile: Cufile, file: Path) -> None:
    """What it reads in turn is noted as the host's."""
    run = cufile.recorder(cufile.program("-DBY_NAME"), file, file.with_name("out.bin"))
    assert read(run.files[0]).storage["kind"].to_list() == ["read", "write"]


def test_what_cannot_note_storage_is_refused(built: Built, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="from the start"), recording(tmp_path / "run.bf", storage=True):
        pass
    elsewhere = tmp_path / built.library.name
    elsewhere.touch()
    with pytest.raises(InputError, match=r"^--storage: .*libbusfare_storage.so is missing.*reinstall"):
        environment("run.bf", storage=True, library=elsewhere)
