"""Changes as Python asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from busfare.errors import InputError, instead_of
from busfare.jobs.changes import JOB_OPTIONS
from busfare.nodes import Node
from busfare.timeline.changes import OPTIONS, Option

__all__ = ["changes_asked"]


def changes_asked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `what-if` by key, as the command line gives them. Raises InputError for one that it does not know."""
    known = {option.key: option for option in (*OPTIONS, *JOB_OPTIONS)}
    known |= {alias.removeprefix("--"): option for option in OPTIONS for alias in option.aliases}
    asked: dict[str, Any] = {}
    for name, value in given.items():
        option = known.get(name.rstrip("_"))
        if option is None:
            raise InputError(f"what_if: {name} is no change; {instead_of(name, known)}")
        if value is None or value is False or value == ():
            continue
        if option.multiple:
            each = value if isinstance(value, (list, tuple)) else (value,)
            value = tuple(_value(name, option, one) for one in each)
        elif value is True:
            if option.metavar and not option.bare:
                raise InputError(f"what_if: {name} needs a value, {option.metavar}")
            value = True if option.metavar is None else ""
        else:
            value = _value(name, option, value)
        if option.key in asked:
            raise InputError(f"what_if: {name}: given twice, by its other name, too; give it once")
        asked[option.key] = value
    return asked


def _value(name: str, option: Option, value: Any) -> Any:
    """Raises InputError for what is no value of the option."""
    if option.metavar is None:
        raise InputError(f"what_if: {name}={value!r:.80}: give True, or leave it out")
    if option.read is int:
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise InputError(f"what_if: {name}={value!r:.80}: give a whole number")
        return int(value)
    if "REGEX" in option.metavar and not isinstance(value, str):
        alone = "True for all, or " if option.bare else ""
        raise InputError(f"what_if: {name}={value!r:.80}: give {alone}a regular expression in quotes")
    return value if isinstance(value, Node) else str(value)
