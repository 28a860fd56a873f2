"""`probe`: a machine → its node, with raw samples, residuals and health."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from busfare.errors import BusfareError, InputError, NoGpuError
from busfare.measure.case import Case
from busfare.measure.cases import HOST_DIRECTIONS, Plan, full, quick
from busfare.measure.device import Device
from busfare.measure.disturbance import disturbances
from busfare.measure.health import Health, health
from busfare.measure.knees import Jump, locate
from busfare.measure.profile import profile
from busfare.measure.raw import Record, read
from busfare.measure.residual import Residual, residuals
from busfare.measure.run import Progress, measure
from busfare.measure.summary import interquartile_mean, interval
from busfare.measure.topology import node_of
from busfare.node import Node

__all__ = [
    "FULL_S",
    "QUICK_S",
    "Knee",
    "Probed",
    "again",
    "evaluated",
    "measured",
    "open_device",
    "probe",
    "result",
]

#: Seconds a GPU, of the goals that the project set itself.
FULL_S, QUICK_S = 30.0, 10.0
#: What remains of them after start-up, knees and fit.
_MEASURING_SHARE = 0.88


@dataclass(frozen=True)
class Knee:
    """A size at which a path's time jumps."""

    case: Case
    jump: Jump


@dataclass(frozen=True)
class Probed:
    """What a probe found."""

    node: Node
    record: Record
    residuals: list[Residual]
    health: list[Health]
    knees: list[Knee] = field(default_factory=list)


def open_device(virtual: str | None, seed: int = 0, faults: Sequence[str] = ()) -> Device:
    """The machine's GPUs, or a virtual node. Raises NoGpuError where there is none."""
    if virtual is not None:
        from busfare.measure.virtual import VirtualDevice
        from busfare.node import load_node

        return VirtualDevice(load_node(virtual), seed, faults=faults)
    if faults:
        raise InputError("--fault needs --virtual NODE: a real machine is measured as it is")
    try:
        from busfare.measure.cuda import open_cuda
    except ImportError as error:
        raise NoGpuError(
            f"no way to a GPU: looked for the package {error.name or 'cuda.bindings'}, which is not installed; "
            "pip install 'busfare[gpu]', or try --virtual h100-sxm"
        ) from None
    return open_cuda()


def probe(
    device: Device,
    fast: bool,
    progress: Progress | None = None,
    seed: int | None = None,
    gpus: Sequence[int] | None = None,
) -> Probed:
    """Measures every GPU of `device` and fits its parameters; `fast` takes a third of the time."""
    return evaluated(*measured(device, fast, progress, seed, gpus))


def measured(
    device: Device,
    fast: bool,
    progress: Progress | None = None,
    seed: int | None = None,
    gpus: Sequence[int] | None = None,
) -> tuple[Record, list[Knee]]:
    """The samples alone, of every GPU of `device`, and where its paths jump."""
    facts = device.facts()
    count = len(facts["gpus"])
    record = Record(
        virtual=device.virtual,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=" ".join(["busfare", *sys.argv[1:]]) if sys.argv[1:2] == ["probe"] else "busfare probe",
        facts=facts,
        seed=random.SystemRandom().randrange(2**31) if seed is None else seed,
    )
    # A virtual machine has a time of its own, in which nobody waits.
    clock: Callable[[], float] = getattr(device, "clock", time.monotonic)
    chosen = range(count) if gpus is None else gpus
    knees: list[Knee] = []
    for gpu in chosen:
        peers = [other for other in chosen if other != gpu]
        choose = quick if fast else full
        plan: Plan = choose(gpu, peers)
        budget = (QUICK_S if fast else FULL_S) * _MEASURING_SHARE
        measure(device, plan.cases, record, budget, progress, clock)
        for way in HOST_DIRECTIONS:
            like = Case(way, "pinned", "copies", 1, 1, gpu)
            knees += [Knee(like, jump) for jump in locate(device, record, like, clock)]
    record.disturbances = disturbances(record)
    return record, knees


def again(raw: Path) -> Probed:
    """The same from the raw samples of an earlier run. Raises InputError where the file holds none."""
    return evaluated(read(raw))


def evaluated(record: Record, knees: Sequence[Knee] = ()) -> Probed:
    """What the samples of a record say. Raises BusfareError where nothing could be measured."""
    parameters = profile(record)
    if not parameters.curves:
        reasons = sorted({row["why"] for row in record.left_out})
        raise BusfareError(f"nothing could be measured: {'; '.join(reasons[:3]) or 'no case ran'}")
    gpu = record.facts["gpus"][0]["name"]
    name = "".join(c if c.isalnum() else "-" for c in gpu.lower()).strip("-")[:48] or "node"
    node = node_of(record, parameters, f"virtual-{record.facts['plays']}" if record.virtual else name)
    record.disturbances = disturbances(record)
    return Probed(node, record, residuals(node.curves, record), health(node, record), list(knees))


def result(probed: Probed) -> dict[str, Any]:
    """The JSON object of `busfare.probe/1`."""
    import msgspec

    node, record = probed.node, probed.record
    pinned, pageable = (
        _summary(np.array([abs(r.percent) for r in probed.residuals if r.case.memory == memory]))
        for memory in ("pinned", "pageable")
    )
    return {
        "schema": "busfare.probe/1",
        "virtual": record.virtual,
        "node": {
            "name": node.name,
            "title": node.title,
            "components": msgspec.to_builtins(node.components),
            "links": msgspec.to_builtins(node.links),
            "curves": msgspec.to_builtins(node.curves, str_keys=True),
            "contention": msgspec.to_builtins(node.contentions),
            "costs": msgspec.to_builtins(node.costs),
            "sources": msgspec.to_builtins(node.sources),
        },
        "residuals": pinned | {"pageable": pageable},
        "residual_cases": [
            {"case": str(r.case), "measured_seconds": r.measured_s, "predicted_seconds": r.predicted_s}
            for r in probed.residuals
        ],
        "health": [
            {
                "gpu": h.gpu, "direction": h.direction, "measured_bytes_per_second": h.measured_bytes_per_s,
                "predicted_bytes_per_second": h.predicted_bytes_per_s, "sound": h.sound, "verdict": h.verdict,
            }
            for h in probed.health
        ],
        "knees": [
            {"direction": k.case.direction, "memory": k.case.memory, "gpu": k.case.gpu,
             "after_bytes": k.jump.below, "seconds": k.jump.seconds}
            for k in probed.knees
        ],
        "cases": [
            {
                "direction": m.case.direction, "memory": m.case.memory, "mode": m.case.mode, "bytes": m.case.bytes,
                "count": m.case.count, "gpu": m.case.gpu, "peer": m.case.peer, "samples": len(m.samples.api_s),
                "stopped": m.stopped, "device_seconds": _middle(m.samples.device_s), "api_seconds": _middle(m.samples.api_s),
                "interval_seconds": list(interval(m.seconds)),
            }
            for m in record.measurements
        ],
        "disturbances": record.disturbances,
        "left_out": record.left_out,
        "seconds": record.seconds,
        "facts": record.facts,
    }  # fmt: skip


def _summary(shares: np.ndarray) -> dict[str, float | int | None]:
    if not len(shares):
        return {"count": 0, "median_percent": None, "max_percent": None}
    return {
        "count": len(shares),
        "median_percent": float(np.median(shares)),
        "max_percent": float(shares.max()),
    }


def _middle(samples: Sequence[float]) -> float | None:
    return interquartile_mean(samples) if samples else None
