"""The JSON object of `bench strategies`: measured beside predicted, cell by cell."""

from __future__ import annotations

from typing import Any

from busfare.measure.bench.device import StrategyDevice
from busfare.measure.bench.predicting import STREAMED
from busfare.measure.bench.strategies import Cell, Run, Version
from busfare.measure.summary import interval, median, overlapping
from busfare.node import Node
from busfare.plan import Prediction
from busfare.plan.prediction import range_beside

__all__ = ["strategies_result"]


def strategies_result(run: Run, device: StrategyDevice, told: dict[str, Any]) -> dict[str, Any]:
    """`busfare.bench-strategies/1`; `told` are the date, the command and the node that was predicted for."""
    return {
        "schema": "busfare.bench-strategies/1",
        "virtual": device.virtual,
        **told,
        "cells": [_cell(cell) for cell in run.cells],
        "left_out": run.left_out,
        "seconds": run.seconds,
        "facts": device.facts(),
    }


def _cell(cell: Cell) -> dict[str, Any]:
    work = cell.work
    measured, planned = cell.fastest(), cell.predicted.best
    taken = cell.of(planned.strategy, planned.streams)
    return {
        "name": work.name,
        "kernel": work.kernel.name,
        "title": work.kernel.title,
        "levels": work.levels,
        "level_elements": work.level,
        "h2d_bytes": work.h2d_bytes,
        "d2h_bytes": work.d2h_bytes,
        "measured_kernel_seconds": cell.kernel_s[1],
        "measured_kernel_seconds_by_chunks": [
            {"chunks": n, "seconds": seconds, "seconds_by_moment": list(cell.kernel_samples_s[n])}
            for n, seconds in sorted(cell.kernel_s.items())
        ],
        "measured_link_seconds": cell.link_s,
        "measured_link_samples_seconds": list(cell.link.device_s),
        "measured_link_ends_seconds": [list(ends) for ends in cell.link.ends_s],
        "measured_one_way_seconds": list(cell.one_way_s),
        "checked_against": cell.against or None,
        "versions": [_version(version, cell.predicted.machine.node) for version in cell.versions],
        "best": {
            "measured": {
                "strategy": measured.strategy,
                "streams": measured.streams,
                "seconds": measured.seconds,
            },
            "predicted": {
                "strategy": planned.strategy,
                "streams": planned.streams,
                "seconds": planned.seconds,
                **range_beside(planned.strategy, planned.seconds, cell.predicted.machine.node),
            },
            "picked": _picked(planned, measured, taken),
            # What following the prediction costs against the fastest, measured.
            "cost_percent": None if taken is None else 100 * (taken.seconds / measured.seconds - 1),
        },
        "streams": _streams(cell),
        "limit": {
            "seconds": cell.limit_s,
            "by": "link" if cell.link_s >= cell.kernel_s[1] else "kernel",
            "streams_share_percent": 100 * cell.limit_s / cell.fastest(STREAMED).seconds,
        },
    }


def _picked(planned: Prediction, measured: Version, taken: Version | None) -> bool:
    """Whether the strategy predicted to be the fastest was, be it submitted one way or the other; or measured alike."""
    if planned.strategy == measured.strategy or {planned.strategy, measured.strategy} == {*STREAMED}:
        return True
    return taken is not None and overlapping(taken.timing.device_s, measured.timing.device_s)


def _version(version: Version, node: Node) -> dict[str, Any]:
    timing, predicted = version.timing, version.predicted
    low, high = interval(timing.device_s)
    seconds = version.seconds
    return {
        "strategy": version.strategy,
        "streams": version.streams,
        "gpus": version.gpus,
        "measured_seconds": seconds,
        "measured_interval_seconds": [low, high],
        "measured_host_seconds": median(timing.host_s) if timing.host_s else None,
        "samples_seconds": list(timing.device_s),
        "samples_by_moment": list(version.visits),
        "held": timing.held,
        "predicted_seconds": predicted.seconds if predicted else None,
        # No held-out machine had several GPUs.
        **range_beside(
            version.strategy, predicted.seconds if predicted and version.gpus == 1 else None, node
        ),
        "predicted_by": predicted.by if predicted else None,
        "error_percent": 100 * (predicted.seconds / seconds - 1) if predicted else None,
        "checked": version.error_share is not None,
        "error_share": version.error_share,
    }


def _streams(cell: Cell) -> dict[str, Any]:
    """The number of streams: the predicted one, the fastest measured one, and what the difference costs."""
    best = cell.fastest(("streams",))
    number = cell.predicted.best_number("streams")
    at = cell.of("streams", number)
    return {
        "measured_best": best.streams,
        "predicted_best": number,
        "factor": max(best.streams / number, number / best.streams),
        "measured_seconds_at_predicted": at.seconds if at else None,
        "cost_percent": 100 * (at.seconds / best.seconds - 1) if at else None,
    }
