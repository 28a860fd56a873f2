"""Sizes as people write them."""

from __future__ import annotations

import pytest

from busfare.errors import InputError
from busfare.quantities import parse_bytes


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
