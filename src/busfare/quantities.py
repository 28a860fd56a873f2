"""Sizes and times as people write them on a command line."""

from __future__ import annotations

import math
import re

from busfare.errors import InputError

__all__ = ["parse_bytes"]

BYTE_UNITS = {"": 1, "B": 1}
BYTE_UNITS |= {f"{prefix}B": 1000**power for power, prefix in enumerate(("k", "M", "G", "T"), 1)}
BYTE_UNITS |= {f"{prefix}iB": 1024**power for power, prefix in enumerate(("K", "M", "G", "T"), 1)}
MOST_BYTES = 1 << 60


def parse_bytes(text: str) -> int:
    """'4096', '64KiB' or '1.5GB' in bytes. Raises InputError for anything else, and for more than an exbibyte."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:[eE]\+?\d{1,3})?)\s*([a-zA-Z]*)\s*", text)
    units = {unit.lower(): factor for unit, factor in BYTE_UNITS.items()}
    if not match or match[2].lower() not in units:
        raise InputError(
            f"{text!r} is not a size; write bytes (4096) or a unit ({', '.join(u for u in BYTE_UNITS if u)})"
        )
    value = float(match[1]) * units[match[2].lower()]
    if not math.isfinite(value) or value > MOST_BYTES:
        raise InputError(f"{text!r} is more than busfare reckons with (1 EiB)")
    return round(value)
