"""A bar on a terminal while `probe` measures. Needs no table library: a GPU machine may have none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["progress"]


@contextmanager
def progress() -> Iterator[Any]:
    """What `measure` calls with the share done and the case at hand; None where no terminal shows it."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        BarColumn(30),
        TextColumn("{task.percentage:3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("warming up", total=1.0)
        yield lambda share, what: shown.update(task, completed=share, description=what)
