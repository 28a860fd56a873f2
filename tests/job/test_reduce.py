"""The reducer: the same whole in any order, exact sums, outliers and slow links named and no others."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busfare.answers.job import job_report
from busfare.jobs.partial import LinkRate, Partial
from busfare.jobs.reduce import WORK, Job, Ranked, spread
from tests.job.build_job import GPU, encoded, random_partial
from tests.traces import as_json

Named = tuple[str, Partial]


def partials(count: int, seed: int = 1) -> list[Named]:
    chance = random.Random(seed)
    return [(f"trace-{number}.json", random_partial(chance)) for number in range(count)]


def whole(parts: list[Named]) -> Job:
    job = Job()
    for path, part in parts:
        job.add(path, part)
    return job


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.randoms(use_true_random=False), st.integers(0, 10**6))
def test_order_changes_nothing(count: int, chance: random.Random, seed: int) -> None:
    parts = partials(count, seed)
    assert encoded(whole(chance.sample(parts, count))) == encoded(whole(parts))


def test_sums_are_exact() -> None:
    parts = partials(500)
    result = as_json(job_report(whole(parts)))
    assert result["transfers"]["bytes"] == sum(part.sums["transfers_bytes"] for _, part in parts)
    assert result["transfers"]["seconds"] == sum(part.sums["transfers_ns"] for _, part in parts) * 1e-9
    assert sum(row["traces"] for row in result["gpus"]) == sum(len(part.gpus) for _, part in parts)
    assert sum(row["bytes"] for row in result["by_path"]) == sum(p.by_path[0].bytes for _, p in parts)


def test_failures_are_counted_and_listed_in_the_order_of_their_paths() -> None:
    job = whole(partials(1))
    for number in reversed(range(300)):
        job.failures.append((f"bad-{number:03}", "torn"))
    result = as_json(job_report(job))
    assert result["traces"]["failed"] == 300
    assert [failure["path"] for failure in result["failures"]] == [f"bad-{n:03}" for n in range(100)]


def test_launchers_that_gave_the_gpu_no_work_are_not_in_the_spread() -> None:
    parts = partials(4)
    for _, part in parts:
        part.sums["makespan_ns"] = 500
    nothing = parts[0][1].sums | dict.fromkeys((*WORK, "makespan_ns"), 0)
    launcher = msgspec.structs.replace(parts[0][1], sums=nothing, rank=None)

    def least(*more: Named) -> tuple[float, dict[str, int]]:
        result = as_json(job_report(whole([*parts, *more])))
        omissions = {omission["id"]: omission["count"] for omission in result["omissions"]}
        makespans = next(r for r in result["spread"] if r["figure"] == "makespan_seconds")
        return makespans["smallest"][0]["value"], omissions

    seconds, omissions = least(("launcher", launcher))
    assert (seconds, omissions["idle-processes"]) == (pytest.approx(500e-9), 1)
    # A rank that did nothing is news.
    seconds, omissions = least(("rank", msgspec.structs.replace(launcher, rank=9)))
    assert seconds == 0 and "idle-processes" not in omissions
    alone = as_json(job_report(whole([("launcher", launcher)])))
    assert alone["traces"]["read"] == 1 and alone["spread"][0]["largest"][0]["value"] == 0


def test_the_slowest_of_equals_is_the_first_by_path() -> None:
    part = random_partial(random.Random(3))
    for order in (["b", "a", "c"], ["c", "b", "a"]):
        spread = as_json(job_report(whole([(path, part) for path in order])))["spread"]
        assert spread[0]["largest"][0]["path"] == "a"


@given(st.lists(st.integers(0, 1 << 60), min_size=1))
def test_a_spread_is_what_sorting_gives(values: list[int]) -> None:
    ranks = [Ranked(path=f"{number:05}", rank=None, host=None) for number in range(len(values))]
    seen, ordered = spread("bytes", [*zip(values, ranks, strict=True)], 1), sorted(values)
    assert (seen.least, seen.most) == (ordered[0], ordered[-1])
    assert [ranked.value for ranked in seen.largest] == ordered[::-1][:16]
    assert [ranked.value for ranked in seen.smallest] == ordered[:16]
    shares = {0.25: seen.quartile, 0.5: seen.median, 0.75: seen.upper_quartile, 0.95: seen.p95}
    assert {share: ordered[int(share * (len(values) - 1))] for share in shares} == shares


def links(*seen: tuple[float, int | None, dict[str, object]]) -> Job:
    """A job whose traces each saw one link: bytes per second, rank, and what else differs."""
    job = Job()
    part = msgspec.structs.replace(random_partial(random.Random(1)), rates=[], host="b12")
    for rate, rank, host_name in seen:
        link = LinkRate(GPU, None, 0, None, "h2d", rate, None)
        link = msgspec.structs.replace(link, **{k: v for k, v in host_name.items() if k != "host"})
        host = host_name.get("host", "b12")
        job.add(f"{rank}-{rate}", msgspec.structs.replace(part, rank=rank, host=host, rates=[link]))
    return job


SHEET = {"data_sheet_bytes_per_second": 57e9}
SLOW_LINKS = {
    "half the rate of its peers": ([(25e9 if n == 3 else 50e9 + n, n, {}) for n in range(8)], [3]),
    "three are too few to compare": ([(25e9, 0, {}), (50e9, 1, {}), (50e9, 2, {})], []),
    "a lone link beside the data sheet": ([(25e9, 0, SHEET), (50e9, 1, SHEET)], [0]),
    "ranks that all call their GPU 0": (
        [(25e9 if n == 1 else 50e9, n, {}) for n in range(4)] + [(50e9, None, {"host": None})] * 4,
        [1],
    ),
    "models are not compared with each other": (
        [(12e9, n, {"gpu": "Tesla T4"}) for n in range(4)]
        + [(50e9, n + 10, {}) for n in range(4)]
        + [(5e9 * n + 1, n + 20, {"gpu": None}) for n in range(4)],
        [],
    ),
    "the best of all traces of a GPU counts": (
        [(20e9 + n, n, {"identity": f"GPU-{n}"}) for n in range(8)]
        + [(50e9 + n, n + 100, {"identity": f"GPU-{n}"}) for n in range(8)],
        [],
    ),
}


@pytest.mark.parametrize(("seen", "slow"), SLOW_LINKS.values(), ids=SLOW_LINKS)
def test_only_slow_links_are_named(
    seen: list[tuple[float, int | None, dict[str, object]]], slow: list[int]
) -> None:
    assert [link.rank for link in links(*seen).link_health().slow] == slow


def test_shares_are_of_the_peers_and_of_the_data_sheet() -> None:
    health = links(*SLOW_LINKS["half the rate of its peers"][0]).link_health()
    (slow,) = health.slow
    assert (slow.host, slow.peers, slow.share_of_data_sheet) == ("b12", 7, None)
    assert slow.share_of_peers == pytest.approx(0.5, rel=1e-3)
    (group,) = health.groups
    assert (group.gpu, group.links, group.least_bytes_per_second) == (GPU, 8, 25e9)
    lone = links(*SLOW_LINKS["a lone link beside the data sheet"][0]).link_health().slow
    assert [(r.share_of_peers, r.share_of_data_sheet) for r in lone] == [(None, 25 / 57)]
