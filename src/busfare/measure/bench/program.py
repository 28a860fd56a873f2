"""A strategy as the operations that a program issues, in their order, with their streams and what they wait for; what runs
such programs; and what `plan` says of them, strategy by strategy and number of streams by number.

The same program is run on a GPU, on a virtual node, and, in the tests, on plain arrays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from busfare.measure.bench.kernel import MOST_IN_ORDER, Work
from busfare.measure.run import GpuHost
from busfare.nodes import FloatArray
from busfare.planning import Machine, Prediction, Problem, plan, ranked
from busfare.planning.streams import ByStreams, by_streams

#: Both ways to submit W14's streams: a stream a chunk, or a stream an engine.
STREAMED = ("streams", "three-streams")
#: Those that W14 compares; `plan` ranks more.
STRATEGIES = ("explicit", "mapped", *STREAMED, "hybrid")


@dataclass(frozen=True, slots=True)
class Operation:
    """A copy of the elements `part` of `arrays`, or a kernel on them; `after` are indices of operations of other streams."""

    kind: Literal["h2d", "kernel", "d2h"]
    stream: int
    part: range
    arrays: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """What a GPU is given. Where an end is mapped, the kernel's pointers are the host's own."""

    strategy: str
    streams: int
    operations: tuple[Operation, ...]

    @property
    def mapped_in(self) -> bool:
        return self.strategy == "mapped"

    @property
    def mapped_out(self) -> bool:
        return self.strategy in ("mapped", "hybrid")

    @property
    def led(self) -> bool:
        """Whether its first stream alone starts by itself: all others wait for what is in it."""
        firsts: dict[int, Operation] = {}
        for op in self.operations:
            firsts.setdefault(op.stream, op)
        return all(op.stream == 0 or op.after for op in firsts.values())


def _copies(
    work: Work, kind: Literal["h2d", "d2h"], stream: int = 0, part: range | None = None
) -> list[Operation]:
    """One copy an array of the inputs, or of the outputs."""
    arrays = work.kernel.inputs if kind == "h2d" else work.kernel.outputs
    return [Operation(kind, stream, part or work.whole, (n,)) for n in range(arrays)]


def explicit(work: Work) -> Program:
    """All in, the kernel, all out: one copy an array."""
    return streams(work, 1, "explicit")


def batched(work: Work) -> Program:
    """The same with all arrays of a direction in one call."""
    into = Operation("h2d", 0, work.whole, tuple(range(work.kernel.inputs)))
    out = Operation("d2h", 0, work.whole, tuple(range(work.kernel.outputs)))
    return Program("batched", 1, (into, Operation("kernel", 0, work.whole), out))


def streams(work: Work, count: int, strategy: str = "streams") -> Program:
    """`count` chunks, one per stream, breadth first: all copies in, all kernels, all copies out [W14 §VII]; as a `graph`; or
    with kernels that write their results to mapped host memory (`hybrid`).

    If kernels read other chunks, all copies in use one stream, because a GPU may reorder copies of several streams, and a
    kernel would wait for one of the last.
    """
    cut, in_order = work.cut(count), int(bool(work.kernel.reaches) and count > 1)
    operations: list[Operation] = []
    last_copy: list[int] = []
    for chunk, part in enumerate(cut):
        operations += _copies(work, "h2d", 0 if in_order else chunk, part)
        last_copy.append(len(operations) - 1)
    for chunk, part in enumerate(cut, in_order):
        # In order, the last copy stands for those before it.
        after = (last_copy[max(work.chunks_of(part, cut))],) if in_order else ()
        operations.append(Operation("kernel", chunk, part, after=after))
    for chunk, part in enumerate(cut if strategy != "hybrid" else (), in_order):
        operations += _copies(work, "d2h", chunk, part)
    return Program(strategy, count + in_order, tuple(operations))


def three_streams(work: Work, count: int) -> Program:
    """`count` chunks, depth first, in a stream for copies in, one for kernels and one for copies out, in order of issue."""
    cut = work.cut(count)
    operations: list[Operation] = []
    last_copy: list[int] = []
    for part in cut:
        operations += _copies(work, "h2d", 0, part)
        last_copy.append(len(operations) - 1)
        awaited = last_copy[max(work.chunks_of(part, cut))]
        operations.append(Operation("kernel", 1, part, after=(awaited,)))
        first, *rest = _copies(work, "d2h", 2, part)
        operations += [replace(first, after=(len(operations) - 1,)), *rest]
    return Program("three-streams", 3, tuple(operations))


def mapped(work: Work) -> Program:
    """The kernel alone, on the host's memory."""
    return Program("mapped", 1, (Operation("kernel", 0, work.whole),))


def kernels_alone(work: Work, count: int) -> Program:
    """The kernels of `count` chunks one after the other, their data in device memory: t_E."""
    return Program("kernel", 1, tuple(Operation("kernel", 0, part) for part in work.cut(count)))


def link_alone(work: Work) -> Program:
    """All copies in and all copies out at once, in two streams: what the link takes."""
    return Program("link", 2, (*_copies(work, "h2d"), *_copies(work, "d2h", 1)))


@dataclass(frozen=True)
class Timing:
    """Seconds of one program. `device_s`: from its first operation's start to its last one's end, by events on the
    GPU; `held`: everything was submitted before it began. `host_s`: from the first call until everything is done, by
    the host's clock, nothing held.
    """

    device_s: tuple[float, ...] = ()
    host_s: tuple[float, ...] = ()
    held: bool = True

    def __add__(self, later: "Timing") -> "Timing":
        return Timing(self.device_s + later.device_s, self.host_s + later.host_s, self.held and later.held)


@dataclass(frozen=True)
class Compared:
    """Results beside their reference: how many elements are wrong, the largest error over what is allowed among the
    others, and the place of the first wrong one in its array.
    """

    wrong: int
    worst: float
    first: int | None = None


class StrategyDevice(GpuHost, Protocol):
    """Runs programs on one kernel's arrays at a time; what has a body here is that of a device that computes nothing."""

    def load(self, work: Work) -> None:
        """Makes the arrays and the kernel of `work` in place of the former ones. Raises UnavailableError where memory does
        not suffice, and InputError where the kernel does not compile.
        """

    def inputs(self) -> list[FloatArray]:
        """The host's input arrays, to be filled; none where nothing is computed (a virtual node)."""
        return []

    def outputs(self) -> list[FloatArray]:
        """The host's output arrays; none where nothing is computed."""
        return []

    def clear(self) -> None:
        """Overwrites all device arrays and the host's outputs with NaN: what no version could have left."""

    def expect(self, arrays: Sequence[FloatArray], relative: float, slacks: Sequence[float]) -> None:
        """From here on `compare` holds the host's outputs against `arrays`: an element may differ by `relative` of the
        reference and by its array's slack. Raises UnavailableError where the device has no room for them.
        """

    def compare(self) -> Compared:
        """The host's outputs beside what was expected."""
        return Compared(0, 0.0)

    def run(self, program: Program, repeats: int, by_host: int = 0) -> Timing:
        """Runs a program so often, then `by_host` times not held, for the host's clock; may raise UnavailableError."""


@dataclass(frozen=True)
class Predicted:
    """`plan`'s answers for one cell on one machine: those without streams, and by number those with them."""

    work: Work
    problem: Problem
    machine: Machine
    single: Mapping[str, Prediction]
    cut: Mapping[str, ByStreams]

    @classmethod
    def of(cls, work: Work, kernel_s: Mapping[int, float], machine: Machine) -> "Predicted":
        """`kernel_s`: t_E (s) by number of chunks, measured alone, with 1. Raises InputError for no host link."""
        kernel = work.kernel
        problem = Problem(
            work.name,
            float(work.h2d_bytes),
            float(work.d2h_bytes),
            kernel_s[1],
            accesses_in=kernel.accesses_in,
            copies_in=kernel.inputs,
            copies_out=kernel.outputs,
            kernel_at=tuple(sorted((n, seconds) for n, seconds in kernel_s.items() if n > 1)),
            levels=work.most_streams,
            copies_in_order=bool(kernel.reaches),
        )
        fewer = replace(problem, levels=min(MOST_IN_ORDER, work.most_streams))
        cut = {
            name: by_streams([fewer if name == "three-streams" else problem], machine, name)[0]
            for name in ("streams", "three-streams", "hybrid")
        }
        return cls(work, problem, machine, {p.strategy: p for p in plan(problem, machine).ranking}, cut)

    @property
    def best(self) -> Prediction:
        """The fastest of W14's strategies, as `plan` ranks them."""
        cut = [Prediction(s, t.best, t.at(t.best), t.by) for s, t in self.cut.items()]
        return ranked([self.single["explicit"], self.single["mapped"], *cut])[0]

    def at(self, strategy: str, streams: int) -> Prediction | None:
        """The prediction for a version that is measured; None where `plan` has none."""
        times = self.cut.get("streams" if strategy == "graph" else strategy)
        if times is not None:
            if streams not in times.numbers:
                return None
            by = f"{times.by}, without the host's calls" if strategy == "graph" else times.by
            return Prediction(strategy, streams, times.at(streams), by)
        if strategy == "batched" and "batched" not in self.single:
            # One array each way: nothing to batch.
            return replace(self.single["explicit"], strategy="batched")
        return self.single.get(strategy)
