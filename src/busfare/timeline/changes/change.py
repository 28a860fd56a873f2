"""What a change to a program is, and how `what-if` asks for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from busfare.node import Node
from busfare.timeline.model import Timeline

__all__ = ["Applied", "Asked", "Change", "Option", "Setting", "Value", "size_text"]

Value = str | bool | int | tuple[str, ...] | None


@dataclass(frozen=True)
class Setting:
    """What a change may need to know: the node of the recording (None: unknown) and the cost model for others."""

    recorded_on: Node | None = None
    model: str = "calibrated"


@dataclass(frozen=True)
class Applied:
    """A timeline after a change, how many operations or calls it touched, their bytes, and what it rests on."""

    timeline: Timeline
    count: int
    bytes: int = 0
    rests_on: list[str] = field(default_factory=list)


class Change(Protocol):
    """One change to a program: what it is called, the options of `what-if` that ask for it, and what it does.

    `apply` raises InputError where the trace lacks what it needs.
    """

    @property
    def title(self) -> str: ...

    @property
    def options(self) -> tuple[str, ...]: ...

    def apply(self, timeline: Timeline, setting: Setting) -> Applied: ...


@dataclass(frozen=True)
class Option:
    """An option of `what-if`. `metavar` None: a flag. `bare`: its value may be left out and is then empty."""

    name: str
    help: str
    metavar: str | None = None
    bare: bool = False
    number: bool = False
    multiple: bool = False
    default: str | None = None
    aliases: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name of its value in `Asked`."""
        return self.name.removeprefix("--").replace("-", "_")


@dataclass(frozen=True)
class Asked:
    """The values of options; those that were not given are None, False or empty.

    `recorded_on`: where the trace was recorded. `check_only`: rules that compare two nodes are passed over, as nothing is
    read yet.
    """

    values: Mapping[str, Value]
    recorded_on: Node | None = None
    check_only: bool = False

    def text(self, key: str) -> str | None:
        """The value of an option that takes one."""
        value = self.values.get(key)
        return None if value is None else str(value)

    def flag(self, key: str) -> bool:
        """Whether a flag is set."""
        return bool(self.values.get(key))

    def number(self, key: str) -> int | None:
        """The value of an option that takes a whole number."""
        value = self.values.get(key)
        return None if value is None else int(value)  # type: ignore[arg-type]

    def several(self, key: str) -> tuple[str, ...]:
        """All values of an option that may be repeated."""
        value = self.values.get(key) or ()
        return value if isinstance(value, tuple) else (str(value),)


def size_text(bytes_: int) -> str:
    """A size as `what-if` reads it: 64KiB."""
    return f"{bytes_ >> 10}KiB" if bytes_ and bytes_ % 1024 == 0 else str(bytes_)
