"""Sizes, times and counts as people write them."""

from __future__ import annotations

import pytest

from busfare.errors import InputError
from busfare.quantities import parse_bytes, parse_count, parse_factor, parse_seconds


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4096B", 4096),
        ("64KiB", 65536),
        ("1.5 GB", 1_500_000_000),
        ("2mib", 2 << 20),
        ("1e3", 1000),
        ("64M", 64_000_000),
        ("64MB", 64_000_000),
        ("64Mi", 64 << 20),
        ("64MiB", 64 << 20),
        ("2 k", 2000),
    ],
)
def test_sizes_are_understood(text: str, bytes_: int) -> None:
    assert parse_bytes(text) == bytes_


@pytest.mark.parametrize(
    "text", ["", "GB", "-1", "1.2.3", "4 furlongs", "nan", "inf", "0x10", "9" * 400, "1e400"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_bytes(text)


def test_a_size_has_a_limit() -> None:
    with pytest.raises(InputError, match="1000 TB"):
        parse_bytes("1EB", most=10**15)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("12ms", 0.012),
        ("3.5 us", 3.5e-6),
        ("3.5µs", 3.5e-6),
        ("250ns", 2.5e-7),
        ("2s", 2.0),
        ("1e-3s", 1e-3),
        ("2min", 120.0),
    ],
)
def test_times_are_understood(text: str, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["", "12", "ms", "-1ms", "12 parsecs", "nan", "infs", "12MS", "1e400s", "9e99s"]
)
def test_no_other_time_is(text: str) -> None:
    with pytest.raises(InputError):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("text", "number"), [("42", 42), ("1.5e9", 1.5e9), ("12G", 12e9), ("3 Tflop", 3e12), ("7k", 7000)]
)
def test_counts_are_understood(text: str, number: float) -> None:
    assert parse_count(text) == number


@pytest.mark.parametrize("text", ["", "G", "-1", "12 dozen", "nan", "1e31"])
def test_no_other_count_is(text: str) -> None:
    with pytest.raises(InputError):
        parse_count(text)


@pytest.mark.parametrize(("text", "factor"), [("2x", 2.0), ("0.8", 0.8), (" 1.5 × ", 1.5), ("1e3X", 1000.0)])
def test_factors_are_understood(text: str, factor: float) -> None:
    assert parse_factor(text, "--host") == factor


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "1e7", "two", "nan"])
def test_other_factors_are_refused_by_the_options_name(text: str) -> None:
    with pytest.raises(InputError, match="--host"):
        parse_factor(text, "--host")
