"""The benchmarks on a machine that is not there: programs and methods are played by `virtual_streams` after the
parameters of a virtual node. Nothing is computed, so nothing is checked, and every output says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from busfare.measure.bench.device import Compared, MethodRun, Timing
from busfare.measure.bench.methods import HELD
from busfare.measure.bench.program import Operation, Program
from busfare.measure.bench.work import ELEMENT_BYTES, Work
from busfare.measure.device import UnavailableError
from busfare.measure.virtual import VirtualDevice
from busfare.measure.virtual_link import HostLink
from busfare.measure.virtual_streams import Activity, Flow, Laws, Medium, Way, simulate
from busfare.node import Gpu, Measured, Node
from busfare.node.arrays import FloatArray

__all__ = ["VirtualMethods", "VirtualStrategies"]

#: What a kernel takes before it computes, behind another one and on an idle GPU, and one call on the host: seconds.
_BEHIND_S, _LAUNCH_S, _CALL_S = 1.1e-6, 2.6e-6, 2.3e-6
#: Of GPUs whose node file does not say: bytes and double-precision operations a second.
_MEMORY_BYTES_PER_S, _FLOPS = 8e11, 5e12
#: Kernels reach this share of the memory's peak.
_MEMORY_SHARE = 0.88
#: Threads that a processor of a GPU holds at once.
_THREADS = 2048
#: What the host writes and adds up in a second, ints of one vector in memory.
_FILL_BYTES_PER_S, _SUM_BYTES_PER_S = 9e9, 7e9


class _Link:
    """What the simulation asks of one GPU's link; `streams`: in how many each way's copies are; `gpus`: how many do the
    same at once; `chained`: what a copy in, a kernel and a copy out take longer (s) because they follow each other.
    """

    def __init__(
        self, link: HostLink, streams: Mapping[str, int] | None = None, gpus: int = 1, chained: float = 0.0
    ) -> None:
        self.link, self.copies, self.mapped, self.gpus = link, link.copies, link.mapped, gpus
        self.chained = chained
        self.streams = streams or dict.fromkeys(self.copies, 1)
        self.turns = {way: link.turn(way, count) for way, count in self.streams.items()}

    def laws(self) -> Laws:
        return Laws(self.setup, self.pace, self.beside, self.link.kernel_wait if self.link.holds else None)

    def pace(self, way: Way, medium: Medium, opposite: frozenset[Medium]) -> float:
        own = self.copies[way] if medium == "copy" else self.mapped[way]
        paces = [own.pieces[-1].gap_per_byte_s]
        for other in opposite:
            if medium == "copy":
                most = max(1, *self.streams.values())
                paces.append(self.link.slowed(way, other == "mapped", most, self.gpus))
            else:
                paces.append(self.link.slowed_mapped(way, other == "mapped"))
        return max(paces)

    def beside(self, copy: Activity) -> float:
        flow = copy.flows[0]
        return self.link.beside(flow.way, flow.bytes_left, self.turns["d2h" if flow.way == "h2d" else "h2d"])

    def setup(self, activity: Activity, turn: int, idle: bool) -> float:
        if activity.engine == "gpu":
            reached = [self.mapped[f.way] for f in activity.flows]
            start = max((m.pieces[0].latency_overhead_s or 0.0 for m in reached), default=0.0)
            start += self.link.event_wait("h2d") if activity.after else 0.0
            # Behind another kernel a start is under way while that one ends.
            return start + _LAUNCH_S if idle else _BEHIND_S
        way = activity.flows[0].way
        own = self.copies[way]
        size = sum(f.bytes_left for f in activity.flows)
        if idle:
            behind = (own.after_kernel_s or 0.0) + self.chained if activity.after_kernel else 0.0
            behind += self.link.event_wait(way) if activity.after else 0.0
            return max(0.0, _beyond(own, 1, size) + behind)
        if own.gap_s is not None and self.streams[way] == 1:
            return own.gap_s
        return _beyond(own, turn, size) - (_beyond(own, turn - 1, size) if turn > 1 else 0.0)


def _beyond(own: Measured, copies: int, size: float) -> float:
    """Seconds of so many copies at once besides their bytes at the pace of long ones; never less than none."""
    seconds = float(own.row_seconds(copies, np.array([size]))[0])
    return max(0.0, seconds - copies * size * own.pieces[-1].gap_per_byte_s)


class VirtualStrategies:
    """Plays programs on `node`."""

    virtual = True

    def __init__(self, node: Node, seed: int = 0, noise: float = 0.003) -> None:
        self._device = VirtualDevice(node, seed, noise)
        self._link = self._device.link(0)
        self.gpus = self._device.gpus
        self._work: Work | None = None
        self._now = 0.0

    def clock(self) -> float:
        """Seconds of virtual time: what the runs so far would have taken."""
        return self._now

    def facts(self) -> dict[str, Any]:
        return self._device.facts()

    def state(self, gpu: int) -> dict[str, Any]:
        return self._device.state(gpu)

    def load(self, work: Work) -> None:
        self._work = work

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
        gpus = len(programs)
        held = max(self._seconds(program, 0.0, gpus) for program in programs)
        noisy = self._device.noisy
        device_s = tuple(noisy(held) for _ in range(repeats))
        self._now += sum(device_s)
        if not by_host:
            return Timing(device_s, ())
        called = max(
            self._seconds(program, 0.0 if program.as_graph else _CALL_S, gpus) for program in programs
        )
        return Timing(device_s, tuple(noisy(called + 2 * _CALL_S) for _ in range(by_host)))

    def close(self) -> None:
        self._device.close()

    def _seconds(self, program: Program, call: float, gpus: int) -> float:
        activities = [
            self._activity(op, program, call * (n + 1), n) for n, op in enumerate(program.operations)
        ]
        streams = {
            way: len({op.stream for op in program.operations if op.kind == way}) for way in ("h2d", "d2h")
        }
        return simulate(activities, _Link(self._link, streams, gpus, self._chained(program)).laws())

    def _chained(self, program: Program) -> float:
        """What a copy in, a kernel and a copy out of one stream, or of one graph's nodes, take longer (s) than alone."""
        kinds = {op.kind for op in program.operations}
        if len(kinds) < 3 or any(op.after for op in program.operations):
            return 0.0
        if program.as_graph:
            return self._link.event_wait("h2d") + self._link.event_wait("d2h")
        return self._link.after_copy

    def _activity(self, op: Operation, program: Program, issued_at: float, index: int) -> Activity:
        assert self._work is not None
        kernel, bytes_ = self._work.kernel, op.part.count * float(ELEMENT_BYTES)
        gpu = self._device.node.gpu(0)
        if op.kind != "kernel":
            flow = Flow(op.kind, "copy", bytes_ * len(op.arrays))
            earlier = program.operations[:index]
            behind = any(
                p.kind == "kernel" and (p.stream == op.stream or n in op.after) for n, p in enumerate(earlier)
            )
            engine = "h2d" if gpu.copy_engines == 1 else op.kind
            return Activity(engine, op.stream, 0.0, [flow], op.after, issued_at, behind)
        into, out = bytes_ * kernel.inputs * kernel.accesses_in, bytes_ * kernel.outputs
        flows = []
        if program.mapped_in:
            flows.append(Flow("h2d", "mapped", into))
        kept = (0.0 if program.mapped_in else bytes_ * kernel.inputs) + (0.0 if program.mapped_out else out)
        memory = kept / (_MEMORY_SHARE * (gpu.memory_bandwidth_bytes_per_s or _MEMORY_BYTES_PER_S))
        work = max(memory, op.part.count * kernel.flops / (gpu.flops_per_s or _FLOPS))
        rounds = op.part.count / self._threads(gpu)
        before = 0.0
        if program.mapped_out:
            # What is read from device memory stands in the queue of what is written. The threads that begin compute
            # before they write.
            once = bytes_ * kernel.inputs
            queue = 1.0 if program.mapped_in else self._link.queue(once / out, (into - once) / out)
            before = (
                self._link.first_round(into, out, rounds) if program.mapped_in else work / max(1.0, rounds)
            )
            flows.append(Flow("d2h", "mapped", out, queue, self._link.lull))
            work = work if program.mapped_in else work - before
        return Activity("gpu", op.stream, work, flows, op.after, issued_at, before=before)

    @staticmethod
    def _threads(gpu: Gpu) -> float:
        """Threads that the GPU holds at once; without end where its processors are not known."""
        return float(gpu.multiprocessors * _THREADS) if gpu.multiprocessors else float("inf")


class VirtualMethods:
    """Plays S16's program on `node`."""

    virtual = True

    def __init__(self, node: Node, seed: int = 0, noise: float = 0.003) -> None:
        self._device = VirtualDevice(node, seed, noise)
        self._link = self._device.link(0)
        self._method = ""
        self._now = 0.0

    def clock(self) -> float:
        """Seconds of virtual time: what the runs so far would have taken."""
        return self._now

    def facts(self) -> dict[str, Any]:
        return self._device.facts()

    def state(self, gpu: int) -> dict[str, Any]:
        return self._device.state(gpu)

    def start(self, method: str, most_elements: int) -> float:
        if method.startswith("managed") and self._device.node.gpu(0).unified_memory:
            raise UnavailableError("CPU and GPU share one memory: nothing migrates")
        self._method = method
        return 2e-4 + 4.0 * most_elements * 3e-10

    def run(self, elements: int, accesses: int, runs: int) -> list[MethodRun]:
        true = self._seconds(elements, accesses)
        noisy = self._device.noisy
        made = []
        for _ in range(runs):
            ranges = {name: noisy(seconds) if seconds else 0.0 for name, seconds in true.items()}
            self._now += sum(ranges.values())
            made.append(MethodRun(ranges, {name: ranges[name] for name in ("h2d", "kernel", "d2h")}))
        return made

    def held(self, elements: int, accesses: int, runs: int) -> list[Mapping[str, float]]:
        if self._method not in HELD:
            return []
        true, noisy = self._seconds(elements, accesses), self._device.noisy
        return [{name: noisy(true[name]) for name in ("h2d", "kernel", "d2h")} for _ in range(runs)]

    def kernel_seconds(self, elements: int, accesses: int) -> float:
        gpu = self._device.node.gpu(0)
        rate = _MEMORY_SHARE * (gpu.memory_bandwidth_bytes_per_s or _MEMORY_BYTES_PER_S)
        # What follows the first access is served by the cache.
        return _LAUNCH_S + 8.0 * elements * (1 + (accesses - 1) / 4) / rate

    def close(self) -> None:
        self._device.close()

    def _seconds(self, elements: int, accesses: int) -> dict[str, float]:
        """Seconds of each range, without noise."""
        bytes_ = 4.0 * elements
        alone = self.kernel_seconds(elements, accesses)
        ranges = {
            "initialise": bytes_ / _FILL_BYTES_PER_S,
            "h2d": 0.0,
            "kernel": alone,
            "d2h": 0.0,
            "sum": bytes_ / _SUM_BYTES_PER_S,
        }
        if self._method == "zero-copy":
            flows = [Flow(way, "mapped", bytes_ * accesses) for way in ("h2d", "d2h")]
            kernel = Activity("gpu", 0, alone - _LAUNCH_S, flows)
            ranges["kernel"] = simulate([kernel], _Link(self._link).laws())
            ranges["kernel"] += self._copied("h2d", "pinned", bytes_) - self._copied(
                "h2d", "pinned", bytes_, written=False
            )
        elif self._method == "managed":
            # Threads whose pages are there compute while others wait for theirs, but half of them come late.
            faults, computing = self._device.just_written("h2d", "managed", bytes_), alone - _LAUNCH_S
            ranges["kernel"] = _LAUNCH_S + computing + faults - min(computing, faults) / 2
            ranges["sum"] += self._device.migrated("d2h", bytes_, touched=True)
        else:
            memory = "pageable" if self._method == "pageable" else "pinned"
            for way in ("h2d", "d2h"):
                if self._method == "managed-prefetch":
                    ranges[way] = self._device.migrated(way, bytes_, touched=False)
                else:
                    ranges[way] = self._copied(way, memory, bytes_)
        return ranges

    def _copied(self, way: str, memory: str, bytes_: float, written: bool = True) -> float:
        """Seconds of a copy of what the processor has just written, or of what it has not."""
        if written:
            return self._device.just_written(way, memory, bytes_)
        return float(self._device.truth(way, memory, 0).seconds(np.array([bytes_]))[0])
