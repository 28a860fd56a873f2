"""Layers whose weights live on the host, worked off on an NVIDIA GPU: the program that `plan offload` plays, for real."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from busfare.measure.bench.offload import BLOCK_BYTES, Network, expected_sums
from busfare.measure.cuda.board import FirstGpu, require_room
from busfare.measure.cuda.driver import (
    LONG,
    POINTER,
    WORD,
    checked,
    copier,
    download,
    driver,
    finish,
    prefetch,
    view,
)
from busfare.measure.cuda.timing import Step, Timed, in_order, once
from busfare.measure.device import WrongDataError
from busfare.plan.machine import Machine
from busfare.plan.offload.schedule import Schedule, program_of

_HOST_KINDS = {"mapped": "pinned"}
_THREADS, _BLOCKS = 256, 8
_POISON = 0xA5
_STREAMS = 3


class CudaOffload(FirstGpu):
    """Runs passes over one network at a time on the machine's first GPU."""

    KERNELS = {"layer": (POINTER, LONG, WORD, POINTER)}  # noqa: RUF012

    def load(self, network: Network, memory: str) -> None:
        """Makes the network in host memory of a kind, and its buffers. Raises UnavailableError."""
        board, whole = self.board, network.layers * network.layer_bytes
        self.give()
        require_room(whole, 2 * whole)
        if memory == "managed":
            board.require_prefetch()
        self._network, self._memory = network, memory
        host = (_HOST_KINDS.get(memory, memory), whole)
        self.take(host=host, slots=("device", whole), sums=("device", 4 * network.layers))
        words = network.layer_bytes // 4
        first = np.arange(words, dtype=np.uint32) * np.uint32(2654435761)
        self._totals = []
        for layer in range(network.layers):
            weights = view(self.at("host") + layer * network.layer_bytes, words, ctypes.c_uint32)
            np.add(first, np.uint32(layer * 40503), out=weights)
            self._totals.append(int(weights.sum(dtype=np.uint64)))

    def layer_seconds(self, tokens: int, repeats: int, machine: Machine) -> list[float]:
        """Seconds of one layer with its weights in the GPU's memory, by events over a pass of all."""
        layers = self._network.layers
        return [whole / layers for whole in self.passes(Schedule(layers), tokens, repeats, machine)]

    def passes(self, schedule: Schedule, tokens: int, repeats: int, machine: Machine) -> list[float]:
        """Seconds of so many passes, by events, after one that is not counted.

        Raises WrongDataError where one computed anything else than the weights say, and UnavailableError.
        """
        board, slots = self.board, self.buffers["slots"]
        if self._memory == "managed":  # all of it begins on the host
            prefetch(self.at("host"), self.buffers["host"].size, None, board.streams(1)[0])
        # What no layer holds, so that one that was not copied shows.
        checked(driver.cuMemsetD8(slots.address, _POISON, slots.size), "cuMemsetD8")
        finish()
        if size := schedule.resident * self._network.layer_bytes:
            checked(driver.cuMemcpy(slots.address, self.at("host"), size), "cuMemcpy")
        timed = Timed(board, in_order(board, list(self._steps(schedule, tokens, machine))), _STREAMS)
        return [self._pass(timed, tokens) for _ in range(repeats + 1)][1:]

    def _pass(self, timed: Timed, tokens: int) -> float:
        network, (_, computing, _) = self._network, timed.streams
        checked(driver.cuMemsetD32Async(self.at("sums"), 0, network.layers, computing), "cuMemsetD32Async")
        finish()
        # Not held: a copy of pageable memory would wait for what waits for it.
        ends, _ = once((timed,), held=False)
        got = np.frombuffer(download(self.at("sums"), 4 * network.layers), np.uint32)
        wrong = np.flatnonzero(got != expected_sums(self._totals, network, tokens))
        if len(wrong):
            raise WrongDataError(
                f"{len(wrong)} of {network.layers} layers computed something else; the first is {wrong[0]}"
            )
        return max(ends)

    def _steps(self, schedule: Schedule, tokens: int, machine: Machine) -> Iterator[Step]:
        """The program of a schedule on this network: layers are brought, computed and sent back in their order."""
        network, managed = self._network, self._memory == "managed"
        layers = network.taking(0.0)
        numbers = {"h2d": count(schedule.resident), "kernel": count(), "d2h": count(schedule.resident)}
        for kind, stream, after in program_of(layers, schedule, machine).issued:
            layer = next(numbers[kind])
            host = self.at("host") + layer * network.layer_bytes
            work: Any
            if kind == "kernel":
                work = self._kernel(schedule, layer, tokens)
            elif managed:
                work = partial(prefetch, host, network.layer_bytes, 0 if kind == "h2d" else None)
            else:
                work = copier(kind, self._slot(schedule, layer), host, network.layer_bytes)
            yield Step(stream, work, after)

    def _kernel(self, schedule: Schedule, layer: int, tokens: int) -> Any:
        on_host = layer >= schedule.resident and schedule.memory in ("mapped", "managed")
        size = self._network.layer_bytes
        weights = self.at("host") + layer * size if on_host else self._slot(schedule, layer)
        values = (weights, size // BLOCK_BYTES, tokens, self.at("sums") + 4 * layer)
        blocks = _BLOCKS * self.board.multiprocessors
        return partial(self._module.launch, "layer", values=values, blocks=blocks, threads=_THREADS)

    def _slot(self, schedule: Schedule, layer: int) -> int:
        """Where a layer lies in the GPU's memory: resident ones in their own places, the others in turn in the buffers."""
        first = schedule.resident
        number = layer if layer < first else first + (layer - first) % (schedule.depth + 1)
        return self.at("slots") + number * self._network.layer_bytes
