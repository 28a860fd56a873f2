"""A job from the paths that name it to its whole: parts found, done here or elsewhere, and added up as they come."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from busfare.errors import InputError, StoppedError
from busfare.job.how import How
from busfare.job.named import shown
from busfare.job.partial import Partial
from busfare.job.parts import Part, find_parts
from busfare.job.processes import by_processes
from busfare.job.reduce import Job
from busfare.job.resume import Kept
from busfare.job.work import decoded, do_part
from busfare.node import Node
from busfare.printable import printable

__all__ = ["Progress", "run_job"]


class Progress(Protocol):
    """What shows how far a job is."""

    def say(self, text: str) -> None:
        """What is waited for."""

    def warn(self, text: str) -> None:
        """Something that the user may have to mend while it goes on."""

    def parts(self, done: int, whole: int, failed: int) -> None:
        """So many parts are done, of so many."""


def run_job(paths: list[Path], node: Node | None, how: How, progress: Progress) -> Job:
    """The whole of all traces that `paths` name, recorded on `node` (guessed for each trace otherwise).

    Raises InputError if no trace can be read, or the workers cannot be had, and StoppedError on Ctrl-C.
    """
    how.check()
    found = find_parts(paths)
    job = Job()
    job.duplicates = found.duplicates
    for folder, why in found.unlisted.items():
        job.fail(folder, why)
    done = 0

    def took(part: Part, partial: Partial) -> None:
        nonlocal done
        job.add(shown(part.path), partial)
        done += 1
        progress.parts(done, len(found.parts), job.failed)

    with ExitStack() as stack:
        kept = stack.enter_context(Kept(how.resume, node))

        def remaining() -> Iterator[Part]:
            for part, partial in kept.done(found.parts):
                if partial is None:
                    yield part
                else:
                    took(part, partial)

        try:
            outcomes = _done(remaining(), node, how, stack, progress)
            stack.callback(outcomes.close)
            for part, said in outcomes:
                outcome = decoded(said)
                if outcome.partial is not None:
                    kept.keep(part, outcome.stamp, outcome.partial)
                    took(part, outcome.partial)
                    continue
                if outcome.failure is not None:
                    job.fail(shown(part.path), _reason(part, outcome.failure))
                else:
                    job.others += 1
                done += 1
                progress.parts(done, len(found.parts), job.failed)
        except KeyboardInterrupt:
            raise StoppedError(_stopped(done, len(found.parts), how)) from None
        except InputError as error:
            raise InputError(f"{error}{_kept_so_far(done, len(found.parts), how)}") from None
    if not job.traces:
        raise InputError(_nothing(job, paths))
    return job


def _done(
    parts: Iterator[Part], node: Node | None, how: How, stack: ExitStack, progress: Progress
) -> Generator[tuple[Part, bytes]]:
    if how.scheduler or how.slurm:
        return _by_cluster(parts, node, how, stack, progress)
    if (how.jobs or 1) > 1:
        return by_processes(parts, node, how.jobs or 1)
    return ((part, do_part(part, node)) for part in parts)


def _by_cluster(
    parts: Iterator[Part], node: Node | None, how: How, stack: ExitStack, progress: Progress
) -> Generator[tuple[Part, bytes]]:
    """Asks for a cluster only when a part is left to do."""
    from busfare.job.on_dask import by_dask, connected
    from busfare.job.slurm import slurm_cluster, slurm_options

    if how.slurm is not None:
        slurm_options(how.slurm)
    first = next(parts, None)
    if first is None:
        return
    if how.slurm is not None:
        progress.say("asking Slurm for workers")
        client = stack.enter_context(slurm_cluster(how.slurm, how.jobs or 1))
    else:
        client = stack.enter_context(connected(how.scheduler or ""))

    def all_parts() -> Iterator[Part]:
        yield first
        yield from parts

    yield from by_dask(all_parts(), node, client, progress.warn)


def _reason(part: Part, failure: str) -> str:
    return failure.removeprefix(f"{printable(part.path)}: ").removeprefix(f"{shown(part.path)}: ")


def _stopped(done: int, whole: int, how: How) -> str:
    said = f"stopped after {done:,} of {whole:,} files"
    return said + (
        "; the same command goes on from there" if how.resume else "; --resume FOLDER would keep them"
    )


def _kept_so_far(done: int, whole: int, how: How) -> str:
    if not done or not how.resume:
        return ""
    return f" ({done:,} of {whole:,} files are done; the same command goes on from there)"


def _nothing(job: Job, paths: list[Path]) -> str:
    where = ", ".join(printable(shown(path)) for path in paths[:3]) + (", …" if len(paths) > 3 else "")
    first = next(iter(job.failures), None)
    if first is not None:
        return f"{where}: none of {job.failed:,} files could be read; the first, {printable(first.path)}: {first.why}"
    others = f"; none of the {job.others:,} files there is one" if job.others else "; there is no file"
    return f"{where}: no trace found{others}"
