"""The recorder built with its stand-ins for CUDA and CUPTI, and a way to run programs under it."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from busfare.measure.record import environment
from busfare.questions import Record
from busfare.trace.readers.recorded.file import Recording, read_recording
from tests.processes import finished

SOURCE = Path(__file__).parents[2] / "native" / "recorder"


@dataclass(frozen=True)
class Built:
    """Where the stand-ins lie."""

    folder: Path

    @property
    def library(self) -> Path:
        return self.folder / "libbusfare_recorder.so"

    @property
    def program(self) -> str:
        return str(self.folder / "testing" / "fake_program")

    def search_path(self, cupti: str = "cupti13") -> str:
        return f"{self.folder / 'testing' / 'driver'}:{self.folder / 'testing' / cupti}"


@dataclass(frozen=True)
class Run:
    """How a recorded program ended, and what it left."""

    status: int
    output: str
    error: str
    files: list[Path]

    @property
    def recordings(self) -> list[Recording]:
        return [read_recording(file) for file in self.files]

    @property
    def only(self) -> Recording:
        assert len(self.files) == 1, (self.files, self.error)
        return self.recordings[0]


Recorded = Callable[..., Run]
Ended = subprocess.CompletedProcess[str]
Launch = Callable[..., Ended]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    # All workers of pytest-xdist share what the first of them builds: their temporary folders lie in one.
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder /= "recorder"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _build(folder)
    return Built(folder)


def _build(folder: Path) -> None:
    """Does nothing where it is built already."""
    configure = ["cmake", "-S", str(SOURCE), "-B", str(folder), "-DBUSFARE_RECORDER_TESTS=ON"]
    for command in (
        [*configure, f"-DPython_EXECUTABLE={sys.executable}"],
        ["cmake", "--build", str(folder), "--parallel", str(os.cpu_count())],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def variables(built: Built) -> dict[str, str]:
    """The environment of a machine with the stand-ins, for programs and for `busfare.measure.record`."""
    left_out = ("BUSFARE_", "OMPI_", "SLURM_", "PMI")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    source = str(Path(__file__).parents[2] / "src")
    return kept | {
        "LD_LIBRARY_PATH": built.search_path(),
        "BUSFARE_RECORDER_LIBRARY": str(built.library),
        "PYTHONPATH": source,
    }


@pytest.fixture
def launch(built: Built, variables: dict[str, str], tmp_path: Path) -> Launch:
    """Runs `busfare record OPTIONS -- PROGRAM` in `tmp_path`: a scenario of the test program, or words of one's own."""

    def run(*options: str, program: str | Sequence[str] = "rounds", **extra: str) -> Ended:
        words = [built.program, program] if isinstance(program, str) else program
        command = [sys.executable, "-m", "busfare", "record", *options, *(["--"] if words else []), *words]
        given = variables | extra
        return finished(command, env=given, cwd=tmp_path)

    return run


@pytest.fixture
def recorded(built: Built, variables: dict[str, str], tmp_path: Path) -> Recorded:
    """Runs the test program under the recorder, through its environment alone."""

    def run(
        *arguments: str, extra: dict[str, str] | None = None, limit_file_bytes: int = 0, **options: object
    ) -> Run:
        folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        settings = environment(f"{folder}/", Record.of(**options), (built.program, *arguments), built.library)
        command = [built.program, *arguments]
        if limit_file_bytes:
            command = [shutil.which("prlimit") or "prlimit", f"--fsize={limit_file_bytes}", *command]
        done = finished(command, env=variables | settings | (extra or {}))
        return Run(done.returncode, done.stdout, done.stderr, sorted(folder.glob("*")))

    return run
