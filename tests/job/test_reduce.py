"""The reducer: the same whole in any order and any grouping, in memory that does not grow."""

from __future__ import annotations

import random
import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busfare.job import Job
from busfare.job.partial import Partial
from busfare.report.job_result import job_result
from tests.job.build_job import random_partial

Named = tuple[str, Partial]


def partials(count: int, seed: int = 1) -> list[Named]:
    chance = random.Random(seed)
    return [(f"trace-{number}.json", random_partial(chance)) for number in range(count)]


def whole(parts: list[Named]) -> Job:
    job = Job()
    for path, part in parts:
        job.add(path, part)
    return job


def told(job: Job) -> bytes:
    return msgspec.json.encode(job_result(job))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 60), st.randoms(use_true_random=False), st.integers(0, 10**6))
def test_order_and_grouping_change_nothing(count: int, chance: random.Random, seed: int) -> None:
    parts = partials(count, seed)
    groups = [Job() for _ in range(chance.randint(1, 5))]
    for path, part in chance.sample(parts, count):
        chance.choice(groups).add(path, part)
    together = Job()
    for group in groups:
        together.merge(group)
    assert told(together) == told(whole(parts))


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 60), st.randoms(use_true_random=False))
def test_merging_is_associative_and_commutative(count: int, chance: random.Random) -> None:
    parts = partials(count, count)
    first, second = sorted(chance.randint(0, count) for _ in range(2))
    cuts = [parts[:first], parts[first:second], parts[second:]]

    def merged(*jobs: Job) -> Job:
        job = Job()
        for other in jobs:
            job.merge(other)
        return job

    left = merged(merged(whole(cuts[0]), whole(cuts[1])), whole(cuts[2]))
    right = merged(whole(cuts[2]), merged(whole(cuts[1]), whole(cuts[0])))
    assert told(left) == told(right) == told(whole(parts))


def test_failures_are_counted_and_listed_in_the_order_of_their_paths() -> None:
    job = whole(partials(1))
    for number in reversed(range(300)):
        job.fail(f"bad-{number:03}", "torn")
    result = job_result(job)
    assert result["traces"]["failed"] == 300
    assert [failure["path"] for failure in result["failures"]] == [f"bad-{n:03}" for n in range(100)]


def test_launchers_that_gave_the_gpu_no_work_are_not_in_the_spread() -> None:
    parts = [(path, msgspec.structs.replace(part, makespan_ns=500)) for path, part in partials(4)]
    nothing = dict.fromkeys(("transfers", "kernels", "communication", "graph_work", "sets", "makespan_ns"), 0)
    nameless = msgspec.structs.replace(parts[0][1].place, rank=None)
    launcher = msgspec.structs.replace(parts[0][1], **nothing, place=nameless)
    named = msgspec.structs.replace(launcher, place=msgspec.structs.replace(nameless, rank=9))

    def least(*more: Named) -> tuple[float, dict[str, int]]:
        result = job_result(whole([*parts, *more]))
        said = {omission["id"]: omission["count"] for omission in result["omissions"]}
        return next(row for row in result["spread"] if row["figure"] == "makespan_seconds")["least"], said

    assert least(("launcher", launcher))[0] == pytest.approx(500e-9)
    assert least(("launcher", launcher))[1]["idle-processes"] == 1
    # A rank that did nothing is news.
    assert least(("rank", named))[0] == 0 and "idle-processes" not in least(("rank", named))[1]
    alone = job_result(whole([("launcher", launcher)]))
    assert alone["traces"]["read"] == 1 and alone["spread"][0]["most"] == 0


def test_sums_are_exact() -> None:
    parts = partials(500)
    result = job_result(whole(parts))
    assert result["transfers"]["bytes"] == sum(part.transfer_bytes for _, part in parts)
    assert result["transfers"]["seconds"] == sum(part.transfer_ns for _, part in parts) * 1e-9
    assert sum(row["traces"] for row in result["gpus"]) == sum(len(part.gpus) for _, part in parts)


def test_the_slowest_of_equals_is_the_first_by_path() -> None:
    part = random_partial(random.Random(3))
    for order in (["b", "a", "c"], ["c", "b", "a"]):
        assert job_result(whole([(path, part) for path in order]))["slowest"]["path"] == "a"


@pytest.mark.parametrize("count", [4000])
def test_memory_is_bounded(count: int) -> None:
    """Ten times as many traces of the same hosts cost next to nothing more."""
    chance = random.Random(1)
    tracemalloc.start()
    try:
        job = Job()
        for number in range(count // 10):
            job.add(f"trace-{number}", random_partial(chance))
        few = tracemalloc.get_traced_memory()[0]
        for number in range(count // 10, count):
            job.add(f"trace-{number}", random_partial(chance))
        many = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert job.traces == count
    # Links that are told apart by their traces alone are what grows, up to their bound of 8192.
    assert many - few < 5e6
