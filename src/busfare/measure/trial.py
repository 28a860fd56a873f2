"""Runs a program for `busfare try`: unchanged, with the recorder, and with changes. A preloaded library makes
the changes: it intercepts CUDA driver calls.
"""

import math
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Timer, current_thread, main_thread

import numpy as np

from busfare.errors import InputError, NoGpuError
from busfare.measure.record import add_lines, environment, recorder_library, shared_library
from busfare.questions import Record
from busfare.questions.measuring import LAUNCHERS

NS = 1e-9
LIBRARY = "libbusfare_try.so"
VARIABLE = "BUSFARE_TRY_"
#: Time limit of a changed run: a multiple of the unchanged time, plus seconds.
MOST_TIMES, MORE_S = 10, 30
#: Seconds between SIGTERM and SIGKILL.
END_S = 5
#: Variables in which launchers pass the number of ranks of a job.
RANKS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
#: Signals that end this process and the program.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: Seconds for which CPU load is sampled before each round; more busy cores than BUSY_CORES disturb the measurement.
WATCHED_S, BUSY_CORES = 0.1, 1.0


@dataclass(frozen=True)
class Run:
    """A finished run. `status`: None after a timeout. `seconds`: of the whole process. `cuda_seconds`, `startup_seconds`:
    from the first CUDA driver call to the last, and to the first copy or kernel. `counts`: counters of the library by name,
    summed over processes. `kept`: number and bytes of the copies left unchanged, by reason.
    """

    status: int | None
    seconds: float
    outputs: list[bytes]
    last_line: str
    cuda_seconds: float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    startup_seconds: float | None = None


class Program:
    """A program and its arguments, run repeatedly in the current folder.

    `compare`: files that the program writes. They are deleted before each run and restored at the end. If standard input of
    this process is a file, each run reads it from its current position; otherwise standard input is empty.
    Raises InputError if the program does not exist, NoGpuError without a driver.
    """

    def __init__(self, command: Sequence[str], compare: Sequence[Path], timeout: float | None) -> None:
        if not command or isinstance(command, str):
            raise InputError("give the program and its arguments as words: busfare try -- ./app arguments")
        if (program := shutil.which(command[0])) is None:
            raise InputError(f"{command[0]}: not found or not executable; check its path and permissions")
        if any(os.environ.get(name, "1") != "1" for name in RANKS):
            raise InputError(
                "`try` cannot run as an MPI rank; let it launch the job: busfare try -- mpirun -n 4 ./app"
            )
        if shared_library("libcuda.so.1") is None:
            raise NoGpuError("no NVIDIA driver (cannot load libcuda.so.1); run `try` on a machine with a GPU")
        self.library = recorder_library().with_name(LIBRARY)
        if set(" :") & set(str(self.library)):
            raise InputError(f"{self.library}: cannot preload paths with spaces or colons; move busfare")
        if not self.library.is_file():
            raise InputError(f"{self.library} is missing; reinstall busfare")
        self.command, self.compare, self.timeout = [program, *command[1:]], compare, timeout
        self._starting, self._stopped_by, self._ending = False, 0, False
        # The last run leaves the position as a run without `try` would, for `while read` loops.
        self._input_position: int | None = None
        with suppress(OSError):
            if stat.S_ISREG(os.fstat(0).st_mode):
                self._input_position = os.lseek(0, 0, os.SEEK_CUR)
        #: Identical outputs are stored once, because they may be large.
        self._outputs: dict[bytes, bytes] = {}

    @contextmanager
    def files_set_aside(self) -> Iterator[None]:
        """Renames the files of `compare`, and restores them at the end of the context."""
        if len({path.resolve() for path in self.compare}) < len(self.compare):
            raise InputError("`compare` names a file twice; give it once")
        for path in self.compare:
            if path.exists() and not path.is_file():
                raise InputError(f"{path} is not a file; give a file that the program writes")
            if path.is_symlink():
                raise InputError(f"{path} is a symbolic link; give the file that it points to")
            if (backup := _backup(path)).exists():
                raise InputError(f"{backup} is from an interrupted run; move it back to {path} or delete it")
        # Without handlers, these signals would leave the program running and the files renamed.
        before = {number: signal.getsignal(number) for number in ENDING if current_thread() is main_thread()}
        before = {
            number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)
        }
        for number in before:
            signal.signal(number, self._stop)
        backups = dict[Path, Path | None]()
        try:
            for path in self.compare:
                backups[path] = path.rename(_backup(path)) if path.is_file() else None
            yield
        finally:
            for path, renamed in backups.items():
                with suppress(OSError):  # a file that cannot be restored must not stop the rest
                    path.unlink(missing_ok=True)
                    if renamed:
                        renamed.rename(path)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, *_: object) -> None:
        """Handles a signal that ends this process. Defers it while a program starts: that program would survive."""
        if self._starting:
            self._stopped_by = number
        elif not self._ending:  # a second signal would leave the program running
            self._ending = True
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    def recorded(self, folder: Path, unchanged_seconds: float) -> Run:
        """Runs the program with the recorder, which writes to the new `folder`. Its time limit is that of a changed run."""
        folder.mkdir()
        name = f"{os.getpid()}-{time.time_ns()}"
        variables = environment(f"{folder}/", Record(stacks=True), self.command)
        run = self._run(variables | {"BUSFARE_RECORD_RUN": name}, self._limit(unchanged_seconds))
        for file in folder.glob("*"):
            add_lines(file, name)
        return run

    def run(self, change: str = "", unchanged_seconds: float | None = None) -> Run:
        """Runs the program with a `change` of `questions.Try`, or unchanged; `dry,…` only counts what a change would do.
        Ends the run if it takes far longer than `unchanged_seconds`.
        """
        launcher = change.split() if change.startswith(LAUNCHERS) else []
        name, equals, value = ("", "", "") if launcher else change.partition("=")
        changes = "" if equals or launcher else change
        preload = f"{self.library} {os.environ.get('LD_PRELOAD', '')}".strip()
        with tempfile.TemporaryDirectory(prefix="busfare-") as folder:
            variables = {
                "LD_PRELOAD": preload,
                f"{VARIABLE}CHANGES": changes,
                f"{VARIABLE}REPORT": f"{folder}/report",
            }
            if equals:
                variables[name] = f"{self.library} {value}" if name == "LD_PRELOAD" else value
            run = self._run(variables, self._limit(unchanged_seconds), launcher)
            return _with_reports(run, Path(folder))

    def _limit(self, unchanged_seconds: float | None) -> float | None:
        """The time limit of a run, s; None if there is none."""
        most = math.inf if unchanged_seconds is None else MOST_TIMES * unchanged_seconds + MORE_S
        most = min(most, math.inf if self.timeout is None else self.timeout)
        return most if math.isfinite(most) else None

    def _run(self, variables: Mapping[str, str], timeout: float | None, launcher: Sequence[str] = ()) -> Run:
        for path in self.compare:
            path.unlink(missing_ok=True)
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            if self._input_position is not None:
                os.lseek(0, self._input_position, os.SEEK_SET)
            begin = time.perf_counter()
            self._starting = True
            process = subprocess.Popen(
                [*launcher, *self.command],
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL if self._input_position is None else 0,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
            late = Event()

            def end_late() -> None:
                late.set()
                _end(process)

            # Not `wait(timeout)`, which polls only every 50 ms.
            timer = Timer(timeout or 0.0, end_late)
            try:
                self._starting = False
                if self._stopped_by:
                    self._stop(self._stopped_by)
                if timeout is not None:
                    timer.start()
                status = process.wait()
                seconds = time.perf_counter() - begin
            finally:
                timer.cancel()
                _end(process)
            output.seek(0)
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4096))
            written = [
                output.read(),
                *(path.read_bytes() if path.is_file() else b"" for path in self.compare),
            ]
            written = [self._outputs.setdefault(text, text) for text in written]
            messages = (errors.read() or written[0][-4096:]).decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(messages) if line.strip()), "")
        return Run(None if late.is_set() else 128 - status if status < 0 else status, seconds, written, last)


def _backup(path: Path) -> Path:
    """The name to which a file of `compare` is renamed during the runs."""
    return path.with_name(f"{path.name}.before-try")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the program and all processes of its session."""
    for number in (signal.SIGTERM, signal.SIGKILL) if process.poll() is None else (signal.SIGKILL,):
        for file in Path("/proc").glob("[1-9]*/stat"):
            with suppress(OSError, IndexError):
                # State, parent, process group and session follow the name, which may contain spaces.
                if file.read_text(errors="replace").rpartition(")")[2].split()[3] == str(process.pid):
                    os.kill(int(file.parent.name), number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)


def _with_reports(run: Run, folder: Path) -> Run:
    """`run` with the counters of all processes that used CUDA (native/recorder/trial/report.h)."""
    counts, spans, works = Counter[str](), list[tuple[int, int]](), list[int]()
    for report in folder.iterdir():
        rows = np.fromfile(report, [("name", "S24"), ("value", "<u8")])
        values = {name.decode(): int(value) for name, value in rows}
        if values.get("first_call_ns"):
            spans.append((values.pop("first_call_ns"), values.pop("last_call_ns")))
            works += [work] if (work := values.pop("first_work_ns")) else []
            counts.update(values)
    reasons = [
        name.removeprefix("kept ") for name, copies in counts.items() if name.startswith("kept ") and copies
    ]
    kept = {reason: (counts[f"kept {reason}"], counts[f"{reason} bytes"]) for reason in reasons}
    cuda = (max(end for _, end in spans) - min(begin for begin, _ in spans)) * NS if spans else None
    startup = (min(works) - min(begin for begin, _ in spans)) * NS if works else None
    # The time is 0 if there was only a single call.
    return replace(run, cuda_seconds=cuda or None, startup_seconds=startup, counts=counts, kept=kept)


def busy_cores() -> float | None:
    """Number of busy cores of this host; None if /proc/stat cannot be read."""

    def busy_ticks() -> int:
        user, nice, system, _, _, irq, soft, *_ = map(int, Path("/proc/stat").read_text().split()[1:11])
        return user + nice + system + irq + soft

    try:
        before = busy_ticks()
        time.sleep(WATCHED_S)
        return (busy_ticks() - before) / (os.sysconf("SC_CLK_TCK") * WATCHED_S)
    except (OSError, ValueError):
        return None
