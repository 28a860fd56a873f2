"""The machines that busfare knows by name: one TOML file each, in this folder."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

__all__ = ["names", "text_of"]


@cache
def names() -> tuple[str, ...]:
    """The names, sorted."""
    found = (entry.name for entry in files(__package__).iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml")))


def text_of(name: str) -> str:
    """The TOML text of the node called `name`, which must be one of `names()`."""
    return files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
