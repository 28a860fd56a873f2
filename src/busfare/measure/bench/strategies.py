"""`bench strategies`: every overlap strategy of W14 run for real on several kernels, beside what `plan` says of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from busfare.measure.bench import program as programs
from busfare.measure.bench.checking import RELATIVE, Expected, expected, fill
from busfare.measure.bench.device import StrategyDevice, Timing
from busfare.measure.bench.kernel import KERNELS, Kernel
from busfare.measure.bench.predicting import MOST_IN_ORDER, STRATEGIES, Predicted, problem_of
from busfare.measure.bench.program import Program
from busfare.measure.bench.version import Version
from busfare.measure.bench.work import Work
from busfare.measure.device import UnavailableError, WrongDataError
from busfare.measure.middle import median, quicker, spread
from busfare.measure.raw import QUIETEST_ONE_IN
from busfare.plan import Machine

__all__ = ["BUDGET_S", "CELLS", "Cell", "Run", "Version", "cells_of", "run_cells"]

KIB, MIB = 1 << 10, 1 << 20
#: A cell that would start after so many seconds is left out, and named.
BUDGET_S, QUICK_S = 150.0, 15.0
#: Numbers of streams: each is run, and the one that `plan` calls best.
SWEEP, HYBRID_SWEEP, QUICK_SWEEP = (1, 2, 4, 8, 16, 32, 42, 64, 128, 256), (1, 8, 42), (1, 8, 42, 128)
THREE_SWEEP = (8, 32, 42, 64)
#: A version is run so often; where its median is not within NEAR of the truth then, longer, up to so many times.
LEAST, MOST, NEAR, LONGER_S = 5, 25, 0.01, 0.05
#: Every version is run at so many moments of its cell at least, after the first so often each time; at more of them where
#: the moments differ. A shared machine is slow for seconds on end. The link is measured by turns with them.
LEAST_VISITS, MOST_VISITS, LATER = 4, 6, 5
#: Runs by the host's clock.
BY_HOST = 3
#: Pinned host memory that one cell may take.
MOST_HOST_BYTES = 4 << 30

#: The two kernels of W14 on its grid, then others: with re-reads, more arithmetic, one way only; small and large. In
#: this order a short budget leaves out what says least.
CELLS = (
    Work(KERNELS["state"], 42, 1024 * 1024),
    Work(KERNELS["buoydiff"], 42, 1024 * 1024),
    Work(KERNELS["scale"], 42, 512 * KIB),
    Work(KERNELS["reread"], 42, 512 * KIB),
    Work(KERNELS["compute-heavy"], 42, 512 * KIB),
    Work(KERNELS["state"], 42, 256 * 256),
    Work(KERNELS["buoydiff"], 42, 512 * 512),
    Work(KERNELS["scale"], 16, 8 * KIB),
    Work(KERNELS["gather"], 42, 512 * KIB),
    Work(KERNELS["spread"], 42, 512 * KIB),
    Work(KERNELS["compute-balanced"], 42, 512 * KIB),
    Work(KERNELS["scale"], 42, 2 * MIB),
)
QUICK_CELLS = tuple(CELLS[n] for n in (2, 3, 5, 6))

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Cell:
    """All versions of one kernel on one grid. `kernel_s`: t_E by the number of chunks; `link`: all copies both ways at
    once, and nothing else, `one_way_s` those in and those out alone; `against`: what results were compared with.
    """

    work: Work
    kernel_s: dict[int, float]
    link: Timing
    one_way_s: tuple[float, ...]
    predicted: Predicted
    versions: tuple[Version, ...]
    against: str

    def fastest(self, strategies: Sequence[str] = STRATEGIES) -> Version:
        """The fastest measured version of some strategies."""
        return min((v for v in self.versions if v.strategy in strategies), key=lambda v: v.seconds)

    def of(self, strategy: str, streams: int | None = None) -> Version | None:
        """A version; None where it was not measured."""
        return next(
            (v for v in self.versions if v.strategy == strategy and streams in (None, v.streams)), None
        )

    @property
    def link_s(self) -> float:
        """Seconds of all copies both ways at once, at the quietest moments: as `probe` reads such copies."""
        return quicker(self.link.device_s, QUIETEST_ONE_IN)

    @property
    def limit_s(self) -> float:
        """Nothing is faster than the link both ways, nor than the kernel."""
        return max(self.link_s, self.kernel_s[1])


@dataclass
class Run:
    """What one call measured."""

    cells: list[Cell] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)
    seconds: float = 0.0


def cells_of(own: Kernel | None, quick: bool, levels: int, level: int) -> tuple[Work, ...]:
    """What is run: the user's own kernel on a grid, or ours."""
    if own is not None:
        return (Work(own, levels, level),)
    return QUICK_CELLS if quick else CELLS


def run_cells(
    device: StrategyDevice,
    works: Sequence[Work],
    machine: Machine,
    quick: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Run:
    """Measures `works` on `device`, with predictions for `machine`; `say` is told what is about to be run."""
    # A virtual machine has a time of its own, in which nobody waits.
    clock: Callable[[], float] = getattr(device, "clock", time.monotonic)
    found, began = Run(), clock()
    order = random.Random(seed)
    budget = QUICK_S if quick else BUDGET_S
    for n, work in enumerate(works):
        spent = clock() - began
        if spent > budget:
            found.left_out.append({"case": work.name, "why": f"{budget:g} s had passed; run it by itself"})
            continue
        say(f"{work.name}: {work.h2d_bytes / 1e6:,.1f} MB in, {work.d2h_bytes / 1e6:,.1f} MB out")

        def shown(share: float, what: str, n: int = n, work: Work = work) -> None:
            if progress:
                progress((n + share) / len(works), f"{work.name} {what}")

        try:
            found.cells.append(_Measuring(device, work, machine, quick, order, found.left_out).cell(shown))
        except (UnavailableError, WrongDataError) as error:
            found.left_out.append({"case": work.name, "why": str(error)})
    found.seconds = clock() - began
    return found


class _Measuring:
    """One cell being measured."""

    def __init__(
        self,
        device: StrategyDevice,
        work: Work,
        machine: Machine,
        quick: bool,
        order: random.Random,
        left_out: list[dict[str, str]],
    ) -> None:
        need = work.h2d_bytes + work.d2h_bytes
        if need > MOST_HOST_BYTES:
            raise UnavailableError(
                f"{need / 1e9:.1f} GB of pinned memory; {MOST_HOST_BYTES / 1e9:.1f} GB at most"
            )
        self.device, self.work, self.machine, self.order = device, work, machine, order
        self.sweep = QUICK_SWEEP if quick else SWEEP
        self.hybrid_sweep = QUICK_SWEEP if quick else HYBRID_SWEEP
        self.three_sweep = QUICK_SWEEP if quick else THREE_SWEEP
        self.most = MOST_IN_ORDER if work.kernel.reaches else 256
        self.quick, self.left_out = quick, left_out
        device.load(work)
        self.expected: Expected | None = None

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

    def cell(self, progress: Progress) -> Cell:
        self._prepared(progress)
        kernel_s = {
            n: median(self.device.run((programs.kernels_alone(self.work, n),), 5).device_s)
            for n in self._counts(self.sweep)
        }
        link = self.device.run((programs.link_alone(self.work),), LEAST)
        alone = tuple(
            median(self.device.run((programs.link_alone(self.work, way),), LEAST).device_s)
            for way in ("h2d", "d2h")
        )
        predicted = Predicted.of(
            problem_of(self.work, kernel_s),
            self.machine,
            min(self.most, self.work.most_chunks),
            bool(self.work.kernel.reaches),
        )
        plans = list(self._programs(predicted))
        self.order.shuffle(plans)
        versions = []
        for n, (strategy, streams, chosen) in enumerate(plans):
            progress((n + 1) / (len(plans) + 1), f"{strategy} {streams}")
            made = self._version(strategy, streams, chosen, predicted)
            if made is not None:
                versions.append(made)
        versions, link = self._again(versions, {(name, n): chosen for name, n, chosen in plans}, link)
        versions.sort(key=lambda v: (v.gpus, _ORDER.index(v.strategy), v.streams))
        if not {"explicit", "mapped", "streams", "hybrid"} <= {v.strategy for v in versions}:
            raise WrongDataError("a strategy could not be measured; see the lines of its versions")
        against = self.expected.against if self.expected else ""
        return Cell(self.work, kernel_s, link, alone, predicted, tuple(versions), against)

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

    def _timed(self, chosen: tuple[Program, ...]) -> Timing:
        """Runs until the median is known well enough, or for long enough; then by the host's clock."""
        if self.quick:
            return self.device.run(chosen, BY_HOST, BY_HOST)
        found = self.device.run(chosen, LEAST)
        if spread(found.device_s) > NEAR:
            more = min(MOST - LEAST, int(LONGER_S / max(median(found.device_s), 1e-6)))
            if more > 0:
                longer = self.device.run(chosen, more)
                found = replace(
                    found, device_s=found.device_s + longer.device_s, held=found.held and longer.held
                )
        return replace(found, host_s=self.device.run(chosen, 0, BY_HOST).host_s)

    def _again(
        self,
        versions: list[Version],
        chosen: Mapping[tuple[str, int], tuple[Program, ...]],
        link: Timing,
    ) -> tuple[list[Version], Timing]:
        """The same, and the link, with samples of other moments, each time in another order."""
        for visit in range(1, 1 if self.quick else MOST_VISITS):
            again = self.device.run((programs.link_alone(self.work),), LATER)
            link = replace(link, device_s=link.device_s + again.device_s, ends_s=link.ends_s + again.ends_s)
            order = list(range(len(versions)))
            self.order.shuffle(order)
            for n in order:
                version = versions[n]
                if visit < LEAST_VISITS or version.apart:
                    later = self.device.run(chosen[version.strategy, version.streams], LATER)
                    timing = replace(
                        version.timing,
                        device_s=version.timing.device_s + later.device_s,
                        held=version.timing.held and later.held,
                    )
                    versions[n] = replace(
                        version, timing=timing, visits=(*version.visits, len(later.device_s))
                    )
        return versions, link

    def _version(
        self, strategy: str, streams: int, chosen: tuple[Program, ...], predicted: Predicted
    ) -> Version | None:
        case = f"{self.work.name} {strategy} {streams}"
        try:
            self._checked(chosen)
            timing = self._timed(chosen)
            share = self._checked(chosen, again=True)
        except (UnavailableError, WrongDataError) as error:
            self.left_out.append({"case": case, "why": str(error)})
            return None
        told = predicted.shared(chosen, self.work) if len(chosen) > 1 else predicted.at(strategy, streams)
        return Version(strategy, streams, len(chosen), timing, told, share, (len(timing.device_s),))


_ORDER = ("explicit", "batched", "mapped", "streams", "three-streams", "hybrid", "graph", "streams-2gpu")
