"""The kinds of number that a node file may hold, where each figure comes from, and what kind of evidence that is."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = [
    "Count",
    "Factor",
    "Name",
    "Ordinal",
    "Rate",
    "Seconds",
    "SecondsPerByte",
    "Size",
    "Source",
    "SourceKind",
    "Sourced",
    "Tag",
    "Text",
]

# All finite, all within what hardware could ever be.
#: Bytes, flops or cycles per second. 1e18 bounds it, so that no sum of a path overflows.
Rate = Annotated[float, Meta(gt=0, le=1e18)]
#: Bytes; at most 2^53, so that a size is exact as a float.
Size = Annotated[int, Meta(gt=0, le=2**53)]
#: Seconds that may be zero.
Seconds = Annotated[float, Meta(ge=0, le=1e6)]
SecondsPerByte = Annotated[float, Meta(gt=0, le=1.0)]
#: A share of a rate.
Factor = Annotated[float, Meta(gt=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=65536)]
Ordinal = Annotated[int, Meta(ge=0, le=65535)]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._\[\]-]*$")]
Tag = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:-]*$")]
Text = Annotated[str, Meta(max_length=2000)]

SourceKind = Literal["data-sheet", "measured", "estimated"]


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One source, under a tag in the file's `[sources]`: what kind of evidence it is and where to read it."""

    kind: SourceKind
    cite: Text


class Sourced(msgspec.Struct, frozen=True, kw_only=True):
    """What every table of a node file has: the tag of its source, and of keys that have another one."""

    source: Tag | None = None
    source_of: dict[str, Tag] = msgspec.field(default_factory=dict)

    def tag_of(self, key: str) -> str | None:
        """The tag of the source of the figure under `key`; None where the file names none."""
        return self.source_of.get(key, self.source)
