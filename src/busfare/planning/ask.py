"""A kernel as it is asked about, or as tables of a TOML file → problems to plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from busfare.errors import FieldError
from busfare.nodes.toml import WrongError, decoded, read_text
from busfare.planning.problem import ACCESSES, Problem, Step
from busfare.questions import Kernel

__all__ = ["PlanFile", "problem_of", "read_plan_file", "with_options"]

#: Of a plan file: 10,000 kernels are about a megabyte.
MOST_BYTES, MOST_KERNELS = 16 << 20, 100_000
#: Fields of a problem or a step that are named otherwise in a question.
NAMED = {"h2d": "h2d_bytes", "d2h": "d2h_bytes", "kernel": "kernel_seconds", "launch": "launch_seconds"}


def problem_of(kernel: Kernel, name: str = "kernel", steps: Iterable[Step] = ()) -> Problem:
    """The problem of a kernel, or of a pipeline of `steps`. Raises FieldError where they do not make one."""
    problem = with_options(Problem(name=name, assumed=ACCESSES, steps=tuple(steps)), kernel)
    if problem.steps:
        # The whole of a pipeline is the sum of its steps.
        for key in ("h2d", "d2h", "kernel", "kernel_at"):
            if getattr(kernel, key):
                raise FieldError(key, ": the steps say it; leave it out")
        sums = {key: sum(getattr(step, key) for step in problem.steps) for key in [*NAMED.values()][:3]}
        problem = replace(problem, **sums)
    if not problem.h2d_bytes and not problem.d2h_bytes:
        raise FieldError("h2d", ": nothing crosses the bus; give `h2d` or `d2h`, as in `h2d` 336MB")
    return problem


def with_options(problem: Problem, kernel: Kernel) -> Problem:
    """`problem` with what is given of the `kernel` in place of its own."""
    given = {NAMED.get(name, name): value for name, value in kernel.given().items() if name in Kernel.names()}
    if kernel.chunks:
        given["chunks"] = tuple(part / sum(kernel.chunks) for part in kernel.chunks)
    return replace(problem, **given, assumed=tuple(side for side in problem.assumed if side not in given))


_Said = str | int | float
_TYPES = {"memory": str, "kernel_at": list[str], "chunks": list[_Said]}
_Step = msgspec.defstruct(
    "_Step", [(key, _Said | None, None) for key in ("kernel", "h2d", "d2h")], forbid_unknown_fields=True
)
#: One `[[kernel]]`.
_Kernel = msgspec.defstruct(
    "_Kernel",
    [
        ("name", str),
        *((key, _TYPES.get(key, _Said) | None, None) for key in sorted(Kernel.names())),
        ("step", list[_Step] | None, None),  # type: ignore[valid-type]
    ],
    forbid_unknown_fields=True,
)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    kernel: list[_Kernel]  # type: ignore[valid-type]
    node: str | None = None


class PlanFile(msgspec.Struct, frozen=True):
    """The problems of a file, and the node that it names."""

    problems: tuple[Problem, ...]
    node: str | None


def read_plan_file(path: str) -> PlanFile:
    """The problems of the TOML file at `path`. Raises InputError with file, line, key and mend."""
    return decoded(read_text(path, "plan file", MOST_BYTES), path, _File, _build, MOST_BYTES, "plan file")


def _build(file: _File) -> PlanFile:
    if not file.kernel:
        raise WrongError("$.kernel", "no kernel; add a [[kernel]] table")
    if len(file.kernel) > MOST_KERNELS:
        raise WrongError("$.kernel", f"over the limit of {MOST_KERNELS} kernels")
    return PlanFile(tuple(_problem(n, kernel) for n, kernel in enumerate(file.kernel)), file.node)


def _problem(n: int, table: Any) -> Problem:
    keys = msgspec.structs.asdict(table)
    name, steps = keys.pop("name"), keys.pop("step") or ()
    try:
        return problem_of(Kernel.of(**keys), name or "kernel", map(_step, steps))
    except FieldError as error:
        raise WrongError(f"$.kernel[{n}].{error.field}", error.what) from None


def _step(table: Any) -> Step:
    if table.kernel is None:
        raise FieldError("step", 'a step needs its kernel\'s time; add kernel = "3ms"')
    return Step(
        **{NAMED[name]: value for name, value in Kernel.of(**msgspec.structs.asdict(table)).given().items()}
    )
