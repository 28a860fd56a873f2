"""Regular expressions of users: none takes long, whatever the text."""

import time

import polars as pl
import pytest

from busfare.errors import InputError
from busfare.trace.columns import matches


def test_matches() -> None:
    texts = pl.Series(["void gemm<float>(int)", "h2d pageable→device", None, ""])
    assert matches("gemm", texts).to_list() == [True, False, False, False]
    assert matches("^h2d.*→device$|^$", texts).to_list() == [False, True, False, True]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*a){30}x", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_nested_quantifiers_take_no_longer(pattern: str) -> None:
    begun = time.process_time()
    assert not matches(pattern, pl.Series(["a" * 5000 + "!"] * 20)).any()
    assert time.process_time() - begun < 5  # by backtracking, longer than anyone lives


@pytest.mark.parametrize("pattern", ["(", "[", "(?<=a)b", r"(a)\1", "(a{1000}){1000}"])
def test_an_unusable_pattern_is_an_error_of_a_single_line(pattern: str) -> None:
    with pytest.raises(InputError, match="is not a regular expression") as refused:
        matches(pattern, pl.Series(["a"]), "--pin")
    assert "\n" not in str(refused.value)
