"""How far a command is, on a terminal; nothing elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from busfare.printable import warn
from busfare.show.words import text
from busfare.trace import Trace
from busfare.trace.omissions import INCOMPLETE

# rich is imported where a terminal shows it.
if TYPE_CHECKING:
    from rich.progress import Progress

    from busfare.jobs.run import Progress as JobProgress


def _bar() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (BarColumn(30), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=Console(stderr=True), transient=True)


@contextmanager
def job_progress() -> "Iterator[JobProgress]":
    """A bar on standard error while it is a terminal."""
    # Here, for whoever measures needs nothing of jobs.
    from busfare.jobs.run import Progress as Silent

    class Bar(Silent):
        def warn(self, text: str) -> None:
            shown.console.print(f"busfare: {text}", markup=False, highlight=False)

        def parts(self, done: int, whole: int, failed: int) -> None:
            sentence = f"{done}/{whole}{f', {failed} not readable' if failed else ''}"
            shown.update(task, completed=done, total=whole, description=sentence)

    if not sys.stderr.isatty():
        yield Silent()
        return
    with _bar() as shown:
        task = shown.add_task("looking for traces", total=None)
        yield Bar()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """A sign of life while the trace at `path` is read."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"reading {path.name}", spinner="dots"):
        yield


def warned(trace: Trace) -> Trace:
    """`trace`, after a line on standard error if a part of its file is missing."""
    if cut := [omission.what for omission in trace.omissions if omission.id in INCOMPLETE]:
        warn(f"{trace.path}: incomplete: {text(cut[0])}")
    return trace


@contextmanager
def progress() -> Iterator[Any]:
    """What `measure` calls with the share done and the case at hand; None where no terminal shows it."""
    if not sys.stderr.isatty():
        yield None
        return
    with _bar() as shown:
        task = shown.add_task("warming up", total=1.0)
        yield lambda share, what: shown.update(task, completed=share, description=what)
