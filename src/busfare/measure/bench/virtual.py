"""The benchmarks on a machine that is not there: programs are played by the timeline's engine on the Curves and Contention
of a virtual node. Nothing is computed, so nothing is checked, and every output says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product

from busfare.measure.bench.methods import GPU_RANGES, METHODS, MethodRun
from busfare.measure.bench.program import ELEMENT_BYTES, Compared, Operation, Program, Timing, Work
from busfare.measure.cases import HOST_DIRECTIONS
from busfare.measure.device import UnavailableError
from busfare.measure.virtual import VirtualHost
from busfare.nodes import Gpu, Node
from busfare.nodes.arrays import FloatArray
from busfare.timeline import program as timeline

#: What a kernel takes before it computes, and one call on the host: seconds, as on an H100.
_LAUNCH_S, _CALL_S = 2.6e-6, 2.3e-6
#: Of GPUs whose node file does not say: bytes and double-precision operations a second; the share of the first that
#: kernels reach.
_MEMORY_BYTES_PER_S, _FLOPS, _MEMORY_SHARE = 8e11, 5e12, 0.88
#: What the host writes and adds up in a second, ints of one vector in memory.
_FILL_BYTES_PER_S, _SUM_BYTES_PER_S = 9e9, 7e9


class _Played(VirtualHost):
    """What the benchmarks ask of a virtual machine besides their runs."""

    def __init__(self, node: Node, seed: int = 0) -> None:
        super().__init__(node, seed, noise=0.003)
        paths = product(("h2d", "d2h"), ("pinned", "pageable", "mapped"))
        self._curves = {path: self.truth(*path) for path in paths}

    @property
    def _gpu(self) -> Gpu:
        return self.node.gpu(0)

    def _memory_s(self, bytes_: float) -> float:
        """Seconds in which a kernel moves so many bytes of the GPU's own memory."""
        return bytes_ / (_MEMORY_SHARE * (self._gpu.memory_bandwidth_bytes_per_s or _MEMORY_BYTES_PER_S))

    def _mapped(self, direction: str, bytes_: float) -> timeline.Mapped | None:
        return timeline.Mapped(bytes_, self._curves[direction, "mapped"]) if bytes_ else None


class VirtualStrategies(_Played):
    """Plays programs on a node."""

    def load(self, work: Work) -> None:
        self._work = work
        #: Each program is played once.
        self._seconds = cache(self._play)

    def inputs(self) -> list[FloatArray]:
        return []

    def outputs(self) -> list[FloatArray]:
        return []

    def clear(self) -> None:
        """Nothing is held."""

    def expect(self, arrays: Sequence[FloatArray], relative: float, slacks: Sequence[float]) -> None:
        """Nothing is computed."""

    def compare(self) -> Compared:
        return Compared(0, 0.0)

    def run(self, programs: Sequence[Program], repeats: int, by_host: int = 0) -> Timing:
        held = max(self._seconds(program) for program in programs)
        device_s = tuple(self.noisy(held) for _ in range(repeats))
        if not by_host:
            return Timing(device_s, ())
        called = max(self._seconds(program, 0.0 if program.as_graph else _CALL_S) for program in programs)
        return Timing(device_s, tuple(self.noisy(called + 2 * _CALL_S) for _ in range(by_host)))

    def _play(self, program: Program, call_s: float = 0.0) -> float:
        """Seconds of a program, each of whose calls takes the host `call_s`."""
        engines = 1 if self._gpu.copy_engines == 1 else 2
        contention = self.node.contention()
        played = timeline.Program(timeline.GpuRules(contention, engines, call_s=call_s))
        numbers: list[int] = []
        for op in program.operations:
            after = tuple(numbers[other] for other in op.after)
            if op.kind == "kernel":
                numbers.append(self._kernel(played, op, program, after))
            else:
                size = op.part.count * float(ELEMENT_BYTES) * len(op.arrays)
                numbers.append(played.copy(op.kind, size, self._curves[op.kind, "pinned"], op.stream, after))
        return played.play().seconds

    def _kernel(
        self, played: timeline.Program, op: Operation, program: Program, after: tuple[int, ...]
    ) -> int:
        kernel, bytes_ = self._work.kernel, op.part.count * float(ELEMENT_BYTES)
        into = bytes_ * kernel.inputs * kernel.accesses_in * program.mapped_in
        out = bytes_ * kernel.outputs * program.mapped_out
        kept = bytes_ * (kernel.inputs * (not program.mapped_in) + kernel.outputs * (not program.mapped_out))
        computing = op.part.count * kernel.flops / (self._gpu.flops_per_s or _FLOPS)
        seconds = _LAUNCH_S + max(self._memory_s(kept), computing)
        return played.kernel(seconds, op.stream, after, self._mapped("h2d", into), self._mapped("d2h", out))


class VirtualMethods(_Played):
    """Plays S16's program on a node."""

    _method = ""

    def start(self, method: str, most_elements: int) -> float:
        if method.startswith("managed") and self._gpu.unified_memory:
            raise UnavailableError("CPU and GPU share one memory: nothing migrates")
        self._method = method
        return 2e-4 + 4.0 * most_elements * 3e-10

    def run(self, elements: int, accesses: int, runs: int) -> list[MethodRun]:
        true, made = self._seconds(elements, accesses), []
        for _ in range(runs):
            ranges = {name: self.noisy(seconds) if seconds else 0.0 for name, seconds in true.items()}
            made.append(MethodRun(ranges, {name: ranges[name] for name in GPU_RANGES}))
        return made

    def held(self, elements: int, accesses: int, runs: int) -> list[Mapping[str, float]]:
        if not METHODS[self._method].held:
            return []
        true = self._seconds(elements, accesses)
        return [{name: self.noisy(true[name]) for name in GPU_RANGES} for _ in range(runs)]

    def kernel_seconds(self, elements: int, accesses: int) -> float:
        # What follows the first access is served by the cache.
        return _LAUNCH_S + self._memory_s(8.0 * elements * (1 + (accesses - 1) / 4))

    def _seconds(self, elements: int, accesses: int) -> dict[str, float]:
        """Seconds of each range, without noise."""
        bytes_, alone = 4.0 * elements, self.kernel_seconds(elements, accesses)
        ranges = {
            "initialise": bytes_ / _FILL_BYTES_PER_S, "h2d": 0.0, "kernel": alone, "d2h": 0.0,
            "sum": bytes_ / _SUM_BYTES_PER_S,
        }  # fmt: skip
        if self._method == "zero-copy":
            into, out = (self._mapped(direction, bytes_ * accesses) for direction in ("h2d", "d2h"))
            played = timeline.Program(timeline.GpuRules(self.node.contention()))
            played.kernel(alone, 0, (), into, out)
            ranges["kernel"] = _LAUNCH_S + played.play().seconds
        elif self._method == "managed":
            ranges["kernel"] += self.migrated("h2d", bytes_, touched=True)
            ranges["sum"] += self.migrated("d2h", bytes_, touched=True)
        else:
            memory = "pageable" if self._method == "pageable" else "pinned"
            for direction in HOST_DIRECTIONS:
                if self._method == "managed-prefetch":
                    ranges[direction] = self.migrated(direction, bytes_, touched=False)
                else:
                    ranges[direction] = float(self._curves[direction, memory].seconds(bytes_))
        return ranges
