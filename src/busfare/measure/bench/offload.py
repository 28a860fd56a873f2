"""`bench offload`: a network whose weights live on the host, run for real by residency, depth, tokens and memory kind; each
layer alone first, then all schedules by turns, beside what `plan offload` predicts of them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby, product
from typing import Any, NamedTuple, Protocol

import numpy as np

from busfare.measure.bench.results import (
    OffloadCell,
    OffloadLayer,
    OffloadPick,
    OffloadResult,
    TokensBreakEven,
)
from busfare.measure.bench.run import Run, off_percent
from busfare.measure.device import GpuHost
from busfare.measure.summary import fastest_part, interval
from busfare.plan.machine import Machine
from busfare.plan.offload.rank import break_even, ranged, share_hidden
from busfare.plan.offload.schedule import Layers, Memory, Schedule, seconds_of

MIB = 1 << 20
#: What a thread reads at once.
BLOCK_BYTES = 16
#: By each token every weight w becomes w · MULTIPLIER + ADDEND in 32 bits (a linear congruential generator's).
MULTIPLIER, ADDEND = 1664525, 1013904223
#: A cell that would start after so many seconds is left out, and named.
BUDGET_S, QUICK_S = 120.0, 15.0
#: A schedule is run at so many moments, by turns with the others, so often at each: a shared machine is slow for a while.
MOMENTS, RUNS = 3, 3
TOKENS = (1, 512, 2048, 4096, 8192)
#: Tokens of which the processor is timed: every second one is what a user would know, the others say what lies between.
CPU_TOKENS, CPU_COLUMNS, UNCOUNTED = (1, 4, 16, 64, 256), 4096, 5


class Network(NamedTuple):
    """`layers` equal layers of `layer_bytes` weights."""

    layers: int
    layer_bytes: int

    def taking(self, layer_s: float) -> Layers:
        """Its layers, each of which takes `layer_s` seconds with its weights in the GPU's memory."""
        return Layers.alike(self.layers, self.layer_bytes, layer_s)


class Case(NamedTuple):
    """One schedule of a network that works on `tokens` at once."""

    network: Network
    schedule: Schedule
    tokens: int

    def __str__(self) -> str:
        s = self.schedule
        return f"{s.memory}, {s.resident} of {self.network.layers} resident, depth {s.depth}, {self.tokens} tokens"


class OffloadDevice(GpuHost, Protocol):
    """Runs passes over one network at a time, as `plan offload` issues them (on whichever `machine`)."""

    def load(self, network: Network, memory: str) -> None:
        """Makes the network in host memory of a kind, in place of the former one. Raises UnavailableError."""

    def layer_seconds(self, tokens: int, repeats: int, machine: Machine) -> list[float]:
        """Seconds of one layer with its weights in the GPU's memory. Raises WrongDataError."""

    def passes(self, schedule: Schedule, tokens: int, repeats: int, machine: Machine) -> list[float]:
        """Seconds of so many passes, each checked. Raises WrongDataError and UnavailableError."""


@dataclass
class Measured:
    """Seconds of each sample: of a layer alone, by network and tokens; of passes; and of a layer on the processor, by
    tokens.
    """

    layers: dict[tuple[Network, int], list[float]] = field(default_factory=dict)
    passes: dict[Case, list[float]] = field(default_factory=dict)
    cpu: dict[int, list[float]] = field(default_factory=dict)


LARGE, SMALL = Network(16, 64 * MIB), Network(32, 8 * MIB)


def _cases(
    network: Network, memory: Memory, residents: Sequence[int], depths: Sequence[int], tokens: Sequence[int]
) -> list[Case]:
    return [
        Case(network, Schedule(resident, depth, memory), number)
        for resident, depth, number in product(residents, depths, tokens)
    ]


#: What says most comes first.
CASES = (
    *_cases(LARGE, "pinned", (0, 4, 8, 12), (0, 1, 2, 4), TOKENS),
    *_cases(SMALL, "pinned", (0, 16), (0, 1, 2), (1, 2048, 8192)),
    *_cases(LARGE, "pageable", (0, 8), (0, 1, 2), (1, 4096)),
    *_cases(LARGE, "mapped", (0, 8), (0,), TOKENS),
    *_cases(LARGE, "managed", (0, 8), (0, 1, 2), (1, 8192)),
)
QUICK_CASES = (
    *_cases(LARGE, "pinned", (0, 8), (0, 1), (1, 4096)),
    *_cases(LARGE, "mapped", (0,), (0,), (1, 4096)),
)


@cache
def _after(tokens: int) -> tuple[int, int]:
    """Factor and addend, modulo 2**32, of so many tokens together."""
    factor, addend = 1, 0
    for _ in range(tokens):
        factor, addend = factor * MULTIPLIER % (1 << 32), (addend * MULTIPLIER + ADDEND) % (1 << 32)
    return factor, addend


def expected_sums(totals: Sequence[int], network: Network, tokens: int) -> np.ndarray:
    """What each layer must add up to, in 32 bits: shape (layers,). `totals`: the sums of the weights by layer."""
    factor, addend = _after(tokens)
    words = network.layer_bytes // 4
    return np.array([(total * factor + words * addend) % (1 << 32) for total in totals], np.uint32)


def asked(quick: bool, virtual: str | None) -> Callable[[Run[OffloadDevice]], OffloadResult]:
    """It has no options of its own."""
    return offload_result


def offload_result(run: Run[OffloadDevice]) -> OffloadResult:
    """What was measured, and what is predicted of it."""
    measured = run_cases(run, QUICK_CASES if run.quick else CASES)
    origin = run.origin("offload", list(measured.passes))
    return OffloadResult(**beside_predictions(measured, run.machine), **origin)


def run_cases(run: Run[OffloadDevice], cases: Sequence[Case]) -> Measured:
    """Measures all cases, network by network and memory kind by memory kind, in random order within them."""
    order, moments, device = random.Random(0), 1 if run.quick else MOMENTS, run.device
    budget = QUICK_S if run.quick else BUDGET_S
    measured = Measured()
    for network, memory in dict.fromkeys((case.network, case.schedule.memory) for case in cases):
        todo = [case for case in cases if (case.network, case.schedule.memory) == (network, memory)]
        with run.attempt(f"{memory}, {network.layers} layers"):
            device.load(network, memory)
            for tokens in sorted({case.tokens for case in todo}):
                if (network, tokens) not in measured.layers:
                    alone = device.layer_seconds(tokens, MOMENTS * RUNS, run.machine)
                    measured.layers[network, tokens] = alone
            for moment in range(moments):
                order.shuffle(todo)
                for case in list(todo):
                    run.show(len(measured.passes) / len(cases), str(case))
                    if moment and run.seconds > budget:
                        continue
                    # What fails once, or is too late, is not tried again, and nothing of it counts.
                    todo.remove(case)
                    seen = measured.passes.pop(case, [])
                    if moment or not run.too_late(str(case), budget):
                        with run.attempt(str(case)):
                            seen += device.passes(case.schedule, case.tokens, RUNS, run.machine)
                            measured.passes[case] = seen
                            todo.append(case)
    if not device.virtual:
        measured.cpu = {
            tokens: cpu_seconds(cases[0].network, tokens, MOMENTS * RUNS) for tokens in CPU_TOKENS
        }
    run.say(f"{len(measured.passes)} of {len(cases)} schedules measured")
    return measured


def cpu_seconds(network: Network, tokens: int, repeats: int) -> list[float]:
    """Seconds of one layer on this machine's processor: its weights as a matrix of fp32 times `tokens` vectors, by NumPy's
    BLAS.
    """
    weights = np.ones((network.layer_bytes // 4 // CPU_COLUMNS, CPU_COLUMNS), np.float32)
    vectors = np.ones((CPU_COLUMNS, tokens), np.float32)
    samples = []
    for _ in range(repeats + UNCOUNTED):
        began = time.perf_counter()
        answer = weights @ vectors
        samples.append(time.perf_counter() - began)
        assert answer[0, 0] == CPU_COLUMNS
    return samples[UNCOUNTED:]


def beside_predictions(measured: Measured, machine: Machine) -> dict[str, Any]:
    """What a result says of its samples, and of what is predicted for a machine, as its fields."""
    alone = {key: fastest_part(samples) for key, samples in measured.layers.items()}
    cells = [_cell(case, samples, alone, machine) for case, samples in measured.passes.items()]
    cells.sort(key=lambda c: (c.memory, -c.layer_bytes, c.tokens, c.resident, c.depth))
    errors = [abs(cell.error_percent) for cell in cells if cell.error_percent is not None]
    return {
        "layers": [
            OffloadLayer(
                **network._asdict(),
                tokens=tokens,
                measured_seconds=alone[network, tokens],
                samples_seconds=samples,
            )
            for (network, tokens), samples in measured.layers.items()
        ],
        "cells": cells,
        "picks": list(_picks(cells)),
        "break_even": _break_even(measured, cells, alone, machine),
        "median_percent": float(np.median(errors)) if errors else None,
        "ninetieth_percent": float(np.percentile(errors, 90)) if errors else None,
    }


def measured_of(result: OffloadResult) -> Measured:
    """The samples of a result that was written."""
    even = result.break_even
    cpu = zip(even.cpu_tokens, even.cpu_seconds_per_layer, strict=True) if even else ()
    return Measured(
        {(Network(one.layers, one.layer_bytes), one.tokens): one.samples_seconds for one in result.layers},
        {
            Case(
                Network(c.layers, c.layer_bytes), Schedule(c.resident, c.depth, c.memory), c.tokens
            ): c.samples_seconds
            for c in result.cells
        },
        {tokens: [seconds] for tokens, seconds in cpu},
    )


def _cell(
    case: Case, samples: list[float], alone: Mapping[tuple[Network, int], float], machine: Machine
) -> OffloadCell:
    network, schedule = case.network, case.schedule
    layers = network.taking(alone[network, case.tokens])
    predicted, seen = seconds_of(layers, schedule, machine), fastest_part(samples)
    return OffloadCell(
        **network._asdict(), **schedule._asdict(), tokens=case.tokens, measured_seconds=seen,
        measured_interval_seconds=interval(samples), samples_seconds=samples, predicted_seconds=predicted,
        predicted_by="plan offload", error_percent=off_percent(predicted, seen), checked=True,
        predicted_share_hidden=share_hidden(layers, schedule, machine, predicted),
        measured_share_hidden=share_hidden(layers, schedule, machine, seen), **ranged(predicted, schedule, machine),
    )  # fmt: skip


def _picks(cells: Iterable[OffloadCell]) -> Iterable[OffloadPick]:
    """By tokens, memory kind and budget: the schedule that is predicted to be the fastest, and the one that was."""

    def key(cell: OffloadCell) -> tuple[str, int, int]:
        return cell.memory, cell.layer_bytes, cell.tokens

    for (memory, layer_bytes, tokens), group in groupby(sorted(cells, key=key), key):
        of_group = [(_held(cell), cell) for cell in group]
        for budget in sorted({held for held, _ in of_group}):
            fit = [cell for held, cell in of_group if held <= budget]
            if len(fit) < 2:
                continue
            picked = min(fit, key=lambda cell: cell.predicted_seconds or 0.0)
            fastest = min(fit, key=lambda cell: cell.measured_seconds)
            yield OffloadPick(
                tokens=tokens, memory=memory, layer_bytes=layer_bytes, layers_held=budget, candidates=len(fit),
                predicted=(picked.resident, picked.depth), measured=(fastest.resident, fastest.depth),
                cost_percent=100 * (picked.measured_seconds / fastest.measured_seconds - 1),
            )  # fmt: skip


def _held(cell: OffloadCell) -> int:
    """Layers' worth of GPU memory."""
    layers = Network(cell.layers, cell.layer_bytes).taking(0.0)
    return round(Schedule(cell.resident, cell.depth, cell.memory).device_bytes(layers) / cell.layer_bytes)


def _break_even(
    measured: Measured, cells: list[OffloadCell], alone: Mapping[tuple[Network, int], float], machine: Machine
) -> TokensBreakEven | None:
    """Against the processor: predicted from every second number of its tokens, measured through all of them."""
    streamed = [c for c in cells if c.memory == "pinned" and c.resident == 0 and c.depth == 1]
    largest = [c for c in streamed if c.layer_bytes == max(c.layer_bytes for c in streamed)]
    if not measured.cpu or len(largest) < 2:
        return None
    network, tokens = Network(largest[0].layers, largest[0].layer_bytes), sorted(measured.cpu)
    cpu = [fastest_part(measured.cpu[number]) for number in tokens]
    layer = _between([c.tokens for c in largest], [alone[network, c.tokens] for c in largest])
    seen = _between([c.tokens for c in largest], [c.measured_seconds for c in largest])
    known, all_of_them = _between(tokens[::2], cpu[::2]), _between(tokens, cpu)
    predicted, why = break_even(
        lambda n: seconds_of(network.taking(layer(n)), Schedule(0, 1, "pinned"), machine),
        lambda n: network.layers * known(n),
        tokens[-1],
    )
    truth, reason = break_even(seen, lambda n: network.layers * all_of_them(n), tokens[-1])
    return TokensBreakEven(
        memory="pinned", cpu_tokens=tokens, cpu_seconds_per_layer=cpu, measured_tokens=truth, predicted_tokens=predicted,
        error_percent=off_percent(predicted, truth) if predicted else None, reason=reason or why,
    )  # fmt: skip


def _between(places: list[int], values: list[float]) -> Callable[[float], float]:
    """Straight lines through measured points; flat beyond them."""
    return lambda place: float(np.interp(place, places, values))
