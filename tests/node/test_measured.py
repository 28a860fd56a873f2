"""Measured parameters: rows of copies, costs, and the mistakes that a file can make of them."""

from __future__ import annotations

import numpy as np
import pytest

from busfare.errors import InputError
from busfare.node import Measured, Piece, Row
from busfare.node.file import decode
from tests.node.test_file import GOOD

ONE = Piece(latency_overhead_s=4e-6, gap_per_byte_s=2e-11)
SIZES = np.array([1.0, 1e6])
ROWS = """
[[measured.rows]]
copies = 8

[[measured.rows.pieces]]
latency_overhead_s = 2e-5
gap_per_byte_s = 1e-9
"""
COST = """
[[cost]]
call = "launch"
call_s = 4e-6
device_s = 3e-6
"""


def test_a_row_lies_on_the_line_between_the_rows_that_were_measured() -> None:
    rows = tuple(
        Row(copies=n, pieces=(Piece(latency_overhead_s=n * 3e-6, gap_per_byte_s=n * 2e-11),)) for n in (2, 10)
    )
    measured = Measured(direction="h2d", memory="pinned", pieces=(ONE,), rows=rows)
    assert measured.row_seconds(1, SIZES) == pytest.approx(measured.seconds(SIZES))
    for copies in (2, 6, 10, 50):
        assert measured.row_seconds(copies, SIZES) == pytest.approx(copies * (3e-6 + 2e-11 * SIZES))


def test_without_rows_each_further_copy_adds_g_and_its_bytes() -> None:
    measured = Measured(direction="h2d", memory="pinned", pieces=(ONE,), gap_s=1e-6)
    assert measured.row_seconds(3, SIZES) == pytest.approx(4e-6 + 2e-6 + 3 * 2e-11 * SIZES)
    with pytest.raises(ValueError):
        Measured(direction="h2d", memory="pinned").seconds(SIZES)


def test_rows_and_costs_are_read() -> None:
    node = decode(GOOD + ROWS + COST, "n.toml")
    assert node.measured[0].rows[0].copies == 8
    assert node.costs[0].call == "launch"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD + ROWS.replace("copies = 8", "copies = 1"), "two copies at least"),
        (GOOD + ROWS + ROWS, "does not rise"),
        (GOOD + ROWS.replace("latency_overhead_s", "up_to_bytes = 9\nlatency_overhead_s"), "last piece"),
        (GOOD + COST.replace("launch", "lunch"), "lunch"),
        (GOOD + COST.replace("call_s", "calls_s"), "call_s"),
        (GOOD + COST + "gpu = 9", "no GPU 9"),
    ],
)
def test_each_mistake_gets_its_line(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as raised:
        decode(text, "n.toml")
    assert "n.toml:" in str(raised.value)
