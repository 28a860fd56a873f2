"""Measuring a list of cases: warm-up, visits at random times all over the run, stop on noise with a reason, a time
budget, a log of the machine.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from busfare.measure.case import Case, Samples
from busfare.measure.device import Device, StalledError, UnavailableError, WrongDataError
from busfare.measure.quiet import Processor
from busfare.measure.raw import Moment, Record
from busfare.measure.visits import Visited, visits

__all__ = ["Progress", "measure"]

#: Called with the share done (0 to 1) and what is being measured.
Progress = Callable[[float, str], None]

#: After every case was visited once, this share of what remains is planned at a time: each plan knows the costs and
#: the scatter that those before it have seen.
_SHARES = (0.2, 0.25, 1 / 3, 0.5, 1.0, 1.0, 1.0)
#: In so many of these every case is visited, however little it matters: the middle of two visits is no middle.
_ALL_WINDOWS = 2
#: The machine's state is logged this often.
LOG_EVERY_S = 1.0
#: Copies before the first measurement, until clocks and link have left their idle states.
WARM_UP_S = 0.25


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
    # A later call on the same record, of another GPU or size, is dated from the first one's start.
    before = record.seconds
    drawn = random.Random(record.seed)
    log = _Log(device, record, began - before, clock, sorted({case.gpu for case in cases}), start=warm_up)
    all_ = [Visited(case) for case in cases]
    host = None if device.virtual else Processor(clock)
    if warm_up:
        _warm_up(device, cases, clock)
    # Every case is visited once even past the budget: half a node file is of no use.
    order = drawn.sample(all_, len(all_))
    for at, visited in enumerate(order):
        if progress:
            share = min((clock() - began) / budget_s, at / len(order), 1.0)
            progress(share, str(visited.case))
        _visit(device, visited, record, clock, began - before, host)
        log.now()
    for n, share in enumerate(_SHARES):
        window = share * (budget_s - (clock() - began))
        if window <= 0:
            break
        for visited in visits(all_, window, drawn, at_least_one=n < _ALL_WINDOWS):
            spent = clock() - began
            if spent > budget_s:
                break
            if visited.stopped:
                continue
            if progress:
                progress(spent / budget_s, str(visited.case))
            _visit(device, visited, record, clock, began - before, host)
            log.now()
    log.now(force=warm_up)
    for visited in all_:
        visited.stopped = visited.stopped or "time"
    record.measurements += [v.measurement for v in all_ if v.samples.api_s]
    record.left_out += device.left_out
    device.left_out.clear()
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


def _visit(
    device: Device,
    visited: Visited,
    record: Record,
    clock: Callable[[], float],
    zero: float,
    host: Processor | None,
) -> None:
    case = visited.case
    repeats, untimed = visited.next_repeats()
    where = host.ready() if host else (None, None)
    at = clock()
    try:
        taken = device.run(case, untimed + repeats)
    except UnavailableError as error:
        if visited.visits:
            return  # what went well before stays; two directions that end in the other order now and then do not count
        record.left_out.append({"case": str(case), "why": str(error)})
        visited.stopped, visited.samples = "unavailable", Samples((), ())
        return
    except (StalledError, WrongDataError) as error:
        record.left_out.append({"case": str(case), "why": str(error)})
        record.disturbances.append(f"{case}: {error}")
        visited.stopped, visited.samples = "disturbed", Samples((), ())
        return
    first = (taken.device_s if case.memory != "pageable" and taken.device_s else taken.api_s)[:untimed]
    moment = Moment(at - zero, clock() - at, first[0] if first else None, *where)
    visited.add(Samples(taken.device_s[untimed:], taken.api_s[untimed:]), moment)


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
