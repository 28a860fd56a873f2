"""`probe`: a machine → its node, with raw samples, residuals and health."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from busfare.errors import BusfareError, InputError
from busfare.measure.cases import HOST_DIRECTIONS, Case, at_once, copies
from busfare.measure.device import Device, command_line, gpu_count
from busfare.measure.kernels import (
    COLLECTIVES_S,
    KERNELS_S,
    QUICK_COLLECTIVES_S,
    QUICK_KERNELS_S,
    collective_cases,
    kernel_cases,
)
from busfare.measure.node_file import named
from busfare.measure.profile import Residual, profile, residuals
from busfare.measure.raw import Measurement, Record, read
from busfare.measure.results import (
    Knee,
    ProbedCase,
    ProbeResult,
    Profile,
    ResidualCase,
    Residuals,
    ResidualsOf,
)
from busfare.measure.run import Progress, locate, measure
from busfare.measure.soundness import disturbances, health
from busfare.measure.summary import interquartile_mean, interval
from busfare.nodes import Node

#: What may be measured by itself.
Part = Literal["copies", "kernels", "collectives"]
#: Seconds a GPU of copies, of the goals that the project set itself.
FULL_S, QUICK_S = 30.0, 10.0
#: Of several GPUs, for copies of all together.
AT_ONCE_S, QUICK_AT_ONCE_S = 3.0, 1.0
#: What remains of them after start-up, knees and fit.
_MEASURING_SHARE = 0.88


@dataclass(frozen=True)
class Probed:
    """The node, the samples that it is from, and what is shown of both."""

    node: Node
    record: Record
    result: ProbeResult


def open_device(virtual: str | None) -> Device:
    """The machine's GPUs, or a virtual node. Raises NoGpuError where there is none."""
    if virtual is not None:
        from busfare.measure.virtual import VirtualDevice
        from busfare.nodes import load_node

        return VirtualDevice(load_node(virtual))
    count = gpu_count("probe")
    from busfare.measure.cuda.device import CudaDevice

    return CudaDevice(count)


def measured(
    device: Device,
    fast: bool,
    progress: Progress | None = None,
    seed: int | None = None,
    gpus: Sequence[int] | None = None,
    only: Part | None = None,
    collectives: bool = False,
) -> tuple[Record, list[Knee]]:
    """The samples alone, of every GPU of `device`, and where its paths jump; of one part `only` where asked for; with
    `collectives` among all GPUs, too. Raises InputError where a virtual node has nothing of it, and NoGpuError where
    collectives have one GPU.
    """
    facts = device.facts()
    record = Record(
        virtual=device.virtual,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command_line("probe"),
        facts=facts,
        seed=random.SystemRandom().randrange(2**31) if seed is None else seed,
    )
    chosen = range(len(facts["gpus"])) if gpus is None else gpus
    knees: list[Knee] = []
    # Asked for first: with one GPU it is said before anything is measured.
    together = collective_cases(len(chosen), fast) if collectives or only == "collectives" else ()
    for gpu in chosen:
        if only in (None, "copies"):
            cases = copies(gpu, [other for other in chosen if other != gpu], fast)
            budget = (QUICK_S if fast else FULL_S) * _MEASURING_SHARE
            measure(device, cases, record, budget, progress)
            for direction in HOST_DIRECTIONS:
                knees += locate(device, record, Case(direction, "pinned", "copies", 1, 1, gpu))
        # A node that nobody measured kernels on has none to play.
        plays = facts["gpus"][gpu].get("kernels", True)
        if only == "kernels" and not plays:
            raise InputError(
                f"node {facts['plays']}: says nothing of kernels; name a node whose file has [[kernels]]"
            )
        if only in (None, "kernels") and plays:
            cases = kernel_cases(facts["gpus"][gpu], gpu, fast)
            measure(device, cases, record, QUICK_KERNELS_S if fast else KERNELS_S, progress)
    if len(chosen) > 1 and only in (None, "copies"):
        measure(device, at_once(fast), record, QUICK_AT_ONCE_S if fast else AT_ONCE_S, progress)
    if together:
        measure(device, together, record, QUICK_COLLECTIVES_S if fast else COLLECTIVES_S, progress)
    _note_disturbances(record)
    return record, knees


def _note_disturbances(record: Record) -> None:
    seen = disturbances(record.states, record.measurements)
    record.disturbances = list(dict.fromkeys([*record.disturbances, *seen]))


def again(raw: Path) -> Probed:
    """The same from the raw samples of an earlier run. Raises InputError where the file holds none."""
    return evaluated(read(raw))


def evaluated(record: Record, knees: Sequence[Knee] = ()) -> Probed:
    """What the samples of a record say. Raises BusfareError where nothing could be measured."""
    node = named(profile(record), record)
    if not (node.curves or node.kernels or node.collectives):
        reasons = sorted({row.why for row in record.left_out})
        raise BusfareError(f"nothing could be measured: {'; '.join(reasons[:3]) or 'no case ran'}")
    _note_disturbances(record)
    own = residuals(node.curves, record)
    pageable = [r for r in own if r.case.memory == "pageable"]
    pinned = [r for r in own if r.case.memory == "pinned"]
    result = ProbeResult(
        virtual=record.virtual,
        node=msgspec.convert(node, Profile, from_attributes=True),
        residuals=Residuals(**msgspec.structs.asdict(_in_all(pinned)), pageable=_in_all(pageable)),
        residual_cases=[
            ResidualCase(case=str(r.case), measured_seconds=r.measured_s, predicted_seconds=r.predicted_s)
            for r in own
        ],
        health=health(node, record),
        knees=list(knees),
        cases=[_probed(m) for m in record.measurements],
        disturbances=record.disturbances,
        left_out=record.left_out,
        seconds=record.seconds,
        facts=record.facts,
    )
    return Probed(node, record, result)


def _probed(m: Measurement) -> ProbedCase:
    return ProbedCase(
        **dataclasses.asdict(m.case),
        samples=len(m.api_ns),
        stopped=m.stopped,
        device_seconds=interquartile_mean(m.device_s) if m.device_ns else None,
        api_seconds=interquartile_mean(m.api_s) if m.api_ns else None,
        interval_seconds=interval(m.seconds),
    )


def _in_all(residuals: Sequence[Residual]) -> ResidualsOf:
    if not residuals:
        return ResidualsOf(0, None, None)
    off = [abs(r.percent) for r in residuals]
    return ResidualsOf(len(off), float(np.median(off)), max(off))
