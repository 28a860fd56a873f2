"""What `plan` says of a cell, strategy by strategy and number of streams by number, before it is held against what was
measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from busfare.measure.bench.program import ELEMENT_BYTES, MOST_IN_ORDER, Program, Work
from busfare.planning import Machine, Prediction, Problem, plan, ranked
from busfare.planning.streams import ByStreams, by_streams, played

#: Both ways to submit W14's streams: a stream a chunk, or a stream an engine.
STREAMED = ("streams", "three-streams")
#: Those that W14 compares; `plan` ranks more.
STRATEGIES = ("explicit", "mapped", *STREAMED, "hybrid")


@dataclass(frozen=True)
class Predicted:
    """`plan`'s answers for one cell on one machine: those without streams, and by number those with them."""

    work: Work
    problem: Problem
    machine: Machine
    single: Mapping[str, Prediction]
    cut: Mapping[str, ByStreams]

    @classmethod
    def of(cls, work: Work, kernel_s: Mapping[int, float], machine: Machine) -> Predicted:
        """`kernel_s` is t_E in seconds by the number of chunks, measured alone, with one for 1. Raises InputError where the
        node has no host link.
        """
        kernel = work.kernel
        problem = Problem(
            work.name,
            float(work.h2d_bytes),
            float(work.d2h_bytes),
            kernel_s[1],
            accesses_in=kernel.accesses_in,
            copies_in=kernel.inputs,
            copies_out=kernel.outputs,
            kernel_at=tuple(sorted((n, seconds) for n, seconds in kernel_s.items() if n > 1)),
            levels=work.most_streams,
            copies_in_order=bool(kernel.reaches),
        )
        fewer = replace(problem, levels=min(MOST_IN_ORDER, work.most_streams))
        cut = {
            name: by_streams([fewer if name == "three-streams" else problem], machine, name)[0]
            for name in ("streams", "three-streams", "hybrid")
        }
        return cls(work, problem, machine, {p.strategy: p for p in plan(problem, machine).ranking}, cut)

    @property
    def best(self) -> Prediction:
        """The fastest of W14's strategies, as `plan` ranks them."""
        cut = [Prediction(s, t.best, t.at(t.best), t.by) for s, t in self.cut.items()]
        return ranked([self.single["explicit"], self.single["mapped"], *cut])[0]

    def best_number(self, strategy: str) -> int:
        """The number of streams that is predicted to be the fastest."""
        return self.cut[strategy].best

    def at(self, strategy: str, streams: int) -> Prediction | None:
        """The prediction for a version that is measured; None where `plan` has none."""
        times = self.cut.get("streams" if strategy == "graph" else strategy)
        if times is not None:
            if streams not in times.numbers:
                return None
            by = f"{times.by}, without the host's calls" if strategy == "graph" else times.by
            return Prediction(strategy, streams, times.at(streams), by)
        if strategy == "batched" and "batched" not in self.single:
            # One array each way: nothing to batch.
            return replace(self.single["explicit"], strategy="batched")
        return self.single.get(strategy)

    def shared(self, programs: tuple[Program, ...]) -> Prediction:
        """The slower of the shares of several GPUs, each with a link of its own and the host for itself."""
        shares = []
        for program in programs:
            into, out, computed = (
                sum(op.part.count * max(1, len(op.arrays)) for op in program.operations if op.kind == kind)
                for kind in ("h2d", "d2h", "kernel")
            )
            share = computed / self.work.elements
            problem = replace(
                self.problem,
                h2d_bytes=float(into * ELEMENT_BYTES),
                d2h_bytes=float(out * ELEMENT_BYTES),
                kernel_seconds=(self.problem.kernel_seconds or 0.0) * share,
                kernel_at=tuple((n, seconds * share) for n, seconds in self.problem.kernel_at),
                streams=None,
            )
            shares.append(played(problem, self.machine, "streams", program.streams))
        by = "the slower share, as if each had the host for itself"
        return Prediction("streams-2gpu", programs[0].streams, max(shares), by)
