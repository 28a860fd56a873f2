"""`bench methods`: S16's whole program run with every migration method, five ranges each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from busfare.measure.bench.run import RANGES, MethodDevice, MethodRun, Run
from busfare.measure.results import LeftOut
from busfare.measure.summary import median

#: S16's four, then managed memory as it is meant to be used, and two that S16 leaves out.
METHODS = ("pageable", "pinned", "managed", "managed-prefetch", "zero-copy", "registered", "batched")
#: Those whose copies and kernel the GPU runs without the host, once they are submitted.
HELD = ("pinned", "zero-copy", "registered", "batched")
#: What the vector holds, and by what it is multiplied: odd, so that a missing product always shows in 32 bits.
VALUE, CONSTANT = 7, 3
#: Ints of the vector, S16's five and two more; of the quick run.
ELEMENTS, LARGER = tuple(1 << n for n in range(20, 25)), (1 << 26, 1 << 28)
QUICK_ELEMENTS = (1 << 20, 1 << 24)
#: Accesses an element: S16's two situations.
ACCESSES = (1, 50)
#: The sweep on which the crossover is found, at SWEPT elements, with the methods that cross.
SWEEP, SWEPT, SWEEP_METHODS = (1, 2, 3, 4, 5, 6, 8, 10, 16, 25, 50), 1 << 24, ("pinned", "zero-copy")
#: Runs of each case [S16: 'an average of five executions'].
RUNS = 5
#: Pieces of a batched copy.
BATCH = 16
#: Cases that start after so many seconds are left out, and named.
BUDGET_S, QUICK_S = 90.0, 15.0


@dataclass(frozen=True, order=True)
class Case:
    """A vector of `elements` ints, each of which the kernel reads and writes `accesses` times."""

    elements: int
    accesses: int


@dataclass(frozen=True)
class Measured:
    """The runs of one method in one case."""

    case: Case
    method: str
    runs: tuple[MethodRun, ...]
    held: tuple[Mapping[str, float], ...] = ()

    @property
    def totals_s(self) -> list[float]:
        """Seconds of the whole program in each run."""
        return [sum(run.ranges.values()) for run in self.runs]

    @property
    def ranges(self) -> dict[str, float]:
        """Median seconds of each range: S16 takes the mean of its five runs, which one late run moves."""
        return {name: median([run.ranges[name] for run in self.runs]) for name in RANGES}

    @property
    def mean_s(self) -> float:
        """Mean of the whole program's seconds, as S16 takes it."""
        return sum(self.totals_s) / len(self.runs)


@dataclass
class Methods:
    """All that was measured; `kernel_s` is the kernel alone."""

    measured: list[Measured] = field(default_factory=list)
    kernel_s: dict[Case, float] = field(default_factory=dict)
    allocation_s: dict[str, float] = field(default_factory=dict)

    def of(self, case: Case) -> list[Measured]:
        """What was measured of one case, by method."""
        return [m for m in self.measured if m.case == case]

    def host_s(self, case: Case) -> float:
        """Seconds that the processor takes to initialise and to sum, where nothing migrates: in pinned memory."""
        ranges = [m.ranges for m in self.of(case) if m.method in ("pinned", "pageable", "registered")]
        return min((r["initialise"] + r["sum"] for r in ranges), default=0.0)

    def gpu_samples(self, m: Measured) -> list[float]:
        """Seconds of both copies and the kernel in each run, without what the host's calls add.

        Where the GPU runs them alone, by its events. Pageable copies are moved by the host, and are timed by its clock;
        the kernel of pageable and of prefetched memory runs in device memory, as alone. Faults into the GPU are in the
        kernel of managed memory; faults back are what its sum takes longer than that of data in the processor's cache:
        a page is summed right after it came, while pinned data that outgrow the cache come from memory.
        """
        if m.held:
            return [sum(one.values()) for one in m.held]
        alone = self.kernel_s[m.case]
        if m.method == "managed":
            each = [one.ranges["sum"] / one.case.elements for one in self.measured if one.method == "pinned"]
            cached = min(each, default=0.0) * m.case.elements
            return [
                r.device.get("kernel", r.ranges["kernel"]) + max(0.0, r.ranges["sum"] - cached)
                for r in m.runs
            ]
        copies = [r.device if m.method == "managed-prefetch" else r.ranges for r in m.runs]
        return [moved["h2d"] + alone + moved["d2h"] for moved in copies]

    def gpu_s(self, m: Measured) -> float:
        """The median of `gpu_samples`."""
        return median(self.gpu_samples(m))


def cases(quick: bool, largest: int) -> dict[Case, tuple[str, ...]]:
    """What is run, with the methods of each case: the grid with all of them, then the sweep with those that cross."""
    sizes = [n for n in (QUICK_ELEMENTS if quick else (*ELEMENTS, *LARGER)) if n <= largest]
    grid: dict[Case, tuple[str, ...]] = {
        Case(n, a): METHODS for n in sizes for a in ACCESSES if n <= ELEMENTS[-1] or a == 1
    }
    swept = min(SWEPT, largest)
    sweep = (1, 2, 4, 8, 50) if quick else SWEEP
    return dict.fromkeys((Case(swept, a) for a in sweep), SWEEP_METHODS) | grid


def run_methods(
    run: Run[MethodDevice], largest: int, say: Callable[[str], None] = lambda line: None
) -> Methods:
    """Measures every case, method by method, so that each method's buffers are made once."""
    device, found = run.device, Methods()
    chosen = cases(run.quick, largest)
    budget = QUICK_S if run.quick else BUDGET_S
    say(f"{len(chosen)} cases, up to {max(c.elements for c in chosen) * 4 / 1e6:,.0f} MB, {RUNS} runs each")
    # All methods at one size before the next size: what a budget leaves out are then the largest cases.
    blocks = [(size, method) for size in sorted({c.elements for c in chosen}) for method in METHODS]
    for n, (size, method) in enumerate(blocks):
        what = f"{method}, {size} ints"
        run.show(n / len(blocks), what)
        if run.seconds > budget:
            run.left_out.append(LeftOut(what, f"{budget:g} s had passed"))
            continue
        with run.attempt(what):
            found.allocation_s[method] = device.start(method, size)
            own = [case for case, methods in chosen.items() if case.elements == size and method in methods]
            for case in sorted(own):
                if case not in found.kernel_s:
                    found.kernel_s[case] = device.kernel_seconds(case.elements, case.accesses)
                runs = tuple(device.run(case.elements, case.accesses, RUNS))
                held = tuple(device.held(case.elements, case.accesses, RUNS))
                found.measured.append(Measured(case, method, runs, held))
    return found
