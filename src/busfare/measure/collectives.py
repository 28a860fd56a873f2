"""What is measured of NCCL's operations among all GPUs of a machine, and the curves that the samples say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

import numpy as np

from busfare.errors import NoGpuError
from busfare.measure.cases import GIB, Case, powers
from busfare.measure.raw import Measurement
from busfare.measure.topology import SOURCE
from busfare.node import CollectiveCurve
from busfare.node.curve import Collective, fit

#: Before the name of the operation, in the mode of a case.
PREFIX = "nccl-"
KINDS: tuple[Collective, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive")
COLLECTIVES_S, QUICK_COLLECTIVES_S = 30.0, 10.0
LEAST_BYTES = 8


def collective_cases(gpus: int, fast: bool) -> tuple[Case, ...]:
    """Each operation at sizes as nccl-tests counts them; `fast`: every other. Raises NoGpuError where one GPU is alone."""
    if gpus < 2:
        raise NoGpuError(
            "--collectives: one GPU is here, and nothing to exchange; run it where there are several"
        )
    sizes = powers(LEAST_BYTES, GIB, 4 if fast else 2)
    return tuple(Case("none", "device", f"{PREFIX}{kind}", size) for kind in KINDS for size in sizes)


def kind_of(case: Case) -> Collective | None:
    """The operation that a case is of; None where it is of another thing."""
    name = case.mode.removeprefix(PREFIX)
    return next((k for k in get_args(Collective) if k == name and case.mode != name), None)


def collective_curves(measurements: Iterable[Measurement], ranks: int) -> Iterator[CollectiveCurve]:
    """A curve of every operation that was measured among `ranks` GPUs, of the quicker half of its visits."""
    own = [(kind_of(m.case), m) for m in measurements if m.device_ns]
    for kind in KINDS:
        points = sorted((m.bytes, m.undisturbed_s) for of, m in own if of == kind)
        if points:
            sizes, seconds = np.array(points, np.float64).T
            yield CollectiveCurve(kind=kind, ranks=ranks, source=SOURCE, **fit(sizes, seconds).lines)
