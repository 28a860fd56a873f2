"""`bench methods`: S16's whole program with every migration method, five ranges each, beside what `plan` says."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from busfare.measure.bench.device import RANGES, MethodDevice, MethodRun
from busfare.measure.device import UnavailableError, WrongDataError
from busfare.measure.summary import median
from busfare.node import Node
from busfare.plan import Machine, Problem, plan

__all__ = [
    "ACCESSES", "BATCH", "CONSTANT", "ELEMENTS", "HELD", "METHODS", "RUNS", "SWEEP_METHODS", "VALUE", "Case", "Measured",
    "MethodsRun", "Predicted", "cases", "crossover", "predicted_of", "run_methods",
]  # fmt: skip

#: S16's four, then managed memory as it is meant to be used, and two that S16 leaves out.
METHODS = ("pageable", "pinned", "managed", "managed-prefetch", "zero-copy", "registered", "batched")
#: Those whose copies and kernel the GPU runs without the host, once they are submitted.
HELD = ("pinned", "zero-copy", "registered", "batched")
#: What `plan` calls each of them.
_STRATEGIES = {"pageable": "explicit-pageable", "pinned": "explicit", "registered": "explicit", "batched": "explicit",
               "managed": "managed", "managed-prefetch": "managed-prefetch", "zero-copy": "mapped"}  # fmt: skip
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

Progress = Callable[[float, str], None]


@dataclass(frozen=True, order=True)
class Case:
    """A vector of `elements` ints, each of which the kernel reads and writes `accesses` times."""

    elements: int
    accesses: int


@dataclass(frozen=True)
class Predicted:
    """Seconds of the GPU's part (both ways and the kernel) of each method, by `plan`; and what the host's calls for it
    take besides, as `probe` measured them.
    """

    seconds: dict[str, float]
    by: dict[str, str]
    calls_s: dict[str, float] = field(default_factory=dict)


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
    def seconds(self) -> float:
        """Seconds of the whole program: the sum of its ranges."""
        return sum(self.ranges.values())

    @property
    def ranges(self) -> dict[str, float]:
        """Median seconds of each range: S16 takes the mean of its five runs, which one late run moves."""
        return {name: median([run.ranges[name] for run in self.runs]) for name in RANGES}

    @property
    def mean_s(self) -> float:
        """Mean of the whole program's seconds, as S16 takes it."""
        return sum(self.totals_s) / len(self.runs)

    @property
    def spread(self) -> float:
        """From the fastest run to the slowest one, over the median."""
        return (max(self.totals_s) - min(self.totals_s)) / median(self.totals_s)


@dataclass
class MethodsRun:
    """What one call measured; `kernel_s` is the kernel alone, `predicted` by case, for `node`."""

    node: Node
    measured: list[Measured] = field(default_factory=list)
    kernel_s: dict[Case, float] = field(default_factory=dict)
    predicted: dict[Case, Predicted] = field(default_factory=dict)
    allocation_s: dict[str, float] = field(default_factory=dict)
    left_out: list[dict[str, str]] = field(default_factory=list)
    seconds: float = 0.0

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

    def predicted_s(self, case: Case, method: str) -> float | None:
        """The whole program's seconds: the GPU's part and the calls predicted, the processor's part measured."""
        known = self.predicted.get(case)
        if known is None or method not in known.seconds:
            return None
        return known.seconds[method] + known.calls_s.get(method, 0.0) + self.host_s(case)


def cases(quick: bool, largest: int) -> dict[Case, tuple[str, ...]]:
    """What is run, with the methods of each case: the grid with all of them, then the sweep with those that cross."""
    sizes = [n for n in (QUICK_ELEMENTS if quick else (*ELEMENTS, *LARGER)) if n <= largest]
    found = {Case(n, a): METHODS for n in sizes for a in ACCESSES if n <= ELEMENTS[-1] or a == 1}
    swept = min(SWEPT, largest)
    sweep = (1, 2, 4, 8, 50) if quick else SWEEP
    return found | {Case(swept, a): SWEEP_METHODS for a in sweep if Case(swept, a) not in found}


def run_methods(
    device: MethodDevice, machine: Machine, quick: bool, largest: int, progress: Progress | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> MethodsRun:  # fmt: skip
    """Measures every case, method by method, so that each method's buffers are made once."""
    # A virtual machine has a time of its own, in which nobody waits.
    clock: Callable[[], float] = getattr(device, "clock", time.monotonic)
    found, began = MethodsRun(machine.node), clock()
    chosen = cases(quick, largest)
    budget = QUICK_S if quick else BUDGET_S
    say(f"{len(chosen)} cases, up to {max(c.elements for c in chosen) * 4 / 1e6:,.0f} MB, {RUNS} runs each")
    # All methods at one size before the next size: what a budget leaves out are then the largest cases.
    blocks = [(size, method) for size in sorted({c.elements for c in chosen}) for method in METHODS]
    for n, (size, method) in enumerate(blocks):
        what = f"{method}, {size} ints"
        if progress:
            progress(n / len(blocks), what)
        if clock() - began > budget:
            found.left_out.append({"case": what, "why": f"{budget:g} s had passed"})
            continue
        try:
            found.allocation_s[method] = device.start(method, size)
            for case in sorted(
                c for c, methods in chosen.items() if c.elements == size and method in methods
            ):
                if case not in found.kernel_s:
                    found.kernel_s[case] = device.kernel_seconds(case.elements, case.accesses)
                runs = tuple(device.run(case.elements, case.accesses, RUNS))
                held = tuple(device.held(case.elements, case.accesses, RUNS))
                found.measured.append(Measured(case, method, runs, held))
        except (UnavailableError, WrongDataError) as error:
            found.left_out.append({"case": what, "why": str(error)})
    for case in {m.case for m in found.measured}:
        found.predicted[case] = predicted_of(case, found.kernel_s[case], machine)
    found.seconds = clock() - began
    return found


def predicted_of(case: Case, kernel_s: float, machine: Machine) -> Predicted:
    """What `plan` says of each method in a case, with the kernel's seconds alone, its data in device memory."""
    bytes_, often = 4.0 * case.elements, float(case.accesses)
    problem = Problem("multiply", bytes_, bytes_, kernel_s, memory="pageable", streams=1)
    accessed = replace(problem, accesses_in=often, accesses_out=often)
    found = {p.strategy: p for p in plan(problem, machine).ranking}
    # Mapped memory pays for every access; what is copied or migrates, for one.
    found |= {p.strategy: p for p in plan(accessed, machine).ranking if p.strategy == "mapped"}
    known = {method: found[strategy] for method, strategy in _STRATEGIES.items() if strategy in found}
    return Predicted(
        {method: p.seconds for method, p in known.items()},
        {method: p.by for method, p in known.items()},
        {method: _calls_s(machine.node, method) for method in known},
    )


def _calls_s(node: Node, method: str) -> float:
    """What the host takes to submit a method's copies and kernel, and to see each of them end; where it was measured."""
    launch, copy, ended = (
        cost.call_s if (cost := node.call_cost(call)) else 0.0 for call in ("launch", "copy", "synchronise")
    )
    copies = 2 if method in ("pinned", "registered", "batched", "managed-prefetch") else 0
    return copies * (copy + ended) + launch + ended


def crossover(accesses: Sequence[int], zero_copy: Sequence[float], pinned: Sequence[float]) -> float | None:
    """From how many accesses an element on pinned copies are faster: along a line between the accesses that were run.

    `accesses` rise; the others are seconds. None where zero-copy is faster to the end; 1 where it never is.
    """
    before: tuple[float, float] | None = None
    for number, one, other in zip(accesses, zero_copy, pinned, strict=True):
        lead = one - other
        if lead > 0:
            if before is None:
                return float(number)
            return before[0] + (number - before[0]) * -before[1] / (lead - before[1])
        before = (number, lead)
    return None
