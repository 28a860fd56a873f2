"""A question in the user's words (`336MB`, `12ms`) → a checked `Problem`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from busfare.errors import InputError
from busfare.plan.problem import ACCESSES, Problem, Step
from busfare.quantities import parse_bytes, parse_count, parse_seconds

__all__ = ["KEYS", "MOST_CHUNKS", "problem_of", "with_options"]

#: A petabyte over one link is hours of copying: a slip of the unit.
MOST_BYTES = 10**15
#: More chunks than any program keeps in flight.
MOST_CHUNKS = 4096

MEMORY = ("pinned", "pageable")

Refuse = Callable[[str, str], Exception]


def _refused(key: str, what: str) -> Exception:
    return InputError(f"--{key.replace('_', '-')}: {what}")


#: What may be said of a kernel on the command line, as in a plan file.
KEYS = (
    "h2d",
    "d2h",
    "kernel",
    "flops",
    "device_bytes",
    "accesses_in",
    "accesses_out",
    "access_bytes",
    "streams",
    "levels",
    "memory",
    "copies_in",
    "copies_out",
    "kernel_at",
    "chunks",
    "queues",
    "concurrent_kernels",
    "launch",
)


def problem_of(said: Mapping[str, Any], refuse: Refuse = _refused) -> Problem:
    """The problem that `said` describes by `KEYS`, with a `name` and the tables of `step` beside them.

    Values are texts with units; those that are absent were not said. `refuse(key, what)` makes the error that is
    raised for a value that cannot be used, by default an InputError that names the option.
    """
    asked = Problem(name=str(said.get("name") or "kernel"), assumed=ACCESSES)
    return _checked(with_options(asked, said, refuse), said, refuse)


def with_options(problem: Problem, said: Mapping[str, Any], refuse: Refuse = _refused) -> Problem:
    """`problem` with what `said` gives in place of its own. Raises what `refuse` makes."""
    reader = _Reader(said, refuse)
    given = {FIELDS.get(key, key): READ[key](reader, key) for key in said if key in READ}
    return replace(problem, **given, assumed=tuple(side for side in problem.assumed if side not in given))


def _checked(problem: Problem, said: Mapping[str, Any], refuse: Refuse) -> Problem:
    if problem.steps:
        problem = _of_steps(problem, said, refuse)
    if not problem.h2d_bytes and not problem.d2h_bytes:
        raise refuse("h2d", "nothing crosses the bus; give --h2d or --d2h, as in --h2d 336MB")
    if problem.streams and problem.levels and problem.streams > problem.levels:
        raise refuse("streams", f"{problem.streams} is more than the {problem.levels} levels to cut along")
    return problem


def _of_steps(problem: Problem, said: Mapping[str, Any], refuse: Refuse) -> Problem:
    """The whole of a pipeline is the sum of its steps."""
    for key in ("h2d", "d2h", "kernel", "kernel_at"):
        if said.get(key):
            raise refuse(key, "the steps say it; leave it out")
    return replace(
        problem,
        h2d_bytes=sum(s.h2d_bytes for s in problem.steps),
        d2h_bytes=sum(s.d2h_bytes for s in problem.steps),
        kernel_seconds=sum(s.kernel_seconds for s in problem.steps),
    )


class _Reader:
    """Values by key, read as what they mean."""

    def __init__(self, said: Mapping[str, Any], refuse: Refuse) -> None:
        self.said, self.refuse = said, refuse

    def _read(self, key: str, parse: Callable[[str], float], text: Any) -> float:
        if not isinstance(text, str):
            text = f"{text:g}" if isinstance(text, (int, float)) else str(text)
        if text.lstrip().startswith("-"):
            raise self.refuse(key, f"{text[:80]!r} is negative; give a number above zero")
        try:
            value = parse(text)
        except InputError as error:
            raise self.refuse(key, str(error)) from None
        if value <= 0:
            raise self.refuse(key, f"{text[:80]!r} is zero; leave it out, or give a number above zero")
        return value

    def size(self, key: str) -> float:
        return self._read(key, _size, self.said[key])

    def seconds(self, key: str) -> float:
        return self._read(key, parse_seconds, self.said[key])

    def number(self, key: str) -> float:
        return self._read(key, parse_count, self.said[key])

    def whole(self, key: str) -> int:
        value = self._read(key, parse_count, self.said[key])
        if value != int(value) or value > MOST_CHUNKS:
            raise self.refuse(key, f"{str(self.said[key])[:80]} is no whole number from 1 to {MOST_CHUNKS}")
        return int(value)

    def memory(self, key: str) -> str:
        value = self.said[key]
        if value not in MEMORY:
            raise self.refuse(key, f"{str(value)[:80]!r} is not known; one of {', '.join(MEMORY)}")
        return str(value)

    def _several(self, key: str) -> Sequence[Any]:
        value = self.said.get(key) or ()
        return value.split(",") if isinstance(value, str) else value

    def shares(self, key: str) -> tuple[float, ...]:
        parts = [self._read(key, parse_count, part) for part in self._several(key)]
        if len(parts) > MOST_CHUNKS:
            raise self.refuse(key, f"{len(parts)} chunks; {MOST_CHUNKS} at most")
        return tuple(part / sum(parts) for part in parts)

    def points(self, key: str) -> tuple[tuple[int, float], ...]:
        found = {}
        for point in self._several(key):
            streams, equals, time = str(point).partition("=")
            if not equals:
                raise self.refuse(key, f"{str(point)[:80]!r} is no point; write STREAMS=TIME, as in 42=15ms")
            number = self._read(key, parse_count, streams)
            found[int(number)] = self._read(key, parse_seconds, time)
        return tuple(sorted(found.items()))

    def steps(self, key: str) -> tuple[Step, ...]:
        steps = []
        for table in self.said.get(key) or ():
            inner = _Reader(table, self.refuse)
            if "kernel" not in table:
                raise self.refuse(key, 'a step needs its kernel\'s time; add kernel = "3ms"')
            into, out = (inner.size(way) if way in table else 0.0 for way in ("h2d", "d2h"))
            steps.append(Step(inner.seconds("kernel"), into, out))
        return tuple(steps)


#: The reader of each key, and the field of `Problem` where it has another name.
READ: dict[str, Callable[[_Reader, str], Any]] = {
    **dict.fromkeys(("h2d", "d2h", "device_bytes", "access_bytes"), _Reader.size),
    **dict.fromkeys(("kernel", "launch"), _Reader.seconds),
    **dict.fromkeys(("flops", "accesses_in", "accesses_out"), _Reader.number),
    **dict.fromkeys(
        ("streams", "levels", "copies_in", "copies_out", "queues", "concurrent_kernels"), _Reader.whole
    ),
    "memory": _Reader.memory,
    "kernel_at": _Reader.points,
    "chunks": _Reader.shares,
    "step": _Reader.steps,
}
FIELDS = {
    "h2d": "h2d_bytes",
    "d2h": "d2h_bytes",
    "kernel": "kernel_seconds",
    "launch": "launch_seconds",
    "step": "steps",
}


def _size(text: str) -> float:
    return parse_bytes(text, most=MOST_BYTES)
