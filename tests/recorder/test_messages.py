"""MPI and NCCL calls: real programs under a real MPI, and a stand-in for NCCL; what they did is known by heart."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from busfare.jobs.matching import MEMBERS, match
from busfare.measure.record import environment
from busfare.trace import Trace, read
from tests.job.test_nsys_mpi_job import table
from tests.processes import finished

from .conftest import SOURCE, Built

Ranks = Callable[..., Path]
MPIS = {"openmpi": ("mpicc.openmpi", "mpirun.openmpi"), "mpich": ("mpicc.mpich", "mpirun.mpich")}
#: As root, on fewer cores than ranks, and without spinning there.
ALLOWED = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl": "self,vader",
}


def compiled(compiler: str, source: str, to: Path, *options: str) -> Path:
    command = [compiler, "-O1", str(SOURCE / "testing" / source), "-o", str(to), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return to


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.mpi) for name in MPIS])
def mpi(request: pytest.FixtureRequest) -> tuple[str, str]:
    compiler, launcher = (shutil.which(name) for name in MPIS[request.param])
    assert compiler, f"{request.param} is missing; `make test-all` installs it"
    assert launcher, f"{request.param} is missing; `make test-all` installs it"
    return compiler, launcher


@pytest.fixture
def recorded_ranks(mpi: tuple[str, str], variables: dict[str, str], tmp_path: Path) -> Ranks:
    """Runs a command on so many ranks, each recorded; the folder of the recordings."""

    def run(command: list[str], ranks: int, *options: str, status: int = 0) -> Path:
        folder = tmp_path / "run.bf"
        recorded = [sys.executable, "-m", "busfare", "record", "-o", str(folder), *options, "--"]
        done = finished([*recorded, mpi[1], "-n", str(ranks), *command], env=variables | ALLOWED)
        assert (done.returncode == 0) == (status == 0), done.stderr
        return folder

    return run


@pytest.fixture
def launched(mpi: tuple[str, str], recorded_ranks: Ranks, tmp_path: Path) -> Ranks:
    """Runs a scenario of mpi_ranks.c on so many ranks."""

    def launch(scenario: str, ranks: int, *options: str, status: int = 0, module: bool = False) -> Path:
        options_of_module = ("-shared", "-fPIC") if module else ()
        program = compiled(mpi[0], "mpi_ranks.c", tmp_path / "ranks", *options_of_module)
        call = f"ctypes.CDLL({str(program)!r}).main(2, (ctypes.c_char_p * 3)(b'', b'{scenario}'))"
        run = [sys.executable, "-c", f"import ctypes; {call}"]
        command = run if module else [str(program), scenario]
        return recorded_ranks(command, ranks, *options, status=status)

    return launch


def reported(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "busfare", "report", "--json", "--jobs", "1", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def traces(folder: Path) -> list[Trace]:
    return sorted((read(file) for file in folder.iterdir()), key=lambda trace: trace.host["rank"])


def left_out(result: dict[str, Any]) -> set[str]:
    return {omission["id"] for omission in result["omissions"]} & {"unmatched-communication", "absent-ranks"}


def test_ranks_wait_for_the_rank_that_sleeps(launched: Ranks) -> None:
    result = reported(launched("halo", 4))
    assert table(result) == {
        ("MPI_COMM_WORLD", "all_reduce"): (10, 4, 80),
        ("MPI_COMM_WORLD", "send_receive"): (40 + 8, 2, 40 * 4000 + 8 * 4),
    }
    waited = {row["rank"]: row["waiting_seconds"] for row in result["ranks"]}
    # It sleeps for a second. On a busy machine it waits for them as well, and they come late themselves.
    assert min(waited[rank] for rank in (0, 2, 3)) > 0.5
    assert waited[1] < min(waited[rank] for rank in (0, 2, 3))
    assert not left_out(result)


def test_collectives_by_communicator(launched: Ranks) -> None:
    result = reported(launched("collectives", 4))
    assert table(result) == {
        ("ranks 2,0", "barrier"): (1, 2, 0),
        ("ranks 3,1", "barrier"): (1, 2, 0),
        ("ranks 2,0 #2", "broadcast"): (1, 2, 12),
        ("ranks 3,1 #2", "broadcast"): (1, 2, 12),
        ("MPI_COMM_WORLD", "all_gather"): (1, 4, 32),
        ("MPI_COMM_WORLD", "reduce_scatter"): (1, 4, 32),
        ("MPI_COMM_WORLD", "gather"): (1, 4, 48),
        ("MPI_COMM_WORLD", "scatter"): (1, 4, 20),
        ("MPI_COMM_WORLD", "all_to_all"): (1, 4, 24),
    }
    assert not left_out(result)


@pytest.mark.parametrize("module", [False, True])
def test_messages_belong_to_their_requests(launched: Ranks, module: bool) -> None:
    """Also in a module that alone loaded MPI, as Python's do."""
    folder = launched("messages", 2, module=module)
    result = reported(folder)
    assert table(result) == {("MPI_COMM_WORLD", "send_receive"): (12, 2, 280)}
    assert not left_out(result)
    for rank, trace in enumerate(traces(folder)):
        for kind in ("send", "receive"):
            of_kind = (pl.col("collective_kind") == kind) & ~pl.col("ended")
            rows = trace.collectives.filter(of_kind).sort("tag", "sequence")
            assert rows["bytes"].to_list() == [10, 20, 20, 20, 30, 40]
            assert rows["tag"].to_list() == [1, 3, 3, 3, 4, 5]
            assert rows["peer"].unique().to_list() == [1 - rank]


def test_fences_of_windows_wait_for_all_and_what_moves_bytes_is_a_range(launched: Ranks) -> None:
    folder = launched("windows", 3)
    result = reported(folder)
    assert table(result) == {("MPI_COMM_WORLD", "barrier"): (2, 3, 0)}
    waited = {row["rank"]: row["waiting_seconds"] for row in result["ranks"]}
    assert min(waited[0], waited[2]) > 0.25 and waited[1] < min(waited[0], waited[2])
    assert not left_out(result)
    for trace in traces(folder):
        names = trace.markers["name"].cast(pl.String).to_list()
        assert [name for name in names if name.startswith("MPI_")] == [
            "MPI_Win_fence", "MPI_Put", "MPI_Get", "MPI_Win_fence", "MPI_Win_lock", "MPI_Get", "MPI_Win_unlock",
        ]  # fmt: skip


@pytest.mark.parametrize("bindings", [(), ("-DF08",)], ids=["mpi", "mpi_f08"])
def test_fortran_is_seen_by_either_bindings(
    bindings: tuple[str, ...], mpi: tuple[str, str], recorded_ranks: Ranks, tmp_path: Path
) -> None:
    compiler = shutil.which(mpi[0].replace("mpicc", "mpifort"))
    assert compiler, "the MPI's compiler of Fortran is missing; `make test-all` installs it"
    program = compiled(compiler, "mpi_ranks.F90", tmp_path / "ranks", f"-J{tmp_path}", *bindings)
    result = reported(recorded_ranks([str(program)], 4))
    assert table(result) == {
        ("MPI_COMM_WORLD", "send_receive"): (44, 2, 40 * 4000 + 4 * 12),
        ("MPI_COMM_WORLD", "all_reduce"): (10, 4, 80),
        **{(f"ranks {ranks}", "broadcast"): (1, 2, 12) for ranks in ("0,2", "1,3")},
        **{(f"ranks {ranks}", "all_to_all"): (1, 2, 16) for ranks in ("0,2", "1,3")},
    }
    assert not left_out(result)


def test_threads_that_talk_at_once(launched: Ranks) -> None:
    result = reported(launched("threads", 2))
    assert table(result) == {("MPI_COMM_WORLD", "send_receive"): (2 * 4 * 200, 2, 2 * 4 * 200 * 4)}
    assert not left_out(result)


def test_a_killed_rank_leaves_what_it_did(launched: Ranks) -> None:
    folder = launched("killed", 2, "--flush-every", "0.1", status=1)
    killed = traces(folder)[1]
    assert "cut" in {omission.id for omission in killed.omissions}
    assert killed.collectives.filter(pl.col("collective_kind") == "all_reduce").height == 10
    assert table(reported(folder))["MPI_COMM_WORLD", "all_reduce"] == (10, 2, 80)


def test_kernels_of_nccl_have_what_calls_say(built: Built, variables: dict[str, str], tmp_path: Path) -> None:
    """By a stand-in for NCCL that launches as NCCL documents."""
    shared = ("-shared", "-fPIC", "-w", "-Wl,-soname,libnccl.so.2")
    compiled("cc", "fake_nccl.c", tmp_path / "libnccl.so.2", *shared)
    linked = (str(tmp_path / "libnccl.so.2"), f"-Wl,-rpath,{tmp_path}")
    program = compiled("cc", "nccl_rank.c", tmp_path / "rank", *linked)
    folder = tmp_path / "run.bf"
    settings = environment(f"{folder}/", library=built.library)
    for rank in ("0", "1"):
        job = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "FAKE_CUPTI_SYSTEM_CLOCK": "1"}
        done = finished([str(program)], env=variables | settings | job)
        assert done.returncode == 0, done.stderr
    ranks = traces(folder)
    assert len(ranks) == 2
    for rank, trace in enumerate(ranks):
        rows = trace.collectives.with_columns(pl.col("collective_kind").cast(pl.String))
        assert rows["operation"].null_count() == 0 and (rows["place"] == rank).all()
        recorded = rows.select("collective_kind", "bytes", "peer", "group_size").rows()
        assert recorded == [
            *[("all_reduce", 1024, None, 2)] * 3,
            ("all_reduce", 300, None, 2),
            *[("all_reduce", None, None, 2)] * 2,  # of two kernels which has which bytes is not known
            ("send_receive", 40, None, 2),
            ("receive" if rank else "send", 40, 1 - rank, 2),
            ("all_gather", 128, None, 2),
            ("broadcast", 7, None, 2),
            ("reduce_scatter", 256, None, 2),
        ]
    numbered = ((pl.lit(rank), trace.collectives) for rank, trace in enumerate(ranks))
    members = [collectives.with_columns(rank=rank, clock=rank) for rank, collectives in numbered]
    joint = match(pl.concat(members).select(list(MEMBERS)))
    assert joint["joint"].null_count() == 0 and joint["joint"].n_unique() == 11
    assert joint["communicator"].n_unique() == 2
