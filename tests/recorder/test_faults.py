"""What goes wrong around a recording: the program is never hurt, and nothing is lost before the last flush."""

import random
import resource
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from busfare.measure.record import environment
from busfare.questions import Record
from busfare.trace import read
from busfare.trace.readers.recorded.file import HEADER_BYTES, Recording, read_recording
from tests.processes import ended, wait_until

from .conftest import Built, Recorded

#: An unknown version of CUPTI, which is used all the same.
TRUSTED = {"FAKE_CUPTI_VERSION": "140000", "BUSFARE_RECORD_TRUST_CUPTI": "1"}
ROUND = {"kernels": 1, "copies": 2, "calls": 3}


def tallies(recording: Recording) -> dict[str, int]:
    return {name: len(recording.table(name)) for name in ROUND}


def times(rounds: int) -> dict[str, int]:
    return {name: count * rounds for name, count in ROUND.items()}


def operations_in(file: Path) -> dict[str, int]:
    """Rows of each table that the recording at `file` holds so far, none missing before the last one.

    A round of the program is a copy, a kernel and a copy, numbered on from 1. A flush writes one table after the other, so a
    file that is read (or cut) in the middle of one may end later in one table than in another.
    """
    if file.stat().st_size < HEADER_BYTES:  # nothing was written yet
        return {"kernels": 0, "copies": 0}
    recording = read_recording(file)
    assert not recording.complete
    assert recording.damaged_chunks == recording.missing_chunks == 0
    numbers = {name: np.sort(recording.table(name)["correlation"]) for name in ("kernels", "copies")}
    kernels, copies = numbers["kernels"], numbers["copies"]
    for numbered, first in ((kernels, 2), (copies[::2], 1), (copies[1::2], 3)):
        assert np.array_equal(numbered, 3 * np.arange(len(numbered)) + first)
    return {name: len(column) for name, column in numbers.items()}


@pytest.mark.parametrize("seed", range(50))
def test_sigkill_at_any_moment_loses_nothing_before_the_last_flush(
    built: Built, variables: dict[str, str], tmp_path: Path, seed: int
) -> None:
    progress, folder = tmp_path / "progress", tmp_path / "run"
    settings = environment(f"{folder}/", Record(flush_every=0.05), library=built.library)
    process = subprocess.Popen([built.program, "forever", "20", str(progress)], env=variables | settings)
    try:
        wait_until(lambda: progress.exists() and progress.stat().st_size == 8, process)
        time.sleep(random.Random(seed).uniform(0.0, 0.5))
        (file,) = folder.iterdir()
        # Every other one is killed only once it has flushed operations, however busy the machine is.
        wait_until(lambda: seed % 2 == 0 or any(operations_in(file).values()), process)
        flushed = file.read_bytes()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert file.read_bytes().startswith(flushed)
    before = tmp_path / "before.bf"
    before.write_bytes(flushed)
    after, flushed_rows = operations_in(file), operations_in(before)
    assert all(after[name] >= rows for name, rows in flushed_rows.items())
    assert any(after.values()) or seed % 2 == 0


def test_a_program_that_never_ends_is_recorded_until_somebody_ends_it(
    built: Built, variables: dict[str, str], tmp_path: Path
) -> None:
    settings = environment(f"{tmp_path}/run/", Record(flush_every=0.1), library=built.library)
    command = [built.program, "hang", "50"]
    process = subprocess.Popen(command, env=variables | settings, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"recorded\n"
    process.terminate()
    assert ended(process) == (b"", None)
    assert process.returncode == -signal.SIGTERM
    (file,) = (tmp_path / "run").iterdir()
    assert tallies(read_recording(file)) == times(50)


@pytest.mark.parametrize("limit", [64, 100, 1000, 4096, 65536])
def test_a_full_disk_stops_the_recording_and_not_the_program(recorded: Recorded, limit: int) -> None:
    run = recorded("rounds", "200000", limit_file_bytes=limit, flush_every=0.02)
    assert run.status == 0
    assert run.error.count("\n") == 1 and "busfare record: cannot write" in run.error
    for file in run.files:
        assert file.stat().st_size <= limit
        recording = read_recording(file)
        assert not recording.complete
        assert recording.torn_bytes == recording.damaged_chunks == 0


@pytest.mark.parametrize(
    ("arguments", "options", "status", "rounds", "complete"),
    [
        (("abort", "100"), {"flush_every": 0.1}, -signal.SIGABRT, 100, False),
        (("quick-exit", "100"), {"flush_every": 0.1}, 7, 100, False),
        (("fork", "10"), {}, 0, 11, True),  # ten rounds before, one after, none of the child's
        (("fork-first", "10"), {}, 0, 10, True),  # the child's own recording
        (("late", "10"), {}, 0, 10, True),
        (("threads", "2000"), {}, 0, 16_000, True),
        (("rounds", "10"), {"extra": TRUSTED}, 0, 10, True),
    ],
)
def test_however_a_program_lives_and_ends_what_it_did_is_recorded(
    recorded: Recorded, arguments: tuple[str, ...], options: dict[str, object], status: int, rounds: int,
    complete: bool,
) -> None:  # fmt: skip
    run = recorded(*arguments, **options)
    assert (run.status, tallies(run.only), run.only.complete) == (status, times(rounds), complete)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"BUSFARE_RECORD_OUTPUT": "/proc/nowhere/"}, "nothing is recorded"),
        ({"FAKE_CUPTI_BUSY": "1"}, "another profiler"),
        *(({"FAKE_CUPTI_VERSION": version}, f"of version {version}") for version in ("17", "100", "140000")),
    ],
)
def test_where_nothing_can_be_recorded_the_program_runs_and_a_single_line_says_why(
    recorded: Recorded, extra: dict[str, str], words: str
) -> None:
    run = recorded("status", extra=extra)
    assert (run.status, run.files, run.error.count("\n")) == (42, [], 1)
    assert words in run.error


def test_exec_starts_a_second_file(recorded: Recorded) -> None:
    run = recorded("exec", "10")
    assert run.status == 0
    assert len(run.files) == 2
    assert sorted(file.stem.endswith("-2") for file in run.files) == [False, True]
    assert [tallies(recording) for recording in run.recordings if recording.complete] == [times(10)]


def test_a_driver_of_cuda_12_gets_the_cupti_of_cuda_12(built: Built, recorded: Recorded) -> None:
    search_path = f"{built.search_path()}:{built.folder / 'testing' / 'cupti12'}"
    versions = {"FAKE_DRIVER_VERSION": "12040", "FAKE_CUPTI_VERSION": "22"}
    run = recorded("rounds", extra=versions | {"LD_LIBRARY_PATH": search_path})
    assert run.only.facts["cuda"] == "12.4" and run.only.facts["cupti"] == "22"
    assert tallies(run.only) == times(10)


def test_without_cupti_a_single_line_says_how_to_fix_it_and_that_of_the_launcher_is_used(
    built: Built, recorded: Recorded
) -> None:
    only_driver = {"LD_LIBRARY_PATH": str(built.folder / "testing" / "driver"), "BUSFARE_RECORD_CUPTI": ""}
    run = recorded("status", extra=only_driver)
    assert run.status == 42
    assert run.error.count("\n") == 1 and "nvidia-cuda-cupti" in run.error
    there = built.folder / "testing" / "cupti13" / "libcupti.so.13"
    run = recorded("rounds", extra=only_driver | {"BUSFARE_RECORD_CUPTI": f"/none/libcupti.so.13:{there}"})
    assert tallies(run.only) == times(10)


def test_what_cupti_drops_is_counted(recorded: Recorded) -> None:
    losses = recorded("rounds", extra={"FAKE_CUPTI_DROPS": "17"}).only.table("losses")
    assert losses["loss"].tolist() == [1] and losses["count"].tolist() == [17]


def test_a_torn_recording_or_dropped_records_do_not_tell_all_allocations(
    recorded: Recorded, tmp_path: Path
) -> None:
    whole, dropped = (recorded("everything", extra={"FAKE_CUPTI_DROPS": n}).files[0] for n in ("0", "17"))
    torn = tmp_path / "torn.bf"
    torn.write_bytes(whole.read_bytes()[:-5])
    for file, expected in ((whole, 1 << 20), (dropped, None), (torn, None)):
        assert read(file, launches=True).launches["allocated_bytes"].to_list() == [expected]


def peak_resident_bytes(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def test_memory_is_bounded_over_ten_million_operations(
    built: Built, variables: dict[str, str], tmp_path: Path
) -> None:
    buffers, buffer_kib = 16, 1024
    rounds = 3_400_000
    settings = environment(f"{tmp_path / 'run'}/", library=built.library)
    settings |= {"BUSFARE_RECORD_BUFFERS": str(buffers), "BUSFARE_RECORD_BUFFER_KIB": str(buffer_kib)}
    process = subprocess.Popen([built.program, "rounds", str(rounds)], env=variables | settings)
    peak = 0
    while process.poll() is None:
        peak = max(peak, peak_resident_bytes(process.pid))
        time.sleep(0.02)
    assert process.returncode == 0
    # The buffers, the rows that wait to be written, and the program itself.
    assert (buffers * buffer_kib << 10) // 2 < peak < (buffers * buffer_kib << 10) + (48 << 20)
    (file,) = (tmp_path / "run").iterdir()
    recording = read_recording(file)
    lost = int(recording.table("losses")["count"][np.isin(recording.table("losses")["loss"], [1, 2])].sum())
    assert tallies(recording)["kernels"] == rounds or lost > 0
    assert recording.complete


def test_the_program_keeps_its_limits_and_its_output(recorded: Recorded) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    run = recorded("no-cuda")
    assert (run.status, run.output, run.error, run.files) == (0, "", "", [])
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
