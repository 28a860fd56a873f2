"""The JSON object of `bench methods`: ranges measured, rankings measured beside predicted, and S16's own figures."""

from __future__ import annotations

from typing import Any

from busfare.measure.bench.device import MethodDevice
from busfare.measure.bench.methods import ACCESSES, ELEMENTS, Case, Measurement, MethodsRun, crossover

__all__ = ["PUBLISHED", "methods_result"]

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
    cases = sorted({m.case for m in run.measurements})
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
    found = sorted(run.of(case), key=lambda m: m.seconds)
    seconds = {m.method: m.seconds for m in found}
    fastest = found[0].method
    planned = {m: s for m in seconds if (s := run.predicted_s(case, m)) is not None}
    order = sorted(planned, key=lambda method: planned[method])
    best = order[0] if order else None
    return {
        "elements": case.elements,
        "accesses": case.accesses,
        "bytes": 4 * case.elements,
        "measured_kernel_seconds": run.kernel_s[case],
        "measured_host_seconds": run.host_s(case),
        "methods": [_method(run, m, checked) for m in found],
        "ranking": {"measured": list(seconds), "predicted": order},
        "best": {
            "measured": fastest,
            "predicted": best,
            # Pinned, registered and batched are predicted alike: any of them is the pick.
            "picked": best is not None and planned.get(fastest) == planned[best],
            "cost_percent": 100 * (seconds[best] / found[0].seconds - 1) if best else None,
        },
    }


def _method(run: MethodsRun, m: Measurement, checked: bool) -> dict[str, Any]:
    told, seconds = run.predicted[m.case], m.seconds
    predicted = run.predicted_s(m.case, m.method)
    devices = [r.device for r in m.runs if r.device]
    # Page faults fall into the processor's ranges.
    gpu_s = seconds - run.host_s(m.case) if m.method == "managed" else m.gpu_s
    planned = told.seconds.get(m.method)
    return {
        "method": m.method,
        "measured_seconds": seconds,
        "measured_mean_seconds": m.mean_s,
        "measured_ranges_seconds": m.ranges,
        "measured_device_seconds": {
            name: sum(d[name] for d in devices) / len(devices) for name in (devices[0] if devices else ())
        },
        "runs_seconds": [sum(r.ranges.values()) for r in m.runs],
        "spread": m.spread,
        "predicted_seconds": predicted,
        "measured_gpu_seconds": gpu_s,
        "predicted_gpu_seconds": planned,
        "predicted_by": told.by.get(m.method),
        "error_percent": None if predicted is None else 100 * (predicted / seconds - 1),
        "gpu_error_percent": None if planned is None or gpu_s <= 0 else 100 * (planned / gpu_s - 1),
        "checked": checked,
    }


def _crossover(run: MethodsRun, cases: list[Case]) -> dict[str, Any] | None:
    """From how many accesses on pinned copies beat zero-copy, at the size that was swept."""
    numbers: dict[int, list[int]] = {}
    for case in cases:
        if {"pinned", "zero-copy"} <= {m.method for m in run.of(case)}:
            numbers.setdefault(case.elements, []).append(case.accesses)
    if not numbers:
        return None
    elements = max(numbers, key=lambda n: (len(numbers[n]), n))
    swept = [Case(elements, a) for a in sorted(numbers[elements])]
    measured: dict[str, list[float]] = {"pinned": [], "zero-copy": []}
    predicted: dict[str, list[float]] = {"pinned": [], "zero-copy": []}
    for case in swept:
        for method in measured:
            # Both initialise and sum pinned memory: that part would only add its noise.
            measured[method] += [m.gpu_s for m in run.of(case) if m.method == method]
            predicted[method].append(run.predicted[case].seconds[method])
    accesses = [case.accesses for case in swept]
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
    shares: dict[str, list[float]] = {}
    for elements in ELEMENTS:
        seconds = {m.method: m.mean_s for m in run.of(Case(elements, accesses))}
        if "zero-copy" in seconds:
            for method, own in seconds.items():
                shares.setdefault(method, []).append(own / seconds["zero-copy"])
    return {method: sum(own) / len(own) for method, own in shares.items()}


def _kernel_ratio(run: MethodsRun) -> dict[str, float]:
    """The kernel's range with fifty accesses over that with one, mean of S16's sizes; by method."""
    ratios: dict[str, list[float]] = {}
    few, many = ACCESSES
    for elements in ELEMENTS:
        one = {m.method: m.ranges["kernel"] for m in run.of(Case(elements, few))}
        for m in run.of(Case(elements, many)):
            if one.get(m.method):
                ratios.setdefault(m.method, []).append(m.ranges["kernel"] / one[m.method])
    return {method: sum(own) / len(own) for method, own in ratios.items()}
