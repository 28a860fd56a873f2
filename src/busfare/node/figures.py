"""The kinds of number that a node file may hold: all finite, all within what hardware could ever be."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

__all__ = [
    "Count",
    "Difference",
    "Factor",
    "Name",
    "Ordinal",
    "Rate",
    "Seconds",
    "SecondsPerByte",
    "Share",
    "Size",
    "Tag",
    "Text",
    "Time",
]

#: Bytes, flops or cycles per second. 1e18 bounds it, so that no sum of a path overflows.
Rate = Annotated[float, Meta(gt=0, le=1e18)]
#: Bytes; at most 2^53, so that a size is exact as a float.
Size = Annotated[int, Meta(gt=0, le=2**53)]
#: Seconds that may be zero.
Seconds = Annotated[float, Meta(ge=0, le=1e6)]
#: Seconds more, or fewer.
Difference = Annotated[float, Meta(ge=-1e6, le=1e6)]
#: Seconds that may not be zero.
Time = Annotated[float, Meta(gt=0, le=1e6)]
SecondsPerByte = Annotated[float, Meta(gt=0, le=1.0)]
#: A share of a rate.
Factor = Annotated[float, Meta(gt=0, le=1)]
#: A part of a whole.
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=65536)]
Ordinal = Annotated[int, Meta(ge=0, le=65535)]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._\[\]-]*$")]
Tag = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:-]*$")]
Text = Annotated[str, Meta(max_length=2000)]
