"""The programs of `hybrid/`: where they lie, and one run of one: started, watched, and its result read."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nas_bench.errors import RunError, UsageError
from nas_bench.machine import Case

#: Where the commands of the documentation put them.
FOLDERS = ("build/hybrid", "hybrid/build")
HOW = "cmake -S hybrid -B build/hybrid && cmake --build build/hybrid --parallel (see hybrid/README.md)"
#: The programs' status where the result is there but is not the official one.
NOT_VERIFIED = 1
ENDS_S, LIMITS_S = 10, 120.0
#: PREFIX/bin, where this file is PREFIX/share/hybrid/run/nas_bench/programs.py.
INSTALLED = Path(__file__).parents[4] / "bin"
WITH_MPS = Path(__file__).parents[1] / "with_mps.sh"


@dataclass(frozen=True)
class Programs:
    """What starts ranks, the benchmark's program, and `device_limits`, which only a build with CUDA has. `elsewhere`: the
    launch was given, and its ranks may run on other nodes.
    """

    launch: tuple[str, ...]
    benchmark: Path
    elsewhere: bool = False

    @property
    def limits(self) -> Path | None:
        path = self.benchmark.parent / "device_limits"
        return path if path.is_file() else None


def programs_of(benchmark: str, build: Path | None, launch: str | None = None) -> Programs:
    """In `build`; else in the folders that the documentation builds in, then on the PATH. `launch`: the words that start
    ranks (`srun`, `mpirun --hostfile FILE`), to which `-n RANKS` is added; else MPI's launcher.

    Raises UsageError, with the command that builds them, where they or the launcher are missing.
    """
    name = f"nas_{benchmark}"
    try:
        words = tuple(shlex.split(launch or ""))
    except ValueError as error:
        raise UsageError(f"--launch {launch!r}: {error}") from None
    if launch is not None and not (words and shutil.which(words[0])):
        raise UsageError(
            f"--launch {launch!r}: no such program on the PATH; give srun or mpirun with its options"
        )
    launcher = shutil.which("mpirun") or shutil.which("mpiexec")
    if launcher is None and not words:
        raise UsageError(
            "no mpirun: install an MPI (apt-get install openmpi-bin libopenmpi-dev libfftw3-dev), then build: "
            + HOW
        )
    folders = [build] if build else [Path(folder) for folder in FOLDERS]
    elsewhere = [] if build else [INSTALLED / name, Path(shutil.which(name) or "")]
    for path in [folder / name for folder in folders] + elsewhere:
        if path.is_file():
            return Programs(words or (str(launcher),), path.resolve(), bool(words))
    looked = ", ".join(str(folder) for folder in folders) + ("" if build else " and on the PATH")
    raise UsageError(f"no program {name} in {looked}; build it: {HOW}, or name its folder with --build")


def environment() -> dict[str, str]:
    """This process's environment, in which Open MPI lets several ranks share a core, as a container's root too, and
    binds none: an owner's thread beside its rank needs a core of its own. Other MPIs ask for none of it.
    """
    variables = {
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
    }
    if os.geteuid() == 0:
        variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return variables | dict(os.environ)


def run_case(programs: Programs, case: Case, size: str, timed: bool, timeout_s: float) -> dict[str, Any]:
    """The program's own result. `timed` has the device's part of the breakdown measured, a few microseconds a task.

    Raises RunError with the program's own words where it ended without a result, or took longer than `timeout_s`.
    """
    options = ["--class", size, "--mode", case.mode]
    options += ["--algorithm", case.algorithm] if case.algorithm else []
    options += ["--timed"] if timed else []
    start = [*programs.launch, "-n", str(case.ranks)]
    shown = " ".join([Path(start[0]).name, *start[1:], programs.benchmark.name, *options])
    start = [str(WITH_MPS), *start] if case.mode == "multiple-mps" else start
    status, result, words = _ended([*start, str(programs.benchmark), *options], environment(), timeout_s)
    if status not in (0, NOT_VERIFIED) or not result:
        raise RunError(f"{shown}: ended with {status}: {_reason(words)}")
    return _object(result, shown)


def measure_limits(programs: Programs, link_only: bool = False) -> dict[str, Any]:
    """What `device_limits` measures of the first GPU and its link, in about 20 s; `link_only`: both directions, in 2."""
    start = [*programs.launch, "-n", "1"] if programs.elsewhere else []
    command = [*start, str(programs.limits), *(["--link"] if link_only else [])]
    status, result, words = _ended(command, environment() if start else dict(os.environ), LIMITS_S)
    if status != 0:
        raise RunError(f"device_limits: ended with {status}: {_reason(words)}")
    return _object(result, "device_limits")


def _ended(command: list[str], variables: dict[str, str], timeout_s: float) -> tuple[int, str, str]:
    """The exit status, and what it wrote to standard output, which launchers forward from other nodes, and to standard
    error. All its processes end with it, or with us.
    """
    with subprocess.Popen(
        command,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
        errors="replace",
    ) as process:
        try:
            output, words = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _end_group(process)
            raise RunError(f"took longer than {timeout_s:g} s (--timeout) and was ended") from None
        except BaseException:
            _end_group(process)
            raise
        return process.returncode, output, words


def _end_group(process: subprocess.Popen[str]) -> None:
    """First kindly, for a launcher then ends its ranks, on other nodes too."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(ENDS_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)


def _object(text: str, source: str) -> dict[str, Any]:
    try:
        result = json.loads(text)
    except ValueError:
        result = None
    if not isinstance(result, dict):
        raise RunError(f"{source}: its result is no JSON object")
    return result


def _reason(words: str) -> str:
    """The program's own line among the launcher's, or why there is no MPS."""
    lines = [" ".join(line.split()) for line in words.splitlines() if line.strip(" -\n")]
    of_ranks = [line for line in lines if ": rank " in line]
    mps = [line for line in lines if line.startswith(f"{WITH_MPS.name}: ")]
    return (of_ranks or mps[-1:] or lines or ["it wrote nothing"])[0][:300]
