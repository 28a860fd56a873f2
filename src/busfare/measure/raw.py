"""A run on file: every raw sample, what the machine was, and what happened meanwhile. JSON, times in nanoseconds."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import asdict
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from busfare.errors import InputError
from busfare.files import write_file
from busfare.measure.cases import Case, Direction, Memory, Samples
from busfare.measure.results import LeftOut
from busfare.measure.summary import fastest_part, interquartile_mean

_NS = 1e9
#: One sample in so many of what moves data both ways is counted, the quickest ones.
QUIETEST_ONE_IN = 4


def nanoseconds(seconds: float) -> int:
    return round(seconds * _NS)


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """When a visit was: seconds since the run began, what it took in all, and its first sample, where that is not among
    the samples. Older files have more in them.
    """

    at_s: float
    took_ns: int
    first_ns: int | None = None


class Measurement(msgspec.Struct, omit_defaults=True):
    """The raw samples of a case, how many each visit took and when, and why it was left."""

    direction: Direction
    memory: Memory
    mode: str
    bytes: int
    count: int
    gpu: int
    stopped: str
    visits: list[int]
    device_ns: list[int]
    api_ns: list[int]
    moments: list[Moment] = []
    peer: int | None = None

    @classmethod
    def of(cls, case: Case) -> Measurement:
        """No samples yet."""
        return cls(**asdict(case), stopped="", visits=[], device_ns=[], api_ns=[])

    @property
    def case(self) -> Case:
        return Case(self.direction, self.memory, self.mode, self.bytes, self.count, self.gpu, self.peer)

    def add(self, taken: Samples, moment: Moment) -> None:
        """One visit's samples."""
        self.device_ns += map(nanoseconds, taken.device_s)
        self.api_ns += map(nanoseconds, taken.api_s)
        self.visits.append(len(taken.api_s))
        self.moments.append(moment)

    @property
    def device_s(self) -> list[float]:
        """What the device took; empty where no device time exists."""
        return [n / _NS for n in self.device_ns]

    @property
    def api_s(self) -> list[float]:
        """What the API calls took."""
        return [n / _NS for n in self.api_ns]

    @property
    def seconds(self) -> list[float]:
        """What the device took; what the call took where the host moves the data or there is no device time."""
        return self.api_s if self.memory == "pageable" or not self.device_ns else self.device_s

    @property
    def undisturbed_s(self) -> float:
        """Seconds where nothing disturbs it: the mean of the quicker half of its visits. What disturbs a copy, on a
        machine shared with others, only ever makes it slower, and for a whole visit.
        Of managed memory the middle one: the host's driver moves every page, no visit is the quiet one that a program
        would see again. Raises ValueError for no samples.
        """
        visits = self.of_visits or self.seconds
        return median(visits) if self.memory == "managed" else fastest_part(visits)

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
        seconds, ends = self.seconds, accumulate(self.visits, initial=0)
        return [interquartile_mean(seconds[a:b]) for a, b in pairwise(ends) if b > a]


class Record(msgspec.Struct, tag_field="schema", tag="busfare.probe-raw/1", rename={"measurements": "cases"}):
    """One run of one process. `states` are dated in seconds since its start."""

    virtual: bool
    date: str
    command: str
    facts: dict[str, Any]
    seed: int
    measurements: list[Measurement] = []
    states: list[dict[str, Any]] = []
    left_out: list[LeftOut] = []
    disturbances: list[str] = []
    seconds: float = 0.0

    def of(self, case: Case) -> Measurement | None:
        """The measurement of a case; None where it was left out."""
        return next((m for m in self.measurements if m.case == case), None)


def write(record: Record, path: Path) -> None:
    """Writes the record as one JSON object, packed where the name ends in `.gz`.

    Raises InputError where the file cannot be written.
    """
    text = msgspec.json.encode(record)
    write_file(path, gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def read(path: Path) -> Record:
    """The record at `path`. Raises InputError where it is none."""
    try:
        content = path.read_bytes()
        return msgspec.json.decode(gzip.decompress(content) if path.suffix == ".gz" else content, type=Record)
    except (msgspec.DecodeError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: no raw samples of a probe ({error}); give a file that `probe --raw` wrote"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; give a file that `probe --raw` wrote") from None
