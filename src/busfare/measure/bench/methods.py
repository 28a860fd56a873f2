"""`bench methods`: S16's program run with every migration method, five ranges each, beside `plan` and S16's figures."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, NamedTuple, Protocol

from busfare.cost.ranges import strategy_range
from busfare.measure.bench import run as results
from busfare.measure.bench.run import Run, best, off_percent
from busfare.measure.run import GpuHost
from busfare.nodes import Node
from busfare.planning import Machine, Prediction, Problem, plan
from busfare.questions import BenchMethods


class Method(NamedTuple):
    """A way of getting the vector there and back: the host memory that it lies in, and what `plan` calls it. `copies`: calls
    that copy, beside what is predicted, which the host sees end. `held`: the GPU runs copies and kernel without the host,
    once they are submitted.
    """

    memory: str
    strategy: str
    copies: int = 0
    held: bool = False


#: S16's four, with managed memory also as it is meant to be used, and two that S16 leaves out.
METHODS = {
    "pageable": Method("pageable", "explicit-pageable"),
    "pinned": Method("pinned", "explicit", 2, held=True),
    "managed": Method("managed", "managed"),
    "managed-prefetch": Method("managed", "managed-prefetch", 2),
    "zero-copy": Method("pinned", "mapped", held=True),
    "registered": Method("registered", "explicit", 2, held=True),
    "batched": Method("pinned", "explicit", 2, held=True),
}
#: What the vector holds, and by what it is multiplied: odd, so that a missing product always shows in 32 bits.
VALUE, CONSTANT = 7, 3
#: Ints of the vector, S16's five and two more; of the quick run.
ELEMENTS, LARGER = tuple(1 << n for n in range(20, 25)), (1 << 26, 1 << 28)
QUICK_ELEMENTS = (1 << 20, 1 << 24)
#: Accesses an element: S16's two situations.
ACCESSES = (1, 50)
#: Runs of each case [S16: 'an average of five executions'].
RUNS = 5
#: Pieces of a batched copy.
BATCH = 16
#: Cases that start after so many seconds are left out, and named.
BUDGET_S, QUICK_S = 90.0, 15.0
#: The five ranges of a run, in their order [S16 §4.1], and those of the GPU.
RANGES = ("initialise", "h2d", "kernel", "d2h", "sum")
GPU_RANGES = RANGES[1:4]
#: GT 740, PCIe 2.0 x16 [S16 §4]: seconds over those of zero-copy, mean of its five sizes, in situation 1 (one access
#: an element); in situation 2 (fifty) it names the best and the worst. `kernel_ratio`: the kernel's range in situation
#: 2 over that in 1: 'about 20 times' for copies, 'at least 40' for zero-copy.
PUBLISHED = results.Published(
    "S16: Santos, Eler, Garcia, ITNG 2016; GT 740, PCIe 2.0 x16",
    situation_1={"pageable": 1.3724, "pinned": 1.1940, "managed": 3.5657, "zero-copy": 1.0},
    situation_2={"best": "pinned", "worst": "zero-copy"},
    kernel_ratio={"pageable": 20.0, "pinned": 20.0, "zero-copy": 40.0},
    bytes_per_second={
        "pageable": {"h2d": 3.69e9, "d2h": 3.87e9},
        "pinned": {"h2d": 6.68e9, "d2h": 6.697e9},
        "zero-copy": {"kernel": 5.88e9},
    },
)


#: What `plan` says, by method.
Planned = Mapping[str, Prediction]


class Case(NamedTuple):
    """A vector of `elements` ints, each of which the kernel reads and writes `accesses` times."""

    elements: int
    accesses: int


@dataclass(frozen=True)
class MethodRun:
    """One run of a method: seconds of each range by the host's clock, and by events on the GPU where it has some."""

    ranges: Mapping[str, float]
    device: Mapping[str, float] = field(default_factory=dict)


class MethodDevice(GpuHost, Protocol):
    """Runs S16's program with a migration method."""

    def start(self, method: str, most_elements: int) -> float:
        """Makes the buffers of a method for up to so many ints, in place of the former ones; the seconds that took. Raises
        UnavailableError where memory does not suffice or the method does not exist here.
        """

    def run(self, elements: int, accesses: int, runs: int) -> list[MethodRun]:
        """So many runs after one that is not counted. Raises WrongDataError where a result was wrong."""

    def held(self, elements: int, accesses: int, runs: int) -> list[Mapping[str, float]]:
        """Seconds of `h2d`, `kernel` and `d2h` by events on the GPU, in so many runs that are submitted before they
        begin; none for a method that the host takes part in. Raises WrongDataError where a result was wrong.
        """

    def kernel_seconds(self, elements: int, accesses: int) -> float:
        """The kernel alone, its data in device memory, by events on the GPU."""


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
            return [sum(spans.values()) for spans in m.held]
        alone = self.kernel_s[m.case]
        if m.method == "managed":
            pinned = [n.ranges["sum"] / n.case.elements for n in self.measured if n.method == "pinned"]
            cached = min(pinned, default=0.0) * m.case.elements
            kernels = (run.device.get("kernel", run.ranges["kernel"]) for run in m.runs)
            return [s + max(0.0, run.ranges["sum"] - cached) for s, run in zip(kernels, m.runs, strict=True)]
        copies = [r.device if m.method == "managed-prefetch" else r.ranges for r in m.runs]
        return [moved["h2d"] + alone + moved["d2h"] for moved in copies]

    def gpu_s(self, m: Measured) -> float:
        return median(self.gpu_samples(m))


def cases(quick: bool, largest: int) -> list[Case]:
    """What is run with all methods, in order."""
    sizes = [n for n in (QUICK_ELEMENTS if quick else (*ELEMENTS, *LARGER)) if n <= largest]
    return [Case(n, a) for n in sizes for a in ACCESSES if n <= ELEMENTS[-1] or a == 1]


def measured(run: Run[MethodDevice], question: BenchMethods) -> results.MethodsResult:
    """All methods on vectors of up to `question.largest` ints."""
    return methods_result(run, run_methods(run, question.largest))


def run_methods(run: Run[MethodDevice], largest: int) -> Methods:
    """Measures every case, method by method, so that each method's buffers are made once."""
    device, methods = run.device, Methods()
    chosen = cases(run.quick, largest)
    budget = QUICK_S if run.quick else BUDGET_S
    megabytes = max(case.elements for case in chosen) * 4 / 1e6
    run.say(f"{len(chosen)} cases, up to {megabytes:,.0f} MB, {RUNS} runs each")
    # All methods at one size before the next size: what a budget leaves out are then the largest cases.
    blocks = [(size, method) for size in sorted({c.elements for c in chosen}) for method in METHODS]
    for n, (size, method) in enumerate(blocks):
        what = f"{method}, {size} ints"
        run.show(n / len(blocks), what)
        if run.too_late(what, budget):
            continue
        with run.attempt(what):
            methods.allocation_s[method] = device.start(method, size)
            for case in (case for case in chosen if case.elements == size):
                if case not in methods.kernel_s:
                    methods.kernel_s[case] = device.kernel_seconds(*case)
                runs, held = tuple(device.run(*case, RUNS)), tuple(device.held(*case, RUNS))
                methods.measured.append(Measured(case, method, runs, held))
    return methods


def predicted_of(case: Case, kernel_s: float, machine: Machine) -> Planned:
    """What `plan` says of the GPU's part of each method in a case; `kernel_s`: seconds of the kernel alone on the GPU."""
    bytes_, often = 4.0 * case.elements, float(case.accesses)
    problem = Problem("multiply", bytes_, bytes_, kernel_s, memory="pageable", streams=1)
    accessed = replace(problem, accesses_in=often, accesses_out=often)
    planned = {p.strategy: p for p in plan(problem, machine).ranking}
    # Mapped memory pays for every access; what is copied or migrates, for one.
    planned |= {p.strategy: p for p in plan(accessed, machine).ranking if p.strategy == "mapped"}
    return {name: planned[how.strategy] for name, how in METHODS.items() if how.strategy in planned}


def _calls_s(node: Node, method: str) -> float:
    """Seconds of a method's calls that `plan` leaves out: submitting, and seeing the ends; where `probe` measured it."""
    launch, copy, ended = (
        cost.call_s if (cost := node.call_cost(call)) else 0.0 for call in ("launch", "copy", "synchronise")
    )
    return METHODS[method].copies * (copy + ended) + launch + ended


def methods_result(run: Run[MethodDevice], methods: Methods) -> results.MethodsResult:
    """All that was measured, beside what is predicted of it."""
    cases = sorted({m.case for m in methods.measured})
    predicted = {case: predicted_of(case, methods.kernel_s[case], run.machine) for case in cases}

    def by_size(seconds: Callable[[Measured], float]) -> list[list[dict[str, float]]]:
        # By method, of S16's sizes that were run: with one access an element, and with fifty.
        return [[{m.method: seconds(m) for m in methods.of(Case(n, a))} for n in ELEMENTS] for a in ACCESSES]

    return results.MethodsResult(
        cells=[_cell(run, methods, case, predicted[case]) for case in cases],
        normalised=results.Situations(
            *(
                _over(whole, [dict.fromkeys(s, s.get("zero-copy", 0.0)) for s in whole])
                for whole in by_size(lambda m: m.mean_s)
            )
        ),
        kernel_ratio=_over(*reversed(by_size(lambda m: m.ranges["kernel"]))),
        published=PUBLISHED,
        allocation_seconds=methods.allocation_s,
        **run.origin("methods", cases),
    )


def _cell(run: Run[MethodDevice], methods: Methods, case: Case, predicted: Planned) -> results.MethodsCell:
    host_s = methods.host_s(case)
    rows = [
        _method(run, m, methods.gpu_samples(m), predicted.get(m.method), host_s)
        for m in sorted(methods.of(case), key=methods.gpu_s)
    ]
    gpu = {row.method: row.gpu_samples_seconds for row in rows}
    planned = {row.method: s for row in rows if (s := row.predicted_gpu_seconds) is not None}
    whole = {row.method: s for row in rows if (s := row.predicted_seconds) is not None}
    return results.MethodsCell(
        elements=case.elements,
        accesses=case.accesses,
        bytes=4 * case.elements,
        measured_kernel_seconds=methods.kernel_s[case],
        measured_host_seconds=host_s,
        methods=rows,
        best=best(gpu, planned),
        best_whole=best({row.method: row.runs_seconds for row in rows}, whole),
    )


def _method(
    run: Run[MethodDevice], m: Measured, gpu_samples: list[float], planned: Prediction | None, host_s: float
) -> results.MethodMeasured:
    ranges, totals, gpu_s = m.ranges, m.totals_s, median(gpu_samples)
    devices = [run_sample.device for run_sample in m.runs if run_sample.device]
    due: dict[str, Any] = {"reason": "not predicted"}
    if planned is not None:
        # The GPU's part and the calls are predicted, the processor's part is measured.
        calls_s = _calls_s(run.machine.node, m.method)
        rest = calls_s + host_s
        due = strategy_range("", planned.seconds, run.machine.node, m.method)
        due |= {key: rest + due[key] for key in ("low_seconds", "high_seconds") if due[key] is not None}
        due |= {
            "predicted_seconds": planned.seconds + rest,
            "predicted_calls_seconds": calls_s,
            "predicted_gpu_seconds": planned.seconds,
            "predicted_by": planned.by,
            "error_percent": off_percent(planned.seconds + rest, sum(ranges.values())),
            "gpu_error_percent": off_percent(planned.seconds, gpu_s),
        }
    return results.MethodMeasured(
        method=m.method,
        measured_seconds=sum(ranges.values()),
        measured_mean_seconds=m.mean_s,
        measured_ranges_seconds=ranges,
        measured_device_seconds={
            name: sum(d[name] for d in devices) / len(devices) for name in (devices[0] if devices else ())
        },
        runs_seconds=totals,
        spread=(max(totals) - min(totals)) / median(totals),
        measured_gpu_seconds=gpu_s,
        gpu_samples_seconds=gpu_samples,
        measured_held_seconds=[dict(moments) for moments in m.held],
        checked=not run.device.virtual,
        **due,
    )


def _over(seconds: Iterable[Mapping[str, float]], under: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of the first over the second of each size, by method; as S16, means of the runs of each."""
    shares: dict[str, list[float]] = {}
    for size, below in zip(seconds, under, strict=True):
        for method, taken in size.items():
            if below.get(method):
                shares.setdefault(method, []).append(taken / below[method])
    return {method: sum(by_size) / len(by_size) for method, by_size in shares.items()}
