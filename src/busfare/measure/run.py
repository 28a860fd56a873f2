"""Measuring a list of cases: warm-up, random order, stop on noise with a reason, a time budget, a log of the
machine.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from busfare.measure.case import Case, Samples
from busfare.measure.device import Device, StalledError, UnavailableError, WrongDataError
from busfare.measure.middle import median, spread
from busfare.measure.raw import Measurement, Record

__all__ = ["Progress", "measure"]

#: Called with the share done (0 to 1) and what is being measured.
Progress = Callable[[float, str], None]

#: A case is settled when the interval of its median is this narrow, either way, …
SETTLED = 0.002
#: … and it has been visited this often, so that one quiet moment does not settle it, …
LEAST_VISITS = 3
#: … with this many samples, the fewest of which the interval means something.
LEAST_SAMPLES = 9
#: More samples than this say nothing new.
MOST_SAMPLES = 300
#: A visit is this long, so that every case is seen at many times of the run.
VISIT_S = 0.004
MOST_REPEATS = 20
#: The machine's state is logged this often.
LOG_EVERY_S = 1.0
#: Copies before the first measurement, until clocks and link have left their idle states.
WARM_UP_S = 0.25


@dataclass
class _Visited:
    case: Case
    samples: Samples = field(default_factory=lambda: Samples((), ()))
    visits: list[int] = field(default_factory=list)
    stopped: str = ""

    @property
    def measurement(self) -> Measurement:
        return Measurement(self.case, self.samples, tuple(self.visits), self.stopped)

    def next_repeats(self) -> int:
        """Samples of the next visit: one, before anything is known of their length."""
        if not self.samples.api_s:
            return 1
        length = max(median(self.measurement.seconds), median(self.samples.api_s))
        return max(1, min(MOST_REPEATS, int(VISIT_S / max(length, 1e-6))))

    def settle(self) -> None:
        """Says why this case needs no more, if it does not."""
        seconds = self.measurement.seconds
        if len(seconds) >= MOST_SAMPLES:
            self.stopped = "enough"
        elif (
            len(self.visits) >= LEAST_VISITS and len(seconds) >= LEAST_SAMPLES and spread(seconds) <= SETTLED
        ):
            self.stopped = "settled"


def measure(
    device: Device,
    cases: Sequence[Case],
    record: Record,
    budget_s: float,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.monotonic,
    warm_up: bool = True,
) -> None:
    """Adds raw samples of `cases` to `record`, within about `budget_s` seconds of `clock`.

    Cases that cannot be run, or whose blocking kernel gave up, are listed with the reason in `left_out`.
    """
    began = clock()
    shuffle = random.Random(record.seed).shuffle
    log = _Log(device, record, began, clock, sorted({case.gpu for case in cases}), start=warm_up)
    open_ = [_Visited(case) for case in cases]
    done: list[_Visited] = []
    if warm_up:
        _warm_up(device, cases, clock)
    first = True
    while open_:
        shuffle(open_)
        for at, visited in enumerate(list(open_)):
            spent = clock() - began
            # Every case is visited once even past the budget: half a node file is of no use.
            if spent > budget_s and not first:
                break
            if progress:
                share = spent / budget_s if not first else min(spent / budget_s, at / len(open_))
                progress(min(share, 1.0), str(visited.case))
            _visit(device, visited, record)
            log.now()
        over = clock() - began > budget_s
        first = False
        for visited in open_:
            if not visited.stopped and over:
                visited.stopped = "time"
        done += [v for v in open_ if v.stopped]
        open_ = [v for v in open_ if not v.stopped]
    log.now(force=warm_up)
    order = {case: n for n, case in enumerate(cases)}
    done.sort(key=lambda v: order[v.case])
    record.measurements += [v.measurement for v in done if v.samples.api_s]
    record.seconds += clock() - began


def _warm_up(device: Device, cases: Sequence[Case], clock: Callable[[], float]) -> None:
    """Keeps the link busy with the largest plain copy that there is."""
    copies = [c for c in cases if c.mode == "copies" and c.memory != "pageable"]
    if not copies:
        return
    largest = max(copies, key=lambda c: c.bytes)
    end = clock() + WARM_UP_S
    while clock() < end:
        try:
            device.run(largest, 1)
        except (UnavailableError, StalledError, WrongDataError):
            return


def _visit(device: Device, visited: _Visited, record: Record) -> None:
    case = visited.case
    try:
        if not visited.visits:
            device.run(case, 1)  # buffers, modules and caches of this very case
        taken = device.run(case, visited.next_repeats())
    except UnavailableError as error:
        record.left_out.append({"case": str(case), "why": str(error)})
        visited.stopped, visited.samples = "unavailable", Samples((), ())
        return
    except (StalledError, WrongDataError) as error:
        record.left_out.append({"case": str(case), "why": str(error)})
        record.disturbances.append(f"{case}: {error}")
        visited.stopped, visited.samples = "disturbed", Samples((), ())
        return
    visited.samples += taken
    visited.visits.append(len(taken.api_s))
    visited.settle()


class _Log:
    """The machine's state, about once a second."""

    def __init__(
        self,
        device: Device,
        record: Record,
        began: float,
        clock: Callable[[], float],
        gpus: list[int],
        start: bool,
    ) -> None:
        self._device, self._record, self._began, self._clock = device, record, began, clock
        self._gpus = gpus
        self._last = clock()
        self.now(force=start)

    def now(self, force: bool = False) -> None:
        """Logs every GPU's state if a second has passed."""
        time_ = self._clock()
        if not force and time_ - self._last < LOG_EVERY_S:
            return
        self._last = time_
        for gpu in self._gpus:
            state: dict[str, Any] = {"seconds": round(time_ - self._began, 3), "gpu": gpu}
            self._record.states.append(state | self._device.state(gpu))
