"""Measuring a list of cases on a machine, real or virtual: warm-up, rounds of visits in random order, stop on noise with a
reason, a time budget, a log of the machine's state and what it says of disturbances.
"""

import math
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol

import numpy as np

from busfare.errors import BusfareError
from busfare.measure.cases import Case, LeftOut, Measurement, Record, Samples, interval
from busfare.nodes.transfers import NEAR

#: Called with the share done (0 to 1) and what is being measured.
Progress = Callable[[float, str], None]

#: A case is settled when the interval of the median of its visits is as narrow, either way, as medians of quiet cases repeat
#: (NEAR), and it has been visited this often: samples of one visit share what disturbs them. More than the most say nothing
#: new.
LEAST_VISITS, MOST_VISITS = 6, 24
#: A visit is about this long, so that every case is seen at many times of the run, and of so many samples at most.
VISIT_S, MOST_REPEATS = 0.002, 5
#: What costs more than this a visit is not visited in every round: Neyman's allocation, over the root of the cost.
CHEAP_S = 0.004
#: The first sample of a visit finds caches and address translation as the case before left them, and is left out. Where
#: one takes this long what it finds does not matter (0.1 % of a pinned copy of 4 ms), and it counts.
LONG_S = 0.006
#: The machine's state is logged this often.
LOG_EVERY_S = 1.0
#: Copies before the first measurement, until clocks and link have left their idle states.
WARM_UP_S = 0.25
#: NVML's bits of reasons why clocks are held down, without the harmless ones (idle, applications' setting).
_THROTTLES = {
    0x04: "its power cap",
    0x08: "a hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "the power brake",
}
#: Nine in ten published measurements lie within 8 % of the data-sheet model (validation/datasheet.py); a GPU at work runs
#: above this share of its maximum clock, too.
SOUND = 0.8
#: The median visit of a case of an undisturbed run is no further above its fastest quarter than this. A clock that was held
#: down by less does not count: products of a probe's own reach the power cap by 1 %.
DISTURBED = 0.05
#: Fewer visits have no quarters.
LEAST_QUARTERED = 4


class UnavailableError(Exception):
    """This case cannot be measured here; the message is the reason, for the list of what was left out."""


class StalledError(BusfareError):
    """The blocking kernel was not released in time: the samples would hold submission gaps."""


class WrongDataError(BusfareError):
    """A copy arrived changed."""


class GpuHost(Protocol):
    """A machine with GPUs: real, or virtual."""

    #: A virtual one is labelled wherever its figures appear.
    virtual: bool
    gpus: int

    def facts(self) -> dict[str, Any]:
        """What the machine is: driver, GPUs with their links, NUMA, IOMMU. JSON types only."""

    def state(self, gpu: int) -> dict[str, Any]:
        """What may change while it is measured: clocks, throttle reasons, link, replays, other programs."""

    def clock(self) -> float:
        """Seconds. A virtual machine has a time of its own, in which nobody waits."""

    def close(self) -> None:
        """Gives everything back."""


class Device(GpuHost, Protocol):
    """A machine that is probed."""

    def run(self, case: Case, repeats: int) -> Samples:
        """Runs `case` that many times. Raises UnavailableError where it cannot be run here, StalledError where the blocking
        kernel gave up, and WrongDataError where data arrived changed.
        """


@dataclass
class _Visited:
    """A case, and what the record is to hold of it."""

    case: Case
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

    def add(self, taken: Samples, untimed: int, took_s: float) -> None:
        """One visit's samples, of which the first are not counted; says why this case needs no more, if it does not."""
        self.sample_s = min(self.sample_s, max(took_s, 1e-6) / len(taken.api_s))
        self.seen.add(Samples(taken.device_s[untimed:], taken.api_s[untimed:]))
        if len(self.seen.visits) >= MOST_VISITS:
            self.seen.stopped = "enough"
        elif len(self.seen.visits) >= LEAST_VISITS:
            low, high = interval(visits := self.seen.of_visits)
            if low > 0 and high - low <= 2 * NEAR * median(visits):
                self.seen.stopped = "settled"


def measure(
    device: Device, cases: Sequence[Case], record: Record, budget_s: float, progress: Progress | None = None
) -> None:
    """Adds raw samples of `cases` to `record`, within about `budget_s` seconds of the device's clock. Cases that cannot be
    run, or whose blocking kernel gave up, are listed with the reason in `left_out`.
    """
    clock, began = device.clock, device.clock()
    # A later call on the same record, of another GPU or size, is dated from the first one's start.
    zero = began - record.seconds
    drawn = random.Random(record.seed)
    log = StateLog(device, sorted({case.gpu for case in cases}), zero, record.states)
    log.now(force=True)
    every = [_Visited(case, Measurement.of(case)) for case in cases]
    _warm_up(device, cases)
    # Every case is visited once even past the budget: half a node file is of no use.
    todo = drawn.sample(every, len(every))
    first_round = True
    while todo:
        for visited in todo:
            if clock() - began > budget_s and not first_round:
                break
            if progress:
                progress(min((clock() - began) / budget_s, 1.0), str(visited.case))
            _visit(device, visited, record)
            log.now()
        first_round = False
        open_ = [v for v in every if not v.seen.stopped] if clock() - began < budget_s else []
        # Where none happens to be due, one is: the budget is there to be used.
        due = [v for v in open_ if drawn.random() < v.due] or open_[:1]
        todo = drawn.sample(due, len(due))
    log.now(force=True)
    for visited in every:
        visited.seen.stopped = visited.seen.stopped or "time"
    record.measurements += [v.seen for v in every if v.seen.api_ns]
    record.seconds += clock() - began


def _warm_up(device: Device, cases: Sequence[Case]) -> None:
    """Keeps the link busy with the largest plain copy that there is, or the GPU's memory with the largest stream."""
    copies = [c for c in cases if c.mode in ("copies", "stream-copy") and c.memory != "pageable"]
    end = device.clock() + WARM_UP_S
    with suppress(UnavailableError, StalledError, WrongDataError):
        while copies and device.clock() < end:
            device.run(max(copies, key=lambda c: c.bytes), 1)


def _visit(device: Device, visited: _Visited, record: Record) -> None:
    case, at = visited.case, device.clock()
    repeats, untimed = visited.next_repeats()
    try:
        taken = device.run(case, untimed + repeats)
    except UnavailableError as error:
        if visited.seen.visits:
            return  # what went well before stays; two directions that end in the other order now and then do not count
        record.left_out.append(LeftOut(str(case), str(error)))
        visited.seen.stopped = "unavailable"
    except (StalledError, WrongDataError) as error:
        record.left_out.append(LeftOut(str(case), str(error)))
        record.disturbances.append(f"{case}: {error}")
        visited.seen = Measurement.of(case)
        visited.seen.stopped = "disturbed"
    else:
        visited.add(taken, untimed, device.clock() - at)


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


def disturbances(states: Sequence[dict[str, Any]], measurements: Iterable[Measurement] = ()) -> list[str]:
    """One sentence each, from the log of the machine's state, and from how far visits of a case lie apart: paths of which
    most single copies took longer at times than at others. Empty for a quiet run.
    """
    sentences = []
    for gpu in sorted({state["gpu"] for state in states}):
        sentences += _of_gpu(gpu, [state for state in states if state["gpu"] == gpu])
    excess: dict[tuple[int, str, str], list[float]] = {}
    for m in measurements:
        if m.mode == "copies" and m.count == 1 and len(m.visits) >= LEAST_QUARTERED:
            quarter, half = np.quantile(m.of_visits, (0.25, 0.5))
            excess.setdefault((m.gpu, m.direction, m.memory), []).append(float(half / quarter - 1))
    return sentences + [
        f"GPU {gpu} {direction} {memory}: copies took {np.median(of_path):.0%} longer for half of the run than in "
        "its fastest quarter: other programs use the host; probe again and compare"
        for (gpu, direction, memory), of_path in excess.items()
        if np.median(of_path) > DISTURBED
    ]


def _of_gpu(gpu: int, states: list[dict[str, Any]]) -> list[str]:
    sentences = []
    reasons = 0
    for state in states:
        clock, most = state["sm_clock_hz"], state["sm_clock_most_hz"]
        if not clock or not most or clock < (1 - DISTURBED) * most:
            reasons |= state["throttle_reasons"] or 0
    held = [name for bit, name in _THROTTLES.items() if reasons & bit]
    if held:
        fix = "wait until it is cool or idle, and probe again"
        sentences.append(f"GPU {gpu} was throttled by {' and '.join(held)}: {fix}")
    # The first state is from before the warm-up.
    pairs = [(s["sm_clock_hz"], s["sm_clock_most_hz"]) for s in states[1:]]
    clocks = [clock / most for clock, most in pairs if clock and most]
    if clocks and not held and np.median(clocks) < SOUND:
        sentences.append(f"GPU {gpu} ran at {np.median(clocks):.0%} of its maximum clock")
    replays = [s["link_replays"] for s in states if s["link_replays"] is not None]
    if replays and (again := replays[-1] - replays[0]) > 0:
        sentences.append(f"GPU {gpu}'s link sent {again} packets again: suspect the cable, riser or slot")
    programs = max((s["other_processes"] or 0 for s in states), default=0)
    if programs:
        sentences.append(f"GPU {gpu} was busy: {programs} other program{'s' * (programs > 1)} had it open")
    return sentences


def nothing_measured(left_out: Sequence[LeftOut]) -> BusfareError:
    reasons = sorted({row.why for row in left_out})
    return BusfareError(f"could not measure anything: {'; '.join(reasons[:3]) or 'no case ran'}")


def command_line(command: str) -> str:
    """What was typed; `busfare COMMAND` where another program asked."""
    typed = sys.argv[1:] if sys.argv[1:2] == command.split()[:1] else [command]
    return " ".join(["busfare", *typed])
