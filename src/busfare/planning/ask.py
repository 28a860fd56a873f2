"""A question in the user's words (`336MB`, `12ms`), as options or as tables of a TOML file → checked problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from busfare.errors import InputError
from busfare.nodes.toml import WrongError, decoded, read_text
from busfare.planning.problem import ACCESSES, Problem, Step
from busfare.quantities import parse_bytes, parse_count, parse_seconds

__all__ = ["KEYS", "MOST_CHUNKS", "PlanFile", "problem_of", "read_plan_file", "with_options"]

#: A petabyte over one link is hours of copying: a slip of the unit.
MOST_LINK_BYTES = 10**15
#: More chunks than any program keeps in flight.
MOST_CHUNKS = 4096
#: A call that takes the host longer is no call's own time.
MOST_CALL_SECONDS = 1.0
#: Of a plan file: 10,000 kernels are about a megabyte.
MOST_BYTES, MOST_KERNELS = 16 << 20, 100_000
MEMORY = ("pinned", "pageable")

Refuse = Callable[[str, str], Exception]
Read = Callable[[Any, str, Refuse], Any]


def _refused(key: str, what: str) -> Exception:
    return InputError(f"--{key.replace('_', '-')}: {what}")


def problem_of(said: Mapping[str, Any], refuse: Refuse = _refused) -> Problem:
    """The problem that `said` describes by `KEYS`, with a `name` and the tables of `step` beside them.

    Values are texts with units; those that are absent were not said. `refuse(key, what)` makes the error that is
    raised for a value that cannot be used, by default an InputError that names the option.
    """
    problem = with_options(Problem(name=str(said.get("name") or "kernel"), assumed=ACCESSES), said, refuse)
    steps = problem.steps
    if steps:
        # The whole of a pipeline is the sum of its steps.
        for key in ("h2d", "d2h", "kernel", "kernel_at"):
            if said.get(key):
                raise refuse(key, "the steps say it; leave it out")
        problem = replace(
            problem,
            **{
                name: sum(getattr(s, name) for s in steps)
                for name in ("h2d_bytes", "d2h_bytes", "kernel_seconds")
            },
        )
    if not problem.h2d_bytes and not problem.d2h_bytes:
        raise refuse("h2d", "nothing crosses the bus; give --h2d or --d2h, as in --h2d 336MB")
    if problem.streams and problem.levels and problem.streams > problem.levels:
        raise refuse("streams", f"{problem.streams} is more than the {problem.levels} levels to cut along")
    return problem


def with_options(problem: Problem, said: Mapping[str, Any], refuse: Refuse = _refused) -> Problem:
    """`problem` with what `said` gives in place of its own. Raises what `refuse` makes."""
    given = {READ[key][0]: READ[key][1](value, key, refuse) for key, value in said.items() if key in READ}
    return replace(problem, **given, assumed=tuple(side for side in problem.assumed if side not in given))


def _number(parse: Callable[[str], float], value: Any, key: str, refuse: Refuse) -> float:
    text = (
        value if isinstance(value, str) else f"{value:g}" if isinstance(value, (int, float)) else str(value)
    )
    if text.lstrip().startswith("-"):
        raise refuse(key, f"{text[:80]!r} is negative; give a number above zero")
    try:
        number = parse(text)
    except InputError as error:
        raise refuse(key, str(error)) from None
    if number <= 0:
        raise refuse(key, f"{text[:80]!r} is zero; leave it out, or give a number above zero")
    return number


_size: Read = partial(_number, partial(parse_bytes, most=MOST_LINK_BYTES))
_seconds: Read = partial(_number, parse_seconds)
_call_seconds: Read = partial(_number, partial(parse_seconds, most=MOST_CALL_SECONDS))
_count: Read = partial(_number, parse_count)


def _whole(value: Any, key: str, refuse: Refuse) -> int:
    number = _count(value, key, refuse)
    if number != int(number) or number > MOST_CHUNKS:
        raise refuse(key, f"{str(value)[:80]} is no whole number from 1 to {MOST_CHUNKS}")
    return int(number)


def _memory(value: Any, key: str, refuse: Refuse) -> str:
    if value not in MEMORY:
        raise refuse(key, f"{str(value)[:80]!r} is not known; one of {', '.join(MEMORY)}")
    return str(value)


def _several(value: Any) -> Sequence[Any]:
    return value.split(",") if isinstance(value, str) else value or ()


def _shares(value: Any, key: str, refuse: Refuse) -> tuple[float, ...]:
    parts = [_count(part, key, refuse) for part in _several(value)]
    if len(parts) > MOST_CHUNKS:
        raise refuse(key, f"{len(parts)} chunks; {MOST_CHUNKS} at most")
    return tuple(part / sum(parts) for part in parts)


def _points(value: Any, key: str, refuse: Refuse) -> tuple[tuple[int, float], ...]:
    points = {}
    for point in _several(value):
        streams, equals, time = str(point).partition("=")
        if not equals:
            raise refuse(key, f"{str(point)[:80]!r} is no point; write STREAMS=TIME, as in 42=15ms")
        points[int(_count(streams, key, refuse))] = _seconds(time, key, refuse)
    return tuple(sorted(points.items()))


def _steps(tables: Any, key: str, refuse: Refuse) -> tuple[Step, ...]:
    steps = []
    for table in tables or ():
        if "kernel" not in table:
            raise refuse(key, 'a step needs its kernel\'s time; add kernel = "3ms"')
        steps.append(
            Step(**{READ[name][0]: READ[name][1](said, name, refuse) for name, said in table.items()})
        )
    return tuple(steps)


#: What may be said of a kernel: the field of `Problem`, and how its value reads.
READ: dict[str, tuple[str, Read]] = {
    "h2d": ("h2d_bytes", _size),
    "d2h": ("d2h_bytes", _size),
    "kernel": ("kernel_seconds", _seconds),
    "launch": ("launch_seconds", _call_seconds),
    **{key: (key, _size) for key in ("device_bytes", "access_bytes")},
    **{key: (key, _count) for key in ("flops", "accesses_in", "accesses_out")},
    **{
        key: (key, _whole)
        for key in ("streams", "levels", "copies_in", "copies_out", "queues", "concurrent_kernels")
    },
    "memory": ("memory", _memory),
    "kernel_at": ("kernel_at", _points),
    "chunks": ("chunks", _shares),
    "step": ("steps", _steps),
}
#: Those of the command line; a plan file has `step`, too.
KEYS = tuple(key for key in READ if key != "step")

_Said = str | int | float
_Step = msgspec.defstruct(
    "_Step", [(key, _Said | None, None) for key in ("kernel", "h2d", "d2h")], forbid_unknown_fields=True
)
_TYPES = {"memory": str, "kernel_at": list[str], "chunks": list[_Said], "step": list[_Step]}  # type: ignore[valid-type]
#: One `[[kernel]]`.
_Kernel = msgspec.defstruct(
    "_Kernel",
    [("name", str), *((key, _TYPES.get(key, _Said) | None, None) for key in READ)],
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

    def problem(n: int, kernel: Any) -> Problem:
        said = _given(kernel) | ({"step": [_given(step) for step in kernel.step]} if kernel.step else {})
        return problem_of(said, lambda key, what: WrongError(f"$.kernel[{n}].{key}", what))

    return PlanFile(tuple(problem(n, kernel) for n, kernel in enumerate(file.kernel)), file.node)


def _given(table: msgspec.Struct) -> dict[str, Any]:
    return {key: value for key, value in msgspec.structs.asdict(table).items() if value is not None}
