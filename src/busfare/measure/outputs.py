"""Compares the outputs of the changed and the unchanged program. Ignores what differs between unchanged runs."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import zip_longest
from operator import and_, or_
from typing import Literal

from msgspec import Struct

#: A number in a line, with its sign and exponent, or a time of day or duration with colons.
NUMBER = re.compile(
    rb"(?<![A-Za-z0-9_.])(?:\d+(?::\d\d)+(?:\.\d+)?|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
)
#: Replaces each number in the text of a line.
MARK = b"\0"
#: Measured times and rates, which differ in every run: numbers after one of these words or before one of these units.
_UNITS = rb"[a-z]*seconds?|[mun]?secs?|(?:[mun]|\xc2\xb5|\xce\xbc)s|[kmgt]?flops?|(?:[a-z]{2,}|b)(?:/| per )s(?:ec(?:ond)?)?"
TIMED = re.compile(
    rb"(?i)(?<![a-z])(?:[a-z]*times?|timer|timings?|elapsed|took|taken|duration|latency|bandwidth|throughput|speed"
    rb"|speedup|fps|perf|performance|cycles|"
    + _UNITS
    + rb")(?![a-z])(?:[^\0a-z]*[(\[][a-z /]{1,9}[)\]])?[^\0a-z]*(\0)|(\0)\s*(?:s|mins|minutes?|fps|"
    + _UNITS
    + rb")(?:/(?:it|iter|step|epoch|batch))?(?![a-z/])"
)
#: Units that may change with the number: those of times and rates.
UNIT = re.compile(
    rb"\0\s*(?:(?:(?:[mun]|\xc2\xb5|\xce\xbc)?s|[mun]secs?|(?:milli|micro|nano)?seconds?|minutes?)(?:/(?:it|step))?|it/s"
    rb"|[kMGT]?i?B/s|[MGT](?:FLOPS|FLOP/s|bit/s))(?![a-z/])"
)
#: Colours of a terminal.
ANSI = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
#: Characters that text does not contain; maximum size of an output that is compared line by line, bytes.
BINARY, MOST_COMPARED = re.compile(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f]"), 64 << 20
#: Largest relative differences that certainly and perhaps come from rounding; multiples of the observed difference
#: by which changed runs may differ.
ROUNDING, MULTIPLES = (1e-5, 1e-3), (100.0, 10.0)
#: Share of lines with a text above which a number varies in all; new lines allowed per unique one; length of a difference.
VARIES, NEW_LINES, SHOWN = 0.25, 1.5, 200
Verdict = Literal["identical", "same", "not-compared", "altered", "failed", "timeout"]
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
    line = b" ".join(ANSI.sub(b"", line).split())
    text = NUMBER.sub(MARK, line).replace(b" " + MARK, MARK)
    return UNIT.sub(MARK + b" s", text), tuple(NUMBER.findall(line))


def _lines(output: bytes) -> list[Line]:
    return [_parsed(line) for line in _split(output)]


def _split(output: bytes) -> list[bytes]:
    """The lines of an output, as a terminal shows them: text after a carriage return replaces the line."""
    return [line.rstrip(b"\r").rpartition(b"\r")[2] for line in output.split(b"\n")]


@lru_cache(1 << 16)
def timed_places(text: bytes) -> frozenset[int]:
    """The indices of the numbers of a line that are measured times or rates."""
    places, place, before = set[int](), 0, 0
    for match in TIMED.finditer(text):
        at = max(match.start(1), match.start(2))
        place, before = place + text.count(MARK, before, at), at
        places.add(place)
    return frozenset(places)


def _untimed(line: Line) -> tuple[bytes, ...]:
    """A line with its numbers, except measured times."""
    text, numbers = line
    timed = timed_places(text)
    return (text, *(number for place, number in enumerate(numbers) if place not in timed))


def _relative(a: bytes, b: bytes) -> float:
    """The relative difference of two numbers; infinite if unknown, and for integers, which are not rounded."""
    try:
        if a.lstrip(b"+-").isdigit() and b.lstrip(b"+-").isdigit():
            return math.inf
        x, y = float(a), float(b)
    except ValueError:  # with colons
        return math.inf
    difference = abs(x - y) / max(abs(x), abs(y)) if x != y else 0.0
    return math.inf if math.isnan(difference) else difference


@dataclass
class Reference:
    """The output `name` of the unchanged `runs`, one or more. Not compared: numbers that vary, lines that some runs lack,
    and measured times. `left_out`: how many numbers are not compared, counted once an output differs.
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
        any if more than VARIES of the lines with this text vary, a small one if they vary by rounding.
        """
        first, *rest = self._unchanged
        varying, largest = set[tuple[int, int]](), dict[tuple[bytes, int], float]()
        for later in rest:
            for line, ((text, ours), (_, theirs)) in enumerate(zip(first, later, strict=True)):
                for place, (a, b) in enumerate(zip(ours, theirs, strict=True) if ours != theirs else ()):
                    if a != b:
                        varying.add((line, place))
                        largest[text, place] = max(largest.get((text, place), 0.0), _relative(a, b))
        lines = Counter(text for text, _ in first)
        vary = Counter((first[n][0], place) for n, place in varying)
        certain, perhaps = ROUNDING
        allowed = dict[tuple[bytes, int], float]()
        for key, by in largest.items():
            rounded = MULTIPLES[0] * by if by <= certain else MULTIPLES[1] * by if by <= perhaps else 0.0
            allowed[key] = math.inf if vary[key] > VARIES * lines[key[0]] and by > certain else rounded
        return {(n, place) for n, place in varying if largest[first[n][0], place] > certain}, allowed

    def is_text(self, changed: bytes) -> bool:
        """Whether `changed` and the unchanged outputs can be compared line by line."""
        return not any(len(run) > MOST_COMPARED or BINARY.search(run) for run in (*self.runs, changed))

    def difference(self, changed: bytes) -> Difference | None:
        """The first line of `changed` that differs from the unchanged runs; None if there is none."""
        if changed in self.runs:
            return None
        if not self.is_text(changed):
            if len(set(self.runs)) > 1 and not self.is_text(self.runs[0]):
                return None
            sizes = f"{len(self.runs[0]):,} bytes", f"{len(changed):,} bytes that differ"
            return Difference(self.name, 1, *sizes)
        if self._orders_vary:
            return self._in_any_order(changed)
        varying, allowed = self._variation
        first, now = self._unchanged[0], _lines(changed)
        self.left_out = sum(
            place in timed or (line, place) in varying or allowed.get((text, place)) == math.inf
            for line, (text, numbers) in enumerate(first)
            for timed in [timed_places(text)]
            for place in range(len(numbers))
        )
        missing: Line = (b"", ())
        for line, ((text, ours), (new_text, theirs)) in enumerate(zip_longest(first, now, fillvalue=missing)):
            timed = timed_places(text)
            same = text == new_text and all(
                a == b
                or place in timed
                or (line, place) in varying
                or _relative(a, b) <= allowed.get((text, place), 0.0)
                for place, (a, b) in enumerate(zip(ours, theirs, strict=True))
            )
            if not same:
                return self._at(line + 1, changed)
        return None

    @cached_property
    def _orders_vary(self) -> bool:
        """Whether the unchanged runs differ in more than numbers, or print the same lines in another order."""
        if len({tuple(text for text, _ in lines) for lines in self._unchanged}) > 1:
            return True
        first, *rest = (list(map(_untimed, lines)) for lines in self._unchanged)
        return any(lines != first and Counter(lines) == Counter(first) for lines in rest)

    def _in_any_order(self, changed: bytes) -> Difference | None:
        """For unchanged runs whose lines differ: all common lines must be present. New lines are allowed: at most
        NEW_LINES times as many as an unchanged run has that no other run has.
        """
        now = _lines(changed)
        runs_with = Counter(text for lines in self._unchanged for text in {text for text, _ in lines})
        unique = (sum(runs_with[text] == 1 for text, _ in lines) for lines in self._unchanged)
        new = [line for line, (text, _) in enumerate(now, 1) if text not in runs_with]
        if len(new) > NEW_LINES * max(unique):
            return Difference(self.name, new[0], "", _line(changed, new[0]))
        present, first = {text for text, _ in now}, self._unchanged[0]
        lost = {text for text, runs in runs_with.items() if runs == len(self._unchanged)} - present
        counts = [Counter(map(_untimed, lines)) for lines in self._unchanged]
        common, most = reduce(and_, counts), reduce(or_, counts)
        self.left_out = sum(len(line[1]) for line in first) - sum(len(key) - 1 for key in common.elements())
        # A line that is repeated a varying number of times must be present once.
        common = Counter({key: count if count == most[key] else 1 for key, count in common.items()})
        missing = common - Counter(map(_untimed, now))
        lines = (n for n, line in enumerate(first, 1) if line[0] in lost or _untimed(line) in missing)
        return None if (at := next(lines, None)) is None else self._at(at, changed)

    def _at(self, line: int, changed: bytes) -> Difference:
        texts = _line(self.runs[0], line), _line(changed, line)
        pairs = enumerate(zip(*texts, strict=False))
        differs = next((n for n, pair in pairs if len(set(pair)) > 1), min(map(len, texts)))
        skipped = max(0, differs - SHOWN // 2)
        unchanged, altered = ("…" * bool(skipped) + text[skipped : skipped + SHOWN] for text in texts)
        return Difference(self.name, line, unchanged, altered)


def _line(output: bytes, number: int) -> str:
    lines = _split(output)
    return lines[number - 1].decode("utf-8", "replace") if number <= len(lines) else ""


def compared(references: Iterable[Reference], outputs: Iterable[bytes]) -> tuple[Verdict, Difference | None]:
    """Compares the `outputs` of a changed run with their references."""
    verdict: Verdict = "identical"
    for reference, output in zip(references, outputs, strict=True):
        if (difference := reference.difference(output)) is not None:
            return "altered", difference
        if output not in reference.runs:
            verdict = "same" if verdict != "not-compared" and reference.is_text(output) else "not-compared"
    return verdict, None
