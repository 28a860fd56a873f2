"""`bench offload`: a network whose weights live on the host, run for real by residency, depth, tokens and memory kind; each
layer alone first, then all schedules by turns, beside what `plan offload` predicts of them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import NamedTuple, Protocol

import numpy as np

from busfare.measure.bench.run import Run
from busfare.measure.device import GpuHost
from busfare.measure.results import LeftOut
from busfare.plan.offload.schedule import Memory, Schedule

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


class Case(NamedTuple):
    """One schedule of a network that works on `tokens` at once."""

    network: Network
    schedule: Schedule
    tokens: int

    def __str__(self) -> str:
        s = self.schedule
        return f"{s.memory}, {s.resident} of {self.network.layers} resident, depth {s.depth}, {self.tokens} tokens"


class OffloadDevice(GpuHost, Protocol):
    """Runs passes over one network at a time."""

    def load(self, network: Network, memory: str) -> None:
        """Makes the network in host memory of a kind, in place of the former one. Raises UnavailableError."""

    def layer_seconds(self, tokens: int, repeats: int) -> list[float]:
        """Seconds of one layer with its weights in the GPU's memory. Raises WrongDataError."""

    def passes(self, schedule: Schedule, tokens: int, repeats: int) -> list[float]:
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


def run_cases(run: Run[OffloadDevice], cases: Sequence[Case], say: Callable[[str], None]) -> Measured:
    """Measures all cases, network by network and memory kind by memory kind, in random order within them."""
    order, moments = random.Random(0), 1 if run.quick else MOMENTS
    budget = QUICK_S if run.quick else BUDGET_S
    measured = Measured()
    for network, memory in dict.fromkeys((case.network, case.schedule.memory) for case in cases):
        todo = [case for case in cases if (case.network, case.schedule.memory) == (network, memory)]
        with run.attempt(f"{memory}, {network.layers} layers"):
            run.device.load(network, memory)
            for tokens in sorted({case.tokens for case in todo}):
                if (network, tokens) not in measured.layers:
                    measured.layers[network, tokens] = run.device.layer_seconds(tokens, MOMENTS * RUNS)
            for moment in range(moments):
                order.shuffle(todo)
                for case in list(todo):
                    run.show(len(measured.passes) / len(cases), str(case))
                    if run.seconds > budget and not moment:
                        run.left_out.append(LeftOut(str(case), f"it would start after {budget:g} s"))
                        todo.remove(case)
                    elif run.seconds <= budget:
                        _visit(run, case, measured, todo)
    if not run.device.virtual:
        measured.cpu = {
            tokens: cpu_seconds(cases[0].network, tokens, MOMENTS * RUNS) for tokens in CPU_TOKENS
        }
    say(f"{len(measured.passes)} of {len(cases)} schedules measured")
    return measured


def _visit(run: Run[OffloadDevice], case: Case, measured: Measured, todo: list[Case]) -> None:
    """One moment of a case; what fails once is not tried again, and nothing of it counts."""
    left_out = len(run.left_out)
    with run.attempt(str(case)):
        measured.passes.setdefault(case, []).extend(run.device.passes(case.schedule, case.tokens, RUNS))
    if len(run.left_out) > left_out:
        measured.passes.pop(case, None)
        todo.remove(case)


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
