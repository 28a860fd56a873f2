"""Collects what a reader skipped, repaired or could not know, so that it reaches the user."""

from __future__ import annotations

from dataclasses import dataclass, field

from busfare.trace.model import Omission

__all__ = ["INCOMPLETE", "Omissions"]

#: Ids of omissions by which a part of the run is not in the file: a reader has to know before any number.
INCOMPLETE = frozenset({"cut", "damaged", "damaged-gzip", "missing", "torn", "truncated", "truncated-gzip"})


@dataclass(slots=True)
class Omissions:
    """Omissions in the order in which they were found; the same one found again adds to its count."""

    found: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, id: str, what: str, count: int = 0) -> None:
        """Note an omission. `count` is the number of records concerned, 0 where records cannot be counted."""
        self.found[id, what] = self.found.get((id, what), 0) + count

    def add_if(self, count: int, id: str, what: str) -> None:
        """Note an omission of `count` records, if there are any."""
        if count:
            self.add(id, what, count)

    def list(self) -> list[Omission]:
        return [Omission(id, count, what) for (id, what), count in self.found.items()]
