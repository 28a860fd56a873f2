"""Sizes, times and counts as people write them on a command line."""

from __future__ import annotations

import re
from collections.abc import Callable

from busfare.errors import InputError

BYTE_UNITS = {"B": 1.0}
BYTE_UNITS |= {f"{prefix}B": 1000.0**power for power, prefix in enumerate(("k", "M", "G", "T", "P", "E"), 1)}
BYTE_UNITS |= {f"{prefix}iB": 1024.0**power for power, prefix in enumerate(("K", "M", "G", "T", "P", "E"), 1)}
#: The B may be left out, and the unit: 64M are 64 MB, a million times 64, and 64Mi are 64 MiB.
_BYTES = {name: factor for unit, factor in BYTE_UNITS.items() for name in (unit.lower(), unit.lower()[:-1])}
TIME_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
COUNT_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
MOST_BYTES = 1 << 60
#: Thirty years: no kernel runs for longer.
MOST_SECONDS = 1e9
MOST_COUNT = 1e30

_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)\s*([a-zA-Zµμ]*)\s*")
_FACTOR = re.compile(r"\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)\s*[xX×]?\s*")
_COUNTS = {unit.lower(): factor for unit, factor in COUNT_UNITS.items()}


def _parsed(
    text: str,
    units: dict[str, float],
    unit_of: Callable[[str], str],
    what: str,
    most: float,
    limit: str,
    option: str,
) -> float:
    """A number times its unit. Raises InputError, naming `option`, for what is none, with `what` should be written, and
    above `most`.
    """
    named = f"{option} {text[:80]!r}".lstrip()
    match = _NUMBER.fullmatch(text)
    factor = units.get(unit_of(match[2])) if match else None
    if match is None or factor is None:
        raise InputError(f"{named} is not a {what}")
    value = float(match[1]) * factor
    if not value <= most:
        raise InputError(f"{named} is more than busfare reckons with ({limit})")
    return value


def parse_bytes(text: str, option: str = "", *, most: int = MOST_BYTES) -> int:
    """'4096', '64M' (of 1,000,000), '64MiB' or '1.5GB' in bytes.

    Raises InputError, naming `option`, for anything else, and for more than `most` (an exbibyte).
    """
    limit = "1 EiB" if most == MOST_BYTES else f"{most / 1e12:g} TB"
    what = f"size; write bytes (4096) or a unit ({', '.join(BYTE_UNITS)})"
    return round(_parsed(text, _BYTES, str.lower, what, most, limit, option))


def exact_bytes(number: int) -> str:
    """Bytes as people write them: '64 KiB', '100 kB'; in the largest unit of which they are a whole number."""
    factor, name = max(
        (int(f), name) for name, f in BYTE_UNITS.items() if f == 1 or (number >= f and number % f == 0)
    )
    return f"{number // factor:,} {name}"


def parse_seconds(text: str, option: str = "", *, most: float = MOST_SECONDS) -> float:
    """'12ms', '3.5 µs' or '2s' in seconds. Raises InputError, naming `option`, for anything else: a time needs its
    unit.
    """
    what = f"time; write a unit ({', '.join(TIME_UNITS)}), as in 12ms"
    return _parsed(text, TIME_UNITS, str, what, most, f"{most:g} s", option)


def parse_count(text: str, option: str = "") -> float:
    """'42', '1.5e9' or '12G' as a number. Raises InputError, naming `option`, for anything else."""

    def unit_of(unit: str) -> str:
        return unit.lower().removesuffix("flops").removesuffix("flop")

    what = f"number; write 42, 1.5e9 or a prefix ({', '.join(filter(None, COUNT_UNITS))})"
    return _parsed(text, _COUNTS, unit_of, what, MOST_COUNT, f"{MOST_COUNT:g}", option)


def parse_factor(text: str, option: str, words: str = "") -> float:
    """'2x' or '0.8' as a number. Raises InputError, naming `option` and the `words` that it also takes, for others."""
    match = _FACTOR.fullmatch(text)
    value = float(match[1]) if match else 0.0
    if not 1e-6 <= value <= 1e6:
        raise InputError(f"{option} {text[:40]!r}: write {words}a factor, as in 2x or 0.8")
    return value
