"""The ranges beside predictions: what the table holds, how it is looked up, and how often truths lie inside."""

import tomllib

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busfare import advise, cost
from busfare.advise import Finding, amounts
from busfare.cost.models import copy_operations
from busfare.cost.ranges import FILE, RUNGS, figures_of, gain_range, range_of, ranged
from busfare.nodes import catalogue_names, load_node
from busfare.statements import Statement
from validation.stored import probed_node

ROWS = tomllib.loads(FILE.read_text("utf-8"))["range"]


def test_every_range_holds_its_prediction() -> None:
    assert 40 < len(ROWS) <= 60
    assert all(0 < row["low"] <= 1 <= row["high"] for row in ROWS)
    assert all(row["cases"] >= row["groups"] >= 2 for row in ROWS)


def test_what_nobody_held_out_has_the_range_of_the_next_wider_rung() -> None:
    wider = range_of("managed", "datasheet", "datasheet", 1 << 20)
    assert range_of("managed", "loggp", "probed", 1 << 20) == wider
    assert range_of("change", "--prefetch", "probed") == range_of("change", "--pin", "probed")
    assert range_of("moon", "loggp", "probed") is None


def gaining(seconds: float, bound: float | None) -> Finding:
    """A finding of such a gain, by replay where it has a bound."""
    title = Statement("pageable-copies.title")
    return Finding("pageable-copies", title, title, title, seconds, bound is not None, bound)


def test_a_change_gains_no_more_than_what_it_touches_and_what_runs_differ_by() -> None:
    """A change that touches 1 ms of 100, and 20 that it gains."""
    limited = gain_range(0.02, 0.1, "probed", touched=0.001)
    assert limited[1] < 0.025 < gain_range(0.02, 0.1, "probed")[1] < 0.1


def test_a_rung_that_knows_more_has_a_narrower_range() -> None:
    for memory in ("pinned", "pageable"):
        for size in (4096, 1 << 20, 64 << 20):
            widths = [
                factors.high / factors.low
                for model, figures in (("loggp", "probed"), ("datasheet", "datasheet"))
                if (factors := range_of(memory, model, figures, size))
            ]
            assert len(widths) == 2 and widths == sorted(widths)


def test_figures_are_probed_there_or_on_a_machine_of_the_kind_or_data_sheets() -> None:
    probed, sheet = load_node("h200-probed"), load_node("h200-sxm")
    run_probed = probed_node("h200-ninth-run1")
    assert figures_of(run_probed) == figures_of(probed) == figures_of(run_probed, probed) == "probed"
    assert figures_of(load_node("gtx-titan")) == "datasheet"  # a paper's figures, of another tool
    assert figures_of(sheet) == figures_of(run_probed, sheet) == figures_of(None) == "datasheet"


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(catalogue_names()),
    st.sampled_from(["h2d", "d2h", "d2d"]),
    st.sampled_from(["pageable", "pinned", "managed", "mapped"]),
    st.integers(0, 1 << 40),
)
def test_a_price_lies_in_its_range(name: str, direction: str, memory: str, size: int) -> None:
    for row in cost.price(load_node(name), direction, memory, size):
        long_only = row["model"] == "loggp" and name in ("gt-740", "c2050", "m2050") and size < 4 << 20
        assert row["rung"] == ("datasheet" if long_only else RUNGS[row["model"]])
        if row["low_seconds"] is None:
            assert row["reason"]
        else:
            assert 0 <= row["low_seconds"] <= row["seconds"] <= row["high_seconds"]


def test_models_of_plugins_have_no_range() -> None:
    sides = copy_operations("h2d", "pinned", [4096]), copy_operations("p2p", "device", [4096])
    operations = pl.concat(sides, how="vertical_relaxed")
    low, high = ranged(operations, "flat", load_node("dgx-a100"))
    assert np.isnan(low).all() and np.isnan(high).all()
    low, high = ranged(operations, "datasheet", load_node("dgx-a100"))
    assert (low <= 1).all() and (high > 1).all()
    low, high = ranged(operations.with_columns(kind=pl.lit("set")), "datasheet", load_node("dgx-a100"))
    assert np.isnan(low).all() and np.isnan(high).all()


def test_a_gain_that_is_only_bounded_may_be_nothing() -> None:
    bounded = advise.ranged(gaining(0.2, None))
    assert (bounded.low_seconds, bounded.high_seconds) == (0.0, 0.2)


def test_a_gain_lies_between_nothing_and_its_bound() -> None:
    for bound in (0.2, 0.25, 10.0):
        replayed = advise.ranged(gaining(0.2, bound))
        assert 0 < replayed.low_seconds < 0.2 <= replayed.high_seconds <= bound
    assert replayed.high_seconds < 0.6


@pytest.mark.parametrize(
    ("seconds", "low", "high", "words"),
    [
        (0.0123, 0.0111, 0.0139, "12.3 ms (11.1–13.9)"),
        (3.6e-6, 3.18e-6, 31.5e-6, "3.6 µs (3.18–31.5)"),
        (3.6e-6, 3.18e-6, 38.5e-6, "3.18–38.5 µs"),
        (6.5e-8, 6.5e-8, 6.708e-4, "65–670,800 ns"),
        (0.0123, 0.0, 0.0139, "12.3 ms (0–13.9)"),
        (0.0123, None, None, "12.3 ms"),
        (0.0, 0.0, 0.0, "0 s"),
    ],
)
def test_a_time_and_its_range_share_a_unit(
    seconds: float, low: float | None, high: float | None, words: str
) -> None:
    assert amounts.between(seconds, low, high) == words


def test_a_model_that_knows_of_no_start_has_no_range_for_short_copies() -> None:
    assert range_of("pinned", "envelope", "datasheet", 4096) is None
    assert range_of("pinned", "envelope", "datasheet", 64 << 20) is not None
