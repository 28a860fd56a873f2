"""A job from the paths that name it to its whole: parts found, done here or elsewhere, and added up as they come."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from itertools import chain
from pathlib import Path

from busfare.errors import InputError, StoppedError
from busfare.jobs.parts import MOST_TRACES, How, Part, find_parts, shown
from busfare.jobs.reduce import Job
from busfare.jobs.work import Outcome, decoded, do_part, keeping
from busfare.jobs.workers import Processes, interrupts, read_by, usual_processes
from busfare.nodes import Node
from busfare.printable import printable


class Progress:
    """How far a job is. This one shows nothing but what the user may have to set right."""

    def warn(self, text: str) -> None:
        """Something that the user may have to set right while it goes on."""
        print(f"busfare: {text}", file=sys.stderr)

    def parts(self, done: int, whole: int, failed: int) -> None:
        """So many parts are done, of so many."""


def run_job(paths: list[Path], node: Node | None, how: How, progress: Progress) -> Job:
    """The whole of all traces that `paths` name, recorded on `node` (guessed for each trace otherwise).

    Raises InputError if no trace can be read, or the workers cannot be had, and StoppedError on Ctrl-C.
    """
    how.check()
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
            job.others += 1
        progress.parts(done, whole, len(job.failures))

    with keeping(how.resume, node, of_many) as kept:

        def remaining() -> Iterator[Part]:
            for part in named.parts:
                if outcome := kept.outcome_of(part):
                    took(part, outcome)
                else:
                    yield part._replace(of_many=of_many)

        try:
            usual = usual_processes(named.parts)
            reading = _read(remaining(), node, how, progress, usual)
            with interrupts() as interrupted, closing(reading) as outcomes:
                for part, encoded in outcomes:
                    interrupted()
                    outcome = decoded(encoded)
                    kept.keep(part, outcome)
                    took(part, outcome)
        except KeyboardInterrupt:
            later = "the same command goes on from there" if how.resume else "--resume FOLDER would keep them"
            raise StoppedError(f"stopped after {done:,} of {whole:,} files; {later}") from None
        except InputError as error:
            so_far = f" ({done:,} of {whole:,} files are done; the same command goes on from there)"
            raise InputError(f"{error}{so_far if done and how.resume else ''}") from None
    if not job.traces:
        raise InputError(_nothing(job, paths))
    return job


def _read(
    parts: Iterator[Part], node: Node | None, how: How, progress: Progress, usual: int
) -> Generator[tuple[Part, bytes]]:
    """Each part with its Outcome, by the workers that `how` names (`usual` processes where it names none), which are had
    only when a part is left to do.
    """
    first = next(parts, None)
    if first is None:
        return
    parts = chain([first], parts)
    with ExitStack() as stack:
        if how.scheduler:
            from busfare.jobs.cluster import DaskWorkers, connected

            client = stack.enter_context(connected(how.scheduler))
            yield from read_by(DaskWorkers(client, progress.warn), parts, node)
        elif (processes := how.jobs or usual) > 1:
            yield from read_by(stack.enter_context(Processes(processes)), parts, node)
        else:
            yield from ((part, do_part(part, node)) for part in parts)


def _nothing(job: Job, paths: list[Path]) -> str:
    where = ", ".join(printable(shown(path)) for path in paths[:3]) + (", …" if len(paths) > 3 else "")
    if job.failures:
        first = min(job.failures)
        return (
            f"{where}: none of {len(job.failures):,} files could be read; "
            f"the first, {printable(first[0])}: {first[1]}"
        )
    others = f"; none of the {job.others:,} files there is one" if job.others else "; there is no file"
    return f"{where}: no trace found{others}"
