"""A job from the paths that name it to its whole: parts found, read here or by workers, and added up as they come."""

import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import msgspec
import polars as pl

from busfare import __version__
from busfare.errors import InputError, StoppedError
from busfare.jobs.partial import Advise, Partial, partial_of
from busfare.jobs.parts import MOST_TRACES, Part, find_parts, shown
from busfare.jobs.reduce import Job
from busfare.jobs.workers import DaskWorkers, Processes, Work, connected, interrupts, read_by, usual_processes
from busfare.nodes import Node
from busfare.printable import printable
from busfare.questions import Report
from busfare.trace import may_be_trace, read
from busfare.trace.columns import decoded_json


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
    parts = [part._replace(of_many=whole > MOST_TRACES) for part in named.parts]
    reading = _read(parts, node, how, progress, partial(do_part, advise=advise))
    try:
        with interrupts() as interrupted, closing(reading) as outcomes:
            for part, encoded in outcomes:
                interrupted()
                outcome = decoded(encoded if isinstance(encoded, bytes) else _failed(part, encoded))
                done += 1
                path = shown(part.path)
                if outcome.partial is not None:
                    job.add(path, outcome.partial)
                elif outcome.failure is not None:
                    job.failures.append((path, outcome.failure.removeprefix(f"{printable(path)}: ")))
                else:
                    job.foreign += 1
                progress.parts(done, whole, len(job.failures))
    except KeyboardInterrupt:
        raise StoppedError(f"stopped after {done:,} of {whole:,} files") from None
    if not job.traces:
        raise InputError(_nothing(job, paths))
    return job


def _read(
    parts: Sequence[Part], node: Node | None, how: Report, progress: Progress, work: Work
) -> Generator[tuple[Part, bytes | str]]:
    """As `read_by`, by the workers that `how` names, or as many processes as are usual."""
    if not parts:
        return
    with ExitStack() as stack:
        if how.scheduler:
            client = stack.enter_context(connected(how.scheduler))
            yield from read_by(DaskWorkers(client, progress.warn), iter(parts), node, work)
        elif (processes := how.jobs or usual_processes(parts)) > 1:
            yield from read_by(stack.enter_context(Processes(processes)), iter(parts), node, work)
        else:
            yield from ((part, work(part, node)) for part in parts)


def _nothing(job: Job, paths: list[Path]) -> str:
    where = ", ".join(printable(shown(path)) for path in paths[:3]) + (", …" if len(paths) > 3 else "")
    if job.failures:
        first = min(job.failures)
        return f"{where}: none of {len(job.failures):,} files could be read; the first, {printable(first[0])}: {first[1]}"
    why = f"files that are not traces: {job.foreign:,}" if job.foreign else "the folder is empty"
    return f"{where}: no trace found; {why}"


class Outcome(msgspec.Struct, frozen=True):
    """What became of a part: a partial, or why there is none; neither: no trace, and nobody said that it was one."""

    version: str
    partial: Partial | None = None
    failure: str | None = None


def do_part(part: Part, node: Node | None, advise: Advise | None = None) -> bytes:
    """Reads a part and returns its Outcome as JSON. Never raises: a bad file is no reason to lose the others."""
    path = Path(part.path)
    try:
        foreign = path.exists() and not path.is_dir() and not (path.is_file() and may_be_trace(path))
        if foreign and not part.named:  # a pipe, or not a trace
            return _encoded()
        return _encoded(partial_of(read(path), path, node, part.of_many, advise))
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


def _encoded(made: Partial | None = None, failure: str | None = None) -> bytes:
    failure = None if failure is None else printable(failure)
    return msgspec.json.encode(Outcome(__version__, made, failure))


def decoded(outcome: bytes) -> Outcome:
    """An Outcome that `do_part` returned. Raises InputError if another version of busfare made it."""
    made: Outcome | None = decoded_json(outcome, Outcome)
    if made is None or made.version != __version__:
        maker = f"busfare {made.version}" if made else "another busfare"
        raise InputError(
            f"a worker runs {maker}, this machine {__version__}; install the same version everywhere"
        )
    return made
