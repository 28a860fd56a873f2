"""Each built-in model against numbers worked out by hand."""

import dataclasses
import math

import msgspec
import numpy as np
import polars as pl
import pytest

from busfare.cost import model, model_names, price, trusted
from busfare.cost.copies import effective_bytes, in_place_share
from busfare.cost.models import Seen, copy_operations, to_untouched, with_call
from busfare.errors import InputError
from busfare.nodes import Gpu, Node, load_node
from busfare.show.words import text

MIB = 1 << 20
TITAN = load_node("gtx-titan")


def operations(**columns: object) -> pl.DataFrame:
    """One row a value; columns that are not given are those of a pinned host-to-device copy."""
    rows = max(len(v) for v in columns.values() if isinstance(v, list))
    base: dict[str, object] = {
        "kind": "copy", "direction": "h2d", "bytes": MIB, "source_memory": "pinned",
        "destination_memory": "device", "device": 0, "peer_device": None, "copy_count": 1, "start_ns": 0,
        "end_ns": None,
    }  # fmt: skip
    return pl.DataFrame(
        {k: v if isinstance(v, list) else [v] * rows for k, v in (base | columns).items()}, strict=False
    )


def copied(
    name: str, node: Node, direction: str, memory: str, *sizes: int, start: Node | None = None
) -> np.ndarray:
    """What a model says of copies of these sizes."""
    return model(name, latency_from=start).seconds(copy_operations(direction, memory, list(sizes)), node)


def test_envelope_is_bytes_over_the_peak() -> None:
    seconds = copied("envelope", load_node("pcie:3x16"), "h2d", "pinned", MIB)
    assert seconds[0] == pytest.approx(MIB / (16 * 8e9 / 8 * 128 / 130))


def test_peak_adds_the_latency_of_the_named_node() -> None:
    seconds = copied("peak", load_node("nvlink:2x3"), "d2h", "pinned", MIB, start=TITAN)
    assert seconds[0] == pytest.approx(9.023e-6 + MIB / 75e9)


def test_ahead_counts_the_bytes_of_its_equations() -> None:
    pcie, nvlink = load_node("pcie:3x16").links[1], load_node("nvlink:2x3").links[1]
    sizes = np.array([1000.0])
    assert effective_bytes(sizes, pcie, "h2d")[0] == 12 + 512 + math.ceil(1000 / 128) * 12 + 1000  # eq 4
    assert effective_bytes(sizes, pcie, "d2h")[0] == math.ceil(1000 / 128) * 12 + 1000  # eq 5
    assert effective_bytes(sizes, nvlink, "h2d")[0] == 16 + 4 * 16 + 1000  # eq 6
    assert effective_bytes(sizes, nvlink, "d2h")[0] == 4 * 16 + 1000  # eq 7


def test_ahead_stages_pageable_copies_twice_through_the_memorys_peak() -> None:
    titan = load_node("titan")
    pinned, pageable = (
        copied("ahead", titan, "h2d", kind, MIB, start=TITAN)[0] for kind in ("pinned", "pageable")
    )
    assert pageable - pinned == pytest.approx(2 * MIB / 51.2e9)


def test_datasheet_is_latency_and_wire() -> None:
    seconds = copied("datasheet", load_node("pcie:4x16"), "d2h", "pinned", MIB, start=TITAN)
    wire = MIB * (152 / 128) * (1 + 4 / 1538) / (16 * 16e9 / 8 * 128 / 130)
    assert seconds[0] == pytest.approx(9.023e-6 + wire)


def test_datasheet_stages_in_sequence_up_to_a_mebibyte_and_overlaps_beyond() -> None:
    node = load_node("pcie:4x16")
    link = node.host_path(0).seconds(np.array([float(MIB), 3.0 * MIB]), "read")
    seconds = copied("datasheet", node, "h2d", "pageable", MIB, 3 * MIB, start=TITAN)
    copying = MIB / 15e9
    assert seconds[0] == pytest.approx(9.42e-6 + link[0] + copying)
    # The processor is the slower one.
    assert seconds[1] == pytest.approx(9.42e-6 + link[0] + 3 * copying, rel=1e-6)


def test_device_copies_read_and_write_and_sets_only_write() -> None:
    table = operations(kind=["copy", "set"], direction=["d2d", None], source_memory="device", bytes=900 * MIB)
    seconds = model("datasheet", latency_from=load_node("pcie:3x16")).seconds(table, load_node("v100-pcie"))
    assert seconds[0] - 2.503e-6 == pytest.approx(2 * 900 * MIB / 900e9)
    assert seconds[1] - 2.503e-6 == pytest.approx(900 * MIB / 900e9)


def test_unified_memory_is_copied_in_place() -> None:
    node = load_node("mi300a")
    table = copy_operations("h2d", "pageable", [1 << 30])
    # Its engines were seen to move 58 to 90 GB/s.
    assert 58e9 < (1 << 30) / model("datasheet").seconds(table, node)[0] < 90e9
    rest = (c for c in node.components if not isinstance(c, Gpu))
    silent = (msgspec.structs.replace(gpu, copy_bandwidth_bytes_per_s=None) for gpu in node.gpus())
    node = dataclasses.replace(node, components=(*rest, *silent))
    assert model("datasheet").seconds(table, node)[0] == pytest.approx(2 * (1 << 30) / 5.3e12, rel=0.01)


@pytest.mark.parametrize(
    ("node", "direction", "memory", "trusted_model", "why"),
    [
        ("dgx-1-p100", "h2d", "pageable", "loggp", "measured on this node"),
        ("h100-sxm", "h2d", "pageable", "datasheet", "1.6 to 33 GB/s"),
        ("h100-sxm", "h2d", "pinned", "datasheet", "the link rate of its slowest part"),
        ("h100-sxm", "p2p", "device", "datasheet", "the link rate of its slowest part"),
        ("h100-sxm", "d2d", "device", "datasheet", "half of the data-sheet bandwidth"),
        ("gh200", "h2d", "pageable", "datasheet", "100 to 380 GB/s"),
        ("mi300a", "d2h", "pageable", "datasheet", "74 GB/s at this size, based on ROCm/ROCm#3652"),
        ("mi300a", "d2h", "pageable", "datasheet", "covers pageable copies on all machines"),
        ("mi300a", "h2d", "pinned", "datasheet", "58 to 90 GB/s"),
    ],
)
def test_a_price_says_which_model_to_trust_and_why(
    node: str, direction: str, memory: str, trusted_model: str, why: str
) -> None:
    prices = price(load_node(node), direction, memory, 1 << 30)
    choice = trusted(load_node(node), direction, memory, prices)
    assert choice[0] == trusted_model
    assert why in text(choice[1])


def test_loggp_is_w14_equation() -> None:
    table = operations(bytes=[16 * MIB, 16 * MIB], copy_count=[1, 42])
    seconds = model("loggp").seconds(table, TITAN)
    assert seconds[0] == pytest.approx(9.420e-6 + 16 * MIB * 8.318392e-11)
    assert seconds[1] == pytest.approx(seconds[0] + 41 * 2.503e-6)


def test_loggp_takes_the_piece_that_holds_the_size() -> None:
    frontier = load_node("mi250x")
    seconds = copied("loggp", frontier, "h2d", "pageable", 16 * MIB, 16 * MIB + 1)
    assert seconds[0] == pytest.approx(6.9e-6 + 16 * MIB * 4.22e-11)
    assert seconds[1] == pytest.approx(6.9e-6 + (16 * MIB + 1) * 2.66e-10)


def test_loggp_knows_only_what_was_measured() -> None:
    assert np.isnan(model("loggp").seconds(copy_operations("h2d", "pageable", [1]), TITAN)[0])
    assert np.isnan(model("loggp").seconds(copy_operations("h2d", "pinned", [1]), load_node("h100-sxm"))[0])


@pytest.mark.parametrize("name", ["datasheet", "ahead", "peak", "envelope", "loggp", "calibrated"])
def test_kernels_unknown_sizes_and_nulls_have_no_price(name: str) -> None:
    table = operations(
        kind=["kernel", "copy", None, "copy", "copy"],
        direction=["h2d", "h2d", "h2d", None, "h2h"],
        bytes=[MIB, None, MIB, MIB, MIB],
        source_memory=None,
        device=None,
        copy_count=None,
        end_ns=1000,
    )
    seconds = model(name, recorded_on=TITAN).seconds(table, TITAN)
    assert seconds.dtype == np.float64
    assert seconds.shape == (5,)
    assert np.isnan(seconds).all()


def test_an_unknown_memory_kind_is_priced_as_pinned() -> None:
    table = operations(source_memory=["pinned", None, "managed"])
    seconds = model("datasheet").seconds(table, TITAN)
    assert np.ptp(seconds) == 0


def test_the_host_side_names_the_memory_kind() -> None:
    table = operations(
        direction=["d2h", "d2h"], source_memory="device", destination_memory=["pinned", "pageable"],
        bytes=64 * MIB,
    )  # fmt: skip
    pinned, pageable = model("datasheet").seconds(table, load_node("pcie:4x16"))
    assert pageable > 2 * pinned


def test_columns_may_be_missing_and_rows_none() -> None:
    assert model("datasheet").seconds(pl.DataFrame({"kind": ["copy"]}), TITAN).shape == (1,)
    assert model("datasheet").seconds(operations(kind=[]).clear(), TITAN).shape == (0,)


def test_peer_copies_take_the_peer_link() -> None:
    table = operations(
        direction="p2p", device=[0, 0, 3], peer_device=[3, None, 3], source_memory="device", bytes=1 << 30
    )
    seconds = model("datasheet").seconds(table, load_node("dgx-1-v100"))
    assert (1 << 30) / seconds[0] / 1e9 == pytest.approx(47.06, abs=0.1)
    assert np.isnan(seconds[1])
    assert np.isnan(seconds[2])


def test_more_bytes_never_take_less() -> None:
    table = operations(bytes=list(range(1_000_000)))
    seconds = model("datasheet", latency_from=TITAN).seconds(table, load_node("h100-sxm"))
    assert np.all(np.diff(seconds) >= 0)


def test_calibrated_follows_measurements_where_the_two_nodes_have_them() -> None:
    """From one probed node to another: the bytes' part as measured, the overhead as recorded."""
    here, there = load_node("h100-probed"), load_node("h200-probed")
    table = operations(bytes=[4, 1 << 30], source_memory=["pinned", "pinned"]).with_columns(
        end_ns=pl.col("start_ns") + pl.Series([1_500, 20_000_000])
    )
    seconds = model("calibrated", recorded_on=here).seconds(table, there)
    ratio = [node.curve("h2d", "pinned").seconds(np.array([1.0, 2.0**30])) for node in (there, here)]
    bytes_ratio = (ratio[0][1] - ratio[0][0]) / (ratio[1][1] - ratio[1][0])
    assert seconds[0] == pytest.approx(1.5e-6)
    assert seconds[1] == pytest.approx(20e-3 * bytes_ratio, rel=1e-3)
    assert model("calibrated", recorded_on=here).seconds(table, here)[1] == pytest.approx(20e-3)


def test_prices_name_every_model_that_applies() -> None:
    prices = price(load_node("gtx-titan"), "h2d", "pinned", MIB)
    assert [p["model"] for p in prices][:5] == ["datasheet", "loggp", "ahead", "peak", "envelope"]
    for row in prices:
        assert row["bytes_per_second"] == pytest.approx(MIB / row["seconds"])


def test_a_price_of_nothing_is_the_latency() -> None:
    prices = {p["model"]: p for p in price(load_node("pcie:4x16"), "h2d", "pinned", 0, TITAN)}
    assert prices["datasheet"]["seconds"] == pytest.approx(9.42e-6)
    assert prices["envelope"]["bytes_per_second"] is None


@pytest.mark.parametrize(
    ("direction", "memory", "size", "says"),
    [
        ("up", "pinned", 1, "h2d"),
        ("h2d", "soft", 1, "pageable"),
        ("h2d", "pinned", -1, "bytes"),
        ("h2d", "pinned", 2**60, "bytes"),
    ],
)
def test_a_copy_that_cannot_be_is_an_input_error(direction: str, memory: str, size: int, says: str) -> None:
    with pytest.raises(InputError, match=says):
        price(TITAN, direction, memory, size)


def test_an_unknown_model_names_the_models() -> None:
    with pytest.raises(InputError, match="did you mean 'datasheet'"):
        model("datashet")
    with pytest.raises(InputError, match="calibrated"):
        model("zzz")
    assert model_names()[:2] == ["datasheet", "calibrated"]


def test_pageable_memory_that_is_read_in_place_is_not_staged() -> None:
    gh200, gb200 = load_node("gh200"), load_node("gb200")
    sizes = [4096, MIB, 1 << 30]
    pageable, pinned = (copied("datasheet", gb200, "h2d", kind, *sizes) for kind in ("pageable", "pinned"))
    assert pageable == pytest.approx(pinned)
    # As published: 99.8 GB/s; nothing is added for the first mebibyte.
    large, small = copied("datasheet", gh200, "h2d", "pageable", 1 << 30, MIB)
    assert large - small == pytest.approx(((1 << 30) - MIB) / 9.98e10)
    assert 90e9 < (1 << 30) / large < 380e9
    assert in_place_share(gh200) == pytest.approx(9.98 / 10.46)
    assert in_place_share(gb200) == 1.0
    assert in_place_share(load_node("h100-sxm")) is None


def test_what_is_staged_here_is_not_staged_where_memory_is_read_in_place() -> None:
    here, there = load_node("h100-sxm"), load_node("gh200")
    recorded = operations(bytes=[1 << 30], source_memory="pageable", end_ns=[130_000_000])
    moved = model("calibrated", recorded_on=here).seconds(recorded, there)[0]
    assert moved == pytest.approx((1 << 30) / 9.98e10, rel=0.02)
    back = operations(bytes=[1 << 30], source_memory="pageable", end_ns=[10_758_000])
    staged = model("calibrated", recorded_on=there).seconds(back, here)[0]
    assert staged == pytest.approx((1 << 30) / 8.3e9, rel=0.02)


def test_a_node_of_long_copies_alone_takes_the_start_of_the_engine() -> None:
    node = load_node("gt-740")
    assert all(curve.only_long for curve in node.curves)
    assert model("loggp").seconds(copy_operations("h2d", "pinned", [0]), node)[0] == pytest.approx(2.503e-6)
    rungs = {
        size: {row["model"]: row["rung"] for row in price(node, "h2d", "pinned", size)}["loggp"]
        for size in (1, 64 * MIB)
    }
    assert rungs == {1: "datasheet", 64 * MIB: "probed"}
    choice = trusted(node, "h2d", "pinned", price(node, "h2d", "pinned", 1))
    expected = ("datasheet", "on this node, only long copies were measured on this path")
    assert (choice[0], text(choice[1])) == expected


def test_a_program_sees_the_call_and_the_wait() -> None:
    probed, amd = load_node("h100-probed"), load_node("mi300x")

    def seen(node: Node, name: str, memory: str = "pinned", direction: str = "h2d") -> Seen | None:
        row = next(row for row in price(node, direction, memory, 4096) if row["model"] == name)
        with_its_call = with_call(node, direction, memory, row)
        assert with_its_call is None or row["seconds"] < with_its_call.seconds
        return with_its_call

    measured = seen(probed, "loggp")
    alone = model("loggp").seconds(copy_operations("h2d", "pinned", [4096]), probed)[0]
    assert measured.seconds - alone == pytest.approx(3.033e-6 + 1.908e-6)
    published = seen(amd, "datasheet")
    assert published.low_seconds < 36e-6 < 40e-6 < published.high_seconds  # ROCm/hip#3809
    assert seen(probed, "loggp", "pageable", "d2h") is None  # the clock held the whole call
    assert seen(load_node("mi300a"), "datasheet") is None
    fresh = to_untouched(10**9)
    assert pytest.approx(fresh.low_seconds) == 1 / 3.2
    assert fresh.low_seconds < 1 / 1.48 < 1 / 1.14 == pytest.approx(fresh.high_seconds)


def test_a_price_that_is_mostly_a_start_nobody_measured_says_it() -> None:
    summit, titan = load_node("summit"), load_node("gtx-titan")
    for size, start, stands_in in ((1, None, True), (1, titan, False), (1 << 20, None, False)):
        choice = trusted(summit, "h2d", "pinned", price(summit, "h2d", "pinned", size, start), start)
        assert ("nor its L+o was measured: 2.5 µs stands in" in text(choice[1])) is stands_in
