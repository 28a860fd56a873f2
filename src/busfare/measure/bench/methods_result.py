"""The result of `bench methods`: what was measured beside what `plan` says, the rankings of both, and S16's own figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import UNSET, structs

from busfare.cost.ranges import range_beside, seconds_between
from busfare.measure.bench.methods import ACCESSES, ELEMENTS, SWEEP_METHODS, Case, Measured, Methods
from busfare.measure.bench.run import Run
from busfare.measure.results import (
    BestMethod,
    Crossover,
    MethodMeasured,
    MethodsCell,
    MethodsResult,
    Published,
    Ranking,
    Situations,
)
from busfare.measure.summary import median, overlapping
from busfare.node import Node
from busfare.plan import Machine, Problem, plan

#: GT 740, PCIe 2.0 x16 [S16 §4]: seconds over those of zero-copy, mean of its five sizes, in situation 1 (one access
#: an element); in situation 2 (fifty) it names the best and the worst. `kernel_ratio`: the kernel's range in situation
#: 2 over that in 1: 'about 20 times' for copies, 'at least 40' for zero-copy.
PUBLISHED = Published(
    "S16: Santos, Eler, Garcia, ITNG 2016; GT 740, PCIe 2.0 x16",
    situation_1={"pageable": 1.3724, "pinned": 1.1940, "managed": 3.5657, "zero-copy": 1.0},
    situation_2={"best": "pinned", "worst": "zero-copy"},
    kernel_ratio={"pageable": 20.0, "pinned": 20.0, "zero-copy": 40.0},
    bytes_per_second={
        "pageable": {"h2d": 3.69e9, "d2h": 3.87e9},
        "pinned": {"h2d": 6.68e9, "d2h": 6.697e9},
        "zero-copy": {"kernel": 5.88e9},
    },
)
#: What `plan` calls each method.
_STRATEGIES = {"pageable": "explicit-pageable", "pinned": "explicit", "registered": "explicit", "batched": "explicit",
               "managed": "managed", "managed-prefetch": "managed-prefetch", "zero-copy": "mapped"}  # fmt: skip
#: Methods whose copies are calls of their own, which the host sees end.
_COPYING = ("pinned", "registered", "batched", "managed-prefetch")


@dataclass(frozen=True)
class Predicted:
    """Seconds of the GPU's part (both ways and the kernel) of one method, by `plan`; and what the host's calls for it take
    besides, as `probe` measured them.
    """

    seconds: float
    by: str
    calls_s: float


def predicted_of(case: Case, kernel_s: float, machine: Machine) -> dict[str, Predicted]:
    """What `plan` says of each method in a case, with the kernel's seconds alone, its data in device memory."""
    bytes_, often = 4.0 * case.elements, float(case.accesses)
    problem = Problem("multiply", bytes_, bytes_, kernel_s, memory="pageable", streams=1)
    accessed = replace(problem, accesses_in=often, accesses_out=often)
    ranked = {p.strategy: p for p in plan(problem, machine).ranking}
    # Mapped memory pays for every access; what is copied or migrates, for one.
    ranked |= {p.strategy: p for p in plan(accessed, machine).ranking if p.strategy == "mapped"}
    return {
        method: Predicted(ranked[strategy].seconds, ranked[strategy].by, _calls_s(machine.node, method))
        for method, strategy in _STRATEGIES.items()
        if strategy in ranked
    }


def _calls_s(node: Node, method: str) -> float:
    """What the host takes to submit a method's copies and kernel, and to see each of them end; where it was measured."""
    launch, copy, ended = (
        cost.call_s if (cost := node.call_cost(call)) else 0.0 for call in ("launch", "copy", "synchronise")
    )
    return (2 if method in _COPYING else 0) * (copy + ended) + launch + ended


def methods_result(run: Run[Any], methods: Methods) -> MethodsResult:
    """All that was measured, beside what is predicted of it."""
    cases = sorted({m.case for m in methods.measured})
    predicted = {case: predicted_of(case, methods.kernel_s[case], run.machine) for case in cases}
    return MethodsResult(
        cells=[_cell(run, methods, case, predicted[case]) for case in cases],
        crossover=_crossover(methods, predicted),
        normalised=Situations(*(_normalised(methods, accesses) for accesses in ACCESSES)),
        kernel_ratio=_kernel_ratio(methods),
        published=PUBLISHED,
        allocation_seconds=methods.allocation_s,
        **run.origin("bench methods"),
    )


def _cell(run: Run[Any], methods: Methods, case: Case, predicted: Mapping[str, Predicted]) -> MethodsCell:
    host_s = methods.host_s(case)
    rows = [
        _method(run, m, methods.gpu_samples(m), predicted.get(m.method), host_s)
        for m in sorted(methods.of(case), key=methods.gpu_s)
    ]
    gpu = {row.method: row.gpu_samples_seconds for row in rows}
    planned = {row.method: s for row in rows if (s := row.predicted_gpu_seconds) is not None}
    whole = {row.method: s for row in rows if (s := row.predicted_seconds) is not None}
    return MethodsCell(
        elements=case.elements,
        accesses=case.accesses,
        bytes=4 * case.elements,
        measured_kernel_seconds=methods.kernel_s[case],
        measured_host_seconds=host_s,
        methods=rows,
        ranking=Ranking(list(gpu), sorted(planned, key=planned.__getitem__), wrong_pairs(gpu, planned)),
        best=_best(gpu, planned),
        best_whole=_best({row.method: row.runs_seconds for row in rows}, whole),
    )


def _method(
    run: Run[Any], m: Measured, gpu_samples: list[float], planned: Predicted | None, host_s: float
) -> MethodMeasured:
    ranges, totals, gpu_s = m.ranges, m.totals_s, median(gpu_samples)
    devices = [one.device for one in m.runs if one.device]
    row = MethodMeasured(
        method=m.method,
        measured_seconds=sum(ranges.values()),
        measured_mean_seconds=m.mean_s,
        measured_ranges_seconds=ranges,
        measured_device_seconds={
            name: sum(d[name] for d in devices) / len(devices) for name in (devices[0] if devices else ())
        },
        runs_seconds=totals,
        spread=(max(totals) - min(totals)) / median(totals),
        predicted_seconds=None,
        measured_gpu_seconds=gpu_s,
        gpu_samples_seconds=gpu_samples,
        measured_held_seconds=[dict(one) for one in m.held],
        predicted_by=None,
        error_percent=None,
        checked=not run.device.virtual,
        **seconds_between(None, None, None, "not predicted"),
    )
    if planned is None:
        return row
    # The GPU's part and the calls are predicted, the processor's part is measured.
    whole = planned.seconds + planned.calls_s + host_s
    rest, ends = whole - planned.seconds, range_beside("", planned.seconds, run.machine.node, m.method)
    ends |= {key: rest + ends[key] for key in ("low_seconds", "high_seconds") if ends[key] is not None}
    return structs.replace(
        row,
        predicted_seconds=whole,
        predicted_calls_seconds=planned.calls_s,
        predicted_gpu_seconds=planned.seconds,
        predicted_by=planned.by,
        error_percent=100 * (whole / row.measured_seconds - 1),
        gpu_error_percent=100 * (planned.seconds / gpu_s - 1) if gpu_s > 0 else None,
        **{"reason": UNSET} | ends,
    )


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


def _best(samples: Mapping[str, Sequence[float]], planned: Mapping[str, float]) -> BestMethod:
    """The fastest method, measured and predicted; picked where the two measured alike, or are predicted alike."""
    seconds = {method: median(own) for method, own in samples.items()}
    fastest = min(seconds, key=seconds.__getitem__)
    if not planned:
        return BestMethod(fastest, None, False, None)
    # Of those that are predicted alike, the one that is the fastest stands for all.
    best = min(planned, key=lambda method: (planned[method], seconds[method]))
    picked = best == fastest or overlapping(samples[best], samples[fastest])
    return BestMethod(fastest, best, picked, 100 * (seconds[best] / seconds[fastest] - 1))


def _crossover(methods: Methods, predicted: Mapping[Case, Mapping[str, Predicted]]) -> Crossover | None:
    """From how many accesses on pinned copies beat zero-copy, at the size that was swept."""
    both = [case for case in predicted if {*SWEEP_METHODS} <= {m.method for m in methods.of(case)}]
    if not both:
        return None
    sizes = [case.elements for case in both]
    elements = max(sizes, key=lambda n: (sizes.count(n), n))
    swept = sorted(case for case in both if case.elements == elements)
    accesses = [case.accesses for case in swept]
    # Both initialise and sum pinned memory: that part would only add its noise.
    measured = {
        name: [methods.gpu_s(m) for case in swept for m in methods.of(case) if m.method == name]
        for name in SWEEP_METHODS
    }
    planned = {name: [predicted[case][name].seconds for case in swept] for name in SWEEP_METHODS}
    here, there = (crossover(accesses, side["zero-copy"], side["pinned"]) for side in (measured, planned))
    factor = max(here / there, there / here) if here and there else None
    return Crossover(elements, [float(a) for a in accesses], measured, planned, here, there, factor)


def crossover(accesses: Sequence[int], zero_copy: Sequence[float], pinned: Sequence[float]) -> float | None:
    """From how many accesses an element on pinned copies are faster: along a line between the accesses that were run.

    `accesses` rise; the others are seconds. None where zero-copy is faster to the end; 1 where it never is.
    """
    before: tuple[float, float] | None = None
    for number, one, other in zip(accesses, zero_copy, pinned, strict=True):
        lead = one - other
        if lead > 0:
            if before is None:
                return float(number)
            return before[0] + (number - before[0]) * -before[1] / (lead - before[1])
        before = (number, lead)
    return None


def _normalised(methods: Methods, accesses: int) -> dict[str, float]:
    """Seconds over those of zero-copy, mean of S16's sizes that were run; means of the runs, as there; by method."""
    found = [{m.method: m.mean_s for m in methods.of(Case(n, accesses))} for n in ELEMENTS]
    return _ratios([(own, dict.fromkeys(own, own["zero-copy"])) for own in found if "zero-copy" in own])


def _kernel_ratio(methods: Methods) -> dict[str, float]:
    """The kernel's range with fifty accesses over that with one, mean of S16's sizes; by method."""
    few, many = (
        [{m.method: m.ranges["kernel"] for m in methods.of(Case(n, accesses))} for n in ELEMENTS]
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
