"""What is measured: cases to fit, to judge and to show; and the raw samples of a run, on file as JSON with times in ns."""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise, product
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, Struct, UnsetType

from busfare.errors import InputError
from busfare.files import write_file

Direction = Literal["h2d", "d2h", "d2d", "p2p", "none"]
#: `none` is a cost that moves nothing; files of older runs hold `registered` and `write-combined`, which nothing reads.
Memory = Literal["pageable", "pinned", "registered", "write-combined", "mapped", "managed", "device", "none"]


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """What to measure. `bytes` is the size of each of `count` copies. `mode`: how the
    copies, or the call, are issued (docs/probe.md); files of older runs hold others, which nothing reads.
    """

    direction: Direction
    memory: Memory
    mode: str
    bytes: int = 0
    count: int = 1
    gpu: int = 0
    peer: int | None = None

    @property
    def total_bytes(self) -> int:
        """Bytes that one sample moves in the measured direction."""
        return self.bytes * self.count

    def __str__(self) -> str:
        pair = f"{self.gpu}→{self.peer} " if self.peer is not None else ""
        return f"{pair}{self.direction} {self.memory} {self.mode} {self.count}×{self.bytes} B"


@dataclass(frozen=True, slots=True)
class Samples:
    """Raw samples, in seconds, side by side: what the device took, and what the API calls took. What was not timed, or
    cannot be (an allocation on the device), is empty.
    """

    device_s: tuple[float, ...] = ()
    api_s: tuple[float, ...] = ()

    def __add__(self, later: "Samples") -> "Samples":
        return Samples(self.device_s + later.device_s, self.api_s + later.api_s)


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
HOST_DIRECTIONS: tuple[Direction, Direction] = ("h2d", "d2h")

#: No powers of two or neat multiples, so that no fitted size is among them; odd ones end in a part of a packet.
HELD_OUT_BYTES = (
    3, 100, 777, 1500, 5_000, 10_001, 23_456, 45_678, 91_000, 150_000, 300_007, 700_000, 1_300_000,
    2_500_000, 5_500_000, 11_111_111, 27_000_000, 90_000_001, 300_000_000, 800_000_000,
)  # fmt: skip
#: Copies in several streams at once: sizes, and numbers of streams.
CHUNKS = (1, 2 * KIB, 12 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, MIB, 4 * MIB)
HELD_OUT_CHUNKS = (37, 1500, 10_000, 50_000, 100_000, 400_000, 2_500_000)
HELD_OUT_STREAMS = (16, 100, 200)
#: Modes in which data move the other way, too, and the share of `Contention` that is left there.
SHARES = {
    "both": "both",
    "beside-mapped": "copy_beside_mapped",
    "kernel-both": "mapped_both",
    "kernel-beside-copies": "mapped_beside_copy",
}
#: Modes in which chunks are copied in, computed on and copied out: in a stream each, and in a stream an engine.
ACROSS_STREAMS, ACROSS_ENGINES = "across-streams", "across-engines"
#: Modes in which every GPU copies at the same time, one way and both.
ALL_AT_ONCE = ALL_GPUS, ALL_GPUS_DUPLEX = "all-gpus", "all-gpus-both"
#: Copies behind each other in one stream.
TRAINS = (16, 128)


def is_held_out(case: Case) -> bool:
    """Whether nothing is fitted to a case: the parameters are judged on it."""
    if case.mode == "copies" and case.count == 1 and case.memory in ("pinned", "pageable"):
        return case.bytes in HELD_OUT_BYTES
    return case.mode == "streams" and case.count in HELD_OUT_STREAMS


def powers(first: int, last: int, factor: int = 2) -> list[int]:
    """first, first · factor, … up to and including `last`."""
    sizes = [first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    return sizes


class Row(NamedTuple):
    """Cases of every direction, memory, mode, size and count that it names, of at most `most` bytes in all."""

    directions: str
    memories: str
    modes: str
    sizes: Sequence[int]
    counts: Sequence[int] = (1,)
    most: int = GIB

    def cases(self, gpu: int, peers: Sequence[int]) -> Iterator[Case]:
        """Of one GPU; what goes to another one, to each of `peers`."""
        words = (self.directions.split(), self.memories.split(), self.modes.split())
        for direction, memory, mode, count, size in product(*words, self.counts, self.sizes):
            if size * count <= self.most:
                for peer in peers if direction == "p2p" else (None,):
                    yield Case(direction, memory, mode, size, count, gpu, peer)  # type: ignore[arg-type]


def _in_every_plan(inside: Sequence[int], accessed: Sequence[int], allocated: int) -> tuple[Row, ...]:
    """What both plans measure besides copies of the host's memory: copies inside the GPU and to others, memory that kernels,
    page faults or prefetches reach, data both ways at once, and calls.
    """
    allocations = powers(4 * KIB, allocated, 16)
    return (
        Row("d2d p2p", "device", "copies", inside),
        Row("h2d d2h", "mapped", "kernel", accessed),
        Row("h2d d2h", "managed", "touch prefetch", accessed),
        Row("h2d d2h", "pinned", "both", (16 * MIB, 64 * MIB), (4,)),
        Row("h2d", "pinned", f"{ACROSS_STREAMS} {ACROSS_ENGINES}", (16 * MIB,), (16,)),
        Row("h2d d2h", "mapped", "kernel-beside-copies", (16 * MIB, 64 * MIB)),
        Row("h2d", "mapped", "kernel-both", (MIB, 16 * MIB, 64 * MIB)),
        Row("h2d d2h", "pinned", "beside-mapped", (64 * MIB,)),
        Row("h2d", "pinned", "after-kernel there-and-back event-kernel", powers(16 * KIB, MIB, 4)),
        Row("h2d d2h", "pinned", "copies", (64,), TRAINS),
        Row("none", "none", "empty launch synchronise", (0,)),
        # Of 1 GiB, the driver has not cleared all when 16 MiB arrive: an H200 lost no more there than at 256 MiB.
        Row("h2d", "pinned", "reallocated", powers(64 * MIB, 256 * MIB, 4)),
        Row("none", "pinned", "allocate", allocations),
        Row("none", "pageable", "register", allocations),
    )


#: Powers of two, and between them where a copy's time stops being all latency and is not yet all bandwidth.
_FITTED_BYTES = (*powers(1, GIB), *powers(6 * KIB, 24 * MIB))
#: All that 30 seconds hold. Into the GPU the number of streams makes no difference but for the first; out of it more than
#: some 180 take longer each. The last row is shown, and nothing is fitted to it.
_FULL = (
    Row("h2d d2h", "pinned pageable", "copies", (*_FITTED_BYTES, *HELD_OUT_BYTES)),
    Row("h2d", "pinned", "streams", CHUNKS, (2, 32, 256)),
    Row("d2h", "pinned", "streams", CHUNKS, (2, 8, 32, 96, 256)),
    Row("h2d d2h", "pinned", "streams", HELD_OUT_CHUNKS, HELD_OUT_STREAMS),
    *_in_every_plan(powers(1, GIB, 4), powers(64 * KIB, 256 * MIB, 4), 256 * MIB),
    Row("h2d d2h", "pinned", "copies batch", (64, 4 * KIB, 64 * KIB, MIB), TRAINS),
)
#: What 10 seconds hold: the same paths on a coarser grid, and nothing that is shown alone.
_QUICK = (
    Row("h2d d2h", "pinned", "copies", (*powers(1, GIB, 4), *HELD_OUT_BYTES[1::2])),
    Row("h2d d2h", "pageable", "copies", (*powers(1, 256 * MIB, 4), *HELD_OUT_BYTES[1:-2:2])),
    Row("h2d d2h", "pinned", "streams", CHUNKS[::2], (2, 32, 256), 256 * MIB),
    Row("h2d d2h", "pinned", "streams", HELD_OUT_CHUNKS[::2], (16,)),
    *_in_every_plan(powers(1, 64 * MIB, 4), powers(64 * KIB, 64 * MIB, 16), 16 * MIB),
)


def at_once(fast: bool) -> tuple[Case, ...]:
    """Copies of all GPUs together: what the host's memory then carries."""
    size = 16 * MIB if fast else 64 * MIB
    flows = product(ALL_AT_ONCE, HOST_DIRECTIONS)
    return tuple(Case(direction, "pinned", mode, size, 4) for mode, direction in flows)


def copies(gpu: int, peers: Sequence[int], fast: bool) -> tuple[Case, ...]:
    """Every case once of a GPU's copies: to fit, to hold the fit against (`is_held_out`), and to show."""
    return tuple(dict.fromkeys(case for row in (_QUICK if fast else _FULL) for case in row.cases(gpu, peers)))


def interquartile_mean(samples: Sequence[float]) -> float:
    """The mean of the middle half, in the samples' unit: as deaf to outliers as the median, without the steps
    of a clock that ticks every 32 ns. Raises ValueError for none.
    """
    if not len(samples):
        raise ValueError("no samples")
    ordered = np.sort(np.asarray(samples, np.float64))
    cut = (len(ordered) + 1) // 4  # of three samples, the middle one
    return float(ordered[cut : len(ordered) - cut].mean())


def fastest_part(samples: Sequence[float], portion: int = 2) -> float:
    """The mean of the quickest 1/`portion`, in the samples' unit: disturbances only slow. Raises ValueError for none."""
    if not len(samples):
        raise ValueError("no samples")
    kept = sorted(samples)[: -(-len(samples) // portion)]
    return sum(kept) / len(kept)


def interval(samples: Sequence[float]) -> tuple[float, float]:
    """An interval that holds the true median with at least 95 %, from order statistics: no shape is assumed. With fewer than
    six samples no such interval exists, and the extremes are given.
    """
    ordered = np.sort(np.asarray(samples, np.float64))
    count = len(ordered)
    # Ranks n/2 ± z √n / 2 of the binomial distribution of how many samples lie below the median.
    reach = 1.96 * np.sqrt(count) / 2
    low, high = int(np.floor(count / 2 - reach)), int(np.ceil(count / 2 + reach))
    return float(ordered[max(low, 0)]), float(ordered[min(high, count - 1)])


def overlapping(samples: Sequence[float], peers: Sequence[float]) -> bool:
    """Whether the intervals of two medians overlap: then nothing says which is the smaller."""
    (low, high), (lower, higher) = interval(samples), interval(peers)
    return low <= higher and lower <= high


class LeftOut(Struct):
    """What could not be measured."""

    case: str
    why: str


class Ranged(Struct, kw_only=True):
    """The 80 % range of the prediction, and the rung that it is based on."""

    low_seconds: float | None = None
    high_seconds: float | None = None
    rung: str | None = None
    reason: str | UnsetType = UNSET  # only where there is no range


#: One sample in so many of what moves data both ways is counted, the quickest ones.
QUIETEST_PORTION = 4


class Measurement(Struct, omit_defaults=True):
    """The raw samples of a case, how many each visit took, and why it was left. Older files have more in them."""

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
    peer: int | None = None

    @classmethod
    def of(cls, case: Case) -> "Measurement":
        """No samples yet."""
        return cls(**asdict(case), stopped="", visits=[], device_ns=[], api_ns=[])

    @property
    def case(self) -> Case:
        return Case(self.direction, self.memory, self.mode, self.bytes, self.count, self.gpu, self.peer)

    def add(self, taken: Samples) -> None:
        """The samples of a visit."""
        self.device_ns += [round(seconds * 1e9) for seconds in taken.device_s]
        self.api_ns += [round(seconds * 1e9) for seconds in taken.api_s]
        self.visits.append(len(taken.api_s))

    @property
    def device_s(self) -> list[float]:
        """What the device took; empty where no device time exists."""
        return [n / 1e9 for n in self.device_ns]

    @property
    def api_s(self) -> list[float]:
        """What the API calls took."""
        return [n / 1e9 for n in self.api_ns]

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
        return fastest_part(self.seconds, QUIETEST_PORTION)

    @property
    def of_visits(self) -> list[float]:
        """The interquartile mean of each visit: samples of one visit share what disturbed it, visits do not."""
        seconds, ends = self.seconds, accumulate(self.visits, initial=0)
        return [interquartile_mean(seconds[a:b]) for a, b in pairwise(ends) if b > a]


class Record(Struct, tag_field="schema", tag="busfare.probe-raw/1", rename={"measurements": "cases"}):
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


def write_record(record: Record, path: Path) -> None:
    """Writes the record as a JSON object, packed if the name ends in `.gz`. Raises InputError if it cannot be written."""
    text = msgspec.json.encode(record)
    write_file(path, gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def read_record(path: Path) -> Record:
    """The record at `path`. Raises InputError where it is none."""
    record: Record = read_result(path, Record, "raw samples of a probe", "probe --raw")
    return record


def read_result(path: Path, kind: Any, what: str, command: str) -> Any:
    """The Struct `kind` that `command` wrote at `path`, packed where the name ends in `.gz`. Raises InputError."""
    try:
        content = path.read_bytes()
        return msgspec.json.decode(gzip.decompress(content) if path.suffix == ".gz" else content, type=kind)
    except (msgspec.DecodeError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        why = f"no {what} ({error})"
    except OSError as error:
        why = str(error.strerror)
    raise InputError(f"{path}: {why}; give a file that `{command}` wrote")
