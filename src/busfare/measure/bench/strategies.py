"""`bench strategies`: W14's overlap strategies run on several kernels at several moments, beside predictions."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from statistics import median

from busfare.cost.ranges import strategy_range
from busfare.measure.bench import program as programs
from busfare.measure.bench import run as results
from busfare.measure.bench.kernel import KERNELS, RELATIVE, Work, expected, fill, slacks
from busfare.measure.bench.program import STRATEGIES, STREAMED, Predicted, Program, StrategyDevice, Timing
from busfare.measure.bench.run import Run, off_percent
from busfare.measure.cases import KIB, MIB, QUIETEST_PORTION, fastest_part, interval, overlapping
from busfare.measure.run import Progress, UnavailableError, WrongDataError
from busfare.questions import BenchStrategies

#: A cell that would start after so many seconds is left out, and named; of what is left each one takes its share for
#: moments beyond those that it has anyhow.
BUDGET_S, QUICK_S = 150.0, 15.0

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

#: Numbers of streams of each strategy that has them: each is run, and the one that `plan` calls best.
SWEEPS = {
    "streams": (1, 2, 4, 8, 16, 32, 42, 64, 128, 256),
    "three-streams": (8, 32, 42, 64),
    "hybrid": (1, 8, 42),
}
QUICK_SWEEP = (1, 8, 42, 128)
#: A version runs at so many moments of its cell at least and at most, between the others: a shared machine is slow at times.
LEAST_MOMENTS, MOST_MOMENTS = 4, 8
#: At each moment it runs about so long, so many times at least and at most; by the host's clock so often in all.
MOMENT_S, LEAST_RUNS, MOST_RUNS, BY_HOST = 0.01, 5, 25, 3
#: Pinned host memory that one cell may take.
MOST_HOST_BYTES = 4 << 30
#: What moves data one way at a time; the others live on the host's memory where they take longer than this, which other
#: programs slow for most of a run, but not for every millisecond of it.
_IN_SERIES, _SHORT_S = ("explicit", "batched"), 5e-4

_ORDER = (*_IN_SERIES, "mapped", "streams", "three-streams", "hybrid", "graph")
#: What every cell must have.
_PLAIN = {"explicit", "mapped", "streams", "hybrid"}


@dataclass
class _Timed:
    """A strategy with its number of streams being measured. `visits`: how many of the samples each moment took."""

    strategy: str
    streams: int
    program: Program
    timing: Timing = field(default_factory=Timing)
    visits: list[int] = field(default_factory=list)
    error_share: float | None = None

    def add(self, timing: Timing) -> None:
        """One more moment."""
        self.timing += timing
        self.visits.append(len(timing.device_s))

    @property
    def seconds(self) -> float:
        """What counts of the samples: the mean of the quicker half of the moments' medians, or, of data both ways at
        once, of the quickest quarter of all samples: as `probe` reads its own.
        """
        samples, ends = self.timing.device_s, accumulate(self.visits, initial=0)
        by_moment = fastest_part([median(samples[a:b]) for a, b in pairwise(ends)])
        if self.strategy in _IN_SERIES or by_moment < _SHORT_S:
            return by_moment
        return fastest_part(samples, QUIETEST_PORTION)


@dataclass
class Measuring:
    """One cell being measured. `until`: after so many seconds of the run there are no more moments than LEAST_MOMENTS.
    Versions that cannot be measured are left out of the run.
    """

    run: Run[StrategyDevice]
    work: Work
    order: random.Random
    until: float
    progress: Progress
    #: What results are compared with; empty where nothing is computed.
    _against: str = ""
    _link: Timing = field(default_factory=Timing)

    def measured(self) -> results.StrategyCell:
        """The cell. Raises UnavailableError and WrongDataError where one of the plain strategies cannot be measured."""
        self._prepare()
        work = self.work
        counts = self._counts("streams")
        kernels = {n: self._timed(programs.kernels_alone(work, n)).device_s for n in counts}
        predicted = Predicted.of(work, {n: median(s) for n, s in kernels.items()}, self.run.machine)
        versions = [_Timed(*version) for version in self._programs(predicted)]
        for moment in range(1 if self.run.quick else MOST_MOMENTS):
            if moment >= LEAST_MOMENTS and self.run.seconds > self.until:
                break
            self._link += self.run.device.run(programs.link_alone(work), LEAST_RUNS)
            self.order.shuffle(versions)
            for n, version in enumerate(versions):
                what = f"{version.strategy} {version.streams}"
                self.progress((moment + n / len(versions)) / MOST_MOMENTS, what)
                if moment:
                    version.add(self._timed(version.program))
                else:
                    with self.run.attempt(f"{work.name} {what}"):
                        self._first(version)
            versions = [version for version in versions if version.visits]
        versions.sort(key=lambda v: (_ORDER.index(v.strategy), v.streams))
        if not {v.strategy for v in versions} >= _PLAIN:
            raise WrongDataError("a strategy could not be measured; see the rows of its versions")
        return self._cell(kernels, predicted, [self._version(v, predicted) for v in versions])

    def _prepare(self) -> None:
        """Inputs and the reference, and the comparison on the GPU tried."""
        device, work = self.run.device, self.work
        if (need := work.h2d_bytes + work.d2h_bytes) > MOST_HOST_BYTES:
            most = f"{MOST_HOST_BYTES / 1e9:.1f} GB at most"
            raise UnavailableError(f"{need / 1e9:.1f} GB of pinned memory; {most}")
        device.load(work)
        if not device.inputs():
            return
        self.progress(0.0, "inputs and reference")
        fill(work, device.inputs())
        self._against, arrays = "the reference in float64 on the CPU", expected(work, device.inputs())
        device.expect(arrays, RELATIVE, slacks(arrays))
        device.clear()
        if device.compare().wrong != work.kernel.outputs * work.elements:
            raise WrongDataError("the comparison on the GPU takes cleared arrays for results")
        device.run(programs.explicit(work), 1)  # data to compute on, not NaN

    def _counts(self, strategy: str, *more: int) -> list[int]:
        sweep = QUICK_SWEEP if self.run.quick else SWEEPS[strategy]
        return sorted({n for n in (1, *sweep, *more) if n <= self.work.most_streams})

    def _programs(self, predicted: Predicted) -> Iterator[tuple[str, int, Program]]:
        """Every version: its strategy, its number of streams, and its program."""
        work = self.work
        for whole in (programs.explicit(work), programs.batched(work), programs.mapped(work)):
            yield whole.strategy, 1, whole
        for strategy in SWEEPS:
            for n in self._counts(strategy, predicted.cut[strategy].best):
                if strategy != "three-streams":
                    yield strategy, n, programs.streams(work, n, strategy)
                elif n > 1:
                    yield strategy, n, programs.three_streams(work, n)
        best = predicted.cut["streams"].best
        yield "graph", best, programs.streams(work, best, "graph")

    def _checked(self) -> float | None:
        """Compares the results of what ran last, element by element; the largest error over what is allowed."""
        if not self._against:
            return None
        compared = self.run.device.compare()
        if wrong := compared.wrong:
            level = (compared.first or 0) // self.work.level
            raise WrongDataError(f"{wrong} elements differ from {self._against}, first in level {level}")
        return compared.worst

    def _first(self, version: _Timed) -> None:
        """The first moment of a version, its results compared before and after."""
        self.run.device.clear()
        self.run.device.run(version.program, 1)
        self._checked()
        timing = self._timed(version.program, BY_HOST)
        version.error_share = self._checked()
        version.add(timing)

    def _timed(self, chosen: Program, by_host: int = 0) -> Timing:
        """The runs of one moment: as many as MOMENT_S holds."""
        if self.run.quick:
            return self.run.device.run(chosen, BY_HOST, by_host)
        timing = self.run.device.run(chosen, LEAST_RUNS, by_host)
        more = min(int(MOMENT_S / median(timing.device_s)), MOST_RUNS) - LEAST_RUNS
        return timing + self.run.device.run(chosen, more) if more > 0 else timing

    def _version(self, timed: _Timed, predicted: Predicted) -> results.Version:
        timing, seconds = timed.timing, timed.seconds
        due = predicted.at(timed.strategy, timed.streams)
        return results.Version(
            strategy=timed.strategy,
            streams=timed.streams,
            measured_seconds=seconds,
            measured_interval_seconds=interval(timing.device_s),
            measured_host_seconds=median(timing.host_s) if timing.host_s else None,
            samples_seconds=timing.device_s,
            samples_by_moment=tuple(timed.visits),
            held=timing.held,
            predicted_seconds=due.seconds if due else None,
            predicted_by=due.by if due else None,
            error_percent=off_percent(due.seconds if due else None, seconds),
            checked=timed.error_share is not None,
            error_share=timed.error_share,
            **strategy_range(timed.strategy, due.seconds if due else None, self.run.machine.node),
        )

    def _cell(
        self, kernels: dict[int, tuple[float, ...]], predicted: Predicted, versions: list[results.Version]
    ) -> results.StrategyCell:
        """All versions, which of them were the fastest and which were predicted to be."""

        def fastest(strategies: Sequence[str]) -> results.Version:
            return min((v for v in versions if v.strategy in strategies), key=lambda v: v.measured_seconds)

        def cost_percent(taken: results.Version | None, best: results.Version) -> float | None:
            return off_percent(taken.measured_seconds if taken else None, best.measured_seconds)

        work, planned, number = self.work, predicted.best, predicted.cut["streams"].best
        best, streams = fastest(STRATEGIES), fastest(("streams",))
        named = {(v.strategy, v.streams): v for v in versions}
        taken, at = named.get((planned.strategy, planned.streams)), named.get(("streams", number))
        # Be it submitted one way or the other, or measured alike.
        picked = planned.strategy == best.strategy or {planned.strategy, best.strategy} == {*STREAMED}
        picked |= taken is not None and overlapping(taken.samples_seconds, best.samples_seconds)
        link_s, kernel_s = fastest_part(self._link.device_s, QUIETEST_PORTION), median(kernels[1])
        limit_s = max(link_s, kernel_s)
        return results.StrategyCell(
            name=work.name,
            kernel=work.kernel.name,
            title=work.kernel.title,
            levels=work.levels,
            level_elements=work.level,
            h2d_bytes=work.h2d_bytes,
            d2h_bytes=work.d2h_bytes,
            measured_kernel_seconds=kernel_s,
            measured_kernel_seconds_by_chunks=[
                results.ByChunks(n, median(samples), samples) for n, samples in sorted(kernels.items())
            ],
            measured_link_seconds=link_s,
            measured_link_samples_seconds=self._link.device_s,
            checked_against=self._against or None,
            versions=versions,
            best=results.Best(
                results.Fastest(best.strategy, best.streams, best.measured_seconds),
                results.Fastest(planned.strategy, planned.streams, planned.seconds),
                picked,
                cost_percent(taken, best),
            ),
            streams=results.BestStreams(
                streams.streams,
                number,
                max(streams.streams / number, number / streams.streams),
                at.measured_seconds if at else None,
                cost_percent(at, streams),
            ),
            limit=results.LinkOrKernel(
                limit_s,
                "link" if link_s >= kernel_s else "kernel",
                100 * limit_s / fastest(STREAMED).measured_seconds,
            ),
        )


def measured(run: Run[StrategyDevice], question: BenchStrategies) -> results.StrategiesResult:
    """All strategies on every cell."""
    cells = run_cells(run, QUICK_CELLS if question.quick else CELLS)
    return results.StrategiesResult(cells=cells, **run.origin("strategies", cells))


def run_cells(run: Run[StrategyDevice], works: Sequence[Work]) -> list[results.StrategyCell]:
    """Measures `works`, beside what is predicted of them."""
    cells: list[results.StrategyCell] = []
    order = random.Random(0)
    budget = QUICK_S if run.quick else BUDGET_S
    for n, work in enumerate(works):
        spent = run.seconds
        if run.too_late(work.name, budget):
            continue
        run.say(f"{work.name}: {work.h2d_bytes / 1e6:,.1f} MB in, {work.d2h_bytes / 1e6:,.1f} MB out")

        def shown(share: float, what: str, n: int = n, work: Work = work) -> None:
            run.show((n + share) / len(works), f"{work.name} {what}")

        until = run.seconds + (budget - spent) / (len(works) - n)
        with run.attempt(work.name):
            cells.append(Measuring(run, work, order, until, shown).measured())
    return cells
