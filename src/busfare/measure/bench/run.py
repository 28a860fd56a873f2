"""A benchmark from its options to its result: on this machine's GPUs or a virtual node, beside what is predicted of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from statistics import median
from typing import Any, Generic, TypeVar

from busfare.errors import BusfareError
from busfare.measure.bench.results import Benched, BestMethod, Ranking, Target
from busfare.measure.device import GpuHost, UnavailableError, WrongDataError, command_line, gpu_count
from busfare.measure.results import LeftOut
from busfare.measure.run import Progress, StateLog
from busfare.measure.soundness import disturbances
from busfare.measure.summary import overlapping
from busfare.nodes import load_node
from busfare.planning import Machine, machine_of

Host = TypeVar("Host", bound=GpuHost)
Say = Callable[[str], None]


@dataclass
class Run(Generic[Host]):
    """`machine` is what the predictions are for, `source` where its parameters are from."""

    device: Host
    machine: Machine
    quick: bool = False
    source: str = ""
    progress: Progress | None = None
    say: Say = lambda line: None
    left_out: list[LeftOut] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = self.device.clock()
        self._log = StateLog(self.device, (0,), self._began)
        self._log.now(force=True)

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self.device.clock() - self._began

    def show(self, share: float, what: str) -> None:
        """Progress, between measurements; logs the machine's state once a second."""
        if self.progress:
            self.progress(share, what)
        self._log.now()

    @contextmanager
    def attempt(self, case: str) -> Iterator[None]:
        """Where something of a case cannot be measured, it is left out by that name."""
        try:
            yield
        except (UnavailableError, WrongDataError) as error:
            self.left_out.append(LeftOut(case, str(error)))

    def too_late(self, case: str, budget_s: float) -> bool:
        """Whether the budget is spent: then the case is left out."""
        if late := self.seconds > budget_s:
            self.left_out.append(LeftOut(case, f"{budget_s:g} s had passed"))
        return late

    def origin(self, command: str, measured: Sequence[object]) -> dict[str, Any]:
        """What every benchmark says of itself, once it is done. Raises BusfareError where nothing was `measured`."""
        if not measured:
            reasons = sorted({row.why for row in self.left_out})
            raise BusfareError(f"nothing could be measured: {'; '.join(reasons[:3]) or 'no case ran'}")
        seconds, facts, node = self.seconds, self.device.facts(), self.machine.node
        self._log.now(force=True)
        return {
            "virtual": self.device.virtual,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": command_line(f"bench {command}"),
            "quick": self.quick,
            "gpu": facts["gpus"][0]["name"],
            "driver": facts.get("driver"),
            "node": Target(node.name, node.title, self.source),
            "disturbances": disturbances(self._log.states),
            "states": self._log.states,
            "left_out": self.left_out,
            "seconds": seconds,
            "facts": facts,
        }


def bench(
    benchmark: str, node: str | None, quick: bool, virtual: str | None, progress: Progress | None, say: Say,
    **options: Any,
) -> Benched:  # fmt: skip
    """The result of a benchmark by its name, with the options of its own. It is predicted for the node that is named, else
    for what a quick probe of this machine finds. Raises InputError, and NoGpuError where there is no GPU.
    """
    # What runs it comes first: options are refused before a GPU is looked for.
    measure = import_module(f"busfare.measure.bench.{benchmark}").asked(quick, virtual, **options)
    with closing(_device(benchmark, virtual)) as device:
        if node is not None:
            machine, source = machine_of(load_node(node)), "given with --node"
        else:
            say("no --node: this machine is probed first (10 s a GPU)")
            machine, source = _probed(virtual, progress), "probed just before (--quick)"
        result: Benched = measure(Run(device, machine, quick, source, progress, say))
        return result


def _device(benchmark: str, virtual: str | None) -> Any:
    """What runs it: this machine's GPUs, or a virtual node."""
    if virtual is not None:
        played = import_module("busfare.measure.bench.virtual")
        return getattr(played, f"Virtual{benchmark.title()}")(load_node(virtual))
    count = gpu_count(f"bench {benchmark}")
    module = import_module(f"busfare.measure.cuda.{benchmark}")
    return getattr(module, f"Cuda{benchmark.title()}")(count)


def _probed(virtual: str | None, progress: Progress | None) -> Machine:
    from busfare.measure import probe

    with closing(probe.open_device(virtual)) as device:
        # Only the first GPU is predicted for.
        return machine_of(
            probe.evaluated(*probe.measured(device, True, progress, gpus=(0,), only="copies")).node
        )


def off_percent(predicted: float | None, measured: float | None) -> float | None:
    """How far a prediction is off, in percent of what was measured; None where either lacks."""
    return 100 * (predicted / measured - 1) if predicted is not None and measured else None


def ranked(samples: Mapping[str, Sequence[float]], planned: Mapping[str, float]) -> Ranking:
    """Ways to do one thing in the order that was measured (that of `samples`), and predicted.

    `wrong`: pairs, the faster one first, that measured apart from each other and were predicted the other way round. Those
    whose intervals overlap measured alike; pinned, registered and batched are predicted alike.
    """
    order = sorted((m for m in samples if m in planned), key=lambda m: median(samples[m]))
    wrong = [
        [one, other]
        for n, one in enumerate(order)
        for other in order[n + 1 :]
        if planned[one] > planned[other] and not overlapping(samples[one], samples[other])
    ]
    return Ranking(list(samples), sorted(planned, key=planned.__getitem__), wrong)


def best(samples: Mapping[str, Sequence[float]], planned: Mapping[str, float]) -> BestMethod:
    """The fastest way, measured and predicted; picked where the two measured alike, or are predicted alike."""
    seconds = {method: median(own) for method, own in samples.items()}
    fastest = min(seconds, key=seconds.__getitem__)
    if not planned:
        return BestMethod(fastest, None, False, None)
    # Of those that are predicted alike, the one that is the fastest stands for all.
    taken = min(planned, key=lambda method: (planned[method], seconds[method]))
    picked = taken == fastest or overlapping(samples[taken], samples[fastest])
    return BestMethod(fastest, taken, picked, 100 * (seconds[taken] / seconds[fastest] - 1))
