"""What `bench offload` measured, beside what `plan offload` predicts from the node and each layer alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import numpy as np

from busfare.measure.bench.offload import Case, Measured, Network, OffloadDevice
from busfare.measure.bench.run import Run
from busfare.measure.offload_results import (
    OffloadCell,
    OffloadLayer,
    OffloadPick,
    OffloadResult,
    TokensBreakEven,
)
from busfare.measure.summary import fastest_part, interval
from busfare.plan.machine import Machine
from busfare.plan.offload.rank import break_even, ranged, share_hidden
from busfare.plan.offload.schedule import Layers, Schedule, seconds_of


def offload_result(run: Run[OffloadDevice], measured: Measured) -> OffloadResult:
    """The result, its figures recomputed from the samples."""
    return OffloadResult(**beside_predictions(measured, run.machine), **run.origin("bench offload"))


def beside_predictions(measured: Measured, machine: Machine) -> dict[str, Any]:
    """What a result says of its samples, and of what is predicted for a machine, as its fields."""
    alone = {key: fastest_part(samples) for key, samples in measured.layers.items()}
    cells = [_cell(case, samples, alone, machine) for case, samples in measured.passes.items()]
    cells.sort(key=lambda c: (c.memory, -c.layer_bytes, c.tokens, c.resident, c.depth))
    errors = [abs(cell.error_percent) for cell in cells if cell.error_percent is not None]
    return {
        "layers": [
            OffloadLayer(
                layers=network.layers,
                layer_bytes=network.layer_bytes,
                tokens=tokens,
                measured_seconds=alone[network, tokens],
                samples_seconds=samples,
            )
            for (network, tokens), samples in measured.layers.items()
        ],
        "cells": cells,
        "picks": list(_picks(cells)),
        "break_even": _break_even(measured, cells, alone, machine),
        "median_percent": float(np.median(errors)) if errors else None,
        "ninetieth_percent": float(np.percentile(errors, 90)) if errors else None,
    }


def measured_of(result: OffloadResult) -> Measured:
    """The samples of a result that was written."""
    even = result.break_even
    return Measured(
        {
            (Network(layer.layers, layer.layer_bytes), layer.tokens): layer.samples_seconds
            for layer in result.layers
        },
        {
            Case(
                Network(c.layers, c.layer_bytes), Schedule(c.resident, c.depth, c.memory), c.tokens
            ): c.samples_seconds
            for c in result.cells
        },
        {
            tokens: [seconds]
            for tokens, seconds in zip(even.cpu_tokens, even.cpu_seconds_per_layer, strict=True)
        }
        if even
        else {},
    )


def _cell(
    case: Case, samples: list[float], alone: dict[tuple[Network, int], float], machine: Machine
) -> OffloadCell:
    network, schedule = case.network, case.schedule
    layers = Layers.alike(network.layers, network.layer_bytes, alone[network, case.tokens])
    predicted, seen = seconds_of(layers, schedule, machine), fastest_part(samples)
    return OffloadCell(
        layers=network.layers, layer_bytes=network.layer_bytes, resident=schedule.resident, depth=schedule.depth,
        memory=schedule.memory, tokens=case.tokens, measured_seconds=seen, measured_interval_seconds=interval(samples),
        samples_seconds=samples, predicted_seconds=predicted, predicted_by="plan offload",
        error_percent=100 * (predicted / seen - 1), checked=True,
        predicted_share_hidden=share_hidden(layers, schedule, machine, predicted),
        measured_share_hidden=share_hidden(layers, schedule, machine, seen),
        **ranged(predicted, schedule, machine),
    )  # fmt: skip


def _picks(cells: Iterable[OffloadCell]) -> Iterable[OffloadPick]:
    """By tokens, memory kind and budget: the schedule that is predicted to be the fastest, and the one that was."""

    def key(cell: OffloadCell) -> tuple[str, int, int]:
        return cell.memory, cell.layer_bytes, cell.tokens

    for (memory, layer_bytes, tokens), group in groupby(sorted(cells, key=key), key):
        of_group = [(_held(cell), cell) for cell in group]
        for budget in sorted({held for held, _ in of_group}):
            fit = [cell for held, cell in of_group if held <= budget]
            if len(fit) < 2:
                continue
            picked = min(fit, key=lambda cell: cell.predicted_seconds or 0.0)
            fastest = min(fit, key=lambda cell: cell.measured_seconds)
            yield OffloadPick(
                tokens=tokens, memory=memory, layer_bytes=layer_bytes, layers_held=budget, candidates=len(fit),
                predicted=(picked.resident, picked.depth), measured=(fastest.resident, fastest.depth),
                cost_percent=100 * (picked.measured_seconds / fastest.measured_seconds - 1),
            )  # fmt: skip


def _held(cell: OffloadCell) -> int:
    """Layers' worth of GPU memory."""
    return round(Schedule(cell.resident, cell.depth, cell.memory).device_bytes(
        Layers.alike(cell.layers, cell.layer_bytes, 0.0)) / cell.layer_bytes)  # fmt: skip


def _break_even(
    measured: Measured, cells: list[OffloadCell], alone: dict[tuple[Network, int], float], machine: Machine
) -> TokensBreakEven | None:
    """Against the processor: predicted from every second number of its tokens, measured through all of them."""
    streamed = [c for c in cells if c.memory == "pinned" and c.resident == 0 and c.depth == 1]
    largest = [c for c in streamed if c.layer_bytes == max(c.layer_bytes for c in streamed)]
    if not measured.cpu or len(largest) < 2:
        return None
    count, size = largest[0].layers, largest[0].layer_bytes
    network, tokens = Network(count, size), sorted(measured.cpu)
    cpu = [fastest_part(measured.cpu[number]) for number in tokens]
    layer = _between([c.tokens for c in largest], [alone[network, c.tokens] for c in largest])
    seen = _between([c.tokens for c in largest], [c.measured_seconds for c in largest])
    known, all_of_them = _between(tokens[::2], cpu[::2]), _between(tokens, cpu)
    predicted, why = break_even(
        lambda n: seconds_of(Layers.alike(count, size, layer(n)), Schedule(0, 1, "pinned"), machine),
        lambda n: count * known(n),
        tokens[-1],
    )
    truth, reason = break_even(seen, lambda n: count * all_of_them(n), tokens[-1])
    return TokensBreakEven(
        memory="pinned", cpu_tokens=tokens, cpu_seconds_per_layer=cpu, measured_tokens=truth, predicted_tokens=predicted,
        error_percent=100 * (predicted / truth - 1) if predicted and truth else None, reason=reason or why,
    )  # fmt: skip


def _between(places: list[int], values: list[float]) -> Callable[[float], float]:
    """Straight lines through measured points; flat beyond them."""
    return lambda place: float(np.interp(place, places, values))
