"""The script that says what limits predictions for another GPU, on the recordings in results/pairs and on small tables."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.validation.test_claims import run

sys.path.insert(0, str(Path(__file__).parents[2] / "validation"))

from node_limits import best_ratio_percent


def percents(said: str) -> dict[str, float]:
    """The last percent of each line, by its words; of several lines alike the last one."""
    return {
        words.strip(): float(percent)
        for words, percent in re.findall(r"^    (\S.*?)  +([0-9.]+) %$", said, re.MULTILINE)
    }


def test_each_kind_of_knowledge_is_listed_both_ways() -> None:
    done = run("node_limits.py", "--only", "jacobi,kmeans")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("2 programs") == 2
    rows = percents(done.stdout)
    assert {"copies known", "kernels known", "the mean of each path and size"} <= set(rows)
    # Nothing fits copies better than what was made of these very copies.
    assert rows["that of each path in each program"] <= rows["the best ratio of each path known"]


def test_kernels_that_memory_held_up_are_what_is_off_of_jacobi() -> None:
    rows = percents(run("node_limits.py", "--only", "jacobi").stdout)
    assert rows["kernels known"] < rows["as predicted"]


@pytest.mark.parametrize(("by", "percent"), [(["direction"], 100 * 10 / 70), (["program", "direction"], 0.0)])
def test_the_best_ratio_errs_least_over_all_copies_alike(by: list[str], percent: float) -> None:
    # Twice as long in one program, as long as before in the other, which has less to say.
    copies = pl.DataFrame(
        {
            "program": ["a", "a", "b"],
            "direction": ["h2d"] * 3,
            "like": [10.0, 20.0, 10.0],
            "recorded": [20.0, 40.0, 10.0],
        }
    )
    assert best_ratio_percent(copies, by) == pytest.approx(percent)
