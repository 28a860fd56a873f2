"""The reading of one part, in whatever process, and what is kept of it: a run that goes on reads nothing twice."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import msgspec
import polars as pl

from busfare import __version__
from busfare.errors import InputError
from busfare.jobs.partial import Partial, partial
from busfare.jobs.parts import Part, shown
from busfare.nodes import Node
from busfare.printable import printable
from busfare.trace import may_be_trace, read

FILE = "partials.jsonl"

#: What a worker does with a part, given the node that the user named: its Outcome as JSON.
Work = Callable[[Part, "Node | None"], bytes]
#: Of a part when it was read: bytes, time of change and number of files; of a directory summed, latest and counted.
Stamp = tuple[int, int, int]


class Outcome(msgspec.Struct, frozen=True):
    """What became of a part: a partial, or why there is none; neither: no trace, and nobody said that it was one.

    `stamp` is None where the part changed while it was read.
    """

    version: str
    stamp: Stamp | None = None
    partial: Partial | None = None
    failure: str | None = None


def stamp_of(path: str) -> Stamp | None:
    """The stamp of what lies at `path` now; None if it cannot be read."""
    try:
        status = os.stat(path)  # noqa: PTH116  ten thousand of them: no object for each
        if not os.path.isdir(path):  # noqa: PTH112
            return status.st_size, status.st_mtime_ns, 1
        with os.scandir(path) as entries:
            held = [entry.stat() for entry in entries if entry.is_file()]
    except OSError:
        return None
    changed = max((file.st_mtime_ns for file in held), default=status.st_mtime_ns)
    return sum(file.st_size for file in held), changed, len(held)


def do_part(part: Part, node: Node | None) -> bytes:
    """Reads a part and returns its Outcome as JSON. Never raises: a bad file is no reason to lose the others."""
    before, path = stamp_of(part.path), Path(part.path)
    try:
        other = path.exists() and not path.is_dir() and not (path.is_file() and may_be_trace(path))
        if other and not part.named:  # a pipe, or a file of another kind
            return _encoded()
        made = partial(read(path), path, node, part.of_many)
        return _encoded(before if before == stamp_of(part.path) else None, made)
    except InputError as error:
        return _encoded(failure=str(error))
    except OSError as error:
        return failed(part, f"cannot be read ({error.strerror or error})")
    except MemoryError:
        return failed(part, "not enough memory for this trace where it was read")
    except (Exception, pl.exceptions.PanicException) as error:
        reason = next(iter(str(error).splitlines()), "")
        return failed(part, f"could not be reported ({type(error).__name__}: {reason})")


def failed(part: Part, why: str) -> bytes:
    """The Outcome of a part that could not be read."""
    return _encoded(failure=f"{shown(part.path)}: {why}")


def _encoded(stamp: Stamp | None = None, made: Partial | None = None, failure: str | None = None) -> bytes:
    failure = None if failure is None else printable(failure)
    return msgspec.json.encode(Outcome(__version__, stamp, made, failure))


def decoded(outcome: bytes) -> Outcome:
    """An Outcome that `do_part` returned. Raises InputError if another version of busfare made it."""
    try:
        made = msgspec.json.decode(outcome, type=Outcome)
    except msgspec.MsgspecError:
        made = None
    if made is None or made.version != __version__:
        other = f"busfare {made.version}" if made else "another busfare"
        raise InputError(f"a worker runs {other}, this is {__version__}; install the same on all machines")
    return made


class Line(msgspec.Struct, frozen=True):
    """A part done. `question` is what outcomes depend on beside their files: busfare's version, the node named, and whether
    the files are many.
    """

    question: str
    path: str
    outcome: msgspec.Raw


class Kept:
    """The outcomes kept in a file: one line each, appended as they come, so that a killed run loses one at most.

    With no file, nothing is kept. `of_many`: as of a Part.
    """

    def __init__(self, file: BinaryIO | None, node: Node | None, of_many: bool) -> None:
        asked = repr((__version__, node, of_many)).encode("utf-8", "backslashreplace")
        self._question = sha256(asked).hexdigest()[:24]
        self._file = file
        self._outcomes: dict[str, msgspec.Raw] = {}
        text = b"\n"
        for text in file or ():
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):  # damaged: it is read again
                line = msgspec.json.decode(text, type=Line)
                if line.question == self._question:
                    self._outcomes[line.path] = line.outcome
        if file and not text.endswith(b"\n"):  # torn, of a killed run
            file.write(b"\n")

    def outcome_of(self, part: Part) -> Outcome | None:
        """The kept outcome; None where there is none, or the file has changed since."""
        with suppress(KeyError, msgspec.MsgspecError, UnicodeDecodeError):
            outcome = msgspec.json.decode(self._outcomes[_name(part)], type=Outcome)
            if outcome.stamp == stamp_of(part.path):
                return outcome
        return None

    def keep(self, part: Part, outcome: Outcome) -> None:
        """Adds a part that was read, unless it changed meanwhile. Raises InputError if the disk is full."""
        if not self._file or outcome.stamp is None or outcome.partial is None:
            return
        line = Line(self._question, _name(part), msgspec.Raw(msgspec.json.encode(outcome)))
        try:
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()
        except OSError as error:
            raise InputError(f"{self._file.name}: cannot be written ({error.strerror}); make room") from None


@contextmanager
def keeping(folder: Path | None, node: Node | None, of_many: bool = False) -> Iterator[Kept]:
    """What is kept in `folder` (None: nothing). Raises InputError if it cannot be used, or another run uses it."""
    if folder is None:
        yield Kept(None, node, of_many)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / FILE).open("a+b")
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be used to resume ({error.strerror}); name a folder that can be written"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder}: another run keeps its results there; name another folder") from None
        except OSError:
            pass  # some network file systems lock nothing; then it is the user who keeps two runs apart
        file.seek(0)
        yield Kept(file, node, of_many)


def _name(part: Part) -> str:
    return shown(os.path.abspath(part.path))  # noqa: PTH100  no link is resolved
