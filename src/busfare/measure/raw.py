"""A run on file: every raw sample, what the machine was, and what happened meanwhile. JSON, times in nanoseconds."""

from __future__ import annotations

import gzip
import zlib
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import msgspec

from busfare.errors import InputError
from busfare.measure.case import Case, Direction, Memory, Samples
from busfare.measure.summary import fastest_part, interquartile_mean, median
from busfare.output import write_file

__all__ = ["QUIETEST_ONE_IN", "SCHEMA", "Measurement", "Moment", "Record", "read", "write"]

SCHEMA = "busfare.probe-raw/1"
_NS = 1e9
#: One sample in so many of what moves data both ways is counted, the quickest ones.
QUIETEST_ONE_IN = 4


class Moment(msgspec.Struct, frozen=True):
    """When a visit was: seconds since the run began, seconds that it took in all, and its first sample, where that is
    not among the samples.
    """

    at_s: float
    took_s: float
    first_s: float | None = None


class Measurement(msgspec.Struct, frozen=True):
    """The raw samples of a case, how many each visit took and when, and why it was left."""

    case: Case
    samples: Samples
    visits: tuple[int, ...] = ()
    stopped: str = ""
    moments: tuple[Moment, ...] = ()

    @property
    def seconds(self) -> tuple[float, ...]:
        """What the device took; what the call took where the host moves the data or there is no device time."""
        by_host = self.case.memory == "pageable" or not self.samples.device_s
        return self.samples.api_s if by_host else self.samples.device_s

    @property
    def undisturbed_s(self) -> float:
        """Seconds where nothing disturbs it: the mean of the quicker half of its visits. What disturbs a copy, on a
        machine shared with others, only ever makes it slower, and for a whole visit.
        Of managed memory the middle one: the host's driver moves every page, no visit is the quiet one that a program
        would see again. Raises ValueError for no samples.
        """
        visits = self.of_visits or self.seconds
        return median(visits) if self.case.memory == "managed" else fastest_part(visits)

    @property
    def quietest_s(self) -> float:
        """Seconds at the quietest moments: the mean of the quickest quarter of all samples, of whichever visit. For what
        moves data both ways: it lives on the host's memory, which other programs slow for most of a run, but not for
        every millisecond of it. Raises ValueError for no samples.
        """
        return fastest_part(self.seconds, QUIETEST_ONE_IN)

    @property
    def of_visits(self) -> list[float]:
        """The interquartile mean of each visit: samples of one visit share what disturbed it, visits do not."""
        ends = accumulate(self.visits, initial=0)
        return [interquartile_mean(self.seconds[a:b]) for a, b in pairwise(ends) if b > a]


class Record(msgspec.Struct):
    """One run of one process. `states` are dated in seconds since its start."""

    virtual: bool
    date: str
    command: str
    facts: dict[str, Any]
    seed: int
    measurements: list[Measurement] = []
    states: list[dict[str, Any]] = []
    left_out: list[dict[str, str]] = []
    disturbances: list[str] = []
    seconds: float = 0.0

    def of(self, case: Case) -> Measurement | None:
        """The measurement of a case; None where it was left out."""
        return next((m for m in self.measurements if m.case == case), None)


class _Row(msgspec.Struct, omit_defaults=True):
    """A measurement on file. Moments: when (s), seconds in all and the first sample (ns); older files have more in them."""

    direction: Direction
    memory: Memory
    mode: str
    bytes: int
    count: int
    gpu: int
    stopped: str
    visits: tuple[int, ...]
    device_ns: list[int]
    api_ns: list[int]
    moments: list[tuple[float | None, ...]] = []
    peer: int | None = None

    @classmethod
    def of(cls, m: Measurement) -> _Row:
        c = m.case
        moments: list[tuple[float | None, ...]] = [
            (round(v.at_s, 4), _ns(v.took_s), _ns(v.first_s)) for v in m.moments
        ]
        device_ns, api_ns = ([round(s * _NS) for s in own] for own in (m.samples.device_s, m.samples.api_s))
        return cls(
            c.direction, c.memory, c.mode, c.bytes, c.count, c.gpu, m.stopped, m.visits, device_ns, api_ns, moments,
            c.peer,
        )  # fmt: skip

    def measurement(self) -> Measurement:
        case = Case(self.direction, self.memory, self.mode, self.bytes, self.count, self.gpu, self.peer)
        samples = Samples(tuple(n / _NS for n in self.device_ns), tuple(n / _NS for n in self.api_ns))
        moments = tuple(
            Moment(at or 0.0, (took or 0.0) / _NS, None if first is None else first / _NS)
            for at, took, first, *_ in self.moments
        )
        return Measurement(case, samples, self.visits, self.stopped, moments)


class _File(msgspec.Struct):
    schema: str
    virtual: bool
    date: str
    command: str
    seconds: float
    seed: int
    facts: dict[str, Any]
    disturbances: list[str]
    left_out: list[dict[str, str]]
    states: list[dict[str, Any]]
    cases: list[_Row]


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * _NS)


def write(record: Record, path: Path) -> None:
    """Writes the record as one JSON object, packed where the name ends in `.gz`.

    Raises InputError where the file cannot be written.
    """
    rows = [_Row.of(m) for m in record.measurements]
    file = _File(
        SCHEMA, record.virtual, record.date, record.command, round(record.seconds, 3), record.seed, record.facts,
        record.disturbances, record.left_out, record.states, rows,
    )  # fmt: skip
    text = msgspec.json.encode(file)
    write_file(path, gzip.compress(text, mtime=0) if path.suffix == ".gz" else text.decode())


def read(path: Path) -> Record:
    """The record at `path`. Raises InputError where it is none."""
    try:
        content = path.read_bytes()
        file = msgspec.json.decode(gzip.decompress(content) if path.suffix == ".gz" else content, type=_File)
    except (msgspec.DecodeError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise InputError(
            f"{path}: no raw samples of a probe ({what}); give a file that `probe --raw` wrote"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; give a file that `probe --raw` wrote") from None
    if file.schema != SCHEMA:
        raise InputError(f"{path}: schema {file.schema!r}; this reads {SCHEMA}")
    return Record(
        file.virtual, file.date, file.command, file.facts, file.seed, [row.measurement() for row in file.cases],
        file.states, file.left_out, file.disturbances, file.seconds,
    )  # fmt: skip
