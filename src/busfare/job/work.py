"""Reading one part: what a worker does, in this process, in another, or on another machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import polars as pl

from busfare import __version__
from busfare.errors import InputError
from busfare.job.named import shown
from busfare.job.partial import Partial, partial
from busfare.job.parts import Part
from busfare.node import Node
from busfare.trace import may_be_trace, read
from busfare.trace.printable import printable

__all__ = ["LAYOUT", "Outcome", "Stamp", "Work", "decoded", "do_part", "failed", "stamp_of"]

#: Raised whenever `Partial` changes: what an earlier busfare kept is then not used again.
LAYOUT = 2

#: What a worker does with a part, given the node that the user named: its Outcome as JSON.
Work = Callable[[Part, "Node | None"], bytes]


class Stamp(msgspec.Struct, frozen=True):
    """What a part was when it was read: size and time of change, of a directory summed and latest over its files."""

    bytes: int
    changed_ns: int
    files: int = 1


class Outcome(msgspec.Struct, frozen=True):
    """What became of a part: a partial, or why there is none; neither: no trace, and nobody said that it was one.

    `stamp` is None where the part changed while it was read.
    """

    version: str
    stamp: Stamp | None = None
    partial: Partial | None = None
    failure: str | None = None


def stamp_of(path: str) -> Stamp | None:
    """The stamp of what lies at `path` now; None if that cannot be told."""
    try:
        status = os.stat(path)  # noqa: PTH116  ten thousand of them: no object for each
        if not os.path.isdir(path):  # noqa: PTH112
            return Stamp(status.st_size, status.st_mtime_ns)
        with os.scandir(path) as entries:
            held = [entry.stat() for entry in entries if entry.is_file()]
    except OSError:
        return None
    return Stamp(
        sum(s.st_size for s in held),
        max((s.st_mtime_ns for s in held), default=status.st_mtime_ns),
        len(held),
    )


def do_part(part: Part, node: Node | None) -> bytes:
    """Reads a part and returns its Outcome as JSON. Never raises: a bad file is no reason to lose the others."""
    before = stamp_of(part.path)
    path = Path(part.path)
    try:
        if not part.named and path.is_file() and not may_be_trace(path):
            return _said()
        if not part.named and not path.is_dir() and not path.is_file() and path.exists():
            return _said()  # a pipe or device in a folder
        found = partial(read(path), path, node)
        after = stamp_of(part.path)
        return _said(stamp=before if before == after else None, partial=found)
    except InputError as error:
        return _said(failure=str(error))
    except OSError as error:
        return _said(failure=f"{shown(path)}: cannot be read ({error.strerror or error})")
    except MemoryError:
        return _said(failure=f"{shown(path)}: not enough memory for this trace where it was read")
    except (Exception, pl.exceptions.PanicException) as error:
        reason = next(iter(str(error).splitlines()), "")
        return _said(failure=f"{shown(path)}: could not be reported ({type(error).__name__}: {reason})")


def failed(part: Part, why: str) -> bytes:
    """The Outcome of a part that no worker could finish."""
    return _said(failure=f"{shown(part.path)}: {why}")


def _said(stamp: Stamp | None = None, partial: Partial | None = None, failure: str | None = None) -> bytes:
    failure = None if failure is None else printable(failure)
    return msgspec.json.encode(Outcome(__version__, stamp, partial, failure))


def decoded(said: bytes) -> Outcome:
    """An Outcome that `do_part` returned. Raises InputError if another version of busfare made it."""
    try:
        outcome = msgspec.json.decode(said, type=Outcome)
    except msgspec.MsgspecError:
        outcome = None
    if outcome is None or outcome.version != __version__:
        other = f"busfare {outcome.version}" if outcome else "another busfare"
        raise InputError(f"a worker runs {other}, this is {__version__}; install the same on all machines")
    return outcome
