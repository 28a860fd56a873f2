"""How far fitted parameters are off on sizes that they were not fitted to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from busfare.measure.case import Case
from busfare.measure.plan import is_held_out
from busfare.measure.quiet import quiet
from busfare.measure.raw import Record
from busfare.node import Measured

__all__ = ["Residual", "predicted", "residuals"]


@dataclass(frozen=True)
class Residual:
    """A case that nothing was fitted to: measured and predicted seconds."""

    case: Case
    measured_s: float
    predicted_s: float

    @property
    def percent(self) -> float:
        """Predicted over measured, less one, in percent."""
        return 100 * (self.predicted_s / self.measured_s - 1)


def predicted(measured: Iterable[Measured], case: Case) -> float | None:
    """Seconds of a case by the parameters; None where they do not hold it."""
    if case.mode not in ("copies", "streams") or (case.mode == "copies" and case.count > 1):
        return None
    for m in measured:
        if (m.direction, m.memory, m.gpu, m.peer) == (
            case.direction,
            case.memory,
            case.gpu,
            case.peer,
        ) and m.pieces:
            return float(m.row_seconds(case.count, np.array([case.bytes], np.float64))[0])
    return None


def residuals(measured: Iterable[Measured], record: Record, held_out_only: bool = True) -> list[Residual]:
    """What `measured` predicts for the cases of `record` beside what was measured there, at quiet moments."""
    found = []
    for m in quiet(record).measurements:
        if held_out_only and not is_held_out(m.case):
            continue
        seconds = predicted(measured, m.case)
        if seconds is not None:
            found.append(Residual(m.case, m.undisturbed_s, seconds))
    return found
