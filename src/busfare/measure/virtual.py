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
#: What a wait for an event of another stream adds.
_EVENT_S = {"h2d": 5e-6, "d2h": 0.0}
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
_SLOWED_BY_BOTH_WAYS = 1.1
_SLOWED_BY_MAPPED = 1.5
_MAPPED_SLOWED_BY_MAPPED, _MAPPED_SLOWED_BY_COPIES = 1.15, 1.05
#: For how long copies go on in each kernel that writes mapped memory, and what the processor has just written: seconds
#: more a byte, for so many bytes.
_LULL_S = 1e-5
#: Of a mapped write's place in its queue a read of device memory takes so much; what is read again, from the cache, more.
READ_SHARE, REREAD_SHARE = 0.4, 0.85
#: How long a kernel waits for a copy that mapped writes held until they ended.
_WAIT_S = 1.2e-5
#: Of the first round of a kernel's threads on mapped memory, what moves one way after the other; the bytes of a round.
_FIRST_SHARE, _ROUND_BYTES = 0.4, 1 << 20
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
        if case.mode in ("both", "beside-mapped"):
            seconds += case.total_bytes * (self.slowed(one, case.mode == "beside-mapped") - slope)
            if case.mode == "both" and one.both_directions_gap_s is not None:
                seconds += (case.count - 1) * (one.both_directions_gap_s - (one.gap_s or 0.0))
        if case.mode == "beside-gpu":
            seconds *= self._sharing(case.direction, case.gpu, case.peer or 0)
        if case.mode in ("kernel-both", "kernel-beside-copies"):
            seconds += case.total_bytes * (self.slowed_mapped(one, case.mode == "kernel-both") - slope)
        if case.mode == "kernel-both":
            seconds += self._first_round(case)
        if case.memory == "managed":
            seconds = self.migrated(case.direction, float(case.bytes), case.mode == "touch", case.gpu)
        if case.mode in AFTER:
            seconds += one.after_kernel_s or 0.0
        if case.mode == "after-event":
            seconds += self.waited(case.direction, case.gpu)
        if case.mode == "event-kernel":
            # The kernel waits, whichever way the copy went.
            seconds += self.waited("h2d", case.gpu) + (self._cost(replace(_LAUNCH, gpu=case.gpu))[0] or 0.0)
        if case.mode == "hybrid":
            seconds = self._hybrid(case, one)
        if case.mode == "through":
            seconds = self._through(case, one)
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
        own = next((m for m in self.node.measured if (m.direction, m.memory) == (direction, memory)), None)
        if own is not None and own.written:
            return float(piecewise(own.written, np.array([size]))[0])
        per_byte, most = _WRITTEN[memory]
        more = per_byte * min(size, most) if direction == "h2d" or memory == "pageable" else 0.0
        if memory == "managed":
            return self.migrated(direction, size, True, gpu) + more
        return float(self.truth(direction, memory, gpu).seconds(np.array([size]))[0]) + more

    def waited(self, direction: str, gpu: int = 0) -> float:
        """What a wait for an event of another stream adds (s): of a kernel for a copy in, of a copy out for a kernel."""
        own = self.truth(direction, "pinned", gpu).event_wait_s
        return _EVENT_S[direction] if own is None else own

    def lull(self, copies: Measured) -> float:
        """For how long (s) copies in go on as if a kernel did not write mapped memory, in each such kernel."""
        return _LULL_S if copies.mapped_lull_s is None else copies.mapped_lull_s

    def _hybrid(self, case: Case, copies: Measured) -> float:
        """Copies in that wait in the queue of mapped writes, but for a lull a kernel; none is over before them."""
        written = self.truth("d2h", "mapped", case.gpu).pieces[-1]
        writing = case.bytes * written.gap_per_byte_s
        queue = self.slowed(copies, mapped=True) / copies.pieces[-1].gap_per_byte_s - 1
        slowed = 1 + queue / (1 + READ_SHARE)
        lull = min(self.lull(copies), writing)
        into = float(copies.row_seconds(case.count, np.array([case.bytes], np.float64))[0])
        hidden = (case.count - 1) * (lull + (writing - lull) / slowed)
        overlapped = into + case.count * writing - hidden
        wait = _WAIT_S if copies.mapped_wait_s is None else copies.mapped_wait_s
        in_turn = into / case.count + writing + (case.count - 1) * (wait + writing)
        return max(overlapped, in_turn) + (written.latency_overhead_s or 0.0)

    def _through(self, case: Case, into: Measured) -> float:
        """Chunks in and out again, a stream each: the first in alone, the last out alone, and both ways between, where
        each copy waits for the turns of both ways' streams.
        """
        out = self.truth("d2h", "pinned", case.gpu)
        one, size = np.ones(1), np.array([case.bytes], np.float64)
        paces, turns = [], 0.0
        for way in (into, out):
            rows = {row.copies: row.pieces[-1].gap_per_byte_s for row in way.both_directions_rows}
            added = max((way.both_directions_gap_s or 0.0) - (way.gap_s or 0.0), 0.0)
            paces.append(rows.get(case.count, self.slowed(way, mapped=False)) * case.bytes + added)
            every = float(way.row_seconds(case.count, one)[0] - way.seconds(one)[0])
            turns += every / (case.count - 1)
        ends = sum(float(way.seconds(size)[0]) for way in (into, out))
        return ends + (out.after_kernel_s or 0.0) + (case.count - 1) * (max(paces) + turns)

    def slowed(self, copies: Measured, mapped: bool) -> float:
        """G (s/B) of pinned copies while copies, or a kernel on mapped memory, move data the other way."""
        slope = copies.pieces[-1].gap_per_byte_s
        if mapped:
            return copies.mapped_gap_per_byte_s or _SLOWED_BY_MAPPED * slope
        return copies.both_directions_gap_per_byte_s or _SLOWED_BY_BOTH_WAYS * slope

    def slowed_mapped(self, own: Measured, mapped: bool) -> float:
        """G (s/B) of a kernel on mapped memory while such a kernel, or copies, move data the other way."""
        slope = own.pieces[-1].gap_per_byte_s
        if mapped:
            return own.mapped_gap_per_byte_s or _MAPPED_SLOWED_BY_MAPPED * slope
        return own.both_directions_gap_per_byte_s or _MAPPED_SLOWED_BY_COPIES * slope

    def _first_round(self, case: Case) -> float:
        """What a kernel on mapped memory takes longer (s) because its first threads have nothing to write yet."""
        into, out = (self.truth(way, "mapped", case.gpu) for way in ("h2d", "d2h"))
        share = _FIRST_SHARE if into.mapped_first_share is None else into.mapped_first_share
        alone = into.pieces[-1].gap_per_byte_s + out.pieces[-1].gap_per_byte_s
        both = max(self.slowed_mapped(one, mapped=True) for one in (into, out))
        return share * min(case.bytes, _ROUND_BYTES) * max(alone - both, 0.0) + (
            out.latency_overhead_s or 0.0
        )

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
