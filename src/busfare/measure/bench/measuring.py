"""One cell of `bench strategies` being measured: its kernel and its link alone, and every version, by turns at several
moments.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from busfare.measure.bench import program as programs
from busfare.measure.bench.cell import Cell
from busfare.measure.bench.checking import RELATIVE, Expected, expected, fill
from busfare.measure.bench.device import StrategyDevice, Timing
from busfare.measure.bench.predicting import MOST_IN_ORDER, Predicted, problem_of
from busfare.measure.bench.program import Program
from busfare.measure.bench.version import SHORT_S, Version
from busfare.measure.bench.work import Work
from busfare.measure.device import UnavailableError, WrongDataError
from busfare.measure.middle import median, quicker, spread
from busfare.plan import Machine, Prediction

__all__ = ["Measuring", "Progress"]

Progress = Callable[[float, str], None]

#: Numbers of streams: each is run, and the one that `plan` calls best.
SWEEP, HYBRID_SWEEP, QUICK_SWEEP = (1, 2, 4, 8, 16, 32, 42, 64, 128, 256), (1, 8, 42), (1, 8, 42, 128)
THREE_SWEEP = (8, 32, 42, 64)
#: A version is run so often; where its median is not within NEAR of the truth then, up to so many times, and no longer
#: than this by the host's clock.
LEAST, MOST, NEAR, LONGER_S = 5, 25, 0.01, 0.05
#: Of a program shorter than SHORT_S, so many runs at each moment.
MOST_SHORT = 60
#: Every version is run at so many moments of its cell at least, after the first so often each time; at more of them where
#: the moments differ. A shared machine is slow for seconds on end. Kernels and link alone are measured by turns with them.
LEAST_VISITS, MOST_VISITS, LATER = 4, 8, 5
#: Runs by the host's clock.
BY_HOST = 3
#: Pinned host memory that one cell may take.
MOST_HOST_BYTES = 4 << 30

_ORDER = ("explicit", "batched", "mapped", "streams", "three-streams", "hybrid", "graph", "streams-2gpu")
#: Those whose number of streams follows from the prediction.
_CHOSEN = ("streams", "three-streams", "hybrid")


class Measuring:
    """One cell being measured. `until`: after this time of `clock` there are no more moments than LEAST_VISITS."""

    def __init__(
        self,
        device: StrategyDevice,
        work: Work,
        machine: Machine,
        quick: bool,
        order: random.Random,
        left_out: list[dict[str, str]],
        clock: Callable[[], float],
        until: float,
    ) -> None:
        need = work.h2d_bytes + work.d2h_bytes
        if need > MOST_HOST_BYTES:
            raise UnavailableError(
                f"{need / 1e9:.1f} GB of pinned memory; {MOST_HOST_BYTES / 1e9:.1f} GB at most"
            )
        self.device, self.work, self.machine, self.order = device, work, machine, order
        self.clock, self.until = clock, until
        self.sweep = QUICK_SWEEP if quick else SWEEP
        self.hybrid_sweep = QUICK_SWEEP if quick else HYBRID_SWEEP
        self.three_sweep = QUICK_SWEEP if quick else THREE_SWEEP
        self.most = MOST_IN_ORDER if work.kernel.reaches else 256
        self.quick, self.left_out = quick, left_out
        device.load(work)
        self.expected: Expected | None = None
        self.kernels: dict[int, list[float]] = {}
        self.link: list[Timing] = []
        self.one_way: list[list[float]] = [[], []]

    def measured(self, progress: Progress) -> Cell:
        """The cell. Raises UnavailableError and WrongDataError where one of the plain strategies cannot be measured."""
        self._prepared(progress)
        self._alone()
        predicted = self._predicted()
        chosen = {(name, n): own for name, n, own in self._programs(predicted)}
        plans = list(chosen)
        self.order.shuffle(plans)
        versions: dict[tuple[str, int], Version] = {}
        for n, plan in enumerate(plans):
            progress((n + 1) / (len(plans) + 1), f"{plan[0]} {plan[1]}")
            self._first(plan, chosen[plan], versions)
        for visit in range(1, 1 if self.quick else MOST_VISITS):
            again = [p for p, v in versions.items() if visit < LEAST_VISITS or v.apart]
            if not again or (visit >= LEAST_VISITS and self.clock() > self.until):
                break
            self._alone()
            self.order.shuffle(again)
            for plan in again:
                versions[plan] = self._later(versions[plan], chosen[plan])
        # The kernels' times of all moments may move a number by one or two: it is run too.
        predicted = self._predicted()
        for name, n, own in self._programs(predicted):
            if name in _CHOSEN and (name, n) not in versions:
                self._first((name, n), own, versions)
                for visit in range(1, 1 if self.quick else MOST_VISITS):
                    found = versions.get((name, n))
                    if found is not None and (visit < LEAST_VISITS or found.apart):
                        versions[name, n] = self._later(found, own)
                chosen[name, n] = own
        told = [replace(v, predicted=self._told(predicted, p, chosen[p])) for p, v in versions.items()]
        told.sort(key=lambda v: (v.gpus, _ORDER.index(v.strategy), v.streams))
        if not {"explicit", "mapped", "streams", "hybrid"} <= {v.strategy for v in told}:
            raise WrongDataError("a strategy could not be measured; see the lines of its versions")
        against = self.expected.against if self.expected else ""
        moments = {n: tuple(seen) for n, seen in self.kernels.items()}
        link = Timing(
            tuple(s for t in self.link for s in t.device_s),
            (),
            ends_s=tuple(e for t in self.link for e in t.ends_s),
        )
        ways = tuple(quicker(seen) for seen in self.one_way)
        return Cell(self.work, moments, link, ways, predicted, tuple(told), against)

    def _prepared(self, progress: Progress) -> None:
        """Inputs and the reference; the explicit version compared by the CPU, and the comparison on the GPU tried."""
        device, work = self.device, self.work
        if not device.inputs():
            return
        progress(0.0, "inputs")
        fill(work, device.inputs())
        if work.kernel.reference is not None:
            progress(0.0, "reference on the CPU")
            self.expected = expected(work, device.inputs())
        device.clear()
        device.run((programs.explicit(work),), 1)
        if self.expected is None:
            copies = [array.copy() for array in device.outputs()]
            self.expected = Expected(work, copies, "the explicit version, for want of a reference")
        else:
            self.expected.check(device.outputs())
        device.expect(self.expected.arrays, RELATIVE, self.expected.slacks)
        device.clear()
        if device.compare().wrong != work.kernel.outputs * work.elements:
            raise WrongDataError("the comparison on the GPU takes cleared arrays for results")
        device.run((programs.explicit(work),), 1)  # data to compute on, not NaN

    def _alone(self) -> None:
        """One more moment of the kernel's chunks alone, and of the link: what the prediction is given, and the limit."""
        for n in self._counts(self.sweep):
            timing = self._enough((programs.kernels_alone(self.work, n),), LATER)
            self.kernels.setdefault(n, []).append(median(timing.device_s))
        self.link.append(self.device.run((programs.link_alone(self.work),), LATER))
        for way, seen in zip(("h2d", "d2h"), self.one_way, strict=True):
            # The two ways are the only ones that `link_alone` knows.
            alone = programs.link_alone(self.work, "h2d" if way == "h2d" else "d2h")
            seen.append(median(self.device.run((alone,), LATER).device_s))

    def _predicted(self) -> Predicted:
        """What `plan` says, with the kernel's times of all moments so far."""
        return Predicted.of(
            problem_of(self.work, {n: quicker(seen) for n, seen in self.kernels.items()}),
            self.machine,
            min(self.most, self.work.most_chunks),
            bool(self.work.kernel.reaches),
        )

    def _counts(self, sweep: Sequence[int], *more: int) -> list[int]:
        return sorted({n for n in (1, *sweep, *more) if n <= min(self.most, self.work.most_chunks)})

    def _programs(self, predicted: Predicted) -> Iterator[tuple[str, int, tuple[Program, ...]]]:
        work = self.work
        best = predicted.streams.prediction().streams
        yield "explicit", 1, (programs.explicit(work),)
        yield "batched", 1, (programs.batched(work),)
        yield "mapped", 1, (programs.mapped(work),)
        for n in self._counts(self.sweep, best):
            yield "streams", n, (programs.streams(work, n),)
        for n in self._counts(self.hybrid_sweep, predicted.hybrid.prediction().streams):
            yield "hybrid", n, (programs.hybrid(work, n),)
        for n in self._counts(self.three_sweep, predicted.three_streams.prediction().streams):
            if n > 1:
                yield "three-streams", n, (programs.three_streams(work, n),)
        yield "graph", best, (programs.streams(work, best, "graph", as_graph=True),)
        if self.device.gpus > 1 and best > 1:
            shares = (range(best // 2), range(best // 2, best))
            yield "streams-2gpu", best, tuple(programs.streams(work, best, own=own) for own in shares)

    def _told(
        self, predicted: Predicted, plan: tuple[str, int], chosen: tuple[Program, ...]
    ) -> Prediction | None:
        return predicted.shared(chosen, self.work) if len(chosen) > 1 else predicted.at(*plan)

    def _checked(self, chosen: tuple[Program, ...], again: bool = False) -> float | None:
        """Runs a program on cleared arrays, unless `again`, and compares its results, element by element."""
        if not again:
            self.device.clear()
            self.device.run(chosen, 1)
        if self.expected is None:
            return None
        found = self.device.compare()
        if found.wrong:
            level = (found.first or 0) // self.work.level
            raise WrongDataError(
                f"{found.wrong} elements differ from {self.expected.against}, the first in level {level}"
            )
        return found.worst

    def _first(
        self, plan: tuple[str, int], chosen: tuple[Program, ...], versions: dict[tuple[str, int], Version]
    ) -> None:
        """The first moment of a version, with its results compared; named where it cannot be run."""
        try:
            self._checked(chosen)
            if self.quick:
                timing = self.device.run(chosen, BY_HOST, BY_HOST)
            else:
                timing = self._enough(chosen, LEAST, MOST)
                timing = replace(timing, host_s=self.device.run(chosen, 0, BY_HOST).host_s)
            share = self._checked(chosen, again=True)
        except (UnavailableError, WrongDataError) as error:
            self.left_out.append({"case": f"{self.work.name} {plan[0]} {plan[1]}", "why": str(error)})
            return
        versions[plan] = Version(*plan, len(chosen), timing, None, share, (len(timing.device_s),))

    def _later(self, version: Version, chosen: tuple[Program, ...]) -> Version:
        """The same with the samples of one more moment."""
        later, before = self._enough(chosen, LATER), version.timing
        timing = replace(before, device_s=before.device_s + later.device_s, held=before.held and later.held)
        return replace(version, timing=timing, visits=(*version.visits, len(later.device_s)))

    def _enough(self, chosen: tuple[Program, ...], few: int, most: int = 0) -> Timing:
        """`few` runs; then up to `most`, or as many as short programs need, until the median is known well enough."""
        began = self.clock()
        found = self.device.run(chosen, few)
        if median(found.device_s) < SHORT_S and not self.quick:
            most = MOST_SHORT
        if spread(found.device_s) > NEAR:
            took = max(self.clock() - began, 1e-6) / few
            more = min(most - few, int(LONGER_S / took))
            if more > 0:
                longer = self.device.run(chosen, more)
                held = found.held and longer.held
                found = replace(found, device_s=found.device_s + longer.device_s, held=held)
        return found
