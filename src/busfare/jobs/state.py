"""A job after changes, and what its collectives take: as recorded, by its own times, or by the links of a node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.cost.collectives import KINDS, Fabric, fit_collectives, price_collectives
from busfare.errors import InputError
from busfare.jobs.beside import Crowd
from busfare.jobs.matching import MESSAGES
from busfare.jobs.model import JobTimeline, together
from busfare.nodes import Node
from busfare.nodes.arrays import FloatArray
from busfare.statements import Words
from busfare.timeline import Played, Timeline, play

NS = 1e-9
#: Kernels are longer beside communication, and more runs beside longer kernels: it settles at once.
ROUNDS = 2


@dataclass(frozen=True)
class JobState:
    """A job after changes: each part's timeline, the transfers of its members (ns), members that no longer communicate
    (`gone`), and whether kernels wait for collectives no more (`beside`).
    """

    job: JobTimeline
    timelines: list[Timeline]
    transfer_ns: FloatArray
    gone: NDArray[np.bool_]
    beside: bool = False
    count: int = 0
    bytes: int = 0
    rests_on: list[Words] = field(default_factory=list)
    crowd: Crowd | None = None

    @staticmethod
    def of(job: JobTimeline) -> JobState:
        timelines = [part.timeline for part in job.parts]
        gone = np.zeros(job.members.height, bool)
        return JobState(job, timelines, job.transfer_ns.astype(float), gone, crowd=Crowd.of(job))

    def play(self) -> Played:
        """The whole job, kernels as long as what communicates beside them makes them."""
        played = self._play(self.timelines)
        if self.count and self.crowd is not None:
            for _ in range(ROUNDS):
                played = self._play(self.crowd.slower(self.job.parts, self.timelines, played))
        return played

    def _play(self, timelines: list[Timeline]) -> Played:
        return play(together(self.job, timelines, self.transfer_ns, self.gone, self.beside))

    def touched(self, count: int, *rests_on: Words, bytes: int = 0) -> JobState:
        conditions = list(dict.fromkeys([*self.rests_on, *(rests_on if count else ())]))
        return replace(self, count=self.count + count, bytes=self.bytes + bytes, rests_on=conditions)


@dataclass(frozen=True)
class JobChange:
    """A change to a job: the option of `what-if` that asks for it, what it is called, and what it makes of the job."""

    option: str
    title: Words
    apply: Callable[[JobState], JobState]
    node: Node | None = None


def priced_on(job: JobTimeline, fabric: Fabric) -> FloatArray:
    """What each member's transfer takes on `fabric`, s; not a number of kinds or sizes that are not known."""
    kinds, sizes = kinds_and_sizes(job)
    seconds = np.full(len(sizes), np.nan)
    some = np.array([kind in KINDS for kind in kinds]) & np.isfinite(sizes)
    if some.any():
        priced = price_collectives(fabric, [kinds[row] for row in np.flatnonzero(some)], sizes[some])
        seconds[some] = priced.seconds
    return seconds


def kinds_and_sizes(job: JobTimeline) -> tuple[list[str], FloatArray]:
    kinds = job.members["collective_kind"].cast(pl.String).fill_null("").to_list()
    sizes = job.members.select(pl.col("bytes").max().over("joint")).to_series().cast(pl.Float64)
    return ["send_receive" if kind in MESSAGES else kind for kind in kinds], sizes.fill_null(
        np.nan
    ).to_numpy()


def transfer_model(job: JobTimeline, node: Node | None) -> Callable[[str, FloatArray], FloatArray]:
    """Seconds of collectives of a kind and sizes: by a line through those of the job, in the shape of the node's links where
    its sizes do not tell latency from bandwidth.
    """
    kinds, sizes = kinds_and_sizes(job)
    fabric = None
    if node is not None:
        try:
            fabric = Fabric.of(node, job.size)
        except InputError:
            fabric = None

    @cache
    def fitted(kind: str) -> Callable[[FloatArray], FloatArray]:
        rows = np.flatnonzero([one == kind for one in kinds] & np.isfinite(sizes) & (job.transfer_ns > 0))

        def model(some: FloatArray) -> FloatArray:
            if fabric is None or kind not in KINDS:
                return some.astype(float)  # by its bytes alone
            return price_collectives(fabric, [kind] * len(some), some).seconds

        if not len(rows):
            return model
        return fit_collectives(sizes[rows], np.asarray(job.transfer_ns[rows] * NS), model)

    def of_kind(kind: str, wanted: FloatArray) -> FloatArray:
        return fitted(kind)(wanted)

    return of_kind
