"""A machine that is not there: it plays a node of the catalogue, with noise and contention.

Its figures are the node's own Curves and Contention, with noise added: a virtual run checks the plumbing from a command to
its result, and predicts nothing. Everything that shows its figures says so.
"""

from __future__ import annotations

import random
from typing import Any

from busfare.errors import InputError
from busfare.measure.cases import (
    ACROSS_ENGINES,
    ACROSS_STREAMS,
    ALL_GPUS,
    ALL_GPUS_BOTH,
    HOST_DIRECTIONS,
    SHARES,
    Case,
    Samples,
)
from busfare.measure.device import UnavailableError
from busfare.measure.kernels import KERNEL_MODES, kind_of, played
from busfare.nodes import Curve, Flow, Node, PcieLink

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
#: Modes that issue all their copies in one call.
_ONE_CALL = ("batch", "graph", "plane", "block")


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
        gpus = [
            {
                "name": gpu.title or gpu.name,
                "bus_id": gpu.name,
                "numa_node": None,
                "multiprocessors": gpu.multiprocessors,
                "kernels": self.node.probed_kernels(ordinal) is not None,
            }
            for ordinal, gpu in enumerate(self.node.gpus())
        ]
        return {"plays": self.node.name, "driver": None, "gpus": gpus}

    def state(self, gpu: int) -> dict[str, Any]:
        wire = next((w for w in self.node.host_path(gpu).links if isinstance(w, PcieLink)), None)
        width, generation = (wire.lanes, wire.generation) if wire else (None, None)
        return {
            "sm_clock_hz": 2 * 10**9,
            "sm_clock_most_hz": 2 * 10**9,
            "memory_clock_hz": None,
            "throttle_reasons": 0,
            "temperature_c": 40,
            "power_w": None,
            "link_generation": generation,
            "link_generation_most": generation,
            "link_width": width,
            "link_width_most": width,
            "link_replays": 0,
            "memory_used_bytes": None,
            "memory_free_bytes": None,
            "busy_percent": 0,
            "other_processes": 0,
        }

    def close(self) -> None:
        """Nothing is held."""

    def noisy(self, seconds: float) -> float:
        """A sample of what takes `seconds`: with noise, and now and then late. Virtual time passes."""
        late = 1 + 3 * self._random.random() if self._random.randrange(_LATE_EVERY) == 0 else 1.0
        sample = seconds * max(0.2, self._random.gauss(1.0, self._noise)) * late
        self.now_s += sample + 2.5e-5
        return sample

    def truth(self, direction: str, memory: str, gpu: int = 0, peer: int | None = None) -> Curve:
        """The curve that the samples follow: that of the node file, else one of its data sheet."""
        kind: Any = {"registered": "pinned", "write-combined": "pinned"}.get(memory, memory)
        curve = self.node.curve(direction, kind, gpu, peer)
        if curve is None:
            gap = 1 / self._bandwidth(direction, gpu, peer)
            way: Any = direction
            curve = Curve(
                direction=way, memory=kind, latency_overhead_s=(_LATENCY_S[direction],),
                gap_per_byte_s=(max(gap, 1 / _COPY_BYTES_PER_S) if kind == "pageable" else gap,),
                issue_interval_s={1: _INTERVAL_S},
            )  # fmt: skip
        return curve

    def migrated(self, direction: str, size: float, touched: bool, gpu: int = 0) -> float:
        """Seconds until so many bytes of managed memory have moved, because they were touched or prefetched."""
        own = self.node.curve(direction, "managed", gpu)
        if own is not None and not touched:
            return float(own.seconds(size))
        start, more = (_FAULT_S[direction], _FAULT_PER_BYTE_S[direction]) if touched else (_PREFETCH_S, 0.0)
        return start + size * (self.truth(direction, "pinned", gpu).long_gap_per_byte_s + more)

    def _bandwidth(self, direction: str, gpu: int, peer: int | None) -> float:
        if direction == "d2d":
            rate = self.node.gpu(gpu).memory_bandwidth_bytes_per_s
            if rate is None:
                raise UnavailableError(f"node {self.node.name} does not say how fast its GPU's memory is")
            return rate / 2
        if direction == "p2p":
            try:
                return self.node.peer_path(gpu, peer or 0).bandwidth("write")
            except InputError as error:
                raise UnavailableError(str(error)) from None
        flow: Flow = "read" if direction == "h2d" else "write"
        return self.node.host_path(gpu).bandwidth(flow)


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
            return self._kernel_s(case), _CALL_S * case.count
        if (kind := kind_of(case)) is not None:
            import numpy as np

            from busfare.cost.collectives import Fabric, price_collectives

            sizes = np.array([float(case.bytes)])
            seconds = float(price_collectives(Fabric.of(self.node, self.gpus), [kind], sizes).seconds[0])
            return seconds, seconds
        if case.direction == "none":
            return self._cost(case)
        if case.mode in (ALL_GPUS, ALL_GPUS_BOTH):
            return self._of_all(case), _CALL_S * case.count * self.gpus
        if case.mode in (ACROSS_STREAMS, ACROSS_ENGINES):
            return self._chunks(case), _CALL_S * case.count * 3
        if case.memory == "managed":
            return self.migrated(case.direction, case.bytes, case.mode == "touch", case.gpu), _CALL_S
        curve = self.truth(case.direction, case.memory, case.gpu, case.peer)
        if case.mode in SHARES:
            share = getattr(self.node.contention(case.gpu), SHARES[case.mode]).of(case.direction)
            curve = curve.scaled(1 / share)
        further = case.bytes * curve.long_gap_per_byte_s
        if case.mode not in ("batch", "plane", "block"):
            streams = case.count if case.mode == "streams" else 1
            further += float(curve.issue_interval(streams))
        seconds = float(curve.seconds(case.bytes)) + (case.count - 1) * further
        if case.mode == "kernel-both":
            other = self.truth("d2h", "mapped", case.gpu)
            start = self.node.contention(case.gpu).mapped_start(case.bytes, case.bytes)
            seconds += float(other.latency_overhead(case.bytes)) + float(start)
        if case.mode == "after-kernel":
            seconds += curve.after_kernel_s
        if case.mode == "there-and-back":
            out = self.truth("d2h", case.memory, case.gpu)
            launch, _ = self._cost(Case("none", "none", "launch", 0, 1, case.gpu))
            seconds += (launch or 0.0) + out.after_kernel_s + float(out.seconds(case.bytes))
        if case.mode == "event-kernel":
            launch, _ = self._cost(Case("none", "none", "launch", 0, 1, case.gpu))
            seconds += curve.event_wait_s + (launch or 0.0)
        return seconds, _CALL_S * (1 if case.mode in _ONE_CALL else case.count)

    def _chunks(self, case: Case) -> float:
        """Seconds of chunks that go in, through a kernel of no time, and out: both ways at once between first and last."""
        shares = self.node.contention(case.gpu)
        if case.mode == ACROSS_STREAMS:
            shares = shares.both_across_streams()
        curves = [self.truth(direction, case.memory, case.gpu) for direction in HOST_DIRECTIONS]
        moving = case.bytes * max(c.long_gap_per_byte_s / shares.both.of(c.direction) for c in curves)
        issuing = sum(
            float(c.issue_interval(case.count if case.mode == ACROSS_STREAMS else 1)) for c in curves
        )
        return sum(float(c.seconds(case.bytes)) for c in curves) + (case.count - 1) * (moving + issuing)

    def _of_all(self, case: Case) -> float:
        """Seconds of the copies of each GPU while all copy, at the mean of their rates."""
        from busfare.timeline.at_once import copy_seconds_at_once

        ends = (self.node.host_path(gpu).memory for gpu in range(self.gpus))
        if len({end.name for end in ends if end is not None}) > 1:
            raise UnavailableError(f"node {self.node.name}: its GPUs copy to and from more than one memory")
        flows = [(str(case.direction), gpu) for gpu in range(self.gpus)]
        sizes = [case.total_bytes] * self.gpus
        if case.mode == ALL_GPUS_BOTH:
            other = "d2h" if case.direction == "h2d" else "h2d"
            flows += [(other, gpu) for gpu in range(self.gpus)]
            sizes += [3 * case.total_bytes] * self.gpus  # which outlast what is measured
        seconds = copy_seconds_at_once(self.node, flows, sizes)[: self.gpus]
        return float(self.gpus / (1 / seconds).sum())

    def _kernel_s(self, case: Case) -> float:
        kernels, units = self.node.probed_kernels(case.gpu), self.node.gpu(case.gpu).multiprocessors
        seconds = played(kernels, case, units or 1) if kernels else None
        if seconds is None:
            raise UnavailableError(f"node {self.node.name} does not say what this kernel reaches on its GPU")
        return seconds

    def _cost(self, case: Case) -> tuple[float | None, float]:
        name = f"allocate-{case.memory}" if case.mode == "allocate" else case.mode
        own = self.node.call_cost(name, case.gpu)
        if own is not None:
            call_s = own.call_s + case.bytes * (own.call_per_byte_s or 0.0)
            return own.device_s or None, call_s
        seconds = _COST_S[case.mode] + case.bytes * _ALLOCATED_PER_BYTE_S
        return (seconds if case.mode in ("empty", "launch") else None), seconds
