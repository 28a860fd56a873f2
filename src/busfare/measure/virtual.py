"""A machine that is not there: it plays a node of the catalogue, with noise, contention and faults.

Its figures are predictions, with noise added. Everything that shows them says so.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from busfare.errors import InputError
from busfare.measure.case import Case, Samples
from busfare.measure.device import StalledError, UnavailableError
from busfare.measure.plan import AFTER
from busfare.measure.virtual_link import ROUND_BYTES, HostLink
from busfare.node import Flow, Measured, Node, PcieLink, Piece
from busfare.node.measured import piecewise

__all__ = ["FAULTS", "VirtualDevice"]

#: Faults that can be injected, and what they are.
FAULTS = {
    "half-width": "the link trained with half of its lanes",
    "slow-link": "the link carries half, but reports full width",
    "throttled": "the GPU is hot, and its clocks are held down",
    "stalled": "the blocking kernel is not released in time",
    "busy": "another program uses the GPU",
    "drift": "copies into the GPU grow slower after a while",
    "replays": "the link sends packets again",
    "no-locked-memory": "pinned memory is refused",
    "little-memory": "buffers above 16 MiB are refused",
}
#: What the machines that were measured show where a node file has no figure of its own: seconds.
_LATENCY_S = {"h2d": 3.6e-6, "d2h": 2.8e-6, "d2d": 3.1e-6, "p2p": 3.5e-6}
_LAUNCH = Case("none", "none", "launch")
_GAP_S = 2e-6
_CALL_S = 2.2e-6
_COST_S = {
    "empty": 1.2e-6,
    "call": 1.5e-7,
    "launch": 3.9e-6,
    "synchronise": 1.6e-6,
    "create-stream": 2.6e-6,
    "create-event": 4e-7,
}
#: Page faults: what the first takes, and each byte besides the link; a prefetch.
_FAULT_S, _FAULT_PER_BYTE_S = {"h2d": 5e-5, "d2h": 2e-5}, {"h2d": 4e-11, "d2h": 1.1e-10}
_PREFETCH_S = 4.5e-5
_ALLOCATION = (2e-4, 3e-10)
#: Host memory that a processor's core copies in a second, where the node does not say.
_COPY_BYTES_PER_S = 8.3e9
#: What the processor has just written: seconds more a byte, for so many bytes.
_WRITTEN = {"pinned": (1.1e-11, 2 << 20), "pageable": (3e-11, 32 << 20), "managed": (2e-11, 32 << 20)}
_DRIFT, _DRIFT_AFTER_S = 1.15, 4.0
#: One sample in so many is late by a factor of several: an interrupt, another program.
_LATE_EVERY = 200


class VirtualDevice:
    """Plays `node`. `noise` is the relative standard deviation of a sample; time passes in `clock` alone."""

    virtual = True

    def __init__(self, node: Node, seed: int = 0, noise: float = 0.005, faults: Sequence[str] = ()) -> None:
        unknown = [fault for fault in faults if fault not in FAULTS]
        if unknown:
            raise InputError(f"fault {unknown[0]!r}: not known; one of {', '.join(FAULTS)}")
        self.node = node
        self.gpus = len(node.gpus())
        self._random = random.Random(seed)
        self._noise = noise
        self._faults = set(faults)
        self._now = 0.0
        self.left_out: list[dict[str, str]] = []

    def clock(self) -> float:
        """Seconds of virtual time: what the samples so far would have taken."""
        return self._now

    def facts(self) -> dict[str, Any]:
        gpus = [
            {"name": gpu.title or gpu.name, "bus_id": gpu.name, "numa_node": None} for gpu in self.node.gpus()
        ]
        return {"plays": self.node.name, "driver": None, "faults": sorted(self._faults), "gpus": gpus}

    def state(self, gpu: int) -> dict[str, Any]:
        wire = next((w for w in self.node.host_path(gpu).links if isinstance(w, PcieLink)), None)
        width, generation = (wire.lanes, wire.generation) if wire else (None, None)
        slow = "throttled" in self._faults
        return {
            "sm_clock_hz": 6 * 10**8 if slow else 2 * 10**9,
            "sm_clock_most_hz": 2 * 10**9,
            "memory_clock_hz": None,
            "throttle_reasons": 0x40 if slow else 0,
            "temperature_c": 93 if slow else 40,
            "power_w": None,
            "link_generation": generation,
            "link_generation_most": generation,
            "link_width": width // 2 if width and "half-width" in self._faults else width,
            "link_width_most": width,
            "link_replays": int(self._now * 3) if "replays" in self._faults else 0,
            "memory_used_bytes": None,
            "memory_free_bytes": None,
            "busy_percent": 100 if "busy" in self._faults else 0,
            "other_processes": int("busy" in self._faults),
        }

    def run(self, case: Case, repeats: int) -> Samples:
        self._refuse(case)
        device_s, api_s = self._true_seconds(case)
        device = tuple(self.noisy(device_s) for _ in range(repeats)) if device_s is not None else ()
        api = (
            device
            if case.memory == "pageable" and device
            else tuple(self.noisy(api_s) for _ in range(repeats))
        )
        self._now += sum(device) + sum(api) + repeats * 5e-5
        return Samples(device, api)

    def close(self) -> None:
        """Nothing is held."""

    def _refuse(self, case: Case) -> None:
        pinned = case.memory in ("pinned", "registered", "write-combined", "mapped")
        if "no-locked-memory" in self._faults and (pinned or case.mode == "register"):
            raise UnavailableError("pinned memory was refused; see ulimit -l")
        if "little-memory" in self._faults and max(case.bytes, case.total_bytes) > 1 << 24:
            raise UnavailableError(f"{case.total_bytes} bytes were refused")
        if "stalled" in self._faults and case.mode == "streams" and case.count >= 64:
            raise StalledError(
                "the blocking kernel waited 3 s and gave up: a launch queue was full or the host stalled"
            )

    def noisy(self, seconds: float) -> float:
        """A sample of what takes `seconds`: with noise, and now and then late."""
        busy = self._random.random() if "busy" in self._faults else 0.0
        late = 1 + 3 * self._random.random() if self._random.randrange(_LATE_EVERY) == 0 else 1.0
        return seconds * max(0.2, self._random.gauss(1.0, self._noise)) * late * (1 + busy)

    def _true_seconds(self, case: Case) -> tuple[float | None, float]:
        """Device and API seconds of a case, without noise."""
        if case.direction == "none":
            return self._cost(case)
        one = self.truth(case.direction, case.memory, case.gpu, case.peer)
        size = np.array([case.bytes], np.float64)
        slope = one.pieces[-1].gap_per_byte_s
        further = (one.gap_s or 0.0) + case.bytes * slope
        first = float(one.seconds(size)[0])
        if case.mode == "streams":
            seconds = float(one.row_seconds(case.count, size)[0])
        elif case.mode in ("batch", "plane", "block", "packed"):
            seconds = first + (case.count - 1) * case.bytes * slope
        else:
            seconds = first + (case.count - 1) * further
        if "drift" in self._faults and case.direction == "h2d" and self._now > _DRIFT_AFTER_S:
            seconds *= _DRIFT
        link = self.link(case.gpu)
        if case.mode in ("both", "beside-mapped", "both-beside-gpu"):
            gpus = 2 if case.mode == "both-beside-gpu" else 1
            pace = link.slowed(case.direction, case.mode == "beside-mapped", gpus=gpus)
            seconds += case.total_bytes * (pace - slope)
            if case.mode == "both" and one.both_directions_gap_s is not None:
                seconds += (case.count - 1) * (one.both_directions_gap_s - (one.gap_s or 0.0))
        if case.mode in ("beside-gpu", "both-beside-gpu"):
            seconds *= self._sharing(case.direction, case.gpu, case.peer or 0)
        if case.mode in ("kernel-both", "kernel-beside-copies"):
            beside = link.slowed_mapped(case.direction, case.mode == "kernel-both")
            seconds += case.total_bytes * (beside - slope)
        if case.mode == "kernel-both":
            round_bytes = float(min(case.bytes, ROUND_BYTES))
            seconds += link.first_round(round_bytes, round_bytes)
            seconds += link.mapped["d2h"].latency_overhead_s or 0.0
        if case.memory == "managed":
            seconds = self.migrated(case.direction, float(case.bytes), case.mode == "touch", case.gpu)
        if case.mode in AFTER:
            seconds += one.after_kernel_s or 0.0
        if case.mode == "after-event":
            seconds += link.event_wait(case.direction)
        if case.mode == "event-kernel":
            # The kernel waits, whichever way the copy went.
            seconds += link.event_wait("h2d") + (self._cost(replace(_LAUNCH, gpu=case.gpu))[0] or 0.0)
        if case.mode == "there-and-back":
            back = self.truth("d2h", case.memory, case.gpu)
            launched = self._cost(replace(_LAUNCH, gpu=case.gpu))[0] or 0.0
            seconds += (
                launched + float(back.seconds(size)[0]) + (back.after_kernel_s or 0.0) + link.after_copy
            )
        if case.mode == "hybrid":
            seconds = link.hybrid(case)
        if case.mode in ("through", "through-beside-gpu"):
            seconds = link.through(case, gpus=1 + (case.mode == "through-beside-gpu"))
        if case.mode == "written":
            seconds = self.just_written(case.direction, case.memory, float(case.bytes), case.gpu)
        return seconds, _CALL_S * (
            1 if case.mode in ("batch", "graph", "plane", "block", "packed") else case.count
        )

    def _cost(self, case: Case) -> tuple[float | None, float]:
        slow = 3.0 if "throttled" in self._faults else 1.0
        name = f"allocate-{case.memory}" if case.mode == "allocate" else case.mode
        own = next((c for c in self.node.costs if c.call == name and c.gpu in (None, case.gpu)), None)
        if own is not None:
            call_s = own.call_s + case.bytes * (own.call_per_byte_s or 0.0)
            return (own.device_s * slow if own.device_s else None), call_s * slow
        if case.mode in ("allocate", "register"):
            return None, _ALLOCATION[0] + case.bytes * _ALLOCATION[1]
        seconds = _COST_S[case.mode] * slow
        return (seconds if case.mode in ("empty", "launch") else None), seconds

    def link(self, gpu: int) -> HostLink:
        """The host link of one GPU."""
        return HostLink(lambda way, memory: self.truth(way, memory, gpu))

    def truth(self, direction: str, memory: str, gpu: int, peer: int | None = None) -> Measured:
        """The parameters that the samples follow: those of the node file, else those of its data sheet."""
        kind = {"registered": "pinned", "write-combined": "pinned"}.get(memory, memory)
        found = next(
            (
                m for m in self.node.measured
                if (m.direction, m.memory) == (direction, kind) and m.gpu in (None, gpu)
                and m.peer in (None, peer) and m.pieces
            ),
            None,
        )  # fmt: skip
        slower = 2.0 if self._faults & {"half-width", "slow-link"} and direction in ("h2d", "d2h") else 1.0
        if found is None:
            pace = 1 / self._bandwidth(direction, gpu, peer)
            if kind == "pageable":
                pace = max(pace, 1 / _COPY_BYTES_PER_S)
            piece = Piece(latency_overhead_s=_LATENCY_S[direction], gap_per_byte_s=pace)
            found = Measured(direction=direction, memory=kind, pieces=(piece,), gap_s=_GAP_S)  # type: ignore[arg-type]
        rows = tuple(msgspec.structs.replace(row, pieces=_slowed(row.pieces, slower)) for row in found.rows)
        return msgspec.structs.replace(found, pieces=_slowed(found.pieces, slower), rows=rows)

    def migrated(self, direction: str, size: float, touched: bool, gpu: int = 0) -> float:
        """Seconds until so many bytes of managed memory have moved, because they were touched or prefetched."""
        own = next((m for m in self.node.measured if (m.direction, m.memory) == (direction, "managed")), None)
        pieces = () if own is None else own.faults if touched else own.pieces
        if pieces:
            return float(piecewise(pieces, np.array([size]))[0])
        start, more = (_FAULT_S[direction], _FAULT_PER_BYTE_S[direction]) if touched else (_PREFETCH_S, 0.0)
        return start + size * (self.truth(direction, "pinned", gpu).pieces[-1].gap_per_byte_s + more)

    def just_written(self, direction: str, memory: str, size: float, gpu: int = 0) -> float:
        """Seconds of a copy of what the processor has just written, or over what it has; or until so much managed memory
        has moved.
        """
        if memory == "managed":
            plain = self.migrated(direction, size, True, gpu)
        else:
            plain = float(self.truth(direction, memory, gpu).seconds(np.array([size]))[0])
        own = next((m for m in self.node.measured if (m.direction, m.memory) == (direction, memory)), None)
        if own is not None and own.written:
            # What caches hold never comes sooner: where it did on the machine, its plain copies had a worse moment.
            return max(plain, float(piecewise(own.written, np.array([size]))[0]))
        per_byte, most = _WRITTEN[memory]
        return plain + (per_byte * min(size, most) if direction == "h2d" or memory == "pageable" else 0.0)

    def _sharing(self, direction: str, gpu: int, other: int) -> float:
        """How much longer copies take while another GPU's run the same way: links that both cross carry half of each."""
        flow: Flow = "read" if direction == "h2d" else "write"
        own, theirs = self.node.host_path(gpu), self.node.host_path(other)
        shared = [link.bandwidth(flow) / 2 for link in own.links if link in theirs.links]
        return max(1.0, own.bandwidth(flow) / min(shared)) if shared else 1.0

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


def _slowed(pieces: tuple[Piece, ...], factor: float) -> tuple[Piece, ...]:
    """The same with `factor` times the gap per byte."""
    return tuple(
        msgspec.structs.replace(piece, gap_per_byte_s=piece.gap_per_byte_s * factor) for piece in pieces
    )
