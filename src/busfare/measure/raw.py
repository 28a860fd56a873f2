"""A run on file: every raw sample, what the machine was, and what happened meanwhile. JSON, times in
nanoseconds.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from busfare.errors import InputError
from busfare.measure.case import Case, Samples
from busfare.measure.middle import median, middle, quicker
from busfare.output import write_file

__all__ = ["QUIETEST_ONE_IN", "SCHEMA", "Measurement", "Moment", "Record", "read", "write"]

SCHEMA = "busfare.probe-raw/1"
_NS = 1e9
#: One sample in so many of what moves data both ways is counted, the quickest ones.
QUIETEST_ONE_IN = 4


@dataclass(frozen=True, slots=True)
class Moment:
    """When and where a visit was: seconds since the run began and that it took in all, its first sample (which is
    not among the samples), the processor that it began on, and the seconds of a fixed piece of work there.
    """

    at_s: float
    took_s: float
    first_s: float | None = None
    processor: int | None = None
    pace_s: float | None = None


@dataclass
class Measurement:
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
        machine shared with others, only ever makes it slower, and for a whole visit; where nothing does, visits repeat.
        Of managed memory the middle one: the host's driver moves every page, no visit is the quiet one that a program
        would see again, and of two or three the quickest is far from what a program takes in the middle of five runs.
        Raises ValueError for no samples.
        """
        visits = self.of_visits or self.seconds
        return median(visits) if self.case.memory == "managed" else quicker(visits)

    @property
    def counted(self) -> tuple[float, ...]:
        """The samples that count."""
        return self._firsts or self.seconds

    @property
    def _firsts(self) -> tuple[float, ...]:
        """Of pageable memory that the processor has just written the first sample of each visit, where it was kept apart: a
        program writes its data once, after other work, and where this goes on in a loop the processor's caches hold the
        data, and the buffers that the driver stages them in, as in no program. None of anything else.
        """
        if (self.case.memory, self.case.mode) != ("pageable", "written"):
            return ()
        return tuple(v.first_s for v in self.moments if v.first_s is not None)

    @property
    def quietest_s(self) -> float:
        """Seconds at the quietest moments: the mean of the quickest quarter of all samples, of whichever visit. For what
        moves data both ways: it lives on the host's memory, which other programs slow for most of a run, but not for
        every millisecond of it. Raises ValueError for no samples.
        """
        return quicker(self.seconds, QUIETEST_ONE_IN)

    @property
    def of_visits(self) -> list[float]:
        """The middle of each visit: samples of one visit share what disturbed it, visits do not."""
        if self._firsts:
            return list(self._firsts)
        ends = list(accumulate(self.visits, initial=0))
        return [middle(self.seconds[a:b]) for a, b in pairwise(ends) if b > a]


@dataclass
class Record:
    """One run of one process. `states` are dated in seconds since its start."""

    virtual: bool
    date: str
    command: str
    facts: dict[str, Any]
    seed: int
    measurements: list[Measurement] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)
    disturbances: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def of(self, case: Case) -> Measurement | None:
        """The measurement of a case; None where it was left out."""
        return next((m for m in self.measurements if m.case == case), None)


def write(record: Record, path: Path) -> None:
    """Writes the record as one JSON object, a case a line; packed where the name ends in `.gz`.

    Raises InputError where the file cannot be written.
    """
    head = {
        "schema": SCHEMA,
        "virtual": record.virtual,
        "date": record.date,
        "command": record.command,
        "seconds": round(record.seconds, 3),
        "seed": record.seed,
        "facts": record.facts,
        "disturbances": record.disturbances,
        "left_out": record.left_out,
        "states": record.states,
    }
    cases = ",\n".join(json.dumps(_row(m), separators=(",", ":")) for m in record.measurements)
    text = json.dumps(head, indent=1)[:-2] + ',\n "cases": [\n' + cases + "\n]}\n"
    write_file(path, gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text)


def _row(m: Measurement) -> dict[str, Any]:
    c = m.case
    row: dict[str, Any] = {
        "direction": c.direction, "memory": c.memory, "mode": c.mode, "bytes": c.bytes, "count": c.count, "gpu": c.gpu,
    }  # fmt: skip
    if c.peer is not None:
        row["peer"] = c.peer
    row["stopped"], row["visits"] = m.stopped, list(m.visits)
    row["moments"] = [
        [round(v.at_s, 4), *(_ns(s) for s in (v.took_s, v.first_s, v.pace_s)), v.processor] for v in m.moments
    ]
    row["device_ns"] = [round(s * _NS) for s in m.samples.device_s]
    row["api_ns"] = [round(s * _NS) for s in m.samples.api_s]
    return row


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * _NS)


def _moment(row: list[Any]) -> Moment:
    at_s, took, first, pace, processor = row
    took_s, first_s, pace_s = (None if n is None else n / _NS for n in (took, first, pace))
    return Moment(at_s, took_s or 0.0, first_s, processor, pace_s)


def read(path: Path) -> Record:
    """The record at `path`. Raises InputError where it is none."""
    try:
        content = path.read_bytes()
        raw = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
        if raw["schema"] != SCHEMA:
            raise InputError(f"{path}: schema {raw['schema']!r}; this reads {SCHEMA}")
        return Record(
            virtual=bool(raw["virtual"]),
            date=raw["date"],
            command=raw["command"],
            facts=raw["facts"],
            seed=raw["seed"],
            measurements=[_measurement(row) for row in raw["cases"]],
            states=raw["states"],
            left_out=raw["left_out"],
            disturbances=raw["disturbances"],
            seconds=raw["seconds"],
        )
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; give a file that `probe --raw` wrote") from None
    except (ValueError, KeyError, TypeError, EOFError) as error:
        raise InputError(
            f"{path}: no raw samples of a probe ({type(error).__name__}: {error}); give a file that `probe --raw` wrote"
        ) from None


def _measurement(row: dict[str, Any]) -> Measurement:
    case = Case(
        row["direction"], row["memory"], row["mode"], row["bytes"], row["count"], row["gpu"], row.get("peer")
    )
    samples = Samples(
        tuple(n / _NS for n in row["device_ns"]),
        tuple(n / _NS for n in row["api_ns"]),
    )
    # Files of older runs do not say when each visit was.
    moments = tuple(_moment(moment) for moment in row.get("moments", ()))
    return Measurement(case, samples, tuple(row["visits"]), row["stopped"], moments)
