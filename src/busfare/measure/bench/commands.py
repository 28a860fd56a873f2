"""`bench methods` and `bench strategies` from their options to their JSON objects."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from busfare.errors import BusfareError, InputError
from busfare.measure.bench.kernel import user_kernel
from busfare.measure.bench.opening import Watched, open_methods, open_strategies, predicted_for, told
from busfare.measure.run import Progress
from busfare.plan import machine_of
from busfare.quantities import parse_count

__all__ = ["again", "methods", "strategies"]

Say = Callable[[str], None]
#: File, input arrays, output arrays, function, levels, doubles of a level.
OwnKernel = tuple[Path, int, int, str | None, int, int]
#: What every result has.
_KEYS = {"virtual", "gpu", "date", "command", "node", "cells", "left_out", "disturbances", "facts"}
MOST_LEVELS, MOST_LEVEL = 4096, 1 << 28
LEAST_INTS, MOST_INTS = 1 << 20, 1 << 28


def methods(
    node: str | None, quick: bool, largest: str, virtual: str | None, progress: Progress | None, say: Say
) -> dict[str, Any]:
    """`busfare.bench-methods/1`. Raises InputError, and NoGpuError where there is no GPU."""
    from busfare.measure.bench.methods import run_methods
    from busfare.measure.bench.methods_result import methods_result

    ints = parse_count(largest)
    if not LEAST_INTS <= ints <= MOST_INTS:
        raise InputError(f"--largest {largest[:40]!r}: from {LEAST_INTS} to {MOST_INTS} ints")
    device = open_methods(virtual)
    try:
        target, source = predicted_for(node, virtual, progress, say)
        watched = Watched(device, progress)
        run = run_methods(device, machine_of(target), quick, int(ints), watched, say)
        watched.log()
        if not run.measurements:
            raise BusfareError(f"nothing could be measured: {_reasons(run.left_out)}")
        return methods_result(run, device, told(device.facts(), target, source, quick, watched.states))
    finally:
        device.close()


def strategies(
    node: str | None,
    quick: bool,
    own: OwnKernel | None,
    virtual: str | None,
    progress: Progress | None,
    say: Say,
) -> dict[str, Any]:
    """`busfare.bench-strategies/1`. Raises InputError, and NoGpuError where there is no GPU."""
    from busfare.measure.bench.strategies import cells_of, run_cells
    from busfare.measure.bench.strategies_result import strategies_result

    kernel, levels, level = None, 1, 1
    if own is not None:
        path, inputs, outputs, function, levels, level = own
        kernel = user_kernel(path, inputs, outputs, function)
        for option, number, most in (
            ("--levels", levels, MOST_LEVELS),
            ("--level-elements", level, MOST_LEVEL),
        ):
            if not 1 <= number <= most:
                raise InputError(f"{option} {number}: from 1 to {most}")
    device = open_strategies(virtual)
    try:
        if kernel is not None and virtual is not None:
            raise InputError("--kernel needs a GPU: a virtual node computes nothing; leave out --virtual")
        target, source = predicted_for(node, virtual, progress, say)
        watched = Watched(device, progress)
        works = cells_of(kernel, quick, levels, level)
        run = run_cells(device, works, machine_of(target), quick, 0, watched, say)
        watched.log()
        if not run.cells:
            raise BusfareError(f"nothing could be measured: {_reasons(run.left_out)}")
        return strategies_result(run, device, told(device.facts(), target, source, quick, watched.states))
    finally:
        device.close()


def again(path: Path, command: str) -> dict[str, Any]:
    """What an earlier `bench COMMAND --json` wrote. Raises InputError where the file holds nothing of that kind."""
    schema = f"busfare.bench-{command}/1"
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; give a file that `bench {command} --json` wrote"
        ) from None
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("schema") != schema:
        raise InputError(f"{path}: not of schema {schema}; give a file that `bench {command} --json` wrote")
    missing = _KEYS - found.keys()
    if missing:
        raise InputError(
            f"{path}: no {sorted(missing)[0]!r}; the file is not whole, run `bench {command}` again"
        )
    return found


def _reasons(left_out: list[dict[str, str]]) -> str:
    return "; ".join(sorted({row["why"] for row in left_out})[:3]) or "no case ran"
