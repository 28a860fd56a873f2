"""The JSON object of `bench methods`: ranges measured, rankings measured beside predicted, and S16's own figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from busfare.cost.ranges import seconds_between
from busfare.measure.bench.device import MethodDevice
from busfare.measure.bench.methods import (
    ACCESSES,
    ELEMENTS,
    SWEEP_METHODS,
    Case,
    Measured,
    MethodsRun,
    crossover,
)
from busfare.measure.summary import median, overlapping
from busfare.plan.prediction import range_beside

__all__ = ["PUBLISHED", "methods_result", "wrong_pairs"]

#: GT 740, PCIe 2.0 x16 [S16 §4]: seconds over those of zero-copy, mean of its five sizes, in situation 1 (one access
#: an element); in situation 2 (fifty) it names the best and the worst. `kernel_ratio`: the kernel's range in situation
#: 2 over that in 1: 'about 20 times' for copies, 'at least 40' for zero-copy.
PUBLISHED = {
    "source": "S16: Santos, Eler, Garcia, ITNG 2016; GT 740, PCIe 2.0 x16",
    "situation_1": {"pageable": 1.3724, "pinned": 1.1940, "managed": 3.5657, "zero-copy": 1.0},
    "situation_2": {"best": "pinned", "worst": "zero-copy"},
    "kernel_ratio": {"pageable": 20.0, "pinned": 20.0, "zero-copy": 40.0},
    "bytes_per_second": {
        "pageable": {"h2d": 3.69e9, "d2h": 3.87e9},
        "pinned": {"h2d": 6.68e9, "d2h": 6.697e9},
        "zero-copy": {"kernel": 5.88e9},
    },
}


def methods_result(run: MethodsRun, device: MethodDevice, told: dict[str, Any]) -> dict[str, Any]:
    """`busfare.bench-methods/1`; `told` are the date, the command and the node that was predicted for."""
    cases = sorted({m.case for m in run.measured})
    return {
        "schema": "busfare.bench-methods/1",
        "virtual": device.virtual,
        **told,
        "cells": [_cell(run, case, checked=not device.virtual) for case in cases],
        "crossover": _crossover(run, cases),
        "normalised": {
            f"situation_{n}": _normalised(run, accesses) for n, accesses in enumerate(ACCESSES, start=1)
        },
        "kernel_ratio": _kernel_ratio(run),
        "published": PUBLISHED,
        "allocation_seconds": run.allocation_s,
        "left_out": run.left_out,
        "seconds": run.seconds,
        "facts": device.facts(),
    }


def _cell(run: MethodsRun, case: Case, checked: bool) -> dict[str, Any]:
    found = sorted(run.of(case), key=run.gpu_s)
    gpu = {m.method: run.gpu_samples(m) for m in found}
    whole = {m.method: m.totals_s for m in found}
    told = run.predicted[case].seconds
    planned = {m: told[m] for m in gpu if m in told}
    return {
        "elements": case.elements,
        "accesses": case.accesses,
        "bytes": 4 * case.elements,
        "measured_kernel_seconds": run.kernel_s[case],
        "measured_host_seconds": run.host_s(case),
        "methods": [_method(run, m, checked) for m in found],
        "ranking": {
            "measured": list(gpu),
            "predicted": sorted(planned, key=lambda method: planned[method]),
            "wrong": wrong_pairs(gpu, planned),
        },
        "best": _best(gpu, planned),
        "best_whole": _best(whole, {m: s for m in whole if (s := run.predicted_s(case, m)) is not None}),
    }


def wrong_pairs(samples: Mapping[str, Sequence[float]], planned: Mapping[str, float]) -> list[list[str]]:
    """Pairs of methods, the faster one first, that measured apart from each other and were predicted the other way
    round. Those whose intervals overlap measured alike; pinned, registered and batched are predicted alike.
    """
    order = sorted((m for m in samples if m in planned), key=lambda m: median(samples[m]))
    return [
        [one, other]
        for n, one in enumerate(order)
        for other in order[n + 1 :]
        if planned[one] > planned[other] and not overlapping(samples[one], samples[other])
    ]


def _best(samples: Mapping[str, Sequence[float]], planned: Mapping[str, float]) -> dict[str, Any]:
    """The fastest method, measured and predicted; picked where the two measured alike, or are predicted alike."""
    seconds = {method: median(own) for method, own in samples.items()}
    fastest = min(seconds, key=lambda method: seconds[method])
    best = min(planned, key=lambda method: planned[method]) if planned else None
    if best is None:
        return {"measured": fastest, "predicted": None, "picked": False, "cost_percent": None}
    # Of those that are predicted alike, the one that is the fastest stands for all.
    best = min((m for m in planned if planned[m] == planned[best]), key=lambda method: seconds[method])
    return {
        "measured": fastest,
        "predicted": best,
        "picked": best == fastest or overlapping(samples[best], samples[fastest]),
        "cost_percent": 100 * (seconds[best] / seconds[fastest] - 1),
    }


def _method(run: MethodsRun, m: Measured, checked: bool) -> dict[str, Any]:
    told, seconds = run.predicted[m.case], m.seconds
    predicted = run.predicted_s(m.case, m.method)
    devices = [r.device for r in m.runs if r.device]
    gpu_s = run.gpu_s(m)
    planned = told.seconds.get(m.method)
    return {
        "method": m.method,
        "measured_seconds": seconds,
        "measured_mean_seconds": m.mean_s,
        "measured_ranges_seconds": m.ranges,
        "measured_device_seconds": {
            name: sum(d[name] for d in devices) / len(devices) for name in (devices[0] if devices else ())
        },
        "runs_seconds": m.totals_s,
        "spread": m.spread,
        "predicted_seconds": predicted,
        **_range(run, m.method, predicted, planned),
        "measured_gpu_seconds": gpu_s,
        "gpu_samples_seconds": run.gpu_samples(m),
        "measured_held_seconds": [dict(one) for one in m.held],
        "predicted_calls_seconds": told.calls_s.get(m.method),
        "predicted_gpu_seconds": planned,
        "predicted_by": told.by.get(m.method),
        "error_percent": None if predicted is None else 100 * (predicted / seconds - 1),
        "gpu_error_percent": None if planned is None or gpu_s <= 0 else 100 * (planned / gpu_s - 1),
        "checked": checked,
    }


def _range(run: MethodsRun, method: str, predicted: float | None, planned: float | None) -> dict[str, Any]:
    """The range of the whole program: that of copies and kernel, beside what was measured of the processor's part."""
    if predicted is None or planned is None:
        return seconds_between(None, None, None, "not predicted")
    ends = range_beside("", planned, run.node, method)
    rest = predicted - planned
    return ends | {key: rest + ends[key] for key in ("low_seconds", "high_seconds") if ends[key] is not None}


def _crossover(run: MethodsRun, cases: list[Case]) -> dict[str, Any] | None:
    """From how many accesses on pinned copies beat zero-copy, at the size that was swept."""
    both = [case for case in cases if {*SWEEP_METHODS} <= {m.method for m in run.of(case)}]
    if not both:
        return None
    sizes = [case.elements for case in both]
    elements = max(sizes, key=lambda n: (sizes.count(n), n))
    swept = sorted(case for case in both if case.elements == elements)
    accesses = [case.accesses for case in swept]
    # Both initialise and sum pinned memory: that part would only add its noise.
    measured = {
        name: [run.gpu_s(m) for case in swept for m in run.of(case) if m.method == name]
        for name in SWEEP_METHODS
    }
    predicted = {name: [run.predicted[case].seconds[name] for case in swept] for name in SWEEP_METHODS}
    here, there = (crossover(accesses, side["zero-copy"], side["pinned"]) for side in (measured, predicted))
    return {
        "elements": elements,
        "accesses": accesses,
        "measured_seconds": measured,
        "predicted_seconds": predicted,
        "measured_accesses": here,
        "predicted_accesses": there,
        "factor": max(here / there, there / here) if here and there else None,
    }


def _normalised(run: MethodsRun, accesses: int) -> dict[str, float]:
    """Seconds over those of zero-copy, mean of S16's sizes that were run; means of the runs, as there; by method."""
    found = [{m.method: m.mean_s for m in run.of(Case(n, accesses))} for n in ELEMENTS]
    return _ratios([(own, dict.fromkeys(own, own["zero-copy"])) for own in found if "zero-copy" in own])


def _kernel_ratio(run: MethodsRun) -> dict[str, float]:
    """The kernel's range with fifty accesses over that with one, mean of S16's sizes; by method."""
    few, many = (
        [{m.method: m.ranges["kernel"] for m in run.of(Case(n, accesses))} for n in ELEMENTS]
        for accesses in ACCESSES
    )
    return _ratios(list(zip(many, few, strict=True)))


def _ratios(pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> dict[str, float]:
    """The mean of the first over the second of each pair, by method."""
    shares: dict[str, list[float]] = {}
    for over, under in pairs:
        for method, seconds in over.items():
            if under.get(method):
                shares.setdefault(method, []).append(seconds / under[method])
    return {method: sum(own) / len(own) for method, own in shares.items()}
