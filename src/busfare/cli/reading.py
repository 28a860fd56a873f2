"""How commands read traces."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from busfare.errors import InputError

if TYPE_CHECKING:
    from busfare.node import Node
    from busfare.trace import Trace

__all__ = ["read_trace", "where_recorded"]


def read_trace(path: Path, sums_above: int | None = None) -> Trace:
    """The trace at `path` (`busfare.trace.read`), with a sign of life on a terminal while it is read."""
    from busfare.trace import read

    with _sign_of_life(path):
        return read(path, sums_above)


def _sign_of_life(path: Path) -> AbstractContextManager[object]:
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(f"reading {path.name}", spinner="dots")


def where_recorded(trace: Trace, node: str | None, option: str) -> Node:
    """The node named with `option`, or the one whose GPU the trace names."""
    from busfare.advise import guess_node
    from busfare.node import load_node

    found = load_node(node) if node else guess_node(trace)
    if found is None:
        raise InputError(
            f"{trace.path}: the trace names no GPU that busfare knows; say where it was recorded with {option} NODE"
        )
    return found
