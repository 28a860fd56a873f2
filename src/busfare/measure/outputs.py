"""Compares the outputs of a changed and the unchanged program. Ignores whatever differs between unchanged runs."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import zip_longest
from operator import and_
from typing import Literal

from msgspec import Struct

#: A number in a line, with its sign and exponent.
NUMBER = re.compile(rb"(?<![A-Za-z0-9_.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
#: Replaces each number in the text of a line.
MARK = b"\0"
#: A measured time or rate, which differs in every run: a number after such a word or before such a unit.
_UNITS = rb"s|min|[a-z]*seconds?|[mun]?secs?|[mun]s|[kmgt]?flops?|[a-z]+/s(?:ec)?"
TIMED = re.compile(
    rb"(?i)(?<![a-z])(?:times?|timer|timings?|elapsed|took|taken|duration|latency|runtime|bandwidth|throughput|speed"
    rb"|speedup|fps|perf|performance|"
    + _UNITS
    + rb")(?![a-z])[^\0a-z]*(\0)|(\0)\s*(?:"
    + _UNITS
    + rb")(?![a-z])"
)
#: Longest output that is compared line by line, bytes. Longer outputs must be identical.
MOST_COMPARED = 64 << 20
Verdict = Literal["identical", "same", "altered", "failed", "timeout"]


class Difference(Struct):
    """The first line that a change altered: the output, the line number from 1, and both texts."""

    output: str
    line: int
    unchanged: str
    changed: str


@dataclass(frozen=True)
class Lines:
    """The lines of an output: for each, its text without numbers, and the numbers."""

    texts: list[bytes]
    numbers: list[list[bytes]]

    @classmethod
    def of(cls, output: bytes) -> "Lines":
        # Column widths of tables depend on the numbers: collapse white space.
        lines = [b" ".join(line.split()) for line in re.split(rb"[\r\n]+", output)]
        return cls([NUMBER.sub(MARK, line) for line in lines], [NUMBER.findall(line) for line in lines])

    def untimed(self) -> list[tuple[bytes, ...]]:
        """Each line with its numbers, except measured times."""
        return [
            (text, *(number for n, number in enumerate(numbers) if n not in timed_places(text)))
            for text, numbers in zip(self.texts, self.numbers, strict=True)
        ]


def timed_places(text: bytes) -> set[int]:
    """The indices of the numbers of a line that are measured times or rates."""
    return {text.count(MARK, 0, max(match.start(1), match.start(2))) for match in TIMED.finditer(text)}


@dataclass
class Reference:
    """The output `name` of the unchanged `runs`, one or more. Not compared: numbers that differ in lines with the same
    text, lines that some runs lack, and measured times.
    """

    name: str
    runs: Sequence[bytes]
    left_out: int = 0
    _lines: list[Lines] = field(init=False)
    _masked: set[tuple[bytes, int]] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self._lines = [Lines.of(run) for run in self.runs if len(run) <= MOST_COMPARED]
        first = self._lines[0] if self._lines else Lines([], [])
        for later in self._lines:
            for text, ours, theirs in zip(first.texts, first.numbers, later.numbers, strict=False):
                differ = (n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
                self._masked.update((text, n) for n in differ)
        self._masked.update((text, n) for text in first.texts for n in timed_places(text))
        self.left_out = sum(
            (text, n) in self._masked
            for text, numbers in zip(first.texts, first.numbers, strict=True)
            for n in range(len(numbers))
        )

    def difference(self, changed: bytes) -> Difference | None:
        """The first line of `changed` that differs from the unchanged runs; None if there is none."""
        if changed in self.runs:
            return None
        # The unchanged runs differ in more than numbers, or are too long to compare by line.
        if len({tuple(lines.texts) for lines in self._lines}) != 1 or len(self._lines) < len(self.runs):
            return self._of_lines_in_any_order(changed)
        first, lines = self._lines[0], Lines.of(changed)
        missing: tuple[bytes, list[bytes]] = (b"", [])
        pairs = zip_longest(
            zip(first.texts, first.numbers, strict=True),
            zip(lines.texts, lines.numbers, strict=True),
            fillvalue=missing,
        )
        for line, ((text, ours), (new_text, theirs)) in enumerate(pairs, 1):
            same = text == new_text and all(
                a == b or (text, n) in self._masked
                for n, (a, b) in enumerate(zip(ours, theirs, strict=False))
            )
            if not same:
                return self._at(line, changed)
        return None

    def _of_lines_in_any_order(self, changed: bytes) -> Difference | None:
        """For unchanged runs whose lines differ: all common lines must be present, and no line may be new."""
        if len(self._lines) < len(self.runs):
            return Difference(
                self.name, 1, f"{len(self.runs[0]):,} bytes", f"{len(changed):,} bytes that differ"
            )
        every, now = [Counter(lines.untimed()) for lines in self._lines], Lines.of(changed)
        texts = {text for lines in self._lines for text in lines.texts}
        for line, text in enumerate(now.texts, 1):
            if text not in texts:
                return Difference(self.name, line, "(no such line)", _line(changed, line))
        missing = reduce(and_, every) - Counter(now.untimed())
        if not missing:
            return None
        line = next(n for n, key in enumerate(self._lines[0].untimed(), 1) if key in missing)
        return self._at(line, changed)

    def _at(self, line: int, changed: bytes) -> Difference:
        return Difference(self.name, line, _line(self.runs[0], line), _line(changed, line))


def _line(output: bytes, number: int) -> str:
    lines = re.split(rb"[\r\n]+", output)
    return lines[number - 1].decode("utf-8", "replace")[:200] if number <= len(lines) else "(no such line)"


def compared(references: Iterable[Reference], outputs: Iterable[bytes]) -> tuple[Verdict, Difference | None]:
    """Compares the `outputs` of a changed run with their references."""
    verdict: Verdict = "identical"
    for reference, output in zip(references, outputs, strict=True):
        if (difference := reference.difference(output)) is not None:
            return "altered", difference
        if output not in reference.runs:
            verdict = "same"
    return verdict, None
