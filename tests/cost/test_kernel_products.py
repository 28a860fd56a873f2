"""Products of matrices: the model of their tiles, and what measured ones say of others."""

from dataclasses import replace

import numpy as np
import pytest

from busfare.cost.kernels.limits import TILES, Limits, gemm_seconds, limits_of, product_seconds
from busfare.cost.kernels.move import Evidence, move
from busfare.measure.kernels import BATCHES
from busfare.nodes import FloatArray, Gemm, load_node

A100 = "a100-sxm4-80gb"


def test_products_take_waves_of_tiles() -> None:
    limits = limits_of(load_node(A100))
    peak = limits.peak("fp16_tensor") or 0.0

    def takes(m: float, n: float, k: float) -> float:
        return float(gemm_seconds([np.array([side]) for side in (1.0, m, n, k, 2.0)], peak, limits)[0])

    seconds = takes(4096.0, 4096.0, 4096.0)
    assert 2 * 4096**3 / peak < seconds < 1.4 * 2 * 4096**3 / peak
    # One tile more than fits in a wave takes nearly as long as another wave.
    assert takes(128.0, 128.0 * 109, 8192.0) > 1.1 * takes(128.0, 128.0 * 108, 8192.0)
    assert takes(1.0, 8192.0, 8192.0) > 2 * 8192 * 8192 / limits.memory


def test_measured_products_say_how_much_longer_than_modelled_those_of_like_sides_take() -> None:
    limits, sides = limits_of(load_node(A100)), {"batch": 1.0, "element_bytes": 4.0}
    peak = limits.peak("fp32") or 0.0

    def measured(*slower: tuple[int, float]) -> Limits:
        products = [
            (side, times * gemm_seconds([np.array([value]) for value in (1.0, side, side, side, 4.0)], peak, limits)[0])
            for side, times in slower
        ]  # fmt: skip
        made = [Gemm(type="fp32", m=side, n=side, k=side, seconds=seconds) for side, seconds in products]
        return replace(limits, generation="9.0", products=tuple(made))

    def factor(side: float, *slower: tuple[int, float]) -> float:
        columns = {name: np.array([value]) for name, value in (sides | dict.fromkeys("mnk", side)).items()}
        took = gemm_seconds([columns[n] for n in ("batch", "m", "n", "k", "element_bytes")], peak, limits)
        moved = move(
            Evidence(["gemm"], ["fp32"], columns), np.zeros(1, np.intp), took, limits, measured(*slower)
        )
        return float(moved.seconds[0] / took[0])

    # Of two that differ a part may be chance: each moves towards their mean, which lies midway between them.
    assert 1.7 < factor(8192.0, (1024, 1.0), (8192, 2.0)) < 2.0
    assert 1.0 < factor(1024.0, (1024, 1.0), (8192, 2.0)) < 1.2
    assert factor(2896.0, (1024, 1.0), (8192, 2.0)) == pytest.approx(2**0.5, rel=0.02)
    assert factor(8192.0, (1024, 2.0), (8192, 2.0)) == pytest.approx(2.0, rel=0.02)


def sides_of(*products: tuple[int, int, int, int]) -> list[FloatArray]:
    """The sides of fp32 products."""
    return [*np.array(products, np.float64).T, np.full(len(products), 4.0)]


@pytest.mark.parametrize("tile", [(128, 128), (64, 128), None])
def test_measured_products_of_batches_tell_the_tile_that_a_library_takes(
    tile: tuple[int, int] | None,
) -> None:
    limits = limits_of(load_node(A100))
    peak = limits.peak("fp32") or 0.0

    def took(*products: tuple[int, int, int, int], tiles: tuple[tuple[int, int], ...]) -> FloatArray:
        return limits.least_s + gemm_seconds(sides_of(*products), peak, limits, tiles)

    tiles = (tile,) if tile else TILES
    seconds = took(*BATCHES, tiles=tiles).tolist()
    made = [Gemm("fp32", m, n, k, s, batch) for (batch, m, n, k), s in zip(BATCHES, seconds, strict=True)]
    wanted = [(500, 30, 200, 300), (300, 200, 30, 300), (400, 20, 20, 700)]
    best = took(*wanted, tiles=TILES)
    predicted = product_seconds(sides_of(*wanted), "fp32", replace(limits, products=tuple(made)))
    assert predicted + limits.least_s == pytest.approx(took(*wanted, tiles=tiles), rel=0.01)
    if tile:
        assert (predicted > 1.3 * best).all()
        # A single one shows nothing, and products that are no batch keep the tile that is best for them.
        few = product_seconds(sides_of(*wanted), "fp32", replace(limits, products=tuple(made[:1])))
        assert not np.allclose(few, predicted, rtol=0.1)
        single = product_seconds(sides_of((1, 30, 2000, 300)), "fp32", replace(limits, products=tuple(made)))
        assert single == pytest.approx(took((1, 30, 2000, 300), tiles=TILES) - limits.least_s, rel=0.01)
