"""Machines that are not there: each plays a node of the catalogue, with noise and contention.

A virtual probe's figures are the node's Curves and Contention, with noise added: it checks the plumbing from a command to
its result, and predicts nothing. Benchmarks are played by the timeline's engine on the same Curves and Contention: nothing
is computed, and nothing is checked. Everything that shows such figures says so.
"""

import random
from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from busfare.cost.collectives import Fabric, price_collectives
from busfare.errors import InputError
from busfare.measure import cases
from busfare.measure.bench.kernel import ELEMENT_BYTES, Work
from busfare.measure.bench.methods import GPU_RANGES, METHODS, MethodRun
from busfare.measure.bench.program import Operation, Program, StrategyDevice, Timing
from busfare.measure.cases import Case, Samples
from busfare.measure.kernels import KERNEL_MODES, kind_of, played
from busfare.measure.run import UnavailableError
from busfare.nodes import Cpu, Curve, Node, PcieLink
from busfare.nodes.contention import published
from busfare.planning.machine import migrates_on_fault
from busfare.timeline import program as timeline
from busfare.timeline.build.links import copy_seconds_at_once

#: Where a node file has no figure of its own: seconds as an H100 shows them (results/probe).
_LATENCY_S = {"h2d": 3.6e-6, "d2h": 2.8e-6, "d2d": 3.1e-6, "p2p": 3.5e-6}
_INTERVAL_S, _CALL_S = 2e-6, 2.2e-6
_COST_S = {
    "empty": 1.2e-6, "launch": 3.9e-6, "synchronise": 1.6e-6, "allocate": 2e-4, "register": 2e-4,
}  # fmt: skip
_ALLOCATED_PER_BYTE_S = 3e-10
#: Page faults: what the first takes, and each byte besides the link; a prefetch.
_FAULT_S, _FAULT_PER_BYTE_S = {"h2d": 5e-5, "d2h": 2e-5}, {"h2d": 4e-11, "d2h": 1.1e-10}
_PREFETCH_S = 4.5e-5
#: Host memory that a processor's core copies in a second, where the node does not say.
_COPY_BYTES_PER_S = 8.3e9
#: One sample in so many is late by a factor of several: an interrupt, another program.
_LATE_EVERY = 200
#: What a kernel takes before it computes, and one call on the host: seconds, as on an H100.
_LAUNCH_S, _SUBMIT_S = 2.6e-6, 2.3e-6
#: Of GPUs whose node file does not say: bytes and double-precision operations a second; the share of the first that
#: kernels reach.
_MEMORY_BYTES_PER_S, _FLOPS, _MEMORY_SHARE = 8e11, 5e12, 0.88
#: What the host writes and adds up in a second, ints of one vector in memory.
_FILL_BYTES_PER_S, _SUM_BYTES_PER_S = 9e9, 7e9


class VirtualHost:
    """What plays `node`. `noise` is the relative standard deviation of a sample; time passes in `clock` alone."""

    virtual = True

    def __init__(self, node: Node, seed: int = 0, noise: float = 0.005) -> None:
        self.node = node
        self.gpus = len(node.gpus())
        self._random = random.Random(seed)
        self._noise = noise
        self.now_s = 0.0

    def clock(self) -> float:
        """What the samples so far would have taken."""
        return self.now_s

    def facts(self) -> dict[str, Any]:
        gpus = []
        for ordinal, gpu in enumerate(self.node.gpus()):
            kernels = self.node.probed_kernels(ordinal) is not None
            names: dict[str, Any] = {"name": gpu.title or gpu.name, "bus_id": gpu.name, "numa_node": None}
            gpus.append(names | {"multiprocessors": gpu.multiprocessors, "kernels": kernels})
        return {"plays": self.node.name, "driver": None, "gpus": gpus}

    def state(self, gpu: int) -> dict[str, Any]:
        wire = next((w for w in self.node.host_path(gpu).links if isinstance(w, PcieLink)), None)
        width, generation = (wire.lanes, wire.generation) if wire else (None, None)
        return {
            **dict.fromkeys(("sm_clock_hz", "sm_clock_most_hz"), 2 * 10**9),
            **dict.fromkeys(("memory_clock_hz", "power_w", "memory_used_bytes", "memory_free_bytes")),
            **dict.fromkeys(("throttle_reasons", "link_replays", "busy_percent", "other_processes"), 0),
            **dict.fromkeys(("link_generation", "link_generation_most"), generation),
            **dict.fromkeys(("link_width", "link_width_most"), width),
            "temperature_c": 40,
        }

    def close(self) -> None:
        """Nothing is held."""

    def noisy(self, seconds: float) -> float:
        """A sample of what takes `seconds`: with noise, and now and then late. Virtual time passes."""
        late = 1 + 3 * self._random.random() if self._random.randrange(_LATE_EVERY) == 0 else 1.0
        sample = seconds * max(0.2, self._random.gauss(1.0, self._noise)) * late
        self.now_s += sample + 2.5e-5
        return sample

    def truth(self, direction: Any, memory: str, gpu: int = 0, peer: int | None = None) -> Curve:
        """The curve that the samples follow: that of the node file, else one of its data sheet."""
        kind: Any = memory
        curve = self.node.curve(direction, kind, gpu, peer)
        if curve is None:
            gap = 1 / self._bandwidth(direction, gpu, peer)
            curve = Curve(
                direction=direction, memory=kind, latency_overhead_s=(_LATENCY_S[direction],),
                gap_per_byte_s=(max(gap, 1 / _COPY_BYTES_PER_S) if kind == "pageable" else gap,),
                issue_interval_s={1: _INTERVAL_S},
            )  # fmt: skip
        return curve

    def migrated(self, direction: str, size: float, touched: bool, gpu: int = 0) -> float:
        """Seconds until so many bytes of managed memory have moved, because they were touched or prefetched."""
        curve = self.node.curve(direction, "managed", gpu)
        if curve is not None and not touched:
            return float(curve.seconds(size))
        if not migrates_on_fault(self.node.gpu(gpu)):
            slower = published("managed_before_pascal").high
            return slower * float(self.truth(direction, "pageable", gpu).seconds(size))
        start, more = (_FAULT_S[direction], _FAULT_PER_BYTE_S[direction]) if touched else (_PREFETCH_S, 0.0)
        return start + size * (self.truth(direction, "pinned", gpu).long_gap_per_byte_s + more)

    def _bandwidth(self, direction: str, gpu: int, peer: int | None) -> float:
        if direction == "d2d":
            rate = self.node.gpu(gpu).memory_bandwidth_bytes_per_s
            if rate is None:
                raise UnavailableError(f"node {self.node.name} has no memory bandwidth of its GPU")
            return rate / 2
        if direction != "p2p":
            return self.node.host_path(gpu).bandwidth("read" if direction == "h2d" else "write")
        try:
            return self.node.peer_path(gpu, peer or 0).bandwidth("write")
        except InputError as error:
            raise UnavailableError(str(error)) from None


class VirtualDevice(VirtualHost):
    """Plays a node that is probed."""

    def run(self, case: Case, repeats: int) -> Samples:
        device_s, api_s = self._seconds(case)
        device = tuple(self.noisy(device_s) for _ in range(repeats)) if device_s is not None else ()
        if case.memory == "pageable" and device:
            return Samples(device, device)
        return Samples(device, tuple(self.noisy(api_s) for _ in range(repeats)))

    def _seconds(self, case: Case) -> tuple[float | None, float]:
        """Device and API seconds of a case, without noise."""
        if case.mode.startswith(KERNEL_MODES):
            kernels, units = self.node.probed_kernels(case.gpu), self.node.gpu(case.gpu).multiprocessors
            if kernels is None or (seconds := played(kernels, case, units or 1)) is None:
                raise UnavailableError(f"node {self.node.name} has no rate of this kernel on its GPU")
            return seconds, _CALL_S * case.count
        if (kind := kind_of(case)) is not None:
            fabric, sizes = Fabric.of(self.node, self.gpus), np.array([float(case.bytes)])
            seconds = float(price_collectives(fabric, [kind], sizes).seconds[0])
            return seconds, seconds
        if case.direction == "none":
            return self._cost(case)
        if case.mode in (cases.ALL_GPUS, cases.ALL_GPUS_DUPLEX):
            return self._of_all(case), _CALL_S * case.count * self.gpus
        if case.mode in (cases.ACROSS_STREAMS, cases.ACROSS_ENGINES):
            return self._chunks(case), _CALL_S * case.count * 3
        if case.memory == "managed":
            return self.migrated(case.direction, case.bytes, case.mode == "touch", case.gpu), _CALL_S
        curve = self.truth(case.direction, case.memory, case.gpu, case.peer)
        if case.mode == "reallocated":
            if (cost := self.node.call_cost("allocate-device", case.gpu)) is None:
                raise UnavailableError(f"node {self.node.name} lacks the cost of device allocations")
            calls = cost.seconds(case.bytes)
            return calls + case.bytes * cost.wait_per_byte_s, calls
        if case.mode in cases.SHARES:
            share = getattr(self.node.contention(case.gpu), cases.SHARES[case.mode]).of(case.direction)
            curve = curve.scaled(1 / share)
        further = case.bytes * curve.long_gap_per_byte_s
        if case.mode != "batch":
            streams = case.count if case.mode == "streams" else 1
            further += float(curve.issue_interval(streams))
        seconds = float(curve.seconds(case.bytes)) + (case.count - 1) * further
        if case.mode == "kernel-both":
            out = self.truth("d2h", "mapped", case.gpu)
            start = self.node.contention(case.gpu).mapped_start(case.bytes, case.bytes)
            seconds += float(out.latency_overhead(case.bytes)) + float(start)
        launch, _ = self._cost(Case("none", "none", "launch", 0, 1, case.gpu))
        if case.mode == "after-kernel":
            seconds += curve.after_kernel_s
        elif case.mode == "there-and-back":
            out = self.truth("d2h", case.memory, case.gpu)
            seconds += (launch or 0.0) + out.after_kernel_s + float(out.seconds(case.bytes))
        elif case.mode == "event-kernel":
            seconds += curve.event_wait_s + (launch or 0.0)
        return seconds, _CALL_S * (1 if case.mode == "batch" else case.count)

    def _chunks(self, case: Case) -> float:
        """Seconds of chunks that go in, through a kernel of no time, and out: both ways at once between first and last."""
        shares = self.node.contention(case.gpu)
        streams = 1
        if case.mode == cases.ACROSS_STREAMS:
            shares, streams = shares.in_many_streams(), case.count
        curves = [self.truth(direction, case.memory, case.gpu) for direction in cases.HOST_DIRECTIONS]
        moving = case.bytes * max(c.long_gap_per_byte_s / shares.both.of(c.direction) for c in curves)
        issuing = sum(float(c.issue_interval(streams)) for c in curves)
        return sum(float(c.seconds(case.bytes)) for c in curves) + (case.count - 1) * (moving + issuing)

    def _of_all(self, case: Case) -> float:
        """Seconds of the copies of each GPU while all copy, at the mean of their rates."""
        ends = (self.node.host_path(gpu).memory for gpu in range(self.gpus))
        if len({end.name for end in ends if end is not None}) > 1:
            raise UnavailableError(f"node {self.node.name}: its GPUs copy to and from more than one memory")
        flows = [(str(case.direction), gpu) for gpu in range(self.gpus)]
        sizes = [case.total_bytes] * self.gpus
        if case.mode == cases.ALL_GPUS_DUPLEX:
            opposite = "d2h" if case.direction == "h2d" else "h2d"
            flows += [(opposite, gpu) for gpu in range(self.gpus)]
            sizes += [3 * case.total_bytes] * self.gpus  # which outlast what is measured
        seconds = copy_seconds_at_once(self.node, flows, sizes)[: self.gpus]
        return float(self.gpus / (1 / seconds).sum())

    def _cost(self, case: Case) -> tuple[float | None, float]:
        name = f"allocate-{case.memory}" if case.mode == "allocate" else case.mode
        cost = self.node.call_cost(name, case.gpu)
        if cost is not None:
            return cost.device_s or None, cost.call_s + case.bytes * (cost.call_per_byte_s or 0.0)
        seconds = _COST_S[case.mode] + case.bytes * _ALLOCATED_PER_BYTE_S
        return (seconds if case.mode in ("empty", "launch") else None), seconds


class _Played(VirtualHost):
    """What both benchmarks play."""

    def __init__(self, node: Node, seed: int = 0) -> None:
        super().__init__(node, seed, noise=0.003)
        self._gpu = node.gpu(0)
        paths = product(("h2d", "d2h"), ("pinned", "pageable", "mapped"))
        self._curves = {path: self.truth(*path) for path in paths}

    def _memory_s(self, bytes_: float) -> float:
        """Seconds in which a kernel moves so many bytes of the GPU's own memory."""
        return bytes_ / (_MEMORY_SHARE * (self._gpu.memory_bandwidth_bytes_per_s or _MEMORY_BYTES_PER_S))

    def _mapped(self, direction: str, bytes_: float) -> timeline.Mapped | None:
        return timeline.Mapped(bytes_, self._curves[direction, "mapped"]) if bytes_ else None


class VirtualStrategies(_Played, StrategyDevice):
    """Plays programs on a node."""

    def load(self, work: Work) -> None:
        self._work = work
        #: Each program is played once.
        self._seconds = cache(self._play)

    def run(self, program: Program, repeats: int, by_host: int = 0) -> Timing:
        held = self._seconds(program)
        device_s = tuple(self.noisy(held) for _ in range(repeats))
        if not by_host:
            return Timing(device_s, ())
        called = self._seconds(program, 0.0 if program.strategy == "graph" else _SUBMIT_S)
        return Timing(device_s, tuple(self.noisy(called + 2 * _SUBMIT_S) for _ in range(by_host)))

    def _play(self, program: Program, call_s: float = 0.0) -> float:
        """Seconds of a program, each of whose calls takes the host `call_s`."""
        engines = 1 if self._gpu.copy_engines == 1 else 2
        contention = self.node.contention()
        played = timeline.Program(timeline.GpuRules(contention, engines, call_s=call_s))
        numbers: list[int] = []
        for op in program.operations:
            after = tuple(numbers[number] for number in op.after)
            if op.kind == "kernel":
                numbers.append(self._kernel(played, op, program, after))
            else:
                size = len(op.part) * float(ELEMENT_BYTES) * len(op.arrays)
                numbers.append(played.copy(op.kind, size, self._curves[op.kind, "pinned"], op.stream, after))
        return played.play().seconds

    def _kernel(
        self, played: timeline.Program, op: Operation, program: Program, after: tuple[int, ...]
    ) -> int:
        kernel, bytes_ = self._work.kernel, len(op.part) * float(ELEMENT_BYTES)
        into = bytes_ * kernel.inputs * kernel.accesses_in * program.mapped_in
        out = bytes_ * kernel.outputs * program.mapped_out
        kept = bytes_ * (kernel.inputs * (not program.mapped_in) + kernel.outputs * (not program.mapped_out))
        computing = len(op.part) * kernel.flops / (self._gpu.flops_per_s or _FLOPS)
        seconds = _LAUNCH_S + max(self._memory_s(kept), computing)
        return played.kernel(seconds, op.stream, after, self._mapped("h2d", into), self._mapped("d2h", out))


class VirtualMethods(_Played):
    """Plays S16's program on a node."""

    _method = ""

    def start(self, method: str, most_elements: int) -> float:
        if method.startswith("managed") and self._gpu.unified_memory:
            raise UnavailableError("CPU and GPU share one memory: no pages migrate")
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
        cpu = next((c for c in self.node.components if isinstance(c, Cpu)), Cpu(name="cpu0"))
        ranges = {
            "initialise": bytes_ / (cpu.fill_bytes_per_s or _FILL_BYTES_PER_S), "h2d": 0.0, "kernel": alone, "d2h": 0.0,
            "sum": bytes_ / (cpu.sum_bytes_per_s or _SUM_BYTES_PER_S),
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
            for direction in cases.HOST_DIRECTIONS:
                if self._method == "managed-prefetch":
                    ranges[direction] = self.migrated(direction, bytes_, touched=False)
                else:
                    ranges[direction] = float(self._curves[direction, memory].seconds(bytes_))
        return ranges
