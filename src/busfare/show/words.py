"""Every sentence that a result states, in `words.toml`: titles, evidence, advice, assumptions and reasons."""

import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from busfare.advise import amounts
from busfare.answers.kv import PlanKvResult
from busfare.answers.offload import PlanOffloadResult
from busfare.quantities import exact_bytes
from busfare.show.plan_words import kv_words, offload_words
from busfare.statements import Statement
from busfare.trace.readers import sentence_of_reader
from busfare.trace.words import function_name

Result = TypeVar("Result")
#: The longest name in a sentence; longer ones are shortened.
LONGEST_NAME = 48


def _short(name: str) -> str:
    """A long name with an ellipsis in the middle: names of kernels and functions differ at both ends."""
    behind = LONGEST_NAME // 3
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - behind - 1]}…{name[-behind:]}"


def _between(first: str, then: str) -> str:
    """The place of a gap, `first → then`; `first` may be empty."""
    first, then = first.strip(), then.strip()
    if first == then:
        return f"between `{then}` calls"
    return f"between `{first}` and `{then}`" if first else f"before `{then}`"


#: How `words.toml` has amounts shown, besides Python's own formats and nouns to count: `{seconds:time}`, `{number:copy}`.
AMOUNTS: dict[str, Callable[[Any], str]] = {
    "count": amounts.count, "name": _short, "symbol": lambda name: _short(function_name(name)),
    "between": lambda name: _between(*name.split("→")), "exact": exact_bytes, "percent": amounts.percent,
    "rate": amounts.rate, "signed": amounts.signed_percent, "size": amounts.size, "time": amounts.time,
    "options": lambda fields: " and ".join(f"--{field.replace('_', '-')}" for field in fields),
    "longer": lambda seconds: f"{amounts.time(abs(seconds))} {'longer' if seconds > 0 else 'shorter'}",
}  # fmt: skip


def joined(parts: list[str], by: str) -> str:
    """'a, b and c' by ' and '; for any other `by`, it separates all parts."""
    *before, last = parts or [""]
    return by.join([", ".join(before), last] if before and by == " and " else parts)


class _Figures(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Statement):
            return text(value)
        if format_spec in AMOUNTS:
            return AMOUNTS[format_spec](value)
        if isinstance(value, tuple):
            return joined(list(map(text, value)), format_spec or " ")
        if "|" in format_spec:
            return format_spec.split("|")[int(value != 1)]
        if len(format_spec) > 1 and re.fullmatch("[a-zA-Z -]+", format_spec):
            return amounts.several(value, format_spec)
        return format(value, format_spec)


@cache
def templates() -> dict[str, str]:
    """The sentence of each statement, with places for its figures, by id: `section.key`."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return {f"{section}.{key}": words for section, table in tables.items() for key, words in table.items()}


def text(stated: Statement | str) -> str:
    """A statement in words; what is in words stays."""
    if isinstance(stated, str):
        return stated
    language, key = stated.figures.get("language"), stated.id.removeprefix("omission.")
    words = (
        templates().get(f"{stated.id}-{language}") or templates().get(stated.id) or sentence_of_reader(key)
    )
    return _Figures().vformat(words, (), stated.figures)


def worded(result: Result) -> Result:
    """`result` with its sentences in place of its statements, in all that it holds; changed where it can be."""
    result = _worded(result)
    if isinstance(result, PlanOffloadResult):
        result.words = offload_words(result)
    elif isinstance(result, PlanKvResult):
        result.words = kv_words(result)
    return result


def _worded(value: Any) -> Any:
    if isinstance(value, Statement):
        return text(value)
    if isinstance(value, (list, tuple)):
        inner = [_worded(part) for part in value]
        return value if all(new is old for new, old in zip(inner, value, strict=True)) else inner
    if isinstance(value, Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        changed = {name: new for name, old in fields.items() if (new := _worded(old)) is not old}
        if changed and value.__struct_config__.frozen:
            return replace(value, **changed)
        for name, new in changed.items():
            setattr(value, name, new)
    return value
