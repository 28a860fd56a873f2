"""One process of a program of this folder: started, ready, and then released a region at a time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from processors import Processors
from table import Program

from busfare.measure.record import environment

__all__ = ["Region", "Run", "RunError"]

#: Libraries' own pools of threads would be more threads than there are processors for.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
#: The first region after others ran finds caches as they left them; in a long one that does not matter.
LONG_S = 0.15


class RunError(Exception):
    """A process that did not give a result; the message says why."""


@dataclass(frozen=True)
class Region:
    """One measured region: its time, and how long a fixed piece of work took on its processor before and after it."""

    process: int
    seconds: float
    pace_before_s: float
    pace_after_s: float
    processor: int

    @property
    def pace_s(self) -> float:
        """The slower of both."""
        return max(self.pace_before_s, self.pace_after_s)

    def as_json(self) -> dict[str, Any]:
        return {
            key: float(f"{said:.9g}") if isinstance(said, float) else said
            for key, said in asdict(self).items()
        }


@dataclass
class Run:
    """`number` counts the processes of a variant; `recording` names what is recorded, if anything is."""

    program: Program
    variant: str
    command: list[str]
    recording: str = ""
    number: int = 0
    process: subprocess.Popen[bytes] | None = None
    folder: Path | None = None
    regions: list[Region] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)
    failed: bool = False
    _said: bytes = b""
    _errors: IO[bytes] | None = None

    def start(self, library: Path, scratch: Path) -> None:
        variables = ONE_THREAD | dict(os.environ)
        if self.recording:
            self.folder = Path(tempfile.mkdtemp(dir=scratch))
            variables |= environment(
                str(self.folder / "%p.bf"),
                # What the recording says of itself: no path of this machine.
                [self.program.source, *self.command[self.command.index("--variant") :]],
                capture="profiler-calls",
                fingerprint=self.recording.endswith("fingerprint"),
                library=library,
            )
        self._errors = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115 — open as long as the process
        self.process = subprocess.Popen(
            self.command,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )

    def wait_until_ready(self, deadline: float) -> None:
        """Raises RunError if the program ends, or does not say `ready` in time."""
        while self._line(deadline, "was not ready in time") != b"ready":
            pass

    def visit(self, count: int, processors: Processors, patience_s: float, timeout_s: float) -> list[Region]:
        """Measures `count` regions in a row, on quick processors. Raises RunError if one takes longer."""
        assert self.process is not None
        threads = self.program.threads
        place = processors.place(threads, patience_s)
        place.taken_by(self.process.pid)
        if not self.regions or min(region.seconds for region in self.regions) < LONG_S:
            self._region("warm", timeout_s)
        measured = []
        for _ in range(count):
            before = processors.pace_at(place, threads)
            if before > processors.limit_s:
                place = processors.place(threads, patience_s)
                place.taken_by(self.process.pid)
                before = processors.pace_at(place, threads)
            seconds = self._region("measure", timeout_s)
            after = processors.pace_at(place, threads)
            measured.append(Region(self.number, seconds, before, after, place.own))
        self.regions += measured
        return measured

    def _region(self, word: str, timeout_s: float) -> float:
        assert self.process is not None and self.process.stdin is not None
        try:
            self.process.stdin.write(word.encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise RunError(self._last_words()) from None
        line = b""
        deadline = time.monotonic() + timeout_s
        while not line.startswith(b'{"region"'):
            line = self._line(deadline, f"took longer than {timeout_s:g} s")
        return float(json.loads(line)["region"])

    def ask_for_the_check(self) -> None:
        """Lets the process check its result and end."""
        assert self.process is not None and self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def finish(self, deadline: float) -> None:
        """Waits for the end. Raises RunError if that takes too long, or the check failed."""
        assert self.process is not None
        line = b""
        while not line.startswith(b"{"):
            line = self._line(deadline, "did not end in time")
        self.result = json.loads(line)
        try:
            self.process.wait(max(deadline - time.monotonic(), 1.0))
        except subprocess.TimeoutExpired:
            self.stop()
            raise RunError("did not end in time") from None
        if not self.result.get("right") or self.process.returncode != 0:
            raise RunError(f"error {self.result.get('error')}, {self._last_words()}")

    def _line(self, deadline: float, why: str) -> bytes:
        """The next line that the process says. Raises RunError where none comes in time, `why`."""
        assert self.process is not None and self.process.stdout is not None
        while b"\n" not in self._said:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self.stop()
                raise RunError(why)
            more = os.read(self.process.stdout.fileno(), 4096)
            if not more:
                raise RunError(self._last_words())
            self._said += more
        line, self._said = self._said.split(b"\n", 1)
        return line

    def _last_words(self) -> str:
        assert self.process is not None and self._errors is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.stop()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()
        return f"status {self.process.returncode}: {said[-600:] or 'nothing on standard error'}"

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
