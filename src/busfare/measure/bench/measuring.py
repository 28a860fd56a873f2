"""One cell of `bench strategies` being measured: its kernel alone, then its link and every version, by turns at several
moments.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from busfare.measure.bench import program as programs
from busfare.measure.bench.cell import Cell, Version
from busfare.measure.bench.checking import RELATIVE, expected, fill, slacks
from busfare.measure.bench.device import StrategyDevice, Timing
from busfare.measure.bench.predicting import MOST_IN_ORDER, Predicted, problem_of
from busfare.measure.bench.program import Program, Work
from busfare.measure.device import UnavailableError, WrongDataError
from busfare.measure.summary import median
from busfare.plan import Machine

__all__ = ["Measuring", "Progress"]

Progress = Callable[[float, str], None]
#: A strategy and its number of streams.
Name = tuple[str, int]

#: Numbers of streams of each strategy that has them: each is run, and the one that `plan` calls best.
SWEEPS = {
    "streams": (1, 2, 4, 8, 16, 32, 42, 64, 128, 256),
    "three-streams": (8, 32, 42, 64),
    "hybrid": (1, 8, 42),
}
QUICK_SWEEP = (1, 8, 42, 128)
#: A version is run at so many moments of its cell at least and at most, by turns with the others: a shared machine is slow
#: for seconds on end.
LEAST_MOMENTS, MOST_MOMENTS = 4, 8
#: At each moment it runs about so long, so many times at least and at most; by the host's clock so often in all.
MOMENT_S, LEAST_RUNS, MOST_RUNS, BY_HOST = 0.01, 5, 25, 3
#: Pinned host memory that one cell may take.
MOST_HOST_BYTES = 4 << 30

_ORDER = ("explicit", "batched", "mapped", "streams", "three-streams", "hybrid", "graph", "streams-2gpu")
#: What every cell must have.
_PLAIN = {"explicit", "mapped", "streams", "hybrid"}


@dataclass
class Measuring:
    """One cell being measured. `until`: after this time of `clock` there are no more moments than LEAST_MOMENTS. Versions
    that cannot be measured are named in `left_out`.
    """

    device: StrategyDevice
    work: Work
    machine: Machine
    quick: bool
    order: random.Random
    left_out: list[dict[str, str]]
    clock: Callable[[], float]
    until: float
    #: What results are compared with; empty where nothing is computed.
    _against: str = ""
    _links: list[Timing] = field(default_factory=list)
    _one_way: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))

    def measured(self, progress: Progress) -> Cell:
        """The cell. Raises UnavailableError and WrongDataError where one of the plain strategies cannot be measured."""
        self._prepare(progress)
        kernels = {n: self._run((programs.kernels_alone(self.work, n),)) for n in self._counts("streams")}
        problem = problem_of(self.work, {n: median(alone.device_s) for n, alone in kernels.items()})
        in_order = bool(self.work.kernel.reaches)
        predicted = Predicted.of(problem, self.machine, self._most(), in_order)
        chosen = {(name, n): own for name, n, own in self._programs(predicted)}
        versions: dict[Name, Version] = {}
        for moment in range(1 if self.quick else MOST_MOMENTS):
            if moment >= LEAST_MOMENTS and self.clock() > self.until:
                break
            self._link()
            names = list(versions) if moment else list(chosen)
            self.order.shuffle(names)
            for n, name in enumerate(names):
                progress((moment + n / len(names)) / MOST_MOMENTS, f"{name[0]} {name[1]}")
                if moment:
                    versions[name] = self._once_more(versions[name], chosen[name])
                elif (first := self._first(name, chosen[name])) is not None:
                    versions[name] = first
        found = [
            replace(v, predicted=predicted.shared(own, self.work) if len(own) > 1 else predicted.at(*name))
            for name, v in versions.items()
            for own in (chosen[name],)
        ]
        found.sort(key=lambda v: (v.gpus, _ORDER.index(v.strategy), v.streams))
        if not {v.strategy for v in found} >= _PLAIN:
            raise WrongDataError("a strategy could not be measured; see the lines of its versions")
        link = sum(self._links, Timing((), ()))
        one_way = tuple(min(seen) for seen in self._one_way)
        samples = {n: alone.device_s for n, alone in kernels.items()}
        return Cell(self.work, samples, link, one_way, predicted, tuple(found), self._against)

    def _prepare(self, progress: Progress) -> None:
        """Inputs and the reference, and the comparison on the GPU tried."""
        device, work = self.device, self.work
        need = work.h2d_bytes + work.d2h_bytes
        if need > MOST_HOST_BYTES:
            raise UnavailableError(
                f"{need / 1e9:.1f} GB of pinned memory; {MOST_HOST_BYTES / 1e9:.1f} GB at most"
            )
        device.load(work)
        if not device.inputs():
            return
        progress(0.0, "inputs and reference")
        fill(work, device.inputs())
        explicit = (programs.explicit(work),)
        if work.kernel.reference is not None:
            self._against, arrays = "the reference in float64 on the CPU", expected(work, device.inputs())
        else:
            self._against = "the explicit version, for want of a reference"
            device.clear()
            device.run(explicit, 1)
            arrays = [array.copy() for array in device.outputs()]
        device.expect(arrays, RELATIVE, slacks(arrays))
        device.clear()
        if device.compare().wrong != work.kernel.outputs * work.elements:
            raise WrongDataError("the comparison on the GPU takes cleared arrays for results")
        device.run(explicit, 1)  # data to compute on, not NaN

    def _link(self) -> None:
        """One more moment of the link alone: both ways at once, and each way."""
        self._links.append(self.device.run((programs.link_alone(self.work),), LEAST_RUNS))
        for direction, seen in zip(("h2d", "d2h"), self._one_way, strict=True):
            alone = programs.link_alone(self.work, "h2d" if direction == "h2d" else "d2h")
            seen.append(median(self.device.run((alone,), LEAST_RUNS).device_s))

    def _most(self) -> int:
        """The most chunks that are run."""
        return min(MOST_IN_ORDER if self.work.kernel.reaches else 256, self.work.most_chunks)

    def _counts(self, strategy: str, *more: int) -> list[int]:
        sweep = QUICK_SWEEP if self.quick else SWEEPS[strategy]
        return sorted({n for n in (1, *sweep, *more) if n <= self._most()})

    def _programs(self, predicted: Predicted) -> Iterator[tuple[str, int, tuple[Program, ...]]]:
        """Every version: its strategy, its number of streams, and a program a GPU."""
        work = self.work
        yield "explicit", 1, (programs.explicit(work),)
        yield "batched", 1, (programs.batched(work),)
        yield "mapped", 1, (programs.mapped(work),)
        of = {
            "streams": programs.streams, "three-streams": programs.three_streams, "hybrid": programs.hybrid,
        }  # fmt: skip
        for strategy, program in of.items():
            for n in self._counts(strategy, predicted.best_number(strategy)):
                if n > 1 or strategy != "three-streams":
                    yield strategy, n, (program(work, n),)
        best = predicted.best_number("streams")
        yield "graph", best, (programs.streams(work, best, "graph", as_graph=True),)
        if self.device.gpus > 1 and best > 1:
            shares = (range(best // 2), range(best // 2, best))
            yield "streams-2gpu", best, tuple(programs.streams(work, best, own=own) for own in shares)

    def _checked(self) -> float | None:
        """Compares the results of what ran last, element by element; the largest error over what is allowed."""
        if not self._against:
            return None
        found = self.device.compare()
        if found.wrong:
            level = (found.first or 0) // self.work.level
            raise WrongDataError(
                f"{found.wrong} elements differ from {self._against}, the first in level {level}"
            )
        return found.worst

    def _first(self, name: Name, chosen: tuple[Program, ...]) -> Version | None:
        """The first moment of a version, its results compared before and after; None where it cannot be run."""
        try:
            self.device.clear()
            self.device.run(chosen, 1)
            self._checked()
            timing = self._run(chosen, BY_HOST)
            share = self._checked()
        except (UnavailableError, WrongDataError) as error:
            self.left_out.append({"case": f"{self.work.name} {name[0]} {name[1]}", "why": str(error)})
            return None
        return Version(*name, len(chosen), timing, None, share, (len(timing.device_s),))

    def _once_more(self, version: Version, chosen: tuple[Program, ...]) -> Version:
        """The same with the samples of one more moment."""
        later = self._run(chosen)
        visits = (*version.visits, len(later.device_s))
        return replace(version, timing=version.timing + later, visits=visits)

    def _run(self, chosen: Sequence[Program], by_host: int = 0) -> Timing:
        """The runs of one moment: as many as MOMENT_S holds."""
        if self.quick:
            return self.device.run(chosen, BY_HOST, by_host)
        found = self.device.run(chosen, LEAST_RUNS, by_host)
        more = min(int(MOMENT_S / median(found.device_s)), MOST_RUNS) - LEAST_RUNS
        if more <= 0:
            return found
        return found + self.device.run(chosen, more)
