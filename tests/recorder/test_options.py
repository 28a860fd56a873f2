"""What the launcher can ask for: windows, kinds, names of files, fingerprints."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from busfare.errors import InputError, NoGpuError
from busfare.job import one_trace
from busfare.job.parts import find_parts
from busfare.measure.record import KINDS, environment, record
from busfare.trace import read
from busfare.trace.readers.recorded.file import read_recording

from .conftest import Built, Run

ROUNDS = 20


def kernels(run: Run) -> int:
    return len(run.only.table("kernels"))


def launch(variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "busfare", "record", *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)


def test_only_what_lies_between_the_profiler_calls(recorded: Callable[..., Run]) -> None:
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


def test_only_what_lies_inside_the_range(recorded: Callable[..., Run]) -> None:
    run = recorded("nvtx", str(ROUNDS), nvtx="epoch 1")
    assert kernels(run) == ROUNDS
    assert run.only.facts["capture"] == "nvtx:epoch 1"
    assert len(run.only.table("calls")) == len(recorded("nvtx", str(ROUNDS)).only.table("calls")) // 3 > 0
    assert kernels(recorded("nvtx", str(ROUNDS), nvtx="another")) == 3 * ROUNDS
    assert kernels(recorded("nvtx", str(ROUNDS), nvtx="no such range")) == 0


def test_a_delay_leaves_out_the_beginning_and_a_duration_the_end(recorded: Callable[..., Run]) -> None:
    whole = kernels(recorded("slow", "40"))  # 40 rounds of 20 ms
    late = recorded("slow", "40", delay=0.4)
    early = recorded("slow", "40", duration=0.4)
    assert whole == 40
    assert len(late.only.table("calls")) > 0 and len(early.only.table("calls")) > 0
    assert 0 < kernels(late) < whole and late.only.facts["delay"].startswith("0.4")
    assert 0 < kernels(early) < whole and early.only.facts["duration"].startswith("0.4")
    assert late.only.complete and early.only.complete
    assert early.only.table("end")["reason"].tolist() == [2]


def test_kinds_choose_the_tables(recorded: Callable[..., Run]) -> None:
    only_copies = recorded("everything", kinds=["copies"]).only
    assert len(only_copies.table("copies")) == 3
    for table in (
        "kernels",
        "calls",
        "waits",
        "events",
        "allocations",
        "markers",
        "copy_addresses",
        "managed",
    ):
        assert len(only_copies.table(table)) == 0, table


def test_queries_are_recorded_only_when_asked_for(recorded: Callable[..., Run]) -> None:
    def names(run: Run) -> set[str]:
        return {run.only.strings[number] for number in run.only.table("calls")["name"].tolist()}

    for calls, query in (("driver", "cuCtxGetDevice"), ("both", "cudaGetDevice_v3020")):
        assert query not in names(recorded("everything", calls=calls))
        assert query in names(recorded("everything", calls=calls, kinds=["default", "all-calls"]))


def test_an_unknown_kind_in_the_environment_is_said(recorded: Callable[..., Run]) -> None:
    run = recorded("rounds", extra={"BUSFARE_RECORD_KINDS": "kernels,colours"})
    assert kernels(run) == 10
    assert "unknown kind 'colours'" in run.error


def test_addresses_of_copies(recorded: Callable[..., Run]) -> None:
    addresses = recorded("rounds").only.table("copy_addresses")
    assert addresses["destination"][::2].tolist() == [0x7F0000000000] * 10
    assert addresses["source"][1::2].tolist() == [0x7F0000000000] * 10
    assert not addresses["fingerprint"].any()


def test_fingerprints_tell_changed_bytes_from_unchanged_ones(recorded: Callable[..., Run]) -> None:
    recording = recorded("rounds", "6", fingerprint=True).only
    prints = recording.table("copy_addresses")["fingerprint"]
    to_device, back = prints[::2], prints[1::2]
    # Even and odd rounds send zeros and ones, each time of another length; asynchronous copies back are not read.
    assert len(np.unique(to_device)) == 6 and to_device.all()
    assert not back.any()


def test_every_interval_of_flushing_writes(recorded: Callable[..., Run]) -> None:
    often = recorded("slow", "40", flush_every=0.05).only
    seldom = recorded("slow", "40", flush_every=30.0).only
    assert int(often.table("end")["chunks"][0]) > int(seldom.table("end")["chunks"][0])


def test_names_of_files(built: Built, variables: dict[str, str], tmp_path: Path) -> None:
    extra = {"OMPI_COMM_WORLD_RANK": "3"}
    done = launch(variables | extra, "-o", str(tmp_path / "a-%h-%r-%p-%%.bf"), "--", built.program, "rounds")
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("*.bf")
    host, rank, process, percent = file.stem.removeprefix("a-").rsplit("-", 3)
    recording = read_recording(file)
    assert (host, rank, process, percent) == (socket.gethostname(), "3", str(recording.process), "%")
    assert recording.facts["rank"] == "3"
    assert recording.facts["command"] == f"{built.program} rounds"


def test_the_rank_of_a_process_that_torchrun_started(
    built: Built, variables: dict[str, str], tmp_path: Path
) -> None:
    extra = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "SLURM_PROCID": "1"}
    for rank, given in (("5", extra), ("1", {**extra, "WORLD_SIZE": ""})):
        folder = tmp_path / f"rank-{rank}"
        given = {name: value for name, value in given.items() if value}
        done = launch(variables | given, "-o", f"{folder}/%r.bf", "--", built.program, "rounds")
        assert (done.returncode, done.stderr) == (0, "")
        assert read_recording(folder / f"{rank}.bf").facts["rank"] == rank


def test_a_folder_of_each_host(built: Built, variables: dict[str, str], tmp_path: Path) -> None:
    done = launch(variables, "-o", str(tmp_path / "%h" / "%p.bf"), "--", built.program, "rounds")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list((tmp_path / socket.gethostname()).glob("*.bf"))) == 1


def test_ranks_share_a_directory(built: Built, variables: dict[str, str], tmp_path: Path) -> None:
    for rank in ("0", "1"):
        done = launch(
            variables | {"SLURM_PROCID": rank}, "-o", str(tmp_path / "job.bf"), "--", built.program, "rounds"
        )
        assert done.returncode == 0, done.stderr
    names = sorted(file.name for file in (tmp_path / "job.bf").iterdir())
    assert len(names) == 2 and "-r0-" in names[0] and "-r1-" in names[1]
    # Each file is of a rank, the directory of none; and to a job each file is a part.
    assert [read(tmp_path / "job.bf" / name).host["rank"] for name in names] == ["0", "1"]
    assert "rank" not in read(tmp_path / "job.bf").host
    assert one_trace([tmp_path / "job.bf"]) == tmp_path / "job.bf"
    assert [Path(part.path).name for part in find_parts([tmp_path / "job.bf"]).parts] == names


def test_the_status_of_the_program_is_that_of_the_command(
    built: Built, variables: dict[str, str], tmp_path: Path
) -> None:
    for scenario, status in (
        ("status", 42),
        ("quick-exit", 7),
        ("abort", 128 + signal.SIGABRT),
        ("rounds", 0),
    ):
        assert (
            launch(variables, "-o", str(tmp_path / scenario), "--", built.program, scenario).returncode
            == status
        )


def test_a_signal_to_the_launcher_reaches_the_program(
    built: Built, variables: dict[str, str], tmp_path: Path
) -> None:
    command = [
        sys.executable,
        "-m",
        "busfare",
        "record",
        "-o",
        str(tmp_path / "x"),
        "--flush-every",
        "0.1",
    ]
    process = subprocess.Popen([*command, "--", built.program, "hang"], env=variables, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"recorded\n"
    process.terminate()
    assert process.wait(timeout=10) == 128 + signal.SIGTERM
    process.stdout.close()
    assert len(list((tmp_path / "x").iterdir())) == 1


def test_a_program_without_cuda_is_said(built: Built, variables: dict[str, str], tmp_path: Path) -> None:
    done = launch(variables, "-o", str(tmp_path / "x"), "--", built.program, "no-cuda")
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1 and "nothing was recorded" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["-o", "x"], 2, "Missing argument"),
        (["-o", "x", "--", "/no/such/program"], 2, "no such program"),
        (["-o", "/proc/nowhere/x", "--", "true"], 2, "cannot be made"),
        (["-o", "x", "--kinds", "colours", "--", "true"], 2, "not known"),
        (["-o", "x", "--flush-every", "0", "--", "true"], 2, "--flush-every"),
        (["-o", "x", "--delay", "-1", "--", "true"], 2, "--delay"),
        (["-o", "x", "--capture", "sometimes", "--", "true"], 2, "--capture"),
        (["-o", "x", "--delay", "1", "--nvtx", "epoch", "--", "true"], 2, "--delay"),
    ],
)
def test_wrong_usage_is_one_line(
    variables: dict[str, str], tmp_path: Path, arguments: list[str], status: int, words: str
) -> None:
    arguments = [str(tmp_path / "x") if word == "x" else word for word in arguments]
    done = launch(variables, *arguments)
    assert done.returncode == status
    assert done.stderr.count("\n") == 1 and words in done.stderr


def test_no_driver_is_its_own_status(variables: dict[str, str], tmp_path: Path) -> None:
    done = launch({**variables, "LD_LIBRARY_PATH": ""}, "-o", str(tmp_path / "x"), "--", "true")
    assert (done.returncode, done.stderr.count("\n")) == (NoGpuError.exit_status, 1)
    # A launcher may start the program where there is one.
    fake = tmp_path / "srun"
    fake.write_text("#!/bin/sh\nexit 5\n")
    fake.chmod(0o755)
    assert (
        launch({**variables, "LD_LIBRARY_PATH": ""}, "-o", str(tmp_path / "y"), "--", str(fake)).returncode
        == 5
    )


def test_an_earlier_recording_is_not_written_over(
    built: Built, variables: dict[str, str], tmp_path: Path
) -> None:
    output = str(tmp_path / "x")
    assert launch(variables, "-o", output, "--", built.program, "rounds").returncode == 0
    again = launch(variables, "-o", output, "--", built.program, "rounds")
    assert again.returncode == InputError.exit_status and "earlier recording" in again.stderr
    (tmp_path / "file").write_text("")
    assert launch(variables, "-o", str(tmp_path / "file"), "--", built.program).returncode == 2


def test_the_environment_alone_suffices(built: Built, variables: dict[str, str], tmp_path: Path) -> None:
    asked = environment(f"{tmp_path}/x/", library=built.library, kinds=KINDS[1:3])
    assert subprocess.run([built.program, "rounds"], env=variables | asked).returncode == 0
    (file,) = (tmp_path / "x").iterdir()
    assert len(read_recording(file).table("kernels")) == 10


def test_a_missing_library_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing"):
        environment("x", library=tmp_path / "nothing.so")


def test_record_in_this_process_restores_the_signals(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("busfare.measure.record._require_driver", lambda: None)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    start = time.monotonic()
    assert (
        record([sys.executable, "-c", "raise SystemExit(9)"], str(tmp_path / "x"), library=built.library) == 9
    )
    assert time.monotonic() - start < 10
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert not any(name.startswith("BUSFARE_RECORD_") for name in os.environ)
