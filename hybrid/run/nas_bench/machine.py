"""What this machine has for NAS FT and MG: processors, GPUs, NVIDIA's MPS; and the runs that it can do."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nas_bench.errors import NoGpuError, UsageError

MODES = ("cpu", "single", "multiple", "multiple-mps", "funneled")
ALGORITHMS = {"ft": ("slabs", "packed-slabs"), "mg": ("",)}
#: Ranks that share the machine's GPUs where nothing else is asked for, and those of the other modes.
SHARING_RANKS, RANKS = (4, 8), (1, 2, 4, 8)
MOST_RANKS = 1024


@dataclass(frozen=True)
class Machine:
    """`gpus` are the names of the GPUs that CUDA programs see here."""

    cores: int
    gpus: tuple[str, ...]
    has_mps: bool

    def facts(self) -> dict[str, Any]:
        gpus = [{"name": name} for name in self.gpus]
        processor = _matched("/proc/cpuinfo", r"model name\s*:\s*(.+)") or platform.machine()
        system = platform.platform()
        return {
            "processor": processor,
            "cores": self.cores,
            "system": system,
            "mps": self.has_mps,
            "gpus": gpus,
        }


def this_machine() -> Machine:
    """As it is now, for this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(cores, _gpus(), shutil.which("nvidia-cuda-mps-control") is not None)


def driver() -> str | None:
    """The version of NVIDIA's driver."""
    return _matched("/proc/driver/nvidia/version", r"Module\s+([\d.]+)")


def _matched(path: str, pattern: str) -> str | None:
    try:
        match = re.search(pattern, Path(path).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return match[1].strip() if match else None


def _gpus() -> tuple[str, ...]:
    """By the driver itself, which every machine with a GPU has."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ()
    count = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    names = []
    for ordinal in range(count.value):
        name = ctypes.create_string_buffer(128)
        named = cuda.cuDeviceGetName(name, len(name), ordinal) == 0
        names.append(name.value.decode(errors="replace") if named else "a GPU without a name")
    return tuple(names)


@dataclass(frozen=True)
class Case:
    """One run; `algorithm` is FT's order, and empty for MG."""

    mode: str
    ranks: int
    algorithm: str = ""

    @property
    def name(self) -> str:
        """'funneled, 4 ranks, slabs'."""
        ranks = f"{self.ranks} rank" + ("s" if self.ranks > 1 else "")
        return ", ".join(part for part in (self.mode, ranks, self.algorithm) if part)


def cases_of(
    benchmark: str, machine: Machine, with_cuda: bool, modes: tuple[str, ...], ranks: tuple[int, ...]
) -> tuple[list[Case], list[dict[str, str]]]:
    """The runs to do, and what is left out with the reason. `modes` and `ranks` are those asked for; empty: all that the
    machine has.

    Raises NoGpuError where a mode on a GPU was asked for and there is none, UsageError where it cannot be run otherwise.
    """
    cases: list[Case] = []
    obstacles: dict[str, list[str]] = {}
    for mode in modes or MODES:
        why = _obstacle(mode, machine, with_cuda)
        if why and modes:
            raise (UsageError if machine.gpus else NoGpuError)(f"mode {mode}: {why}")
        if why:
            obstacles.setdefault(why, []).append(mode)
            continue
        shared = mode in ("multiple", "multiple-mps", "funneled")
        most = machine.cores if shared or mode == "cpu" else len(machine.gpus)
        numbers = ranks or tuple(n for n in (SHARING_RANKS if shared else RANKS) if n <= most) or (2,)
        cases += [Case(mode, number, algorithm) for number in numbers for algorithm in ALGORITHMS[benchmark]]
    return cases, [{"case": f"mode {', '.join(without)}", "why": why} for why, without in obstacles.items()]


def cases_elsewhere(benchmark: str, modes: tuple[str, ...], ranks: tuple[int, ...]) -> list[Case]:
    """The runs of a given launch: what its nodes have is not looked up here. Raises UsageError where one is missing."""
    if not (modes and ranks):
        raise UsageError("--launch: give --modes and --ranks too; the nodes of the launch are not looked up")
    if "multiple-mps" in modes:
        raise UsageError(
            "--launch: with_mps.sh starts a daemon on this node only; leave multiple-mps out of --modes"
        )
    return [
        Case(mode, number, algorithm)
        for mode in modes
        for number in ranks
        for algorithm in ALGORITHMS[benchmark]
    ]


def _obstacle(mode: str, machine: Machine, with_cuda: bool) -> str:
    """Why a mode cannot run here; empty if it can."""
    if mode == "cpu":
        return ""
    if not machine.gpus:
        return "no GPU here: NVIDIA's driver (libcuda.so.1) shows none; --modes cpu needs none"
    if not with_cuda:
        return "the programs were built without CUDA; build them where nvcc is found (hybrid/README.md)"
    if mode == "multiple-mps" and not machine.has_mps:
        return "nvidia-cuda-mps-control is not installed; it comes with NVIDIA's driver"
    return ""


def modes_of(text: str | None) -> tuple[str, ...]:
    """'funneled,multiple' as modes; none: all. Raises UsageError for others."""
    if text is None:
        return ()
    modes = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not modes or any(mode not in MODES for mode in modes):
        raise UsageError(f"--modes {text[:40]!r}: give some of {', '.join(MODES)}")
    return modes


def ranks_of(text: str | None) -> tuple[int, ...]:
    """'1,4,8' as numbers of ranks; none: what the machine has. Raises UsageError for others than powers of two."""
    if text is None:
        return ()
    numbers = [int(word) if word.strip().isdecimal() else 0 for word in text.split(",")]
    if any(not 1 <= number <= MOST_RANKS or number & (number - 1) for number in numbers):
        raise UsageError(f"--ranks {text[:40]!r}: give powers of two up to {MOST_RANKS}, such as 1,4,8")
    return tuple(dict.fromkeys(numbers))
