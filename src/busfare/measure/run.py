"""Measuring a list of cases: warm-up, rounds of visits in random order, stop on noise with a reason, a time budget, a log of
the machine; and the sizes at which a path's time jumps, because the driver or the hardware moves data in another way.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from busfare.measure.cases import Case, Samples
from busfare.measure.device import Device, GpuHost, StalledError, UnavailableError, WrongDataError
from busfare.measure.raw import Measurement, Moment, Record, nanoseconds
from busfare.measure.results import Knee, LeftOut
from busfare.measure.summary import interquartile_mean, spread

#: Called with the share done (0 to 1) and what is being measured.
Progress = Callable[[float, str], None]

#: A case is settled when the interval of the median of its visits is this narrow, either way, …
SETTLED = 0.002
#: … and it has been visited this often: samples of one visit share what disturbs them. More than the most say nothing new.
LEAST_VISITS, MOST_VISITS = 6, 24
#: A visit is about this long, so that every case is seen at many times of the run, and of so many samples at most.
VISIT_S, MOST_REPEATS = 0.002, 5
#: What costs more than this a visit is not visited in every round: Neyman's allocation, over the root of the cost.
CHEAP_S = 0.004
#: The first sample of a visit finds caches and address translation as the case before left them, and is kept apart. Where
#: one takes this long what it finds does not matter (0.1 % of a pinned copy of 4 ms), and it counts.
LONG_S = 0.006
#: The machine's state is logged this often.
LOG_EVERY_S = 1.0
#: Copies before the first measurement, until clocks and link have left their idle states.
WARM_UP_S = 0.25
#: A jump is what neither neighbour's slope explains, and this share of the time before it …
LEAST_JUMP = 0.15
#: … but no less than this: clocks tick every 32 ns, and latencies scatter by more.
LEAST_JUMP_S = 0.4e-6
#: A knee is located to a sixty-fourth of its size: kernels and drivers change at round sizes.
RESOLUTION = 64
#: Each of the sizes tried takes this long.
KNEE_S = 0.05


@dataclass
class _Visited:
    """A case and what was seen of it so far."""

    case: Case
    #: What the record holds of it.
    seen: Measurement
    #: Seconds of the run that one sample costs, with all that goes with it.
    sample_s: float = math.inf

    def next_repeats(self) -> tuple[int, int]:
        """Samples of the next visit, and how many go before them untimed."""
        if not self.seen.visits or self.sample_s > LONG_S:
            return 1, int(not self.seen.visits)
        return min(max(int(VISIT_S / self.sample_s) - 1, 1), MOST_REPEATS), 1

    @property
    def due(self) -> float:
        """How likely it is visited in the next round."""
        if self.seen.stopped:
            return 0.0
        return min(1.0, math.sqrt(CHEAP_S / (self.sample_s * sum(self.next_repeats()))))

    def add(self, taken: Samples, untimed: int, at_s: float, took_s: float) -> None:
        """One visit's samples, of which the first are not counted; says why this case needs no more, if it does not."""
        self.sample_s = min(self.sample_s, max(took_s, 1e-6) / len(taken.api_s))
        first = (taken.device_s if self.case.memory != "pageable" and taken.device_s else taken.api_s)[
            :untimed
        ]
        moment = Moment(round(at_s, 4), nanoseconds(took_s), nanoseconds(first[0]) if first else None)
        self.seen.add(Samples(taken.device_s[untimed:], taken.api_s[untimed:]), moment)
        if len(self.seen.visits) >= MOST_VISITS:
            self.seen.stopped = "enough"
        elif len(self.seen.visits) >= LEAST_VISITS and spread(self.seen.of_visits) <= SETTLED:
            self.seen.stopped = "settled"


def measure(
    device: Device,
    cases: Sequence[Case],
    record: Record,
    budget_s: float,
    progress: Progress | None = None,
    warm_up: bool = True,
) -> None:
    """Adds raw samples of `cases` to `record`, within about `budget_s` seconds of the device's clock.

    Cases that cannot be run, or whose blocking kernel gave up, are listed with the reason in `left_out`.
    """
    clock, began = device.clock, device.clock()
    # A later call on the same record, of another GPU or size, is dated from the first one's start.
    zero = began - record.seconds
    drawn = random.Random(record.seed)
    log = StateLog(device, sorted({case.gpu for case in cases}), zero, record.states)
    log.now(force=warm_up)
    all_ = [_Visited(case, Measurement.of(case)) for case in cases]
    if warm_up:
        _warm_up(device, cases)
    # Every case is visited once even past the budget: half a node file is of no use.
    todo = drawn.sample(all_, len(all_))
    first_round = True
    while todo:
        for visited in todo:
            if clock() - began > budget_s and not first_round:
                break
            if progress:
                progress(min((clock() - began) / budget_s, 1.0), str(visited.case))
            _visit(device, visited, record, zero)
            log.now()
        first_round = False
        open_ = [v for v in all_ if not v.seen.stopped] if clock() - began < budget_s else []
        # Where none happens to be due, one is: the budget is there to be used.
        due = [v for v in open_ if drawn.random() < v.due] or open_[:1]
        todo = drawn.sample(due, len(due))
    log.now(force=warm_up)
    for visited in all_:
        visited.seen.stopped = visited.seen.stopped or "time"
    record.measurements += [v.seen for v in all_ if v.seen.api_ns]
    record.seconds += clock() - began


def _warm_up(device: Device, cases: Sequence[Case]) -> None:
    """Keeps the link busy with the largest plain copy that there is, or the GPU's memory with the largest stream."""
    copies = [c for c in cases if c.mode in ("copies", "stream-copy") and c.memory != "pageable"]
    if not copies:
        return
    largest = max(copies, key=lambda c: c.bytes)
    end = device.clock() + WARM_UP_S
    while device.clock() < end:
        try:
            device.run(largest, 1)
        except (UnavailableError, StalledError, WrongDataError):
            return


def _visit(device: Device, visited: _Visited, record: Record, zero: float) -> None:
    case, seen = visited.case, visited.seen
    repeats, untimed = visited.next_repeats()
    at = device.clock()
    try:
        taken = device.run(case, untimed + repeats)
    except (UnavailableError, StalledError, WrongDataError) as error:
        unavailable = isinstance(error, UnavailableError)
        if unavailable and seen.visits:
            return  # what went well before stays; two directions that end in the other order now and then do not count
        record.left_out.append(LeftOut(str(case), str(error)))
        if not unavailable:
            record.disturbances.append(f"{case}: {error}")
        visited.seen = Measurement.of(case)
        visited.seen.stopped = "unavailable" if unavailable else "disturbed"
        return
    visited.add(taken, untimed, at - zero, device.clock() - at)


@dataclass
class StateLog:
    """What may change of some GPUs, about once a second: `states`, dated in seconds since `zero` of its clock."""

    host: GpuHost
    gpus: Sequence[int]
    zero: float
    states: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._last = self.host.clock()

    def now(self, force: bool = False) -> None:
        """Logs every GPU's state if a second has passed."""
        time_ = self.host.clock()
        if not force and time_ - self._last < LOG_EVERY_S:
            return
        self._last = time_
        for gpu in self.gpus:
            self.states.append({"seconds": round(time_ - self.zero, 3), "gpu": gpu} | self.host.state(gpu))


def jumps(sizes: Sequence[int], seconds: Sequence[float]) -> list[int]:
    """Indices of the sizes (bytes, rising, parallel to `seconds`) after which the time jumps."""
    slopes = [(seconds[i + 1] - seconds[i]) / (sizes[i + 1] - sizes[i]) for i in range(len(sizes) - 1)]
    found = []
    for i in range(1, len(slopes) - 1):
        explained = max(slopes[i - 1], slopes[i + 1], 0.0) * (sizes[i + 1] - sizes[i])
        if seconds[i + 1] - seconds[i] - explained > max(LEAST_JUMP * seconds[i], LEAST_JUMP_S):
            found.append(i)
    return found


def locate(device: Device, record: Record, like: Case) -> list[Knee]:
    """The knees of the path of `like`, which gives all but the size: each jump is halved until it is known well enough.
    The measurements go to `record` as any others.
    """
    own = [
        m for m in record.measurements if m.bytes and dataclasses.replace(m.case, bytes=like.bytes) == like
    ]
    own.sort(key=lambda m: m.bytes)
    sizes, seconds = [m.bytes for m in own], [interquartile_mean(m.seconds) for m in own]
    located = []
    for i in jumps(sizes, seconds):
        (low, high), (before, after) = sizes[i : i + 2], seconds[i : i + 2]
        while high - low > max(1, low // RESOLUTION):
            between = dataclasses.replace(like, bytes=(low + high) // 2)
            if record.of(between) is None:
                measure(device, [between], record, KNEE_S, warm_up=False)
            taken = record.of(between)
            if taken is None:
                break
            half_s = interquartile_mean(taken.seconds)
            if half_s - before > after - half_s:
                high, after = between.bytes, half_s
            else:
                low, before = between.bytes, half_s
        knee = Knee(
            direction=like.direction,
            memory=like.memory,
            gpu=like.gpu,
            after_bytes=low,
            seconds=after - before,
        )
        located.append(knee)
    return located
