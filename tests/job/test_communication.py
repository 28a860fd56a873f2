"""Collectives of a job: matched, clocks aligned, split into waiting and transfer; in blocks as in a whole. Made-up ranks and
a real job.
"""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from busfare.jobs import communication, ranks
from busfare.jobs.partial import partial_of
from busfare.jobs.ranks import MOMENTS, ROWS, Rank, TraceRank
from busfare.jobs.reduce import Job
from busfare.jobs.stragglers import Straggler, late_joints, straggler
from busfare.trace import read
from busfare.trace.tables import conform
from tests.conftest import answer, shown
from tests.job.kineto_job import rewritten, write_ranks, write_trace
from tests.published import DATA
from tests.trace.build_kineto import Event, call, event, kernel

COMPUTE = [[1000.0, 900.0, 1100.0], [1000.0, 1500.0, 1000.0], [400.0, 900.0, 1000.0]]


def test_waiting_is_apart_from_transfer_and_says_who_is_waited_for(tmp_path: Path) -> None:
    write_ranks(tmp_path, COMPUTE)
    result = answer("report", tmp_path)
    (row,) = result["collectives"]
    assert (row["communicator"], row["kind"], row["ranks"], row["count"]) == ("0", "all_reduce", 3, 3)
    assert row["bytes"] == 3 * 4 * (1 << 20)
    latest = np.max(COMPUTE, axis=0)
    assert row["arrive_seconds"] == pytest.approx((latest - COMPUTE).sum() * 1e-6, abs=1e-7)
    assert row["transfer_seconds"] == pytest.approx(9 * 100e-6, abs=1e-7)
    assert row["last_rank"] == 0 and row["last"][0] == {"rank": 0, "count": 2}
    assert row["bus_bytes_per_second"] == pytest.approx(2 * 2 / 3 * 4 * (1 << 20) / 100e-6, rel=1e-3)
    waited = {rank["rank"]: rank["waiting_seconds"] for rank in result["ranks"]}
    assert waited == pytest.approx({0: 600e-6, 1: 100e-6, 2: 1300e-6}, abs=1e-7)
    for rank in result["ranks"]:
        assert rank["exposed_transfer_seconds"] == pytest.approx(300e-6, abs=1e-7)
        assert rank["communication_seconds"] == pytest.approx(rank["waiting_seconds"] + 300e-6, abs=1e-7)


def test_clocks_that_are_apart_and_run_apart_are_brought_together(tmp_path: Path) -> None:
    generator = np.random.default_rng(7)
    compute = generator.uniform(1000, 3000, (4, 400)).round()
    offsets, drift = [0.0, 5e6, -3e6 / 8, 123.0], [0.0, 20.0, 0.0, -35.0]
    write_ranks(tmp_path, compute.tolist(), offsets_us=offsets, drift_ppm=drift, Seq=None)
    result = answer("report", tmp_path)
    (row,) = result["collectives"]
    waits = (compute.max(axis=0) - compute).sum() * 1e-6
    assert row["count"] == 400 and row["arrive_seconds"] == pytest.approx(waits, rel=0.002)
    drifts = [clock["drift_ppm"] - result["clocks"][0]["drift_ppm"] for clock in result["clocks"]]
    assert drifts == pytest.approx([-d for d in drift], abs=0.5)
    assert all(clock["uncertainty_ns"] < 10_000 for clock in result["clocks"])


def test_a_recording_that_begins_later_is_matched_by_when_collectives_end(tmp_path: Path) -> None:
    compute = np.random.default_rng(3).uniform(500, 2500, (2, 60)).round()
    write_ranks(tmp_path, compute.tolist())
    with rewritten(tmp_path / "rank1.json.gz") as trace:
        carriers = [event["ts"] for event in trace["traceEvents"] if "nccl" in event["name"]]
        trace["traceEvents"] = [event for event in trace["traceEvents"] if event["ts"] > carriers[4]]
    result = answer("report", tmp_path)
    rows = {row["ranks"]: row for row in result["collectives"]}
    assert rows[2]["count"] == 55
    waits = np.abs(compute[0, 5:] - compute[1, 5:]).sum() * 1e-6
    assert rows[2]["arrive_seconds"] == pytest.approx(waits, rel=1e-3)
    assert rows[None]["count"] == 5 and rows[None]["arrive_seconds"] is None
    assert any(left["id"] == "unmatched-communication" and left["count"] == 5 for left in result["omissions"])


def test_absent_ranks_are_an_omission(tmp_path: Path) -> None:
    write_ranks(tmp_path, COMPUTE)
    (tmp_path / "rank1.json.gz").unlink()
    result = answer("report", tmp_path)
    assert result["collectives"][0]["ranks"] == 2
    assert any(left["id"] == "absent-ranks" and left["count"] == 3 for left in result["omissions"])


def test_a_message_is_waited_for_and_requests_are_counted(tmp_path: Path) -> None:
    """Rank 1 waits 300 µs for what rank 0 sends; of requests no range says which message they are of."""

    def ranged(name: str, start: float, end: float) -> Event:
        return event("user_annotation", name, start, end - start)

    first = [ranged("MPI_Send", 400, 420), ranged("MPI_Isend", 500, 505), ranged("MPI_Wait", 510, 600)]
    second = [ranged("MPI_Recv", 100, 430), ranged("MPI_Irecv", 500, 505), ranged("MPI_Wait", 510, 600)]
    for rank, rows in enumerate((first, second)):
        work = call("cudaLaunchKernel", 1, 5, 1), kernel("k", 10, 20, 1, device=rank)
        write_trace(tmp_path, rank, 2, [*work, *rows])
    result = answer("report", tmp_path)
    (message,) = [row for row in result["collectives"] if row["ranks"]]
    assert (message["kind"], message["count"]) == ("send_receive", 1)
    assert message["arrive_seconds"] == pytest.approx(300e-6)
    waited = {times["rank"]: times["waiting_seconds"] for times in result["ranks"]}
    assert waited == pytest.approx({0: 0.0, 1: 300e-6})
    lost = [left["count"] for left in result["omissions"] if left["id"] == "unmatched-communication"]
    assert lost == [4]


def test_waiting_for_a_recording_that_begins_later_is_set_apart(tmp_path: Path) -> None:
    """Rank 2 does 5 ms later what all do, so that the others wait 5 ms at the first collective, and for rank 1 at others."""
    compute = [[1000.0] * 8, [1000.0] + [1700.0] * 7, [1000.0] * 8]
    write_ranks(tmp_path, compute)
    for rank in (0, 1):
        recorded_earlier(tmp_path / f"rank{rank}.json.gz", 5000.0)
    result = answer("report", tmp_path)
    recording = {times["rank"]: times["recording_wait_seconds"] for times in result["ranks"]}
    assert recording == pytest.approx({0: 5e-3, 1: 5e-3, 2: 0.0}, abs=2e-6)
    waited = {times["rank"]: times["waiting_seconds"] for times in result["ranks"]}
    assert waited == pytest.approx({0: 4.9e-3, 1: 0.0, 2: 4.9e-3}, abs=1e-5)
    (row,) = result["collectives"]
    assert row["arrive_seconds"] == pytest.approx(9.8e-3, abs=1e-5)
    assert row["last"] == [{"rank": 1, "count": 7}]
    straggler = result["straggler"]
    assert (straggler["rank"], straggler["count"], straggler["of"]) == (1, 7, 8)
    assert straggler["work_seconds"] - straggler["median_seconds"] == pytest.approx(4.9e-3, rel=0.01)
    assert straggler["awaited_seconds"] == pytest.approx(9.8e-3, rel=0.01)
    text = shown("report", tmp_path, "--details")
    assert "Rank 1 arrived last because of its own work at 7 of 8 collectives" in text
    assert "waited another 10 ms at their first collectives" in text


def straggler_of(folder: Path) -> tuple[communication.Communication, Straggler | None]:
    """Of a job of the traces in `folder`, by what `report` reads, without replays."""
    job = Job()
    for path in sorted(folder.iterdir()):
        job.add(str(path), partial_of(read(path), path, of_many=True))
    together = job.communication()
    return together, together.straggler


@pytest.mark.parametrize(("size", "noise"), [(2, 0.01), (8, 0.0), (8, 0.01), (64, 0.01)])
def test_a_straggler_is_named_only_where_its_work_is_longer(tmp_path: Path, size: int, noise: float) -> None:
    """Equal ranks; one that computes 15 % longer; one whose recording begins 8 ms later."""
    compute = 1000 * np.random.default_rng(size).normal(1.0, noise, (size, 8))
    write_ranks(tmp_path / "equal", compute.tolist())
    assert straggler_of(tmp_path / "equal")[1] is None

    slow = size // 2
    compute[slow] *= 1.15
    write_ranks(tmp_path / "slow", compute.tolist())
    _, straggler = straggler_of(tmp_path / "slow")
    assert straggler is not None and (straggler.rank, straggler.count, straggler.of) == (slow, 8, 8)
    assert straggler.work_seconds / straggler.median_seconds == pytest.approx(1.15, abs=0.02)

    compute[slow] /= 1.15
    write_ranks(tmp_path / "later", compute.tolist())
    for rank in set(range(size)) - {slow}:
        recorded_earlier(tmp_path / "later" / f"rank{rank}.json.gz", 8000.0)
    together, straggler = straggler_of(tmp_path / "later")
    assert straggler is None
    recording = {times.rank: times.recording_wait_seconds for times in together.ranks}
    assert recording.pop(slow) == 0.0
    assert [*recording.values()] == pytest.approx([8e-3] * (size - 1), abs=0.1e-3)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_rank_that_chance_makes_last_is_no_straggler(size: int) -> None:
    """Of equal ranks whose work varies by 10 %, few are named in 200 jobs of 20 collectives; a slow rank always is."""
    chance = np.random.default_rng(size)
    equal = [straggler([late_joints(members_of(chance.normal(1.0, 0.1, (20, size))))]) for _ in range(200)]
    assert sum(named is not None for named in equal) <= 4
    for _ in range(50):
        work = chance.normal(1.0, 0.03, (20, size))
        work[:, 1] *= 1.15
        named = straggler([late_joints(members_of(work))])
        assert named is not None and named.rank == 1


def test_a_straggler_is_named_among_the_collectives_of_its_group() -> None:
    """Of 16 pairs of ranks, the second rank of the third is last at all eight collectives of its pair."""
    members = [members_of(np.full((8, 2), 1.0), rank=2 * pair, joint=8 * pair) for pair in range(16)]
    members[2] = members_of(np.array([[1.0, 1.2]] * 8), rank=4, joint=16)
    named = straggler([late_joints(frame) for frame in members])
    assert named is not None and (named.rank, named.count, named.of) == (5, 8, 128)


def test_less_than_half_of_the_waiting_is_named_with_its_share(tmp_path: Path) -> None:
    """Rank 3 computes 8 ms longer before the first collective, as the only event, or beside rank 1, always 6 % longer."""
    compute = 5000 * np.random.default_rng(5).normal(1.0, 0.002, (6, 12))
    compute[3, 0] += 8000
    write_ranks(tmp_path / "event", compute.tolist())
    compute[1] *= 1.06
    write_ranks(tmp_path / "several", compute.tolist())
    named = {name: answer("report", tmp_path / name) for name in ("event", "several")}
    figures = {
        name: [result["straggler"][key] for key in ("rank", "count", "of")] for name, result in named.items()
    }
    assert figures == {"event": [3, 1, 12], "several": [1, 11, 12]}
    for name, line in (
        ("event", "One of 12 collectives accounts for 9"),
        ("several", "Rank 1 is often last because of its own work (at 11 of 12 collectives)"),
    ):
        assert line in " ".join(shown("report", tmp_path / name).split())
        assert not any(finding["id"] == "straggling-rank" for finding in named[name]["findings"])


def members_of(work: NDArray[np.float64], rank: int = 0, joint: int = 0) -> pl.DataFrame:
    """Members of collectives before which ranks from `rank` on work so many ms; shape (collectives, ranks)."""
    collectives, size = work.shape
    ns = (1e6 * work).astype(np.int64)
    latest = ns.max(axis=1, keepdims=True)
    return pl.DataFrame(
        {
            "joint": joint + np.repeat(np.arange(collectives), size),
            "rank": rank + np.tile(np.arange(size), collectives),
            "host_ns": np.zeros(ns.size, np.int64),
            "gpu_ns": ns.ravel(),
            "wait": (latest - ns).ravel(),
            "is_last": (ns == latest).ravel(),
        }
    ).with_columns(collective_kind=pl.lit("all_reduce"))


def recorded_earlier(path: Path, us: float) -> None:
    """All up to the first collective of a trace happens `us` earlier; that begins so much earlier, and ends when it did."""
    with rewritten(path) as trace:
        first = min(event["ts"] for event in trace["traceEvents"] if "nccl" in event["name"])
        for event in trace["traceEvents"]:
            if event["ts"] < first:
                event["ts"] -= us
            elif event["ts"] == first:
                event["ts"], event["dur"] = first - us, event["dur"] + us


def test_nobody_is_named_where_no_work_explains_who_comes_last(tmp_path: Path) -> None:
    """Rank 1 comes 700 µs late to each collective, but its GPU works, and its CPU calls, no longer than rank 0's."""
    write_ranks(tmp_path, [[1000.0] * 3, [1700.0] * 3])
    with rewritten(tmp_path / "rank1.json.gz") as trace:
        for event in trace["traceEvents"]:
            if event["name"] == "gemm":
                event["dur"] = 1000.0
    result = answer("report", tmp_path)
    assert result["straggler"] is None
    assert result["ranks"][0]["waiting_seconds"] == pytest.approx(2.1e-3, rel=0.01)
    assert "No rank's own work causes most of the waiting" in shown("report", tmp_path, "--details")
    assert not any(finding["id"] == "straggling-rank" for finding in result["findings"])


@pytest.mark.conformance
def test_the_published_step_of_eight_ranks_mostly_waits() -> None:
    """DLRM on 8 V100s (facebookresearch/param): 8 collectives a rank, 96 % of their kernels' time waiting for the last. More
    than half of that is at the first, for recordings that begin up to 7.7 ms apart: rank 7's begins last, and its own work
    takes as long as the median rank's.
    """
    result = answer("report", DATA / "ranks/dlrm-8xv100")
    rows = result["collectives"]
    expected = {("all_to_all", 5, 8), ("all_reduce", 3, 8)}
    assert {(row["kind"], row["count"], row["ranks"]) for row in rows} == expected
    wait, transfer = (sum(row[name] for row in rows) for name in ("arrive_seconds", "transfer_seconds"))
    recording = sum(rank["recording_wait_seconds"] for rank in result["ranks"])
    assert (wait + recording) / (wait + recording + transfer) == pytest.approx(0.96, abs=0.01)
    assert recording == pytest.approx(26.4e-3, rel=0.01)
    assert result["straggler"] is None or result["straggler"]["rank"] in (4, 5)
    assert (
        max(abs(clock[ns]) for clock in result["clocks"] for ns in ("offset_ns", "uncertainty_ns")) < 10_000
    )
    assert not any(left["id"] == "unmatched-communication" for left in result["omissions"])


@pytest.mark.conformance
@pytest.mark.parametrize("rank", range(8))
def test_execution_traces_say_the_same_of_the_published_step(rank: int) -> None:
    """Kinds, groups and bytes of each rank's collectives, by PyTorch's own record of what the program asked for."""
    folder = DATA / "ranks/dlrm-8xv100"
    nodes = json.loads(gzip.decompress((folder / f"execution-trace-{rank}.json.gz").read_bytes()))["nodes"]
    names, groups = [], set()
    for node in sorted(nodes, key=lambda node: node["id"]):
        words = node["inputs"]
        kind = next((word for word in words if isinstance(word, str)), "wait")
        if node["name"] == "record_param_comms" and kind != "wait":
            groups.add(next(word for word in words if isinstance(word, int) and word > 1 << 32))
            names.append((KINDS[kind], tensor_bytes(words[0])))
    rows = read(folder / f"rank{rank}.pt.trace.json.gz").collectives
    assert list(rows.select("collective_kind", "bytes").iter_rows()) == names
    assert rows["stream"].n_unique() == len(groups) == 1


KINDS = {"all_to_allv": "all_to_all", "all_to_all": "all_to_all", "allreduce": "all_reduce"}


def tensor_bytes(words: Any) -> int:
    """Of a tensor in an execution trace, [id, storage, offset, elements, bytes of each, device], or of a list of them."""
    if len(words) == 6 and isinstance(words[5], str):
        return int(words[3] * words[4])
    return sum(tensor_bytes(word) for word in words)


@pytest.mark.conformance
def test_ranks_of_a_single_file_are_distinguished() -> None:
    """Two processes of one Nsight Systems export, by NVTX ranges `nccl:…` (GindaChen/nsys-ai): 31 collectives each."""
    path = DATA / "traces/nsys/nsys-ai-2xh100-after.sqlite"
    result = answer("report", path)
    expected = [("all_to_all", 30), ("send_receive", 1)]
    assert [(row["kind"], row["count"]) for row in result["collectives"]] == expected
    waits = {rank["rank"]: rank["waiting_seconds"] for rank in result["ranks"]}
    assert waits == pytest.approx({0: 4.27e-3, 1: 18.2e-3}, rel=0.01)


RANKS = 4
CLOCK_NS = [0, 5_000_000, -40_000, 300]


def rows_of_ranks(seed: int, steps: int, skipped: int = 0) -> list[pl.DataFrame]:
    """Of each rank: a collective of all ranks, which the trace numbers, one of its half of them, which it does not, and a
    message to the next rank, whose send ends in a row of its own. Rank 2 is recorded from step `skipped` on.
    """
    generator = np.random.default_rng(seed)
    rows: list[list[dict[str, Any]]] = [[] for _ in range(RANKS)]
    now = np.full(RANKS, 1_000_000)
    for step in range(steps):
        for name, groups in (("all", [range(RANKS)]), ("half", [(0, 1), (2, 3)])):
            begin = now + generator.integers(1_000, 90_000, RANKS)
            for group in groups:
                end = max(begin[list(group)]) + 20_000
                for rank in group:
                    stated = {
                        "communicator": name, "members": ",".join(map(str, group)), "group_size": len(group),
                        "sequence": step if name == "all" else None, "stream": 7,
                    }  # fmt: skip
                    kind = "all_reduce" if step % 3 else "all_gather"
                    times = {"start_ns": begin[rank], "end_ns": end}
                    rows[rank].append(stated | times | {"collective_kind": kind, "bytes": 1 << 20})
                    now[rank] = end + 500
        for rank in range(0, RANKS, 2):
            stated = {"communicator": "pairs", "tag": 3, "sequence": step, "stream": 9, "bytes": 4096}
            sent, received = now[rank] + 100, now[rank + 1] + 700
            end = max(sent, received) + 5_000
            to, back = (
                {"collective_kind": kind, "peer": peer}
                for kind, peer in (("send", rank + 1), ("receive", rank))
            )
            rows[rank].append(stated | to | {"start_ns": sent, "end_ns": sent + 50})
            rows[rank].append(stated | to | {"start_ns": sent + 60, "end_ns": end, "ended": True})
            rows[rank + 1].append(stated | back | {"start_ns": received, "end_ns": end})
            now[rank : rank + 2] = end + 900
    rows[2] = rows[2][4 * skipped :]  # four rows a step
    frames = []
    for rank, rank_rows in enumerate(rows):
        frame = pl.DataFrame(rank_rows, infer_schema_length=None).with_columns(
            pl.col("start_ns", "end_ns") + CLOCK_NS[rank], process=pl.lit(rank), device=pl.lit(0)
        )
        computing = pl.Series(np.zeros((frame.height, MOMENTS), np.int64), dtype=pl.Array(pl.Int64, MOMENTS))
        host_ns, gpu_ns = np.random.default_rng(rank).integers(0, 100_000, (2, frame.height))
        work = {
            "host_ns": pl.Series(host_ns),
            "gpu_ns": pl.Series(gpu_ns),
            "first": pl.int_range(pl.len()) == 0,
        }
        frames.append(conform(frame.with_columns(computing_ns=computing, **work), ROWS))
    return frames


RANKED = [
    Rank(rank, f"rank{rank}", None, rank, TraceRank(rank, 0, CLOCK_NS[rank] - 400 * (3 - rank), 10, 5, 5))
    for rank in range(RANKS)
]


@pytest.mark.parametrize("skipped", [0, 11])
def test_blocks_say_what_the_whole_says(monkeypatch: pytest.MonkeyPatch, skipped: int) -> None:
    rows = rows_of_ranks(1, 150, skipped)
    whole = communication.communication(rows, RANKED)
    cut: list[int] = []

    def in_blocks(files: Any, count: int) -> list[list[bytes]]:
        cut.append(count)
        return ranks.in_blocks(files, count)

    monkeypatch.setattr(communication, "in_blocks", in_blocks)
    monkeypatch.setattr(communication, "BLOCK_ROWS", 100)
    monkeypatch.setattr(ranks, "TOGETHER_ROWS", 30)
    assert communication.communication(rows, RANKED) == whole
    assert cut == [-(-sum(frame.height for frame in rows) // 100)]
    matched = {(row.communicator, row.kind): row.count for row in whole.collectives if row.ranks}
    assert matched["all", "all_reduce"] == 100  # of those that rank 2 has not, three ranks are matched
    assert matched["pairs", "send_receive"] == 300 - skipped
    halves = [row.count for row in whole.collectives if row.communicator == "half" and row.ranks == 2]
    assert sum(halves) == 300 - skipped


def test_a_call_that_waits_for_several_messages_is_in_a_single_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them came last is known only where all are."""
    rows = [frame.with_columns(marker=pl.lit(5, pl.UInt32)) for frame in rows_of_ranks(2, 40)]
    whole = communication.communication(rows, RANKED)
    monkeypatch.setattr(communication, "BLOCK_ROWS", 10)
    monkeypatch.setattr(communication, "in_blocks", None)
    assert communication.communication(rows, RANKED) == whole


@pytest.mark.parametrize("copy_of", ["rank1-copy.json.gz", "rank0 (1).json.gz", "a copy.json.gz"])
def test_a_copy_of_a_trace_is_left_out_and_the_ranks_are_matched(tmp_path: Path, copy_of: str) -> None:
    write_ranks(tmp_path, COMPUTE)
    alone = answer("report", tmp_path)
    shutil.copy(tmp_path / f"rank{int('rank1' in copy_of)}.json.gz", tmp_path / copy_of)
    result = answer("report", tmp_path)
    (left,) = [left for left in result["omissions"] if left["id"] == "copied-traces"]
    assert left["count"] == 1 and copy_of in left["what"]
    for key in ("ranks", "collectives", "transfers", "kernels", "straggler", "findings"):
        assert result[key] == alone[key], key
    assert result["traces"]["read"] == len(COMPUTE)
    changed = answer("what-if", tmp_path, "--no-stragglers")
    assert [rank["rank"] for rank in changed["ranks"]] == [0, 1, 2]
    assert [left["what"] for left in changed["omissions"] if left["id"] == "copied-traces"] == [left["what"]]


def test_equal_ranks_that_state_their_numbers_are_no_copies(tmp_path: Path) -> None:
    held = [TraceRank(7, 0, 1, 100, 50, 20)]
    stated = ranks.numbered([(f"rank{n}", n, None, held) for n in range(3)])
    assert [rank.rank for rank in stated] == [0, 1, 2]
    assert [r.path for r in ranks.numbered([("b copy", None, None, held), ("b", 1, None, held)])] == ["b"]
