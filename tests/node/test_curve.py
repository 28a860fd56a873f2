"""Curves by hand: pieces, copies in several streams, and what typical machines keep beside other traffic."""

import numpy as np
import pytest
from msgspec import structs

from busfare.nodes import Curve, Together, catalogue_names, load_node

SIZES = np.array([1.0, 1e6])
LINE = Curve(direction="h2d", memory="pinned", latency_overhead_s=(4e-6,), gap_per_byte_s=(2e-11,))
BENT = Curve(
    direction="h2d", memory="pinned", up_to_bytes=(1000, 5000), latency_overhead_s=(1.0, 2.0, 3.0),
    gap_per_byte_s=(1e-3, 2e-3, 3e-3), issue_interval_s={1: 0.5, 2: 8.0, 10: 2.0},
)  # fmt: skip


def test_a_size_is_priced_by_the_piece_that_holds_it() -> None:
    seconds = BENT.seconds([[1, 1000], [1001, 6000]])
    np.testing.assert_allclose(seconds, [[1.001, 2.0], [4.002, 21.0]])
    assert BENT.long_gap_per_byte_s == 3e-3
    assert float(BENT.gap_per_byte(5000)) == 2e-3


def test_what_all_further_copies_add_is_linear_between_the_streams_measured() -> None:
    # 2 streams add 8 s, 10 streams 18 s in all: 6 streams add 13 s, 20 streams 2 s a copy.
    assert BENT.issue_interval([1, 2, 6, 10, 20]) == pytest.approx([0.5, 8.0, 13 / 5, 2.0, 2.0])
    assert float(BENT.together(6, 100)) == pytest.approx(1.1 + 13 + 5 * 0.3)


def test_without_an_interval_further_copies_start_anew() -> None:
    assert LINE.together(3, SIZES) == pytest.approx(3 * (4e-6 + 2e-11 * SIZES))


def test_detail_lies_on_the_line_between_the_streams_that_were_measured() -> None:
    detail = tuple(
        Together(streams=n, latency_overhead_s=(n * 4e-6,), gap_per_byte_s=(n * 2e-11,)) for n in (2, 10)
    )
    curve = structs.replace(LINE, detail=detail)
    for copies in (1, 2, 6, 10, 50):
        assert curve.together(copies, SIZES) == pytest.approx(copies * (4e-6 + 2e-11 * SIZES))


def test_a_slower_link_has_longer_bytes_and_the_same_starts() -> None:
    slow = BENT.scaled(2.0)
    assert slow.seconds([0, 6000]) == pytest.approx([1.0, 39.0])
    assert slow.issue_interval_s == BENT.issue_interval_s


@pytest.mark.parametrize("name", catalogue_names())
def test_every_node_keeps_a_share_of_h2d_and_of_d2h(name: str) -> None:
    node = load_node(name)
    contention = node.contention()
    assert contention.rung == ("probed" if "probed" in name or name in ("gtx-titan", "k20") else "typical")
    for shares in (contention.both, contention.mapped_both, contention.copy_beside_mapped):
        assert 0 < shares.of("h2d") <= 1
        assert 0 < shares.of("d2h") <= 1
        if contention.rung == "typical":
            assert shares.low <= min(shares.h2d, shares.d2h)
            assert max(shares.h2d, shares.d2h) <= shares.high


def test_what_a_probe_did_not_measure_across_streams_is_typical() -> None:
    typical = load_node("h100-sxm").contention().across_streams
    assert 0.9 < typical < 1
    assert load_node("h100-probed").contention().across_streams == typical
    assert load_node("gtx-680").contention().across_streams is None


def test_typical_contention_is_that_of_the_generation_and_the_link() -> None:
    duplex = {name: load_node(name).contention().both for name in ("dgx-a100", "gh200", "gb200", "mi300a")}
    assert duplex["gh200"].h2d < 0.5 < duplex["gb200"].h2d
    assert duplex["dgx-a100"].h2d < duplex["dgx-a100"].d2h
    assert duplex["mi300a"].h2d == 0.5
    assert load_node("pcie:4x16").contention().both.h2d == pytest.approx(0.92)


@pytest.mark.parametrize("name", ["h100-probed", "h200-probed", "h200-x2-probed"])
def test_a_probed_gpu_is_at_most_sixty_numbers_without_its_detail(name: str) -> None:
    node = load_node(name)
    curves = [curve for curve in node.curves if curve.gpu in (None, 0) and curve.direction != "p2p"]
    of_curve = ("up_to_bytes", "latency_overhead_s", "gap_per_byte_s", "issue_interval_s")
    numbers = sum(len(getattr(curve, key)) for curve in curves for key in of_curve)
    costs = [cost for cost in node.costs if cost.gpu in (None, 0)]
    of_cost = ("call_s", "call_per_byte_s", "device_s", "wait_per_byte_s")
    numbers += 8 + sum(bool(getattr(cost, key)) for cost in costs for key in of_cost)
    assert numbers <= 60
