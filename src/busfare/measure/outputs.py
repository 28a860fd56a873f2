"""Compares the outputs of a changed and the unchanged program. Ignores whatever differs between unchanged runs."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import zip_longest
from operator import and_
from typing import Literal

from msgspec import Struct

#: A number in a line, with its sign and exponent, or a time of day or duration with colons.
NUMBER = re.compile(
    rb"(?<![A-Za-z0-9_.])(?:\d+(?::\d\d)+(?:\.\d+)?|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
)
#: Replaces each number in the text of a line.
MARK = b"\0"
#: A measured time or rate, which differs in every run: a number after such a word or before such a unit.
_UNITS = rb"[a-z]*seconds?|[mun]?secs?|(?:[mun]|\xc2\xb5)s|[kmgt]?flops?|(?:[a-z]{2,}|b)/s(?:ec(?:ond)?)?"
TIMED = re.compile(
    rb"(?i)(?<![a-z])(?:[a-z]*times?|timer|timings?|elapsed|took|taken|duration|latency|bandwidth|throughput|speed"
    rb"|speedup|fps|perf|performance|cycles|"
    + _UNITS
    + rb")(?![a-z])[^\0a-z]*(\0)|(\0)\s*(?:s|min(?:ute)?s?|"
    + _UNITS
    + rb")(?![a-z/])"
)
#: A time may get another unit when it changes.
UNIT = re.compile(rb"\0\s*(?:(?:[mun]|\xc2\xb5)?s|[mun]secs?|(?:milli|micro|nano)?seconds?)(?![a-z/])")
#: Characters that texts do not contain; the longest output that is compared line by line, bytes.
BINARY, MOST_COMPARED = re.compile(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f]"), 64 << 20
#: Largest relative difference of numbers that vary by rounding; a changed run may differ by this multiple of what was seen.
ROUNDING, TIMES_ROUNDING = 1e-3, 10.0
#: A number varies in all lines with the same text if it varies in more than this share. Length of the text of a difference.
VARIES, SHOWN = 0.25, 200
Verdict = Literal["identical", "same", "altered", "failed", "timeout"]
#: The text of a line, with MARK for each number, and the numbers.
Line = tuple[bytes, tuple[bytes, ...]]


class Difference(Struct):
    """The first line that a change altered: the output, the line number from 1, and both texts, empty if there is none."""

    output: str
    line: int
    unchanged: str
    changed: str


@lru_cache(1 << 20)
def _parsed(line: bytes) -> Line:
    # Column widths of tables depend on the numbers: collapse white space.
    line = b" ".join(line.split())
    return UNIT.sub(MARK + b" s", NUMBER.sub(MARK, line)), tuple(NUMBER.findall(line))


def _lines(output: bytes) -> list[Line]:
    return [_parsed(line) for line in re.split(rb"[\r\n]+", output)]


@lru_cache(1 << 16)
def timed_places(text: bytes) -> frozenset[int]:
    """The indices of the numbers of a line that are measured times or rates."""
    return frozenset(text.count(MARK, 0, max(at.start(1), at.start(2))) for at in TIMED.finditer(text))


def _untimed(line: Line) -> tuple[bytes, ...]:
    """A line with its numbers, except measured times."""
    text, numbers = line
    return (text, *(number for place, number in enumerate(numbers) if place not in timed_places(text)))


def _relative(a: bytes, b: bytes) -> float:
    """The relative difference of two numbers; infinite if unknown."""
    try:
        x, y = float(a), float(b)
    except ValueError:  # with colons
        return math.inf
    difference = abs(x - y) / max(abs(x), abs(y)) if x != y else 0.0
    return math.inf if math.isnan(difference) else difference


@dataclass
class Reference:
    """The output `name` of the unchanged `runs`, one or more. Not compared: numbers that vary, lines that some runs lack,
    and measured times. `left_out`: the count of these numbers, once an output differed.
    """

    name: str
    runs: Sequence[bytes]
    left_out: int = 0

    @cached_property
    def _unchanged(self) -> list[list[Line]]:
        return [_lines(run) for run in dict.fromkeys(self.runs)]

    @cached_property
    def _variation(self) -> tuple[set[tuple[int, int]], dict[tuple[bytes, int], float]]:
        """The numbers that vary, as line and place; by text and place, the relative difference that other numbers may have:
        any if VARIES of the lines with this text vary, a small one if they vary by rounding.
        """
        first, *rest = self._unchanged
        varying, largest = set[tuple[int, int]](), dict[tuple[bytes, int], float]()
        for later in rest:
            for line, ((text, ours), (_, theirs)) in enumerate(zip(first, later, strict=True)):
                for place, (a, b) in enumerate(zip(ours, theirs, strict=True) if ours != theirs else ()):
                    if a != b:
                        varying.add((line, place))
                        largest[text, place] = max(largest.get((text, place), 0.0), _relative(a, b))
        lines, vary = (
            Counter(text for text, _ in first),
            Counter((first[n][0], place) for n, place in varying),
        )
        small = {key: TIMES_ROUNDING * by if by <= ROUNDING else 0.0 for key, by in largest.items()}
        return varying, {key: math.inf if vary[key] > VARIES * lines[key[0]] else small[key] for key in small}

    def difference(self, changed: bytes) -> Difference | None:
        """The first line of `changed` that differs from the unchanged runs; None if there is none."""
        if changed in self.runs:
            return None
        if any(len(output) > MOST_COMPARED or BINARY.search(output) for output in (*self.runs, changed)):
            if len(set(self.runs)) > 1:
                return None
            sizes = f"{len(self.runs[0]):,} bytes", f"{len(changed):,} bytes that differ"
            return Difference(self.name, 1, *sizes)
        if len({tuple(text for text, _ in lines) for lines in self._unchanged}) > 1:
            return self._in_any_order(changed)
        varying, allowed = self._variation
        first, now = self._unchanged[0], _lines(changed)
        self.left_out = sum(
            place in timed_places(text) or (line, place) in varying or allowed.get((text, place)) == math.inf
            for line, (text, numbers) in enumerate(first)
            for place in range(len(numbers))
        )
        missing: Line = (b"", ())
        for line, ((text, ours), (new_text, theirs)) in enumerate(zip_longest(first, now, fillvalue=missing)):
            same = text == new_text and all(
                a == b
                or place in timed_places(text)
                or (line, place) in varying
                or _relative(a, b) <= allowed.get((text, place), 0.0)
                for place, (a, b) in enumerate(zip(ours, theirs, strict=True))
            )
            if not same:
                return self._at(line + 1, changed)
        return None

    def _in_any_order(self, changed: bytes) -> Difference | None:
        """For unchanged runs whose lines differ: all common lines must be present. Lines may be new if unchanged runs have
        such lines, too: at most twice as many.
        """
        now = _lines(changed)
        runs_with = Counter(text for lines in self._unchanged for text in {text for text, _ in lines})
        unique = (sum(runs_with[text] == 1 for text, _ in lines) for lines in self._unchanged)
        new = [line for line, (text, _) in enumerate(now, 1) if text not in runs_with]
        if len(new) > 2 * max(unique):
            return Difference(self.name, new[0], "", _line(changed, new[0]))
        common = reduce(and_, (Counter(map(_untimed, lines)) for lines in self._unchanged))
        first = self._unchanged[0]
        self.left_out = sum(len(numbers) for _, numbers in first) - sum(
            len(key) - 1 for key in common.elements()
        )
        if not (missing := common - Counter(map(_untimed, now))):
            return None
        return self._at(next(n for n, line in enumerate(first, 1) if _untimed(line) in missing), changed)

    def _at(self, line: int, changed: bytes) -> Difference:
        texts = _line(self.runs[0], line), _line(changed, line)
        differs = next(
            (n for n, pair in enumerate(zip(*texts, strict=False)) if len(set(pair)) > 1),
            min(map(len, texts)),
        )
        skipped = max(0, differs - SHOWN // 2)
        unchanged, altered = ("…" * bool(skipped) + text[skipped : skipped + SHOWN] for text in texts)
        return Difference(self.name, line, unchanged, altered)


def _line(output: bytes, number: int) -> str:
    lines = re.split(rb"[\r\n]+", output)
    return lines[number - 1].decode("utf-8", "replace") if number <= len(lines) else ""


def compared(references: Iterable[Reference], outputs: Iterable[bytes]) -> tuple[Verdict, Difference | None]:
    """Compares the `outputs` of a changed run with their references."""
    verdict: Verdict = "identical"
    for reference, output in zip(references, outputs, strict=True):
        if (difference := reference.difference(output)) is not None:
            return "altered", difference
        if output not in reference.runs:
            verdict = "same"
    return verdict, None
