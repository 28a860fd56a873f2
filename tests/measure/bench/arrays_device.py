"""A device of plain arrays: it runs a program's operations in any order that streams and events allow, so that a
missing event shows as a wrong result.
"""

from __future__ import annotations

import random

import numpy as np

from busfare.measure.bench.program import Operation, Program, Work


def run(program: Program, work: Work, inputs: list[np.ndarray], order: random.Random) -> list[np.ndarray]:
    """The host's outputs after the program, in an order drawn at random from those that are allowed."""
    kernel = work.kernel
    device_in = (
        inputs if program.mapped_in else [np.full(work.elements, np.nan) for _ in range(kernel.inputs)]
    )
    host_out = [np.full(work.elements, np.nan) for _ in range(kernel.outputs)]
    device_out = host_out if program.mapped_out else [np.full(work.elements, np.nan) for _ in host_out]
    waits = [set(op.after) for op in program.operations]
    last: dict[int, int] = {}
    for index, op in enumerate(program.operations):
        if op.stream in last:
            waits[index].add(last[op.stream])
        last[op.stream] = index
    done: set[int] = set()
    while len(done) < len(program.operations):
        index = order.choice([n for n, w in enumerate(waits) if n not in done and w <= done])
        _execute(program.operations[index], work, inputs, device_in, device_out, host_out)
        done.add(index)
    return host_out


def _execute(
    op: Operation,
    work: Work,
    inputs: list[np.ndarray],
    device_in: list[np.ndarray],
    device_out: list[np.ndarray],
    host_out: list[np.ndarray],
) -> None:
    part = slice(op.part.first, op.part.end)
    if op.kind == "h2d":
        for n in op.arrays:
            device_in[n][part] = inputs[n][part]
    elif op.kind == "d2h":
        for n in op.arrays:
            host_out[n][part] = device_out[n][part]
    else:
        assert work.kernel.reference is not None
        levels = [array.reshape(work.levels, work.level) for array in device_in]
        for k in range(op.part.first // work.level, -(-op.part.end // work.level)):
            first, end = max(op.part.first, k * work.level), min(op.part.end, (k + 1) * work.level)
            found = work.kernel.reference(levels, k)
            for out, values in zip(device_out, found, strict=True):
                out[first:end] = values[first - k * work.level : end - k * work.level]
