"""`busfare record`: runs a program with the recorder inside it."""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from busfare.errors import InputError, NoGpuError
from busfare.files import check_place
from busfare.measure import rocm

LIBRARY = "libbusfare_recorder.so"
#: Stands in front of MPI and NCCL in the program; beside LIBRARY.
MESSAGES = "libbusfare_messages.so"

#: What `kinds` may name; `default` stands for all but `all-calls` and `graphs`.
KINDS = (
    "default", "kernels", "copies", "sets", "calls", "all-calls", "waits", "events", "memory", "managed", "markers",
    "overheads", "graphs", "addresses", "messages",
)  # fmt: skip

#: Whose calls: the driver's, also where the runtime makes them; or `both`, as the program itself makes them.
CALLS = ("driver", "both", "none")

#: Programs that start the real one elsewhere, perhaps where there is a GPU while here is none.
_LAUNCHERS = {"srun", "mpirun", "mpiexec", "jsrun", "aprun", "flux", "prun", "ssh", "sbatch"}
_RANK_VARIABLES = (
    *("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID"),
    "SLURM_PROCID",
)
#: torchrun and its like set these together.
_TORCHRUN_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_FIELDS = ("%p", "%h", "%r")


def record(command: Sequence[str], output: str, **options: Any) -> int:
    """Runs `command` recorded, with options of `environment`; its exit status (128 + N when signal N ended it).

    `output` is a directory that gets a file of each process that uses CUDA; with %p (process id), %h (host) or
    %r (rank) in it, it is the name of one process's file.

    Where there is no NVIDIA driver but rocprofv3 of ROCm, that records the program instead. Raises InputError when the
    command or the output cannot be used, NoGpuError when there is neither.
    """
    program, target = _program(command), _target(output)
    elsewhere = Path(program).name.partition(".")[0] in _LAUNCHERS
    tool = None if elsewhere or _has_driver() else rocm.rocprofv3()
    if tool is not None:
        defaults = {name: one.default for name, one in inspect.signature(environment).parameters.items()}
        profiled = rocm.profiled(tool, command, target, options, defaults)
        _make_folder(target)
        return _run(profiled, {})
    variables = environment(
        target, command, **options
    )  # what is wrong with them is told where there is no GPU, too
    if not elsewhere:
        _require_driver()
    _make_folder(target)
    before = _recordings(target)
    run = f"{os.getpid()}-{time.time_ns()}"
    status = _run(command, variables | {"BUSFARE_RECORD_RUN": run})
    if options.get("stacks"):
        from busfare.measure.lines import add_lines

        for file in (_recordings(target) or set()) - (before or set()):
            add_lines(file, run)
    if not elsewhere and before is not None and _recordings(target) == before:
        print(
            f"busfare record: nothing was recorded: {program} made no call of CUDA, MPI or NCCL that could be seen "
            "(statically linked drivers, containers and set-uid programs hide theirs)",
            file=sys.stderr,
        )
    return status


@contextmanager
def recording(output: Path, **options: Any) -> Iterator[None]:
    """Records this process into the new directory `output` while the context lasts, with options of `environment`.

    What the GPU does by calls of other threads is recorded, too; other processes are not. NVTX ranges are, where none was
    used before. Raises InputError where it cannot be made or the recorder cannot start, NoGpuError without a driver.
    """
    target = _target(str(output))
    asked = environment(target, (sys.executable, *sys.argv), **options)
    _require_driver()
    _make_folder(target)
    library = ctypes.CDLL(asked.pop("CUDA_INJECTION64_PATH"))
    asked.pop("LD_PRELOAD", None)  # of programs that start
    before = {name: os.environ.get(name) for name in asked}
    os.environ.update(asked)
    try:
        if not library.busfare_record_begin():
            raise InputError("recording could not begin (the line above tells why, or another is under way)")
        try:
            yield
        finally:
            ctypes.CDLL("libcuda.so.1").cuCtxSynchronize()  # what was launched is part of it
            library.busfare_record_end()
    finally:
        for name, text in before.items():
            os.environ.pop(name) if text is None else os.environ.update({name: text})


def environment(
    output: str,
    command: Sequence[str] = (),
    *,
    duration: float = 0.0,
    delay: float = 0.0,
    capture: str = "whole",
    nvtx: str = "",
    flush_every: float = 1.0,
    kinds: Sequence[str] = (),
    calls: str = "driver",
    fingerprint: bool = False,
    stacks: bool = False,
    library: Path | None = None,
) -> dict[str, str]:
    """The environment variables that make a program record itself, for launchers that cannot be wrapped.

    `duration` (0: to the end), `delay` and `flush_every` are seconds. `capture` is `whole` or `profiler-calls` (from
    cudaProfilerStart to cudaProfilerStop); `nvtx` names a range outside of which nothing is recorded. `kinds` are of
    `KINDS`, `calls` one of `CALLS`. `stacks` takes the call stack of each call that is noted. `library` is the recorder to
    use.
    Raises InputError for values out of range, and where the recorder is not installed.
    """
    for name, given, known in (
        ("--kinds", kinds, KINDS),
        ("--calls", (calls,), CALLS),
        ("--capture", (capture,), ("whole", "profiler-calls")),
    ):
        if unknown := [word for word in given if word not in known]:
            raise InputError(f"{name} {','.join(unknown)}: not known; choose from {', '.join(known)}")
    for name, seconds, least in (
        ("--duration", duration, 0.0),
        ("--delay", delay, 0.0),
        ("--flush-every", flush_every, 0.01),
    ):
        if not least <= seconds < float("inf"):
            raise InputError(f"{name} {seconds}: give seconds, {least:g} or more")
    if delay and (nvtx or capture != "whole"):
        raise InputError("--delay: the program says when recording begins (--nvtx, --capture); leave one out")
    path = recorder_library(library)
    asked = {
        "OUTPUT": output,
        "FLUSH_EVERY": repr(flush_every),
        "COMMAND": shlex.join(command),
        "CUPTI": ":".join(map(str, cupti_libraries())),
        "DURATION": repr(duration) if duration else None,
        "DELAY": repr(delay) if delay else None,
        "CAPTURE": f"nvtx:{nvtx}" if nvtx else capture if capture != "whole" else None,
        "KINDS": ",".join(kinds) or None,
        "CALLS": calls if calls != "driver" else None,
        "FINGERPRINT": "1" if fingerprint else None,
        "STACKS": "1" if stacks else None,
    }
    variables = {"CUDA_INJECTION64_PATH": str(path), "NVTX_INJECTION64_PATH": str(path)}
    messages = path.with_name(MESSAGES)
    # The loader takes the list apart at spaces and colons.
    loadable = messages.is_file() and not {*" :"} & {*str(messages)}
    if loadable and {"default", "messages"} & set(kinds or ("default",)):
        variables["LD_PRELOAD"] = f"{messages} {os.environ.get('LD_PRELOAD', '')}".strip()
    return variables | {f"BUSFARE_RECORD_{name}": text for name, text in asked.items() if text is not None}


def _program(command: Sequence[str]) -> str:
    if not command:
        raise InputError("no program to record; say it after `--`: busfare record -o run.bf -- ./app")
    found = shutil.which(command[0])
    if found is None:
        raise InputError(f"{command[0]}: no such program; check its path and that it may be executed")
    return found


def shared_library(name: str) -> ctypes.CDLL | None:
    """A library in the loader's path; None where it cannot be loaded."""
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def _has_driver() -> bool:
    return shared_library("libcuda.so.1") is not None


def _require_driver() -> None:
    if not _has_driver():
        raise NoGpuError(
            "no NVIDIA driver here (libcuda.so.1 cannot be loaded); record on a machine with an NVIDIA GPU, or with "
            "rocprofv3 of ROCm"
        )


def recorder_library(given: Path | None = None) -> Path:
    """Where the recorder lies. Raises InputError where it is not installed."""
    # An editable installation keeps what is built and what is written in two folders of one package.
    package = importlib.util.find_spec("busfare.measure")
    folders = package.submodule_search_locations if package else None
    chosen = given or os.environ.get("BUSFARE_RECORDER_LIBRARY")
    candidates = ([Path(chosen)] if chosen else []) + [Path(folder) / LIBRARY for folder in folders or ()]
    for candidate in candidates[: 1 if given else None]:
        if candidate.is_file():
            return candidate.resolve()
    raise InputError(f"{candidates[0]}: the recorder's library is missing; reinstall busfare")


def cupti_libraries() -> list[Path]:
    """CUPTI libraries where packages and toolkits put them, newest toolkits first."""
    package = importlib.util.find_spec("nvidia")
    places = [(Path(folder), "*/lib") for folder in (package and package.submodule_search_locations) or ()]
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    roots = [Path(toolkit) for toolkit in toolkits if toolkit]
    roots += sorted(Path("/usr/local").glob("cuda-1[23]*"), reverse=True)
    inside = ("extras/CUPTI/lib64", "lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
    places += [(root, folder) for root in roots for folder in inside]
    found = [sorted(root.glob(f"{folder}/libcupti.so.1[23]"), reverse=True) for root, folder in places]
    return list(dict.fromkeys(library for libraries in found for library in libraries))


def _target(output: str) -> str:
    """`output` as the recorder takes it: an absolute pattern, ending in `/` for a directory. Raises InputError where it
    cannot be written.
    """
    if not output:
        raise InputError("no output; say where the recording goes: -o run.bf")
    path = Path(output).absolute()
    named = any(field in output for field in _FIELDS)
    # Ranks of one job share the directory, and come one after the other.
    ranked = any(os.environ.get(name) for name in _RANK_VARIABLES)
    ranked |= all(os.environ.get(name) for name in _TORCHRUN_VARIABLES)
    if not named and path.is_file():
        raise InputError(f"{output}: a file of that name is there; choose another, or remove it")
    if not named and not ranked and path.is_dir() and any(path.iterdir()):
        raise InputError(f"{output}: holds an earlier recording; choose another name, or remove it")
    if _folder(str(path)):
        check_place(path)
    return str(path) if named else f"{path}/"


def _folder(target: str) -> Path | None:
    """Where recordings go; None where only each process knows it."""
    folder = Path(target) if target.endswith("/") else Path(target).parent
    return None if any(field in str(folder) for field in _FIELDS) else folder


def _make_folder(target: str) -> None:
    folder = _folder(target)
    if folder is None:
        return  # each process makes its own
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be made ({error.strerror}); choose a place that you may write to"
        ) from None


def _recordings(target: str) -> set[Path] | None:
    """The files where recordings go; None where only each process knows its folder."""
    folder = _folder(target)
    return None if folder is None else set(folder.glob("*"))


def _run(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Runs to the end; signals that end or stop this process go to the program, as if it ran alone."""
    process = subprocess.Popen(list(command), env={**os.environ, **variables})
    forwarded = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    previous = {number: signal.signal(number, lambda n, _: process.send_signal(n)) for number in forwarded}
    # Ctrl-C reaches the program from the terminal; here it must only be outlived.
    previous[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status = process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status
