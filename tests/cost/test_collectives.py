"""Prices of collectives: NCCL's model against figures that others published, the fit, and what is refused."""

import numpy as np
import pytest

from busfare.cost.collectives import KINDS, Fabric, fit_collectives, price_collectives
from busfare.errors import InputError
from busfare.nodes import FloatArray, load_node
from busfare.nodes.file import decode

GIB = 2.0**30


def bus(
    node: str, ranks: int, size: float = GIB, kind: str = "all_reduce", hosts: int = 1,
    nvls: bool | None = None,
) -> float:  # fmt: skip
    fabric = Fabric.of(load_node(node), ranks, hosts, nvls)
    return float(price_collectives(fabric, [kind], np.array([size])).bus_bytes_per_second[0]) / 1e9


@pytest.mark.parametrize(
    ("node", "ranks", "published", "off"),
    [
        ("dgx-a100", 8, 228.1, 0.03),
        ("dgx-a100", 2, 197.3, 0.08),
        ("h100-sxm", 8, 361, 0.04),
        ("h100-sxm", 4, 355, 0.04),
        ("h100-sxm", 2, 329, 0.08),
    ],
)
def test_all_reduce_of_a_gibibyte_as_published(node: str, ranks: int, published: float, off: float) -> None:
    assert bus(node, ranks) == pytest.approx(published, rel=off)


def test_a_generation_whose_kernels_nobody_timed_has_the_constants_of_the_nearest_and_a_wider_range() -> None:
    sizes = np.array([4096.0, 1 << 30])
    timed, untimed, older = (Fabric.of(load_node(name), 2) for name in ("h100-sxm", "dgx-b200", "dgx-1-v100"))
    assert (timed.timed_as, untimed.timed_as, older.timed_as) == (timed.generation, timed.generation, 1)

    def ends(fabric: Fabric, kind: str) -> FloatArray:
        prices = price_collectives(fabric, [kind] * 2, sizes)
        return np.array([prices.low_seconds, prices.high_seconds]) / prices.seconds

    assert (np.diff(ends(untimed, "all_reduce"), axis=0) > 0).all()
    (low, high), (timed_low, timed_high) = (ends(f, "all_reduce")[:, 1] for f in (untimed, timed))
    assert low < timed_low < timed_high < high
    assert np.allclose(ends(untimed, "all_to_all"), ends(timed, "all_to_all"))


def test_reductions_in_the_switch_are_taken_only_where_requested_and_faster() -> None:
    assert bus("h100-sxm", 8, nvls=True) == pytest.approx(466, rel=0.03)
    with pytest.raises(InputError, match="Hopper"):
        Fabric.of(load_node("dgx-a100"), 8, nvls=True)


def test_small_all_reduce_is_nccls_base_and_hops() -> None:
    prices = price_collectives(Fabric.of(load_node("dgx-a100"), 8), ["all_reduce"], np.array([8.0]))
    assert (prices.algorithm, prices.protocol) == (["ring"], ["LL"])
    assert prices.seconds[0] == pytest.approx((6.6 + 14 * 0.6) * 1e-6, rel=1e-3)  # [tuning.cc]


def test_links_decide() -> None:
    three, six = (Fabric.of(load_node("summit"), ranks) for ranks in (3, 6))
    assert (three.through, six.through) == ("NVLink", "host memory")
    assert six.wires < three.wires
    # A mesh of NVLinks: two of the eight share one link, all of them six.
    two, eight = (Fabric.of(load_node("dgx-1-v100"), ranks) for ranks in (2, 8))
    assert (two.wires, eight.wires) == (20e9, 120e9)
    hosts = Fabric.of(load_node("dgx-a100"), 16, hosts=2)
    assert hosts.rung == "typical"
    assert hosts.wires < Fabric.of(load_node("dgx-a100"), 8).wires


def test_a_network_card_of_the_file_counts() -> None:
    text = """name = "pair"
component = [
  { kind = "memory", name = "memory0" }, { kind = "cpu", name = "cpu0" }, { kind = "switch", name = "plx0" },
  { kind = "gpu", name = "gpu[0-1]", compute_capability = "8.9" },
  { kind = "nic", name = "nic0", bandwidth_bytes_per_s = 5e10 },
]
link = [
  { kind = "memory", between = ["memory0", "cpu0"] },
  { kind = "pcie", between = ["cpu0", "plx0"], generation = 4, lanes = 16 },
  { kind = "pcie", between = ["plx0", "gpu[0-1]"], generation = 4, lanes = 16 },
]
[[collectives]]
kind = "all_reduce"
ranks = 2
latency_overhead_s = [1e-5]
gap_per_byte_s = [5e-11]
"""
    node = decode(text, "pair.toml")
    joined = Fabric.of(node, 2)
    assert (joined.through, joined.wires) == ("PCIe", 24e9)  # 32 GB/s times NCCL's 0.75
    assert (Fabric.of(node, 4, hosts=2).network, Fabric.of(node, 4, hosts=2).rung) == (5e10, "datasheet")
    prices = price_collectives(joined, ["all_reduce", "broadcast"], np.array([1e6, 1e6]))
    assert prices.seconds[0] == pytest.approx(6e-5)
    assert prices.rung == "datasheet"  # the weaker of what was measured and what was not
    assert prices.algorithm == [None, "ring"]
    with pytest.raises(InputError, match=r"pair.toml:13: collectives\[0\].kind"):
        decode(text.replace('"all_reduce"', '"allreduce"'), "pair.toml")


@pytest.mark.parametrize(
    ("node", "ranks", "hosts", "why"),
    [
        ("mi300x", 8, 1, "from AMD"),
        ("titan", 2, 1, "has 1 GPU, not 2"),
        ("dgx-a100", 9, 2, "same number on each host"),
        ("dgx-a100", 1, 1, "2 to 65536"),
        ("pcie:4x16", 2, 2, "compute_capability"),
    ],
)
def test_what_the_node_does_not_say_is_refused(node: str, ranks: int, hosts: int, why: str) -> None:
    with pytest.raises(InputError, match=why):
        Fabric.of(load_node(node), ranks, hosts)


def test_many_priced_together_are_as_priced_alone() -> None:
    fabric = Fabric.of(load_node("dgx-a100"), 8)
    kinds = [kind for kind in KINDS for _ in range(40)]
    sizes = np.tile(np.geomspace(1, 4e9, 40), len(KINDS))
    prices = price_collectives(fabric, kinds, sizes)
    alone = [
        price_collectives(fabric, [k], np.array([s])).seconds[0] for k, s in zip(kinds, sizes, strict=True)
    ]
    np.testing.assert_array_equal(prices.seconds, alone)
    assert np.all(prices.bus_bytes_per_second < fabric.wires * 1.001)
    with pytest.raises(InputError, match="all_to_all"):
        price_collectives(fabric, ["alltoall"], np.array([1.0]))


def test_a_fit_is_robust_against_those_that_waited() -> None:
    random = np.random.default_rng(1)
    sizes = np.repeat(np.geomspace(1e5, 1e9, 25), 8)
    true = 5e-5 + sizes / 1.5e11
    waited = np.where(random.random(len(sizes)) < 0.2, 1 + 3 * random.random(len(sizes)), 1.0)
    seen = true * waited * random.normal(1, 0.01, len(sizes))
    fitted = fit_collectives(sizes, seen)
    some = np.array([2e5, 3e7, 8e8])
    np.testing.assert_allclose(fitted(some), 5e-5 + some / 1.5e11, rtol=0.03)
    with pytest.raises(ValueError, match="latency from bandwidth"):
        fit_collectives(np.full(9, 1e6), np.full(9, 1e-4))
    scaled = fit_collectives(np.full(9, 1e6), np.full(9, 1e-4), model=lambda s: 1e-5 + s / 1e11)
    np.testing.assert_allclose(scaled(np.array([1e6, 1e8])), [1e-4, 5 * (1e-5 + 1e-3)])
