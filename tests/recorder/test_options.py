"""What the launcher can ask for: windows, kinds, names of files, fingerprints."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from busfare.errors import InputError, NoGpuError
from busfare.jobs import only_trace
from busfare.jobs.parts import find_parts
from busfare.measure.record import environment, record
from busfare.questions import Record
from busfare.show.words import text
from busfare.trace import read
from busfare.trace.readers.recorded.file import read_recording
from tests.processes import ended

from .conftest import Built, Launch, Recorded, Run

ROUNDS = 20


def kernels(run: Run) -> int:
    return len(run.only.table("kernels"))


def test_only_what_lies_between_the_profiler_calls(recorded: Recorded) -> None:
    run = recorded("profiler-calls", str(ROUNDS), capture="profiler-calls")
    assert kernels(run) == ROUNDS
    assert run.only.facts["capture"] == "profiler-calls"
    whole = recorded("profiler-calls", str(ROUNDS)).only
    # CUPTI gives calls from outside of the window too.
    assert 0 < len(run.only.table("calls")) == len(whole.table("calls")) // 3
    assert 0 < len(run.only.table("copy_addresses")) < len(whole.table("copy_addresses"))
    turns = run.only.table("windows")
    assert turns["on"].tolist() == [1, 0]
    assert turns["time"][0] <= run.only.table("calls")["start"].min()
    assert run.only.table("calls")["start"].max() < turns["time"][1]
    # What must be known of the time before is.
    assert len(run.only.table("contexts")) == len(run.only.table("devices")) == 1


def test_only_what_lies_inside_the_range(recorded: Recorded) -> None:
    run = recorded("nvtx", str(ROUNDS), nvtx="epoch 1")
    assert kernels(run) == ROUNDS
    assert run.only.facts["capture"] == "nvtx:epoch 1"
    assert len(run.only.table("calls")) == len(recorded("nvtx", str(ROUNDS)).only.table("calls")) // 3 > 0
    assert "pauses" not in {omission.id for omission in read(run.files[0]).omissions}
    parts = recorded("nvtx", str(ROUNDS), nvtx="another")
    assert kernels(parts) == 3 * ROUNDS
    (pauses,) = (omission for omission in read(parts.files[0]).omissions if omission.id == "pauses")
    assert pauses.count == 2 and "counts as host time" in text(pauses.what)
    assert kernels(recorded("nvtx", str(ROUNDS), nvtx="no such range")) == 0


def test_a_delay_leaves_out_the_beginning_and_a_duration_the_end(recorded: Recorded) -> None:
    whole = kernels(recorded("slow", "40"))  # 40 rounds of 20 ms
    late = recorded("slow", "40", delay=0.4)
    early = recorded("slow", "40", duration=0.4)
    assert whole == 40
    assert len(late.only.table("calls")) > 0 and len(early.only.table("calls")) > 0
    assert 0 < kernels(late) < whole and late.only.facts["delay"].startswith("0.4")
    assert 0 < kernels(early) < whole and early.only.facts["duration"].startswith("0.4")
    assert late.only.complete and early.only.complete
    assert early.only.table("end")["reason"].tolist() == [2]


def test_kinds_choose_the_tables(recorded: Recorded) -> None:
    only_copies = recorded("everything", kinds=["copies"]).only
    assert len(only_copies.table("copies")) == 3
    left_out = ["kernels", "calls", "waits", "events", "allocations", "markers", "copy_addresses", "managed"]
    for table in left_out:
        assert len(only_copies.table(table)) == 0, table


def test_queries_are_recorded_only_on_request(recorded: Recorded) -> None:
    def names(run: Run) -> set[str]:
        return {run.only.strings[number] for number in run.only.table("calls")["name"].tolist()}

    for calls, query in (("driver", "cuCtxGetDevice"), ("both", "cudaGetDevice_v3020")):
        assert query not in names(recorded("everything", calls=calls))
        assert query in names(recorded("everything", calls=calls, kinds=["default", "all-calls"]))


def test_an_unknown_kind_in_the_environment_is_reported(recorded: Recorded) -> None:
    run = recorded("rounds", extra={"BUSFARE_RECORD_KINDS": "kernels,colours"})
    assert kernels(run) == 10
    assert "unknown kind 'colours'" in run.error


def test_addresses_of_copies(recorded: Recorded) -> None:
    addresses = recorded("rounds").only.table("copy_addresses")
    assert addresses["destination"][::2].tolist() == [0x7F0000000000] * 10
    assert addresses["source"][1::2].tolist() == [0x7F0000000000] * 10
    assert not addresses["fingerprint"].any()


def test_fingerprints_tell_changed_bytes_from_unchanged_ones(recorded: Recorded) -> None:
    recording = recorded("rounds", "6", fingerprint=True).only
    prints = recording.table("copy_addresses")["fingerprint"]
    to_device, back = prints[::2], prints[1::2]
    # Even and odd rounds send zeros and ones, each time of another length; the same bytes come back.
    assert len(np.unique(to_device)) == 6 and to_device.all()
    assert back.tolist() == to_device.tolist()


def test_every_interval_of_flushing_writes(recorded: Recorded) -> None:
    often = recorded("slow", "40", flush_every=0.05).only
    seldom = recorded("slow", "40", flush_every=30.0).only
    assert int(often.table("end")["chunks"][0]) > int(seldom.table("end")["chunks"][0])


def test_names_of_files(built: Built, launch: Launch, tmp_path: Path) -> None:
    done = launch("-o", "%h/a-%r-%p-%%.bf", OMPI_COMM_WORLD_RANK="3")
    assert (done.returncode, done.stderr) == (0, "")
    (file,) = (tmp_path / socket.gethostname()).glob("*.bf")
    recording = read_recording(file)
    assert file.stem == f"a-3-{recording.process}-%"
    assert recording.facts["rank"] == "3"
    assert recording.facts["command"] == f"{built.program} rounds"


@pytest.mark.parametrize(("rank", "size"), [("5", {"WORLD_SIZE": "8"}), ("1", {})])
def test_the_rank_under_torchrun(launch: Launch, tmp_path: Path, rank: str, size: dict[str, str]) -> None:
    done = launch("-o", "x/%r.bf", RANK="5", LOCAL_RANK="1", SLURM_PROCID="1", **size)
    assert (done.returncode, done.stderr) == (0, "")
    assert read_recording(tmp_path / "x" / f"{rank}.bf").facts["rank"] == rank


def test_ranks_share_a_directory(launch: Launch, tmp_path: Path) -> None:
    job = tmp_path / "job.bf"
    for rank in ("0", "1"):
        assert launch("-o", "job.bf", SLURM_PROCID=rank).returncode == 0
    names = sorted(file.name for file in job.iterdir())
    assert len(names) == 2 and "-r0-" in names[0] and "-r1-" in names[1]
    # Each file is of a rank, the directory of none; and to a job each file is a part.
    assert [read(job / name).host["rank"] for name in names] == ["0", "1"]
    assert "rank" not in read(job).host
    assert only_trace([job]) == job
    assert [Path(part.path).name for part in find_parts([job]).parts] == names


@pytest.mark.parametrize(
    ("scenario", "status"),
    [("status", 42), ("quick-exit", 7), ("abort", 128 + signal.SIGABRT), ("rounds", 0)],
)
def test_the_status_of_the_program_is_that_of_the_command(launch: Launch, scenario: str, status: int) -> None:
    assert launch("-o", "x", program=scenario).returncode == status


def test_a_signal_to_the_launcher_reaches_the_program(
    built: Built, variables: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "busfare", "record", "-o", str(tmp_path / "x"), "--flush-every", "0.1"]
    process = subprocess.Popen([*command, "--", built.program, "hang"], env=variables, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"recorded\n"
    process.terminate()
    assert ended(process) == (b"", None)
    assert process.returncode == 128 + signal.SIGTERM
    assert len(list((tmp_path / "x").iterdir())) == 1


def test_a_program_without_cuda_is_reported(launch: Launch, tmp_path: Path) -> None:
    done = launch("-o", "x", program="no-cuda")
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1 and "nothing was recorded" in done.stderr
    assert not list((tmp_path / "x").iterdir())


@pytest.mark.parametrize(
    ("arguments", "program", "words"),
    [
        ("-o x", "", "Missing argument"),
        ("-o x", "/no/such/program", "no such program"),
        ("-o /proc/nowhere/x", "true", "cannot be written"),
        ("-o x --kinds colours", "true", "unknown"),
        ("-o x --flush-every 0", "true", "--flush-every"),
        ("-o x --delay -1", "true", "--delay"),
        ("-o x --capture sometimes", "true", "--capture"),
        ("-o x --delay 1 --nvtx epoch", "true", "--delay"),
    ],
)
def test_wrong_usage_is_a_single_line(launch: Launch, arguments: str, program: str, words: str) -> None:
    done = launch(*arguments.split(), program=program.split())
    assert done.returncode == InputError.exit_status
    assert done.stderr.count("\n") == 1 and words in done.stderr


def test_no_driver_has_a_separate_status(launch: Launch, tmp_path: Path) -> None:
    done = launch("-o", "x", program=["true"], LD_LIBRARY_PATH="")
    assert (done.returncode, done.stderr.count("\n")) == (NoGpuError.exit_status, 1)
    # A launcher may start the program where there is one.
    fake = tmp_path / "srun"
    fake.write_text("#!/bin/sh\nexit 5\n")
    fake.chmod(0o755)
    assert launch("-o", "y", program=[str(fake)], LD_LIBRARY_PATH="").returncode == 5


def test_an_earlier_recording_is_not_written_over(launch: Launch, tmp_path: Path) -> None:
    assert launch("-o", "x").returncode == 0
    again = launch("-o", "x")
    assert again.returncode == InputError.exit_status and "earlier recording" in again.stderr
    (tmp_path / "file").write_text("")
    assert launch("-o", "file").returncode == InputError.exit_status


def test_a_missing_library_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing"):
        environment("x", library=tmp_path / "nothing.so")


def test_record_here_restores_signals(built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("busfare.measure.record._require_driver", lambda: None)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    command = [sys.executable, "-c", "raise SystemExit(9)"]
    monkeypatch.setenv("BUSFARE_RECORDER_LIBRARY", str(built.library))
    assert record(command, str(tmp_path / "x"), Record()) == 9
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert not any(name.startswith("BUSFARE_RECORD_") for name in os.environ)
