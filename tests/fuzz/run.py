"""Reads mutated files by the thousand.

    python -m tests.fuzz.run --reader nsys --count 10000 --seed 1

A second process reads them, so that one that crashes or never ends is a finding like any other. Every failing
input is kept, with the reason beside it. Exit status: 0 no finding, 1 findings.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.corpus import CORPUS
from tests.fuzz.mutate import mutated
from tests.fuzz.outcome import failure_of, limit_memory

__all__ = ["ALONE", "Finding", "findings", "input_number"]

#: Threads reserve address space, which is what is limited: of Polars, of Arrow (which mutates tables), and an arena of the
#: allocator each. On a machine of many cores they would use up all of it before any input does.
ALONE = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_IO_THREADS": "1", "MALLOC_ARENA_MAX": "1"}


@dataclass(frozen=True)
class Finding:
    """An input that a reader failed on: its number, by which it is made again, and the reason."""

    number: int
    reason: str


def input_number(number: int, seed: int, corpus: list[Path], folder: Path) -> Path:
    """Makes input `number` of `seed` anew, in `folder`."""
    dice = random.Random(f"{seed}/{number}")
    source = dice.choice(corpus)
    target = folder / f"input{source.suffix}"
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)
    return mutated(source, target, dice)


def findings(reader: str, first: int, count: int, seed: int) -> Iterator[Finding]:
    """Reads inputs `first` to `first + count` in this process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sound = folder / "corpus"
        sound.mkdir()
        corpus = CORPUS[reader](sound)
        for file in corpus:
            if reason := failure_of(file):
                raise AssertionError(f"the sound file {file.name} fails: {reason}")
        limit_memory()
        for number in range(first, first + count):
            print(f"{number}", flush=True, file=sys.stdout)
            if reason := failure_of(input_number(number, seed, corpus, folder)):
                yield Finding(number, reason)


def work(reader: str, first: int, count: int, seed: int) -> None:
    for finding in findings(reader, first, count, seed):
        reason = " ".join(finding.reason.split())
        print(f"{finding.number} {reason}", flush=True)
    print("done", flush=True)


def supervise(reader: str, count: int, seed: int) -> Iterator[Finding]:
    """Reads all inputs in other processes, a new one after each crash."""
    number = 0
    while number < count:
        command = [sys.executable, "-m", "tests.fuzz.run", "--work", "--reader", reader]
        command += ["--first", str(number), "--count", str(count - number), "--seed", str(seed)]
        environment = os.environ | ALONE
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        ) as worker:
            assert worker.stdout is not None
            done = False
            for line in worker.stdout:
                if line.strip() == "done":
                    done = True
                    break
                at, _, reason = line.strip().partition(" ")
                number = int(at)
                if reason:
                    yield Finding(number, reason)
            status = worker.wait()
        if done:
            return
        yield Finding(number, f"the process ended with status {status}")
        number += 1


def keep(finding: Finding, reader: str, seed: int, folder: Path) -> Path:
    """Saves the failing input and its reason."""
    with tempfile.TemporaryDirectory() as name:
        corpus = CORPUS[reader](Path(name))
        made = input_number(finding.number, seed, corpus, Path(name))
        kept = folder / f"{reader}-{seed}-{finding.number}{made.suffix}"
        folder.mkdir(parents=True, exist_ok=True)
        if kept.is_dir():
            shutil.rmtree(kept)
        shutil.move(made, kept)
    kept.with_name(kept.name + ".reason").write_text(finding.reason + "\n", encoding="utf-8")
    return kept


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--reader", choices=[*CORPUS], required=True)
    options.add_argument("--count", type=int, default=10_000)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--keep", type=Path, default=Path("build/fuzz"), help="where failing inputs go")
    options.add_argument("--work", action="store_true", help="read in this process, printing each number")
    given = options.parse_args()
    if given.work:
        work(given.reader, given.first, given.count, given.seed)
        return 0
    failures = 0
    for finding in supervise(given.reader, given.count, given.seed):
        failures += 1
        print(f"{keep(finding, given.reader, given.seed, given.keep)}: {finding.reason}", flush=True)
    print(f"{given.reader}: {given.count} inputs of seed {given.seed}, {failures} findings")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
