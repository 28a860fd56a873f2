"""How far fitted parameters are off on sizes that they were not fitted to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from busfare.measure.case import Case
from busfare.measure.cases import is_held_out
from busfare.measure.raw import Record
from busfare.node import Curve

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


def predicted(curves: Iterable[Curve], case: Case) -> float | None:
    """Seconds of a case by the parameters; None where they do not hold it."""
    if case.mode not in ("copies", "streams") or (case.mode == "copies" and case.count > 1):
        return None
    wanted = (case.direction, case.memory, case.peer)
    for curve in curves:
        if (curve.direction, curve.memory, curve.peer) == wanted and curve.gpu in (None, case.gpu):
            return float(curve.together(case.count, case.bytes))
    return None


def residuals(curves: Iterable[Curve], record: Record, held_out_only: bool = True) -> list[Residual]:
    """What `curves` predict for the cases of `record` beside what was measured there."""
    found, curves = [], tuple(curves)
    for m in record.measurements:
        if held_out_only and not is_held_out(m.case):
            continue
        seconds = predicted(curves, m.case)
        if seconds is not None:
            found.append(Residual(m.case, m.undisturbed_s, seconds))
    return found
