"""What a change to some ranks, or to what they do together, makes of a job, whose ranks share what their host has; made-up
jobs, whose changed form is known.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import busfare
from busfare.answers.project import project
from busfare.cost.collectives import Fabric, price_collectives
from busfare.cost.kernels.limits import limits_of
from busfare.cost.ranges import range_of
from busfare.jobs.changes import without_launches
from busfare.jobs.model import places_of
from busfare.jobs.ranks import Rank, TraceRank
from busfare.nodes import Node, load_node
from busfare.timeline import Timeline, play, timeline
from busfare.trace import read
from tests.conftest import answer, refused, shown
from tests.job.kineto_job import rewritten, write_ranks
from tests.node.build_node import two_gpus
from tests.published import DATA
from tests.traces import call, copy, kernel, made, run, trace

COMPUTE = [[1000.0, 900.0, 1100.0], [1000.0, 1500.0, 1000.0], [400.0, 900.0, 1000.0]]


def changed(folder: Path, *options: str) -> dict[str, Any]:
    result: dict[str, Any] = answer("what-if", folder, *options)
    baseline = result["baseline"]
    assert baseline["replayed_seconds"] == pytest.approx(baseline["recorded_seconds"], rel=0.01)
    return result


@pytest.mark.parametrize("mpi", [False, True], ids=["NCCL", "MPI"])
def test_a_change_to_a_rank_counts_as_far_as_its_peers_wait_for_it(tmp_path: Path, mpi: bool) -> None:
    slow = write_ranks(tmp_path / "before", COMPUTE, copy_us=800.0, mpi=mpi)
    bare = write_ranks(tmp_path / "after", COMPUTE, mpi=mpi)
    result = changed(tmp_path / "before", "--rank", "0", "--remove", "h2d")
    assert result["baseline"]["recorded_seconds"] == pytest.approx(slow * 1e-6, rel=1e-6)
    assert result["speedup"] == pytest.approx(slow / bare, rel=0.02)
    nothing = changed(tmp_path / "before", "--rank", "1", "--remove", "h2d")
    assert nothing["changes"][0]["touched"] == 0 and nothing["speedup"] == pytest.approx(1.0)
    assert {rank["rank"] for rank in result["ranks"]} == {0, 1, 2}


def test_what_several_changes_touch_counts_once(tmp_path: Path) -> None:
    write_ranks(tmp_path, COMPUTE, copy_us=800.0, copied_on=(0, 1))
    result = busfare.what_if(tmp_path, pin=True, copy_speed=2.0, overlap_collectives=True)
    assert [row.touched for row in result.changes] == [6, 6, 9]
    assert (result.touched, result.bytes) == (6 + 9, 6 << 20)


def test_a_trace_of_another_time_is_no_rank_of_the_job(tmp_path: Path) -> None:
    """As where one kind of trace counts from 1970, another from the start of the machine."""
    write_ranks(tmp_path, COMPUTE[:2])
    write_ranks(tmp_path / "other", COMPUTE, offsets_us=[0, 0, 1.8e15], **{"Process Group Name": "9"})
    (tmp_path / "other" / "rank2.json.gz").rename(tmp_path / "rank2.json.gz")
    shutil.rmtree(tmp_path / "other")
    why = f"{tmp_path / 'rank2.json.gz'}: belongs to a different run than rank0.json.gz"
    assert refused("what-if", tmp_path, "--remove", "h2d").startswith(why)
    result = answer("report", tmp_path)
    assert not result["gains_of_whole_job"] and result["traces"]["read"] == 3


def test_without_stragglers_every_step_takes_the_median(tmp_path: Path) -> None:
    generator = np.random.default_rng(11)
    compute = generator.uniform(900, 1100, (5, 30)).round()
    compute[3] += 700
    whole = write_ranks(tmp_path, compute.tolist())
    result = changed(tmp_path, "--no-stragglers")
    saved = (compute.max(axis=0) - np.median(compute, axis=0)).sum()
    assert result["gain_seconds"] == pytest.approx(saved * 1e-6, rel=0.02)
    assert result["speedup"] == pytest.approx(whole / (whole - saved), rel=0.01)
    assert result["low_seconds"] < result["predicted_seconds"] < result["high_seconds"]
    assert result["rung"] == "calibrated"


def test_overlapped_collectives_leave_the_kernels(tmp_path: Path) -> None:
    compute = np.full((2, 10), 1000.0)
    whole = write_ranks(tmp_path, compute.tolist(), transfer_us=400.0)
    result = changed(tmp_path, "--overlap-collectives")
    assert result["predicted_seconds"] == pytest.approx((whole - 9 * 401.0) * 1e-6, rel=0.01)


def test_collectives_of_fewer_bytes(tmp_path: Path) -> None:
    write_ranks(tmp_path, [[1000.0] * 5] * 2, transfer_us=4000.0, elements=1 << 26)
    result = changed(tmp_path, "--collective-bytes", "0.5x")
    # In the shape of the node's links; what is packed and unpacked is read and written once in the GPU's memory.
    node = load_node("h100-sxm")
    half, whole = price_collectives(
        Fabric.of(node, 2), ["all_reduce"] * 2, np.array([1 << 27, 1 << 28])
    ).seconds
    packing = 3 * (1 << 28) / limits_of(node).memory
    assert result["gain_seconds"] == pytest.approx(5 * (4000e-6 * (1 - half / whole) - packing), rel=0.02)


def test_a_job_on_the_gpus_of_another_vendor_has_two_bounds(tmp_path: Path) -> None:
    """They are those of the ranks' kernels: computing takes the most of these runs."""
    write_ranks(tmp_path, [[1000.0] * 10] * 2, transfer_us=10.0)
    result = changed(tmp_path, "--to", "mi300x", "--from", "h100-sxm")
    assert (result["predicted_seconds"], result["rung"]) == (None, "not validated")
    assert {rank["predicted_seconds"] for rank in result["ranks"]} == {None}
    alone = project(
        read(tmp_path / "rank0.json.gz", launches=True),
        load_node("h100-sxm"),
        load_node("mi300x"),
        "calibrated",
    )
    kernels = next(row for row in alone.kernels.by_class if row.predicted_seconds is None)
    assert result["low_seconds"] < kernels.low_seconds * 1.05 < kernels.high_seconds < result["high_seconds"]
    text = shown("what-if", tmp_path, "--to", "mi300x", "--from", "h100-sxm")
    assert "not validated" in text and "held-out" not in text


def test_small_buckets_are_joined_within_a_step_only(tmp_path: Path) -> None:
    write_ranks(tmp_path, [[200.0] * 4] * 2, pairs=8, transfer_us=20.0, elements=1024)
    result = changed(tmp_path, "--bucket", "1MB")
    (change,) = result["changes"]
    assert change["touched"] == 4 * 8
    # A latency for each of four steps is left of eight.
    assert result["gain_seconds"] == pytest.approx(4 * 7 * 20e-6, rel=0.05)
    assert changed(tmp_path, "--bucket", "1kB")["gain_seconds"] <= 0


def test_more_ranks_take_longer_for_their_collectives_alone(tmp_path: Path) -> None:
    write_ranks(tmp_path, [[1000.0] * 5] * 2, transfer_us=1000.0, elements=1 << 26)
    four, sixteen = (changed(tmp_path, "--ranks", count, "--from", "h100-sxm") for count in ("4", "16"))
    assert len(four["ranks"]) == 4 and four["ranks"][3]["replayed_seconds"] is None
    assert 1 < four["predicted_seconds"] / four["baseline"]["replayed_seconds"] < 1.6
    assert sixteen["predicted_seconds"] > four["predicted_seconds"]
    # Measured jobs doubled on one host; here GPUs set the pace.
    interval = range_of("more-ranks", "gpu", "datasheet")
    ends = [end * four["predicted_seconds"] for end in interval]
    assert [four["low_seconds"], four["high_seconds"]] == pytest.approx(ends)
    assert sixteen["low_seconds"] is None and "2 times the GPUs of one host" in sixteen["reason"]
    assert [why.partition(":")[0] for why in four["rests_on"]] == ["weak scaling"]


def test_collectives_of_some_ranks_do_not_grow_and_that_is_stated(tmp_path: Path) -> None:
    write_ranks(tmp_path, [[1000.0] * 5] * 4, transfer_us=1000.0, elements=1 << 26)
    for rank in range(4):  # every second all-reduce is among two
        with rewritten(tmp_path / f"rank{rank}.json.gz") as recorded:
            carriers = [event for event in recorded["traceEvents"] if "nccl" in event["name"]]
            for carrier in carriers[1::2]:
                carrier["args"] |= {"Process Group Name": str(1 + rank // 2), "Group size": 2}
    result = changed(tmp_path, "--ranks", "8", "--from", "h100-sxm")
    assert result["rests_on"][1].startswith(
        "4 of 7 collectives keep their recorded time: groups of only some ranks"
    )


def test_a_host_bound_job_makes_a_wider_range_of_more_ranks(tmp_path: Path) -> None:
    write_ranks(tmp_path, [[100.0] * 5] * 2, copy_us=3000.0, copied_on=(0, 1))
    four = changed(tmp_path, "--ranks", "4", "--from", "h100-sxm")
    interval = range_of("more-ranks", "host", "datasheet")
    assert four["high_seconds"] / four["predicted_seconds"] == pytest.approx(interval.high)


def test_a_regex_may_match_operations_of_a_single_rank(tmp_path: Path) -> None:
    write_ranks(tmp_path, [[100.0], [100.0]])
    with rewritten(tmp_path / "rank1.json.gz") as recorded:
        (gemm,) = (event for event in recorded["traceEvents"] if event["name"] == "gemm")
        gemm["name"] = "other"
    assert changed(tmp_path, "--kernels", "other=2x")["touched"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rank", "7", "--pin="], "the job has ranks 0, 1"),
        (["--ranks", "1"], "whole number from 2"),
        (["--collective-bytes", "half"], "write a factor"),
        (["--bucket", "many"], "--bucket 'many' is not a size"),
        (["--kernels", "absent=2x"], "--kernels 'absent': this regular expression matches nothing"),
        (["--rank", "0"], "no change given"),
        (["--no-stragglers", "--perfetto", "out.json"], "to one run"),
    ],
)
def test_impossible_changes_are_refused_and_why(tmp_path: Path, options: list[str], message: str) -> None:
    write_ranks(tmp_path, [[100.0], [100.0]])
    assert message in refused("what-if", tmp_path, *options)


def test_a_single_rank_overlaps_its_collectives_and_no_more_than_they_take(tmp_path: Path) -> None:
    """1,000 µs of work and 100 µs of transfer a step, of which the host waits for both: in the trace of one rank each
    collective takes what it took, waiting included.
    """
    write_ranks(tmp_path, [[1000.0] * 4, [1500.0] * 4], pairs=2)
    (tmp_path / "rank1.json.gz").unlink()
    alone = tmp_path / "rank0.json.gz"
    result = changed(alone, "--overlap-collectives")
    baseline = result["baseline"]
    assert baseline["replayed_seconds"] == pytest.approx(baseline["recorded_seconds"], rel=0.01)
    (on_path,) = [part["seconds"] for part in baseline["critical_path"] if part["part"] == "communication"]
    parts = {part["part"]: part["seconds"] for part in baseline["critical_path"]}
    assert sum(parts.values()) == pytest.approx(baseline["replayed_seconds"])
    report = busfare.report(alone)
    assert on_path == pytest.approx(report.communication.seconds)  # nothing hides it here
    assert {row.part: row.seconds for row in report.critical_path or ()} == pytest.approx(parts)
    # Of 100 µs each and, at one of the two of each step, the 1,000 that rank 1 computes longer.
    assert on_path == pytest.approx(4 * (2 * 100e-6 + 2 * 500e-6), rel=1e-3)
    (change,) = result["changes"]
    assert 0 < change["gain_seconds"] <= on_path
    assert change["low_seconds"] >= baseline["replayed_seconds"] - on_path - 1e-9
    assert change["high_seconds"] <= baseline["replayed_seconds"] + 1e-9
    assert any("waits between ranks are unknown" in words for words in change["rests_on"])
    for option in (["--no-stragglers"], ["--overlap-collectives", "--bucket", "1MB"]):
        assert "of changes to a job, only" in refused("what-if", alone, *option)
    text = shown("report", alone)
    assert "other ranks, waiting included, takes" in text and "what-if --overlap-collectives" in text


def test_a_single_rank_is_no_job(tmp_path: Path) -> None:
    write_ranks(tmp_path, [[100.0], [100.0]])
    (tmp_path / "rank1.json.gz").unlink()
    assert "does not show how long it waits for others" in refused("what-if", tmp_path, "--pin=")


@pytest.mark.conformance
@pytest.mark.parametrize("path", ["ranks/dlrm-8xv100", "traces/nsys/nsys-ai-2xh100-before.sqlite"])
def test_published_jobs_replay_unchanged(path: str) -> None:
    result = changed(DATA / path, "--no-stragglers")
    base = result["baseline"]
    assert base["replayed_seconds"] == pytest.approx(base["recorded_seconds"], rel=1e-6)
    assert result["predicted_seconds"] <= result["baseline"]["replayed_seconds"]


def test_of_two_ranks_the_quicker_is_the_median(tmp_path: Path) -> None:
    write_ranks(tmp_path, [[1000.0] * 6, [1600.0] * 6])
    assert changed(tmp_path, "--no-stragglers")["gain_seconds"] == pytest.approx(6 * 600e-6, rel=0.02)
    write_ranks(tmp_path / "even", [[1000.0] * 6, [1000.0] * 6])
    assert changed(tmp_path / "even", "--no-stragglers")["speedup"] == pytest.approx(1.0, abs=0.002)


def test_a_host_that_launches_fewer_collectives_is_done_sooner() -> None:
    """Of two all-reduces among kernels the first goes: with it all that its thread did for it alone."""
    names = ["work", "ncclDevKernel_AllReduce(x)", "work", "work", "ncclDevKernel_AllReduce(x)", "work"]
    begins = [0.0, 40.0, 80.0, 90.0, 130.0, 170.0]
    calls = [call(at, at + 2, "cudaLaunchKernel", correlation=n) for n, at in enumerate(begins)]
    calls += [call(at + 20, at + 22, "cudaStreamIsCapturing") for at in (0.0, 40.0)]
    kernels = [
        kernel(at + 8, at + 9, name, correlation=n)
        for n, (at, name) in enumerate(zip(begins, names, strict=True))
    ]
    run = timeline(trace(*kernels, calls=sorted(calls, key=lambda made_call: made_call["start_ns"])))
    carries = np.array(["nccl" in name for name in names])
    fewer = without_launches(run, carries, np.array([1]))
    # Between two other launches lie 8 µs; around the first all-reduce there were 38 and its 2 and 38.
    assert play(run).makespan_ns - play(fewer).makespan_ns == 70_000


def test_what_recording_cost_is_taken_out_of_all_ranks(tmp_path: Path) -> None:
    recorded = write_ranks(tmp_path, [[1000.0] * 6, [1500.0] * 6]) * 1e-6
    predicted = changed(tmp_path, "--no-stragglers", "--unrecorded", f"{recorded - 30e-6}s")
    assert predicted["baseline"]["replayed_seconds"] == pytest.approx(recorded - 30e-6, abs=2e-6)
    assert 0 < predicted["baseline"]["recording_cost"]["call_seconds"] < 30e-6
    assert predicted["gain_seconds"] == pytest.approx(6 * 500e-6, rel=0.02)


SIZE = 64 << 20


def node(folder: Path, bytes_per_s: float) -> Node:
    """Whose memory has this rate, both ways and together."""
    rates = (f"{prefix}{access}_bytes_per_s" for prefix in ("", "both_") for access in ("read", "write"))
    return two_gpus(folder / "node.toml", generation=5, **{f"at_once.{rate}": bytes_per_s for rate in rates})


@pytest.mark.parametrize(
    ("copied_on", "bytes_per_s", "expected"),
    [((0,), 60e9, None), ((0, 1), 60e9, 30e9), ((0, 1), 500e9, None)],
    ids=["one rank copies", "both share the memory", "the memory is ample"],
)
def test_pinned_copies_of_two_ranks_share_the_memory(
    tmp_path: Path, copied_on: tuple[int, ...], bytes_per_s: float, expected: float | None
) -> None:
    write_ranks(tmp_path / "job", [[500.0] * 4] * 2, copy_us=8000.0, copy_bytes=SIZE, copied_on=copied_on)
    alone = node(tmp_path, bytes_per_s).host_path(0).bandwidth("read")
    result = changed(tmp_path / "job", "--pin=", "--from", str(tmp_path / "node.toml"))
    gained = 4 * (8000e-6 - SIZE / (expected or alone))
    assert result["gain_seconds"] == pytest.approx(gained, rel=0.02)


def part(device: int = 0) -> Timeline:
    return timeline(run(made(copy(10, 20, 1 << 20, device=device), 0, 3, "cudaMemcpyAsync")))


def rank(number: int, host: str | None) -> list[Rank]:
    return [Rank(number, f"rank{number}", host, number, TraceRank(None, 0, 0, 1, 0, 0))]


@pytest.fixture
def pair(tmp_path: Path) -> Node:
    return node(tmp_path, 1e9)


def test_ranks_that_call_their_gpus_the_same_have_separate_gpus_where_nccl_runs(pair: Node) -> None:
    parts = [(part(), rank(0, "a")), (part(), rank(1, "a")), (part(), rank(2, "b"))]
    assert places_of(parts, pair, apart=True) == [(0, {0: 0}), (0, {0: 1}), (1, {0: 0})]
    assert places_of(parts, pair, apart=False) == [(0, {0: 0}), (0, {0: 0}), (1, {0: 0})]
    named = [(part(1), rank(0, "a")), (part(0), rank(1, "a"))]
    assert places_of(named, pair, apart=True) == [(0, {1: 1}), (0, {0: 0})]


def test_ranks_of_no_host_fill_nodes(pair: Node) -> None:
    parts = [(part(number % 2), rank(number, None)) for number in range(4)]
    assert places_of(parts, pair, apart=True) == [(0, {0: 0}), (0, {1: 1}), (1, {0: 0}), (1, {1: 1})]
    assert places_of(parts, None, apart=True) is None


def test_devices_that_nobody_knows_are_not_placed(pair: Node) -> None:
    run = part()
    unknown = replace(run, operations=run.operations.with_columns(device=pl.lit(None, pl.Int32)))
    assert places_of([(unknown, rank(0, None))], pair, apart=True) == [(0, {})]
