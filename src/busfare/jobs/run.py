"""A job from the paths that name it to its whole: parts found, read here or by workers, added up as they come, and kept: a
run that goes on reads nothing twice.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import msgspec
import polars as pl

from busfare import __version__
from busfare.errors import InputError, StoppedError
from busfare.jobs.partial import Advise, Partial, partial_of
from busfare.jobs.parts import MOST_TRACES, Part, Stamp, find_parts, shown, stamp_of
from busfare.jobs.reduce import Job
from busfare.jobs.workers import DaskWorkers, Processes, Work, connected, interrupts, read_by, usual_processes
from busfare.nodes import Node
from busfare.printable import printable
from busfare.questions import Report
from busfare.trace import may_be_trace, read

FILE = "partials.jsonl"


class Progress:
    """How far a job is. This one shows nothing but what the user may have to set right."""

    def warn(self, text: str) -> None:
        """Something that the user may have to set right while it goes on."""
        print(f"busfare: {text}", file=sys.stderr)

    def parts(self, done: int, whole: int, failed: int) -> None:
        """So many parts are done, of so many."""


def run_job(
    paths: list[Path], node: Node | None, how: Report, progress: Progress, advise: Advise | None = None
) -> Job:
    """The whole of all traces that `paths` name, recorded on `node`. `advise`, a function that workers can import, finds
    what to do about a trace.

    Raises InputError if no trace can be read, or the workers cannot be had, and StoppedError on Ctrl-C.
    """
    named, job = find_parts(paths), Job()
    job.duplicates, job.failures = named.duplicates, list(named.unlisted.items())
    done, whole = 0, len(named.parts)
    of_many = whole > MOST_TRACES

    def took(part: Part, outcome: Outcome) -> None:
        nonlocal done
        done += 1
        path = shown(part.path)
        if outcome.partial is not None:
            job.add(path, outcome.partial)
        elif outcome.failure is not None:
            job.failures.append((path, outcome.failure.removeprefix(f"{printable(path)}: ")))
        else:
            job.foreign += 1
        progress.parts(done, whole, len(job.failures))

    work = partial(do_part, advise=advise)
    with keeping(how.resume, repr((__version__, node, of_many, advise is not None))) as kept:

        def remaining() -> Iterator[Part]:
            for part in named.parts:
                if outcome := kept.outcome_of(part):
                    took(part, outcome)
                else:
                    yield part._replace(of_many=of_many)

        try:
            usual = usual_processes(named.parts)
            reading = _read(remaining(), node, how, progress, usual, work)
            with interrupts() as interrupted, closing(reading) as outcomes:
                for part, encoded in outcomes:
                    interrupted()
                    outcome = decoded(encoded if isinstance(encoded, bytes) else _failed(part, encoded))
                    kept.keep(part, outcome)
                    took(part, outcome)
        except KeyboardInterrupt:
            later = (
                "rerun the same command to continue" if how.resume else "`resume` FOLDER would have kept them"
            )
            raise StoppedError(f"stopped after {done:,} of {whole:,} files; {later}") from None
        except InputError as error:
            so_far = f" ({done:,} of {whole:,} files are done; rerun the same command to continue)"
            raise InputError(f"{error}{so_far if done and how.resume else ''}") from None
    if not job.traces:
        raise InputError(_nothing(job, paths))
    return job


def _read(
    parts: Iterator[Part], node: Node | None, how: Report, progress: Progress, usual: int, work: Work
) -> Generator[tuple[Part, bytes | str]]:
    """As `read_by`, by the workers that `how` names (`usual` processes where it names none), started once a part is to be
    read.
    """
    first = next(parts, None)
    if first is None:
        return
    parts = chain([first], parts)
    with ExitStack() as stack:
        if how.scheduler:
            client = stack.enter_context(connected(how.scheduler))
            yield from read_by(DaskWorkers(client, progress.warn), parts, node, work)
        elif (processes := how.jobs or usual) > 1:
            yield from read_by(stack.enter_context(Processes(processes)), parts, node, work)
        else:
            yield from ((part, work(part, node)) for part in parts)


def _nothing(job: Job, paths: list[Path]) -> str:
    where = ", ".join(printable(shown(path)) for path in paths[:3]) + (", …" if len(paths) > 3 else "")
    if job.failures:
        first = min(job.failures)
        return f"{where}: none of {len(job.failures):,} files could be read; the first, {printable(first[0])}: {first[1]}"
    why = f"none of the {job.foreign:,} files there is a trace" if job.foreign else "the folder is empty"
    return f"{where}: no trace found; {why}"


class Outcome(msgspec.Struct, frozen=True):
    """What became of a part: a partial, or why there is none; neither: no trace, and nobody said that it was one.

    `stamp` is None where the part changed while it was read.
    """

    version: str
    stamp: Stamp | None = None
    partial: Partial | None = None
    failure: str | None = None


def do_part(part: Part, node: Node | None, advise: Advise | None = None) -> bytes:
    """Reads a part and returns its Outcome as JSON. Never raises: a bad file is no reason to lose the others."""
    before, path = stamp_of(part.path), Path(part.path)
    try:
        foreign = path.exists() and not path.is_dir() and not (path.is_file() and may_be_trace(path))
        if foreign and not part.named:  # a pipe, or not a trace
            return _encoded()
        made = partial_of(read(path), path, node, part.of_many, advise)
        return _encoded(before if before == stamp_of(part.path) else None, made)
    except InputError as error:
        return _encoded(failure=str(error))
    except OSError as error:
        return _failed(part, f"cannot be read ({error.strerror or error})")
    except MemoryError:
        return _failed(part, "not enough memory to read this trace")
    except (Exception, pl.exceptions.PanicException) as error:
        reason = next(iter(str(error).splitlines()), "")
        return _failed(part, f"could not be reported ({type(error).__name__}: {reason})")


def _failed(part: Part, why: str) -> bytes:
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
        maker = f"busfare {made.version}" if made else "another busfare"
        raise InputError(
            f"a worker runs {maker}, this machine {__version__}; install the same version everywhere"
        )
    return made


class Line(msgspec.Struct, frozen=True):
    """A part done, and a digest of the question that its outcome answers."""

    question: str
    path: str
    outcome: msgspec.Raw


class Kept:
    """The outcomes kept in a file: one line each, appended as they come, so that a killed run loses one at most.

    With no file, nothing is kept.
    """

    def __init__(self, file: BinaryIO | None, question: str) -> None:
        self._question = sha256(question.encode("utf-8", "backslashreplace")).hexdigest()[:24]
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
def keeping(folder: Path | None, question: str = "") -> Iterator[Kept]:
    """What `folder` (None: nothing) keeps of `question`, all that outcomes depend on beside their files. Raises InputError
    if it cannot be used, or another run uses it.
    """
    if folder is None:
        yield Kept(None, question)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / FILE).open("a+b")
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be used to resume ({error.strerror}); name a writable folder"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{folder}: another run keeps its results in this folder; name another one"
            ) from None
        except OSError:
            pass  # some network file systems lock nothing; then it is the user who keeps two runs apart
        file.seek(0)
        yield Kept(file, question)


def _name(part: Part) -> str:
    return shown(os.path.abspath(part.path))  # noqa: PTH100  no link is resolved
