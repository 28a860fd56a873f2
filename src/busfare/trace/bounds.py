"""How far times and ids may lie from each other, for those who compute with them."""

from __future__ import annotations

#: Usable times in nanoseconds: wide enough for those since 1970, and any difference of two fits 64 bits.
EARLIEST, LATEST = -(1 << 60), 3 << 60
#: A direct table may be this many times longer than what is looked up in it, and so much longer.
SPARSE = 8
SMALL = 1 << 20
#: A run of more calls and operations is not replayed for a report, but added up: a replay would take longer than reading.
REPLAYED_ROWS = 2_000_000
