"""What a job has done already, kept in a folder: a run that goes on where one was stopped reads nothing twice."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from types import TracebackType

import msgspec

from busfare import __version__
from busfare.errors import InputError
from busfare.job.named import shown
from busfare.job.partial import Partial
from busfare.job.parts import Part
from busfare.job.work import LAYOUT, Stamp, stamp_of
from busfare.node import Node

__all__ = ["Kept", "question_of"]

FILE = "partials.jsonl"


class _Line(msgspec.Struct, frozen=True):
    """A part done: `question` says what was asked of it, and by which version."""

    question: str
    path: str
    stamp: Stamp
    partial: msgspec.Raw


class _Key(msgspec.Struct, frozen=True):
    """The same without its partial, which is read when it is needed."""

    question: str
    path: str
    stamp: Stamp


def question_of(node: Node | None) -> str:
    """What partials depend on beside their files: busfare's version, and the node that was named."""
    asked = repr((__version__, LAYOUT, node))
    return sha256(asked.encode("utf-8", "backslashreplace")).hexdigest()[:24]


class Kept:
    """The partials kept in a folder: one line each, appended as they come, so that a killed run loses one at most.

    With no folder, nothing is kept. Raises InputError if the folder cannot be used, or another run uses it.
    """

    def __init__(self, folder: Path | None, node: Node | None) -> None:
        self._question = question_of(node)
        self._places: dict[str, tuple[Stamp, int]] = {}
        self._file = None
        if folder is None:
            return
        path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder}: another run keeps its results there; name another folder") from None
        except OSError as error:
            # Some network file systems lock nothing; then it is the user who keeps two runs apart.
            if self._file is None:
                raise InputError(
                    f"{folder}: cannot be used to resume ({error.strerror}); name a folder that can be written"
                ) from None
        self._index()

    def __enter__(self) -> Kept:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()

    def _index(self) -> None:
        """Finds the last line of each part; a line that a killed run left torn is ended, and passed over."""
        assert self._file is not None
        self._file.seek(0)
        at, line = 0, b""
        for line in self._file:
            try:
                key = msgspec.json.decode(line, type=_Key)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                key = None
            if key is not None and line.endswith(b"\n") and key.question == self._question:
                self._places[key.path] = (key.stamp, at)
            at += len(line)
        if line and not line.endswith(b"\n"):
            self._file.write(b"\n")
            self._file.flush()

    def done(self, parts: Iterable[Part]) -> Iterator[tuple[Part, Partial | None]]:
        """Each part with its kept partial; None where there is none, or the file has changed since."""
        for part in parts:
            place = self._places.get(_name(part.path))
            kept = None
            if self._file and place and place[0] == stamp_of(part.path):
                self._file.seek(place[1])
                try:
                    line = msgspec.json.decode(self._file.readline(), type=_Line)
                    kept = msgspec.json.decode(line.partial, type=Partial)
                except (msgspec.MsgspecError, UnicodeDecodeError):
                    kept = None  # damaged: it is read again
            yield part, kept

    def keep(self, part: Part, stamp: Stamp | None, partial: Partial) -> None:
        """Adds a part that was read, unless it changed meanwhile. Raises InputError if the disk is full."""
        if not self._file or stamp is None:
            return
        line = _Line(self._question, _name(part.path), stamp, msgspec.Raw(msgspec.json.encode(partial)))
        try:
            self._file.seek(0, os.SEEK_END)
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()
        except OSError as error:
            raise InputError(f"{self._file.name}: cannot be written ({error.strerror}); make room") from None


def _name(path: str) -> str:
    return shown(os.path.abspath(path))  # noqa: PTH100  no link is resolved
