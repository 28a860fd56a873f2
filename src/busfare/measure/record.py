"""`busfare record`: runs a program with the recorder inside it, and adds the source lines of the call stacks that it took.

On AMD's GPUs rocprofv3 runs the program, and busfare reads the databases that it writes, as its documentation has it
[rocprofiler-sdk: using-rocprofv3, using-rocpd-output-format]; rocpd came with ROCm 7.
"""

import ctypes
import importlib.util
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

import numpy as np

from busfare.errors import InputError, NoGpuError
from busfare.files import check_place
from busfare.questions import Record
from busfare.trace.readers import RANK_VARIABLES, TORCHRUN_VARIABLES
from busfare.trace.readers.recorded.file import CHUNK, CHUNK_MAGIC, ENTRY, TABLES, read_recording
from busfare.trace.sites import is_library_module

DEFAULT = Record()
LIBRARY = "libbusfare_recorder.so"
#: Stands in front of MPI and NCCL in the program; beside LIBRARY.
MESSAGES = "libbusfare_messages.so"

#: Programs that start the real one elsewhere, perhaps where there is a GPU while here is none.
_LAUNCHERS = {"srun", "mpirun", "mpiexec", "jsrun", "aprun", "flux", "prun", "ssh", "sbatch"}
#: What stands in the name of an output here, and what rocprofv3 calls it.
_FIELDS = {"%p": "%pid%", "%h": "%hostname%", "%r": "%rank%"}

#: Any of them knows source lines: they take the same options, and answer alike. Seconds for one program or library.
LINE_TOOLS, LINES_S = ("addr2line", "llvm-addr2line", "eu-addr2line"), 120
_NUMBERS = {name: number for number, (name, _) in TABLES.items()}


def record(command: Sequence[str], output: str, question: Record) -> int:
    """Runs `command` recorded; its exit status (128 + N when signal N ended it).

    `output` is a directory that gets a file of each process that uses CUDA; with %p (process id), %h (host) or
    %r (rank) in it, it is the name of one process's file.

    Where there is no NVIDIA driver but rocprofv3 of ROCm, that records the program instead. Raises InputError when the
    command or the output cannot be used, NoGpuError when there is neither.
    """
    if not command:
        raise InputError("no program to record; give it after `--`: busfare record -o run.bf -- ./app")
    if (program := shutil.which(command[0])) is None:
        raise InputError(f"{command[0]}: no such program; check its path and its execute permission")
    target = _target(output)
    elsewhere = Path(program).name.partition(".")[0] in _LAUNCHERS
    tool = None if elsewhere or shared_library("libcuda.so.1") else _rocprofv3()
    if tool is not None:
        profiled = _under_rocprofv3(tool, command, target, question)
        _make_folder(target)
        return _run(profiled, {})
    variables = environment(target, question, command)
    if not elsewhere:
        _require_driver()
    folder = _make_folder(target)
    before = set(folder.glob("*")) if folder else set()
    run = f"{os.getpid()}-{time.time_ns()}"
    status = _run(command, variables | {"BUSFARE_RECORD_RUN": run})
    written = set(folder.glob("*")) - before if folder else set()
    if question.stacks:
        for file in written:
            add_lines(file, run)
    if folder and not elsewhere and not written:
        print(
            f"busfare record: nothing was recorded: {program} made no visible CUDA, MPI or NCCL call (calls of "
            "statically linked drivers, containers and set-uid programs are hidden)",
            file=sys.stderr,
        )
    return status


@contextmanager
def recording(output: Path, question: Record) -> Iterator[None]:
    """Records this process into the new directory `output` while the context lasts.

    What the GPU does by calls of other threads is recorded, too; other processes are not. NVTX ranges are, where none was
    used before. Raises InputError where it cannot be made or the recorder cannot start, NoGpuError without a driver.
    """
    target = _target(str(output))
    variables = environment(target, question, (sys.executable, *sys.argv))
    _require_driver()
    _make_folder(target)
    library = ctypes.CDLL(variables.pop("CUDA_INJECTION64_PATH"))
    variables.pop("LD_PRELOAD", None)  # of programs that start
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        if not library.busfare_record_begin():
            why = "see the line above, or another recording is running"
            raise InputError(f"could not start recording ({why})")
        try:
            yield
        finally:
            ctypes.CDLL("libcuda.so.1").cuCtxSynchronize()  # what was launched is part of it
            library.busfare_record_end()
    finally:
        for name, text in before.items():
            os.environ.pop(name) if text is None else os.environ.update({name: text})


def environment(
    output: str, question: Record = DEFAULT, command: Sequence[str] = (), library: Path | None = None
) -> dict[str, str]:
    """The variables that make a program record itself, by the recorder `library`. Raises InputError if it is missing."""
    path = recorder_library(library)
    capture = f"nvtx:{question.nvtx}" if question.nvtx else question.capture
    settings = {
        "OUTPUT": output,
        "FLUSH_EVERY": repr(question.flush_every),
        "COMMAND": shlex.join(command),
        "CUPTI": ":".join(map(str, cupti_libraries())),
        "DURATION": repr(question.duration) if question.duration else None,
        "DELAY": repr(question.delay) if question.delay else None,
        "CAPTURE": capture if capture != "whole" else None,
        "KINDS": ",".join(question.kinds) or None,
        "CALLS": question.calls if question.calls != "driver" else None,
        "FINGERPRINT": "1" if question.fingerprint else None,
        "STACKS": "1" if question.stacks else None,
    }
    variables = {"CUDA_INJECTION64_PATH": str(path), "NVTX_INJECTION64_PATH": str(path)}
    messages = path.with_name(MESSAGES)
    # The loader takes the list apart at spaces and colons.
    loadable = messages.is_file() and not {*" :"} & {*str(messages)}
    if loadable and {"default", "messages"} & {*(question.kinds or ("default",))}:
        variables["LD_PRELOAD"] = f"{messages} {os.environ.get('LD_PRELOAD', '')}".strip()
    return variables | {f"BUSFARE_RECORD_{name}": text for name, text in settings.items() if text is not None}


def shared_library(name: str) -> ctypes.CDLL | None:
    """A library in the loader's path; None where it cannot be loaded."""
    with suppress(OSError):
        return ctypes.CDLL(name)
    return None


def _require_driver() -> None:
    if shared_library("libcuda.so.1") is None:
        raise NoGpuError(
            "no NVIDIA driver (libcuda.so.1 cannot be loaded); record on a machine with an NVIDIA GPU, or use ROCm's "
            "rocprofv3"
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
    raise InputError(f"{candidates[0]}: the recorder library is missing; reinstall busfare")


def cupti_libraries() -> list[Path]:
    """CUPTI libraries where packages and toolkits put them, newest toolkits first."""
    package = importlib.util.find_spec("nvidia")
    places = [(Path(folder), "*/lib") for folder in (package and package.submodule_search_locations) or ()]
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    roots = [Path(toolkit) for toolkit in toolkits if toolkit]
    roots += sorted(Path("/usr/local").glob("cuda-1[23]*"), reverse=True)
    inside = ("extras/CUPTI/lib64", "lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
    places += [(root, folder) for root in roots for folder in inside]
    libraries = [sorted(root.glob(f"{folder}/libcupti.so.1[23]"), reverse=True) for root, folder in places]
    return list(dict.fromkeys(chain.from_iterable(libraries)))


def _rocprofv3() -> str | None:
    """Where rocprofv3 is, on the path or where ROCm puts it; None where it is not."""
    places = (os.environ.get("PATH", ""), f"{os.environ.get('ROCM_PATH', '/opt/rocm')}/bin")
    return shutil.which("rocprofv3", path=os.pathsep.join(places))


def _under_rocprofv3(tool: str, command: Sequence[str], target: str, question: Record) -> list[str]:
    """The command that runs `command` under rocprofv3. Raises InputError for options that only the recorder knows."""
    if given := question.given():
        names = ", ".join(f"`{name}`" for name in sorted(given))
        raise InputError(f"{names}: not available on AMD GPUs, where rocprofv3 records; leave it out")
    folder, name = (target, "%h-%p") if target.endswith("/") else os.path.split(target)
    for ours, theirs in _FIELDS.items():
        folder, name = folder.replace(ours, theirs), name.replace(ours, theirs)
    written = ["--output-format", "rocpd", "--output-directory", folder, "--output-file", name]
    return [tool, "--runtime-trace", *written, "--", *command]


def _target(output: str) -> str:
    """The absolute pattern for the recorder, ending in `/` for a directory. Raises InputError if it cannot be written."""
    if not output:
        raise InputError("`output` is empty: name the recording, as in run.bf")
    path = Path(output).absolute()
    named = any(field in output for field in _FIELDS)
    # Ranks of one job share the directory, and come one after the other.
    ranked = any(os.environ.get(name) for name in RANK_VARIABLES)
    ranked |= all(os.environ.get(name) for name in TORCHRUN_VARIABLES)
    if not named and path.is_file():
        raise InputError(f"{output}: the file exists; choose another name, or remove it")
    if not named and not ranked and path.is_dir() and any(path.iterdir()):
        raise InputError(f"{output}: contains an earlier recording; choose another name, or remove it")
    if _folder(str(path)):
        check_place(path)
    return str(path) if named else f"{path}/"


def _folder(target: str) -> Path | None:
    """Where recordings go; None where only each process knows it."""
    folder = Path(target) if target.endswith("/") else Path(target).parent
    return None if any(field in str(folder) for field in _FIELDS) else folder


def _make_folder(target: str) -> Path | None:
    """The folder of `_folder`, which is there from now on; where it is None, each process makes its own."""
    folder = _folder(target)
    try:
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made ({error.strerror}); choose a writable place") from None
    return folder


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


def add_lines(path: Path, run: str) -> None:
    """Adds the table `lines` to the recording of a program that has ended, if it is of this `run` and has call stacks.
    Lines are looked up where the program ran.

    Nothing is added where no tool is there that knows lines, or none of the program's own.
    """
    try:
        recording = read_recording(path)
    except InputError:
        return
    tool = next(filter(None, map(shutil.which, LINE_TOOLS)), None)
    of_this_run = recording.facts.get("run") == run and recording.complete and not recording.torn_bytes
    stacks = recording.table("stacks")
    if tool is None or not of_this_run or not len(stacks):
        return
    number = max(recording.strings, default=0)
    strings: dict[str, int] = {}
    rows = []
    places = np.unique(np.stack([stacks["module"], stacks["address"]], axis=1), axis=0)
    for module in np.unique(places[:, 0]).tolist():
        name = recording.strings.get(module, "")
        if is_library_module(name) or not Path(name).is_file():
            continue
        addresses = places[places[:, 0] == module, 1].tolist()
        for address, depth, function, file, line in _looked_up(tool, name, addresses):
            texts = [strings.setdefault(text, number + len(strings) + 1) for text in (function, file)]
            rows.append((module, address, depth, *texts, line))
    if not rows:
        return
    sequence = int(recording.table("end")["chunks"][-1]) + 1
    encoded = [text.encode("utf-8", "replace") for text in strings]
    named = [(number, len(text)) for number, text in zip(strings.values(), encoded, strict=True)]
    added = _chunk("strings", named, sequence, b"".join(encoded)) + _chunk("lines", rows, sequence + 1)
    with path.open("ab") as file_:
        file_.write(added)


def _looked_up(tool: str, module: str, addresses: Sequence[int]) -> Iterator[tuple[int, int, str, str, int]]:
    """Address, depth (0: the innermost that was inlined), function, file ("": not known) and line of the addresses."""
    lines = "".join(f"{address:#x}\n" for address in addresses).encode()
    command = [tool, "-e", module, "-a", "-i", "-f", "-C"]
    try:
        done = subprocess.run(command, input=lines, capture_output=True, timeout=LINES_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return
    answers = iter(done.stdout.decode("utf-8", "replace").splitlines())
    here = f"{Path.cwd()}/"
    address = depth = 0
    for text in answers:
        if text.startswith("0x"):
            address, depth = int(text, 16), 0
            continue
        file, _, line = next(answers, "").partition(" (")[0].rpartition(":")
        # '?' stands where `addr2line` knows nothing.
        has_line = line.isdecimal() and not file.startswith("?")
        if has_line:
            yield address, depth, text, file.removeprefix(here), int(line)
        elif not text.startswith("?"):
            yield address, depth, text, "", 0
        depth += 1


def _chunk(table: str, rows: Sequence[Sequence[int]], sequence: int, blob: bytes | None = None) -> bytes:
    """A chunk as docs/recording-format.md has it."""
    data = [struct.pack(f"<{len(rows)}Q", *column) for column in zip(*rows, strict=True)]
    columns = [(number, 8, 0, column) for number, column in enumerate(data)]
    if blob is not None:
        columns.append((len(columns), 255, len(blob), blob + bytes(-len(blob) % 8)))
    directory, body = b"", b""
    for number, width, base, column in columns:
        directory += ENTRY.pack(number, width, 0, ENTRY.size * len(columns) + len(body), base)
        body += column
    payload = directory + body
    sizes = len(columns), len(rows), sequence, len(payload)
    head = CHUNK.pack(CHUNK_MAGIC, _NUMBERS[table], *sizes, zlib.crc32(payload), 0)[:-4]
    return head + struct.pack("<I", zlib.crc32(head)) + payload
