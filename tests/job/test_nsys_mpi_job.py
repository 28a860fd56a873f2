"""Jobs of Nsight Systems exports with MPI: matched over ranks as recordings are."""

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import answer
from tests.trace.build_nsys import NsysExport, Value, small_export

RANKS = 4
STEPS = 8
MS = 1_000_000


def export_of(rank: int, begins: bool = True) -> NsysExport:
    """Rank 1 comes 3 ms late to each step: an Isend to the right, an Irecv from the left, a Waitall, an Allreduce of all
    and one of every other rank. Handles are pointers of the rank's own; its clock began with it.
    """
    export = small_export()
    export.rank(rank)
    clock = 10 * MS * (rank + 1)
    world, pair, request = (0x7F00_0000_0000 + 0x1000 * rank + place for place in (0, 64, 128))
    if begins:
        export.mpi("MPI_Init", clock, clock + MS)
    root = rank % 2
    export.communicator(
        rank, pair, 2, timestamp=clock + MS, parentHandle=world, localRank=rank // 2, groupRoot=root, groupRootUid=5
    )  # fmt: skip
    for step in range(STEPS):
        came = clock + (2 + 10 * step) * MS + (3 * MS if rank == 1 else 0)
        # The message of rank 1 comes last, to rank 2; all leave a collective when rank 1 has come, within a microsecond.
        left = clock + (2 + 10 * step + 4) * MS
        message: dict[str, Value] = {"commHandle": world, "tag": step, "size": 4096}
        export.mpi(
            "MPI_Irecv", came, came + 1000, remoteRank=(rank - 1) % RANKS, requestHandle=request, **message
        )
        export.mpi(
            "MPI_Isend", came + 2000, came + 3000, remoteRank=(rank + 1) % RANKS, requestHandle=request + 8, **message
        )  # fmt: skip
        waited = left - MS + 100_000 if rank == 2 else came + 200_000
        for number in (request, request + 8):
            export.mpi("MPI_Waitall", came + 4000, waited, requestHandle=number)
        export.mpi("MPI_Allreduce", waited + 1000, left, commHandle=world, size=64, recvSize=64)
        export.mpi("MPI_Allreduce", left + 10_000, left + 20_000, commHandle=pair, size=8, recvSize=8)
    return export


def table(result: dict[str, Any]) -> dict[tuple[str, str], tuple[int, int, int]]:
    return {
        (row["communicator"], row["kind"]): (row["count"], row["ranks"], row["bytes"])
        for row in result["collectives"]
    }


@pytest.mark.parametrize("begins", [True, False], ids=["from the start", "from later on"])
def test_ranks_wait_for_the_late_rank(begins: bool, tmp_path: Path) -> None:
    for rank in range(RANKS):
        export_of(rank, begins).write(tmp_path / f"rank{rank}.sqlite")
    result = answer("report", tmp_path)
    assert table(result) == {
        ("MPI_COMM_WORLD", "send_receive"): (RANKS * STEPS, 2, RANKS * STEPS * 4096),
        ("MPI_COMM_WORLD", "all_reduce"): (STEPS, RANKS, STEPS * 64),
        ("MPI_COMM[2] 0.5", "all_reduce"): (STEPS, 2, STEPS * 8),
        ("MPI_COMM[2] 1.5", "all_reduce"): (STEPS, 2, STEPS * 8),
    }
    left = {omission["id"] for omission in result["omissions"]}
    assert not left & {"unmatched-communication", "unaligned-clocks"}
    waiting = {times["rank"]: times["waiting_seconds"] for times in result["ranks"]}
    assert waiting[1] == pytest.approx(0, abs=1e-5)
    # Rank 2 for the message, the others in the collective.
    for rank in (0, 2, 3):
        assert waiting[rank] == pytest.approx(STEPS * 3e-3, rel=0.1)
    (last,) = {row["last_rank"] for row in result["collectives"] if row["ranks"] == RANKS}
    assert last == 1
    straggler = result["straggler"]  # its CPU is busy before the messages
    assert straggler["rank"] == 1 and straggler["count"] >= STEPS - 1
    late = straggler["work_seconds"] - straggler["median_seconds"]
    assert late == pytest.approx(straggler["count"] * 3e-3, rel=0.1)


def test_calls_of_unknown_communicators_are_counted(tmp_path: Path) -> None:
    for rank in range(2):
        export = export_of(rank)
        export.mpi("MPI_Barrier", 90 * MS, 91 * MS, commHandle=3)
        export.write(tmp_path / f"rank{rank}.sqlite")
    result = answer("report", tmp_path)
    left = {omission["id"]: omission["count"] for omission in result["omissions"]}
    # Rank 0's left neighbour and rank 1's right one are absent, and each pair has one rank here.
    assert left["unmatched-communication"] > 2
    assert ("MPI_COMM_WORLD", "all_reduce") in table(result)


def test_ranks_of_a_single_file(tmp_path: Path) -> None:
    """What one `nsys profile mpirun` writes of a host, where MPICH gives the world one handle."""
    export = small_export()
    for rank in range(2):
        process = 80 + rank
        export.rank(rank, process)
        export.rank(rank, process, thread=9)
        export.mpi("MPI_Init", 1000, 2000, process)
        export.kernel(f"work{rank}", 2000, 2500, None, process, deviceId=rank)
        for step in range(3):
            start = MS * (1 + step)
            export.mpi("MPI_Barrier", start + 300_000 * rank, start + 400_000, process, commHandle=0x44000000)
    result = answer("report", export.write(tmp_path / "job.sqlite"))
    assert table(result) == {("MPI_COMM_WORLD", "barrier"): (3, 2, 0)}
    waiting = {row["rank"]: row["waiting_seconds"] for row in result["ranks"]}
    assert waiting[0] == pytest.approx(3 * 300e-6) and waiting[1] == 0


def test_a_process_that_only_calls_mpi_is_a_rank_of_the_job_that_computes(tmp_path: Path) -> None:
    export = small_export()  # process 71 computes
    for rank, process in enumerate((71, 72)):
        export.rank(rank, process)
        export.mpi("MPI_Init", 1000, 2000, process)
        for step in range(3):
            start = MS * (1 + step)
            export.mpi("MPI_Barrier", start + 300_000 * rank, start + 400_000, process, commHandle=0x44000000)
    export.mpi("MPI_Recv", 5 * MS, 9 * MS, 72, commHandle=0x44000000, tag=1, remoteRank=0, size=8)
    export.mpi("MPI_Send", 8 * MS, 9 * MS, 71, commHandle=0x44000000, tag=1, remoteRank=1, size=8)
    result = answer("report", export.write(tmp_path / "job.sqlite"))
    assert table(result)[("MPI_COMM_WORLD", "barrier")] == (3, 2, 0)
    ranks = {row["rank"]: row for row in result["ranks"]}
    assert ranks[0]["waiting_seconds"] == pytest.approx(3 * 300e-6, abs=1e-6)
    assert ranks[1]["kernels_seconds"] == 0
    assert ranks[1]["makespan_seconds"] == pytest.approx(7.7e-3)
    assert "unmatched-communication" not in {row["id"] for row in result["omissions"]}
    of_job = answer("report", tmp_path)  # the folder
    assert of_job["ranks_seen"] == 2 and len(of_job["ranks"]) == 2
    assert "unknown-rank" not in {row["id"] for row in of_job["omissions"]}


def test_older_exports_are_a_job_without_matches(tmp_path: Path) -> None:
    for rank in range(2):
        export = small_export("2022")
        export.add("NVTX_EVENTS", start=50, eventType=75, text="MPI", globalTid=5, domainId=1)
        name = export.text("MPI_Allreduce")
        export.add("NVTX_EVENTS", start=100, end=110, eventType=59, textId=name, globalTid=5, domainId=1)
        export.write(tmp_path / f"rank{rank}.sqlite")
    result = answer("report", tmp_path)
    assert not result.get("collectives")
    assert "mpi-without-partners" in {omission["id"] for omission in result["omissions"]}
