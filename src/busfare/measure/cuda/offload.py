"""Layers whose weights live on the host, worked off on an NVIDIA GPU: streams, events, buffers and prefetches."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np

from busfare.measure.bench.offload import BLOCK_BYTES, Network, expected_sums
from busfare.measure.cuda import facts
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import (
    LONG,
    POINTER,
    Buffer,
    CudaError,
    Module,
    allocate,
    checked,
    driver,
    prefetch,
)
from busfare.measure.cuda.timing import record, seconds, wait
from busfare.measure.device import UnavailableError, WrongDataError
from busfare.plan.offload.schedule import Schedule

#: Of the host's memory and of the GPU's free memory a network takes at most these shares.
_HOST_SHARE, _DEVICE_SHARE = 0.4, 0.6
_HOST_KINDS = {"mapped": "pinned"}
_THREADS, _BLOCKS = 256, 8
_POISON = 0xA5
_UNTIMED = driver.CUevent_flags.CU_EVENT_DISABLE_TIMING.value


class CudaOffload(facts.CudaHost):
    """Runs passes over one network at a time on the machine's first GPU."""

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus)
        self._board: Board | None = None
        self._buffers: list[Buffer] = []
        self._order: list[Any] = []

    def load(self, network: Network, memory: str) -> None:
        """Makes the network in host memory of a kind, and its buffers. Raises UnavailableError."""
        self._free()
        try:
            self._load(network, memory)
        except CudaError as error:
            self._free()
            raise UnavailableError(str(error)) from None

    def _load(self, network: Network, memory: str) -> None:
        self._opened()
        whole = network.layers * network.layer_bytes
        if whole > 8 * _HOST_SHARE * facts.roomy_bytes():
            raise UnavailableError(f"{whole} bytes are too much of this host's memory")
        free, _ = checked(driver.cuMemGetInfo(), "cuMemGetInfo")
        if 2 * whole > _DEVICE_SHARE * free:
            raise UnavailableError(f"{whole} bytes, twice, are too much of the {free} that the GPU has free")
        concurrent = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
        if memory == "managed" and not self._opened().attribute(concurrent):
            raise UnavailableError("this GPU and system do not prefetch managed memory")
        self._network, self._memory = network, memory
        for kind, size in (
            (_HOST_KINDS.get(memory, memory), whole), ("device", whole), ("device", 4 * network.layers),
        ):  # fmt: skip
            self._buffers.append(allocate(kind, size))
        self._host, self._slots, self._sums = self._buffers
        words = network.layer_bytes // 4
        first = np.arange(words, dtype=np.uint32) * np.uint32(2654435761)
        self._totals = []
        for layer in range(network.layers):
            place = self._host.address + layer * network.layer_bytes
            view = np.ctypeslib.as_array((ctypes.c_uint32 * words).from_address(place))
            np.add(first, np.uint32(layer * 40503), out=view)
            self._totals.append(int(view.sum(dtype=np.uint64)))

    def layer_seconds(self, tokens: int, repeats: int) -> list[float]:
        """Seconds of one layer with its weights in the GPU's memory, by events over a pass of all."""
        network = self._network
        self._poison()
        passes = self.passes(Schedule(network.layers), tokens, repeats)
        return [whole / network.layers for whole in passes]

    def passes(self, schedule: Schedule, tokens: int, repeats: int) -> list[float]:
        """Seconds of so many passes, by events, after one that is not counted.

        Raises WrongDataError where one computed anything else than the weights say, and UnavailableError.
        """
        try:
            self._poison()
            self._bring_resident(schedule.resident)
            return [self._pass(schedule, tokens) for _ in range(repeats + 1)][1:]
        except CudaError as error:
            raise UnavailableError(str(error)) from None

    def _bring_resident(self, resident: int) -> None:
        size = resident * self._network.layer_bytes
        if size:
            checked(driver.cuMemcpy(self._slots.address, self._host.address, size), "cuMemcpy")

    def _poison(self) -> None:
        """What no layer holds, so that one that was not copied shows."""
        self._opened().enter()
        if self._memory == "managed":  # all of it begins on the host
            prefetch(self._host.address, self._host.size, None, self._streams()[0])
        checked(driver.cuMemsetD8(self._slots.address, _POISON, self._slots.size), "cuMemsetD8")
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")

    def _streams(self) -> Sequence[Any]:
        return self._opened().streams(3)

    def _pass(self, schedule: Schedule, tokens: int) -> float:
        network, board = self._network, self._opened()
        streams = copying, computing, leaving = self._streams()
        start, *ends = board.events(3)
        arrived, computed = self._marks(network.layers), self._marks(2 * network.layers)[network.layers :]
        checked(driver.cuMemsetD32Async(self._sums.address, 0, network.layers, computing), "cuMemsetD32Async")
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
        record(start, computing)
        for stream in (copying, leaving):
            wait(stream, start)
        first, depth, size = schedule.resident, schedule.depth, network.layer_bytes

        def bring(layer: int) -> None:
            if layer >= network.layers:
                return
            freed = layer - 1 if depth == 0 else layer - (depth + 1)
            if freed >= (0 if depth == 0 else first):
                wait(copying, computed[freed])
            host = self._host.address + layer * size
            if self._memory == "managed":
                prefetch(host, size, 0, copying)
            else:
                to = self._slot(schedule, layer)
                checked(driver.cuMemcpyHtoDAsync(to, host, size, copying), "cuMemcpyHtoDAsync")
            record(arrived[layer], copying)

        def compute(layer: int) -> None:
            streamed = layer >= first and schedule.memory != "mapped"
            if streamed:
                wait(computing, arrived[layer])
            arguments = (
                self._weights(schedule, layer),
                size // BLOCK_BYTES,
                tokens,
                self._sums.address + 4 * layer,
            )
            kinds = (POINTER, LONG, ctypes.c_uint, POINTER)
            self._module.launch(
                "layer", computing, arguments, kinds, _BLOCKS * board.multiprocessors, _THREADS
            )
            record(computed[layer], computing)
            if streamed and self._memory == "managed":
                wait(leaving, computed[layer])
                prefetch(self._host.address + layer * size, size, None, leaving)

        copies = schedule.memory != "mapped"
        # A copy of pageable memory holds the host until it is done, so what needs none goes before it.
        ahead = [(bring, range(first, first + depth if copies else first)), (compute, range(first))]
        for issue, layers in reversed(ahead) if self._memory == "pageable" else ahead:
            for layer in layers:
                issue(layer)
        for layer in range(first, network.layers):
            if copies and depth == 0:
                bring(layer)
            compute(layer)
            if copies and depth > 0:
                bring(layer + depth)
        for end, stream in zip(ends, (computing, leaving), strict=True):
            record(end, stream)
        for stream in streams:
            checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")
        self._check(tokens)
        return max(seconds(start, end) for end in ends)

    def _marks(self, count: int) -> list[Any]:
        """Events that hold no time: what only orders work costs less so."""
        while len(self._order) < count:
            self._order.append(checked(driver.cuEventCreate(_UNTIMED), "cuEventCreate"))
        return self._order[:count]

    def _slot(self, schedule: Schedule, layer: int) -> int:
        """Where a layer lies in the GPU's memory: resident ones in their own places, the others in turn in the buffers."""
        first = schedule.resident
        number = layer if layer < first else first + (layer - first) % (schedule.depth + 1)
        return self._slots.address + number * self._network.layer_bytes

    def _weights(self, schedule: Schedule, layer: int) -> int:
        if layer >= schedule.resident and schedule.memory in ("mapped", "managed"):
            return self._host.address + layer * self._network.layer_bytes
        return self._slot(schedule, layer)

    def _check(self, tokens: int) -> None:
        network = self._network
        answer = bytearray(4 * network.layers)
        checked(driver.cuMemcpyDtoH(answer, self._sums.address, len(answer)), "cuMemcpyDtoH")
        got, want = np.frombuffer(answer, np.uint32), expected_sums(self._totals, network, tokens)
        wrong = np.flatnonzero(got != want)
        if len(wrong):
            raise WrongDataError(
                f"{len(wrong)} of {network.layers} layers computed something else; the first is {wrong[0]}"
            )

    def _opened(self) -> Board:
        if self._board is None:
            try:
                self._board = Board(0, 1 << 20)
                source = resources.files("busfare.measure.cuda").joinpath("layer.cu").read_text("utf-8")
                self._module = Module(source, "layer.cu", self._board.capability, ("layer",))
            except CudaError as error:
                raise UnavailableError(str(error)) from None
        self._board.enter()
        return self._board

    def _free(self) -> None:
        if self._board is not None:
            self._board.enter()
            for buffer in self._buffers:
                buffer.free()
        self._buffers.clear()

    def close(self) -> None:
        self._free()
        if self._board is not None:
            for event in self._order:
                checked(driver.cuEventDestroy(event), "cuEventDestroy")
            self._order.clear()
            self._module.unload()
            self._board.close()
            self._board = None
