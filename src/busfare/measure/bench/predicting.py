"""What `plan` says of a cell, strategy by strategy and number of streams by number, before it is held against what was
measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from busfare.measure.bench.program import Program
from busfare.measure.bench.work import ELEMENT_BYTES, Work
from busfare.plan import Machine, Prediction, Problem, plan
from busfare.plan.curve import Curve, curves
from busfare.plan.machine import beside_another_gpu, in_one_stream
from busfare.plan.rank import ranked

__all__ = ["MOST_IN_ORDER", "STRATEGIES", "STREAMED", "Predicted", "problem_of"]

#: Both ways to submit W14's streams: a stream a chunk, or a stream an engine.
STREAMED = ("streams", "three-streams")
#: Those that W14 compares; `plan` ranks more.
STRATEGIES = ("explicit", "mapped", *STREAMED, "hybrid")

#: Predictions that differ by less are alike: a large kernel hides copies of 256 chunks as well as its own accesses.
TIE = 0.002
#: More chunks than these do not fit the queue of one stream while it is held.
MOST_IN_ORDER = 128


def problem_of(work: Work, kernel_s: Mapping[int, float]) -> Problem:
    """The question to `plan`; `kernel_s` is t_E in seconds by the number of chunks, measured alone, with one for 1."""
    kernel = work.kernel
    return Problem(
        work.name,
        float(work.h2d_bytes),
        float(work.d2h_bytes),
        kernel_s[1],
        accesses_in=kernel.accesses_in,
        copies_in=kernel.inputs,
        copies_out=kernel.outputs,
        kernel_at=tuple(sorted((n, seconds) for n, seconds in kernel_s.items() if n > 1)),
    )


@dataclass(frozen=True)
class Predicted:
    """`plan`'s answers for one cell on one machine."""

    problem: Problem
    machine: Machine
    single: Mapping[str, Prediction]
    streams: Curve
    hybrid: Curve
    three_streams: Curve
    graph: Curve

    @classmethod
    def of(cls, problem: Problem, machine: Machine, most_streams: int, in_order: bool = False) -> Predicted:
        """`in_order`: all copies in go through one stream. Raises InputError where the node has no host link."""
        problem = replace(problem, levels=min(256, most_streams))
        answer = plan(problem, machine)
        queued = in_one_stream(machine, "h2d") if in_order else machine
        chunked, both = (curves([problem], queued, name)[0] for name in ("streams", "hybrid"))
        graph = curves([problem], replace(queued, as_graph=True), "streams")[0]
        fewer = replace(problem, levels=min(MOST_IN_ORDER, most_streams))
        engines = curves([fewer], machine, "three-streams")[0]
        return cls(problem, queued, {p.strategy: p for p in answer.ranking}, chunked, both, engines, graph)

    @property
    def best(self) -> Prediction:
        """The fastest of W14's strategies.

        Where no model can tell them apart it is the simpler one: of both ways to submit streams the one in order
        (`ranked`); and within TIE the one without streams.
        """
        found = [
            self.single["explicit"],
            self.single["mapped"],
            self.streams.prediction(),
            self.three_streams.prediction(),
            self.hybrid.prediction(),
        ]
        simple, least = (min(some, key=lambda p: p.seconds) for some in (found[:2], found))
        return simple if simple.seconds <= least.seconds * (1 + TIE) else ranked(found)[0]

    def best_number(self, strategy: str) -> int:
        """The number of streams that is predicted to be the fastest."""
        curves = {"streams": self.streams, "three-streams": self.three_streams, "hybrid": self.hybrid}
        return curves[strategy].prediction().streams

    def at(self, strategy: str, streams: int) -> Prediction | None:
        """The prediction for a version that is measured; None where `plan` has none."""
        if strategy == "streams":
            return self._on(self.streams, strategy, streams)
        if strategy == "graph":
            return self._on(self.graph, strategy, streams)
        if strategy == "three-streams":
            return self._on(self.three_streams, strategy, streams)
        if strategy == "hybrid":
            return self._on(self.hybrid, strategy, streams)
        if strategy == "batched" and "batched" not in self.single:
            return replace(
                self.single["explicit"], strategy="batched"
            )  # one array each way: nothing to batch
        return self.single.get(strategy)

    def _on(self, curve: Curve, strategy: str, streams: int) -> Prediction | None:
        place = np.flatnonzero(curve.numbers == streams)
        if not len(place):
            return None
        by = f"{curve.by}, without the host's calls" if strategy == "graph" else curve.by
        return Prediction(strategy, streams, float(curve.seconds[place[0]]), by)

    def shared(self, programs: tuple[Program, ...], work: Work) -> Prediction:
        """The slower of the shares of several GPUs, each with a link of its own and one host memory for all."""
        found = []
        machine = beside_another_gpu(self.machine)
        for program in programs:
            into, out, computed = (
                sum(op.part.count * max(1, len(op.arrays)) for op in program.operations if op.kind == kind)
                for kind in ("h2d", "d2h", "kernel")
            )
            share = computed / work.elements
            problem = replace(
                self.problem,
                h2d_bytes=float(into * ELEMENT_BYTES),
                d2h_bytes=float(out * ELEMENT_BYTES),
                kernel_seconds=(self.problem.kernel_seconds or 0.0) * share,
                kernel_at=tuple((n, seconds * share) for n, seconds in self.problem.kernel_at),
                streams=None,
            )
            curve = curves([problem], machine, "streams")[0]
            number = min(program.streams, len(curve.numbers))
            found.append(float(curve.seconds[number - 1]))
        known = machine.h2d.beside_gpu is not None and machine.d2h.beside_gpu is not None
        host = "beside each other as measured" if known else "as if each had the host for itself"
        return Prediction("streams-2gpu", programs[0].streams, max(found), f"the slower share, {host}")
