"""What readers skip, repair or cannot know: ids and figures. `show`, or the `Format` of a single reader, has the words."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from busfare.errors import InputError
from busfare.printable import printable
from busfare.statements import Figure, Statement, Words, statement

T = TypeVar("T")
#: Ids of omissions by which a part of the run is not in the file: a reader has to know before any number.
INCOMPLETE = frozenset(
    {"cut", "damaged", "damaged-compression", "missing", "torn", "truncated", "truncated-compression"}
)
#: Ids of omissions by which the GPU did work that is not in the file: what waited for it shows no cause.
MISSING_KERNELS = frozenset({"kernels-not-recorded", "launches-not-recorded"})


class Omission(Struct, frozen=True):
    """Something of the trace that was skipped, repaired or unknown. `id` is a short stable name; `count` how many records it
    concerns (0: not countable); `what` tells the user, and what follows from it.
    """

    id: str
    count: int
    what: Words

    def with_texts(self, change: Callable[[str], str]) -> "Omission":
        """A copy with `change` applied to every text from the trace in its sentence."""
        what: Statement | str = self.what
        if isinstance(what, str):
            return Omission(self.id, self.count, change(what))
        texts = {name: change(value) for name, value in what.figures.items() if isinstance(value, str)}
        return Omission(self.id, self.count, statement(what.id, **{**what.figures, **texts}))


def omission(key: str, count: int = 0, **figures: Figure) -> "Omission":
    """The omission of `count` records; its sentence has this `key` and `figures`. The key is the id of the omission, or
    begins with the id and a slash if it has several sentences.
    """
    return Omission(key.partition("/")[0], count, statement(f"omission.{key}", **figures))


@dataclass(slots=True)
class Omissions:
    """Omissions in the order in which they were noted; the same one noted again adds to its count."""

    counts: dict[tuple[str, Words], int] = field(default_factory=dict)

    @classmethod
    def of(cls, noted: Iterable[Omission]) -> "Omissions":
        """Those that a trace has."""
        return cls({(omission.id, omission.what): omission.count for omission in noted})

    def add(self, key: str, count: int = 0, **figures: Figure) -> None:
        """Note the `omission` of `count` records, 0 if they cannot be counted."""
        noted = omission(key, 0, **figures)
        self.counts[noted.id, noted.what] = self.counts.get((noted.id, noted.what), 0) + count

    def count(self, key: str, count: int, **figures: Figure) -> None:
        """Note an omission of `count` records, if there are any."""
        if count:
            self.add(key, count, **figures)

    def unreadable(self, failures: Sequence[str]) -> None:
        """Note unreadable files, and why."""
        if failures:
            self.add("unreadable/first", len(failures), files=len(failures), why=failures[0])

    def list(self) -> list[Omission]:
        return [Omission(id, count, what) for (id, what), count in self.counts.items()]


def readable(paths: Iterable[Path], read: Callable[[Path], T], left_out: Omissions) -> Iterator[T]:
    """The results of `read` for all readable `paths`; the others are `left_out`. Raises InputError if it can read none."""
    count, failures = 0, list[str]()
    for path in paths:
        try:
            made = read(path)
        except (InputError, OSError) as error:
            failures.append(printable(str(error)))
        else:
            count += 1
            yield made
    if failures and not count:
        many = len(failures) > 1
        raise InputError(f"none of {len(failures)} files could be read; the first, " * many + failures[0])
    left_out.unreadable(failures)
