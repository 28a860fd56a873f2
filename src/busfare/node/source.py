"""Where a figure comes from, and whether somebody measured it or a maker promised it."""

from __future__ import annotations

from typing import Literal

import msgspec

from busfare.node.figures import Tag, Text

__all__ = ["Source", "SourceKind", "Sourced"]

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

    def figures(self) -> dict[str, object]:
        """The numbers and flags that the file gives, by key; sources and names left out."""
        own = {f: getattr(self, f) for f in self.__struct_fields__}
        return {k: v for k, v in own.items() if isinstance(v, (bool, int, float)) and k not in ("gpu",)}
