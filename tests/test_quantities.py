"""Sizes, times, counts and factors as people write them."""

from collections.abc import Callable

import pytest

from busfare.errors import InputError
from busfare.quantities import (
    MOST_SECONDS,
    exact_bytes,
    parse_bytes,
    parse_count,
    parse_factor,
    parse_seconds,
    window,
)

Parse = Callable[[str], float]

READ: list[tuple[Parse, str]] = [
    (parse_bytes, "0 = 0 | 4096 = 4096 | 4096B = 4096 | 64KiB = 65536 | 1.5 GB = 1.5e9 | 2mib = 2097152"),
    (parse_bytes, "1e3 = 1000 | 64M = 64e6 | 64MB = 64e6 | 64Mi = 67108864 | 64MiB = 67108864 | 2 k = 2000"),
    (parse_seconds, "12ms = 0.012 | 3.5 us = 3.5e-6 | 3.5µs = 3.5e-6 | 250ns = 2.5e-7 | 2s = 2 | 1e-3s = 1e-3"),
    (parse_seconds, "2min = 120"),
    (parse_count, "42 = 42 | 1.5e9 = 1.5e9 | 12G = 12e9 | 3 Tflop = 3e12 | 7k = 7000"),
    (parse_factor, "2x = 2 | 0.8 = 0.8 |  1.5 ×  = 1.5 | 1e3X = 1000"),
]  # fmt: skip


@pytest.mark.parametrize(("parse", "amounts"), READ)
def test_amounts_are_understood(parse: Parse, amounts: str) -> None:
    for text, value in (pair.split(" = ") for pair in amounts.split(" | ")):
        assert parse(text) == pytest.approx(float(value), rel=1e-12), text


REFUSED: list[tuple[Parse, list[str]]] = [
    (parse_bytes, ["", "GB", "-1", "1.2.3", "4 furlongs", "nan", "inf", "0x10", "9" * 400, "1e400"]),
    (parse_seconds, ["", "12", "ms", "-1ms", "12 parsecs", "nan", "infs", "12MS", "1e400s", "9e99s"]),
    (parse_count, ["", "G", "-1", "12 dozen", "nan", "1e31"]),
    (parse_factor, ["", "x", "0", "-1", "1e7", "two", "nan"]),
]


@pytest.mark.parametrize(("parse", "texts"), REFUSED)
def test_nothing_else_is(parse: Parse, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(InputError):
            parse(text)


@pytest.mark.parametrize("text", ["0 B", "1 B", "4,100 B", "4 KiB", "64 KiB", "100 kB", "25 MB", "1 EiB"])
def test_a_size_is_written_as_it_is_read(text: str) -> None:
    assert exact_bytes(parse_bytes(text.replace(",", ""))) == text


def test_a_size_has_a_limit() -> None:
    with pytest.raises(InputError, match="1000 TB"):
        parse_bytes("1EB", most=10**15)


def test_a_window_has_two_ends_that_need_not_lie_in_any_trace() -> None:
    texts = ("1..2ms", "-1..1s", "5..2", "..3", "4..", (1.5, -2.0))
    assert [window(text) for text in texts] == [
        (1, 0.002), (-1, 1), (5, 2), (0, 3), (4, MOST_SECONDS), (1.5, -2),
    ]  # fmt: skip
    for text in ("1", "1..2..3", "--1..2", "-..2", "nan..1", "1..inf"):
        with pytest.raises(InputError):
            window(text)
