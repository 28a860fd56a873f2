"""What one trace gives its job: rank, host, rates, and sums that agree with its report."""

from pathlib import Path

import msgspec
import polars as pl
import pytest

from busfare.advise.jobs import advised
from busfare.answers.report import summarise
from busfare.jobs.partial import Partial, best_rates, partial_of
from busfare.jobs.ranks import TraceRank, numbered, place_of
from busfare.nodes import load_node
from busfare.trace import read, tables
from tests.traces import EXAMPLES, as_json, copy, kernel, trace

MIB = 1 << 20
H100 = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize("example", sorted(file.name for file in EXAMPLES.glob("*h100.json.gz")))
def test_a_partial_agrees_with_the_report_of_its_trace(example: str) -> None:
    """Real recorded traces."""
    recorded = read(EXAMPLES / example)
    part, report = partial_of(recorded, EXAMPLES / example, advise=advised), as_json(summarise(recorded))
    assert part.sums["makespan_ns"] == pytest.approx(report["makespan_seconds"] * 1e9, abs=1)
    assert part.sums["transfers_bytes"] == report["transfers"]["bytes"]
    exposed_ns = report["transfers"]["exposed_seconds"] * 1e9
    assert part.sums["transfers_exposed_ns"] == pytest.approx(exposed_ns, abs=1)
    assert [f.id for f in part.findings] == [f["id"] for f in report["findings"]]
    assert [m.bytes for m in part.by_path] == [row["bytes"] for row in report["by_path"]]
    assert part.gpus == [H100]
    assert len(msgspec.json.encode(part)) < 10_000


def test_a_partial_survives_being_sent() -> None:
    made = trace(copy(0, 100, 64 * MIB), copy(200, 300, 3), kernel(50, 400), gpu=H100)
    part = partial_of(made, Path("rank3.json"))
    assert msgspec.json.decode(msgspec.json.encode(part), type=Partial) == part
    assert part == partial_of(made, Path("rank3.json"))


def test_a_trace_of_nothing_has_a_partial() -> None:
    part = partial_of(trace(), Path("empty.json"))
    assert (set(part.sums.values()), part.rates) == ({0}, [])


@pytest.mark.parametrize(
    ("host", "path", "place"),
    [
        ({"rank": "7", "hostname": "b12"}, "rank3.json", (7, "b12")),
        ({}, "rank3.json.gz", (3, None)),
        ({}, "sampled_rank-12.json", (12, None)),
        ({}, "rank_4/trace.sqlite", (4, None)),
        ({}, "frank3.json", (None, None)),
        ({}, "trace-17.json", (None, None)),
        ({}, "rank99999999999.json", (None, None)),
        ({"rank": "-1"}, "x.json", (None, None)),
        ({"rank": "9999999999999999999999"}, "x.json", (None, None)),
        ({"rank": "³"}, "x.json", (None, None)),
        ({}, "b12.cluster_4711.1700000000.pt.trace.json.gz", (None, "b12.cluster")),
    ],
)
def test_rank_and_host_come_from_the_trace_then_from_names(
    host: dict[str, str], path: str, place: tuple[int | None, str | None]
) -> None:
    made = trace(kernel(0, 10))
    made.host = host
    assert place_of(made, Path(path)) == place
    made = trace(kernel(0, 10), kernel(20, 30, process=2))
    made.host = {"rank": "0"}  # of several processes: no rank is said
    assert place_of(made, Path("x.json"))[0] is None


def test_rates_are_the_best_of_large_pinned_copies() -> None:
    made = trace(
        copy(0, 2000, 64 * MIB),
        copy(3000, 4000, 64 * MIB),  # the best
        copy(5000, 5001, 4096),  # small
        copy(6000, 6010, 64 * MIB, memory="pageable"),
        copy(7000, 7000, 64 * MIB),  # no time
        copy(8000, 10000, 64 * MIB, "d2h"),
        gpu=H100,
    )
    rates = {rate.direction: rate for rate in best_rates(made, load_node("h100-sxm"))}
    assert rates.keys() == {"h2d", "d2h"}
    assert rates["h2d"].bytes_per_second == pytest.approx(64 * MIB / 1e-3)
    assert rates["h2d"].gpu == H100
    assert rates["h2d"].data_sheet_bytes_per_second == pytest.approx(56.7e9, rel=0.01)
    assert rates["d2h"].bytes_per_second == pytest.approx(64 * MIB / 2e-3)


def test_gpus_are_distinguished_by_what_identifies_them() -> None:
    made = trace(copy(0, 1000, 64 * MIB), copy(2000, 3000, 64 * MIB, process=2))
    gpus = {"device": [0, 0], "process": [1, 2], "name": ["a", "b"], "uuid": ["GPU-1", "GPU-2"]}
    made.devices = tables.conform(pl.DataFrame(gpus), tables.DEVICES)
    assert [(rate.gpu, rate.identity) for rate in best_rates(made, None)] == [("a", "GPU-1"), ("b", "GPU-2")]


def held(rank: int | None, process: int) -> TraceRank:
    return TraceRank(process, 0, 0, 1, 1, 0, rank=rank)


def test_a_file_of_several_processes_names_their_ranks() -> None:
    ranks = numbered([("job", None, "host", [held(1, 459), held(0, 460)])])
    assert [(r.rank, r.times.process) for r in ranks] == [(1, 459), (0, 460)]


def test_a_trace_without_a_free_rank_gets_what_is_left() -> None:
    single = [TraceRank(7, 0, 0, 1, 1, 0)]
    ranks = numbered(
        [
            ("a", 2, None, single),
            ("b", 2, None, [TraceRank(8, 0, 0, 1, 1, 0)]),
            ("c", None, None, [TraceRank(9, 0, 0, 1, 1, 0)]),
            ("d", 0, None, [held(None, 1), held(3, 2)]),
        ]
    )
    assert [(r.path, r.rank) for r in ranks] == [("a", 2), ("b", 0), ("c", 1), ("d", 4), ("d", 3)]
