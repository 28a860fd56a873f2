"""Which runs a machine can do: modes, numbers of ranks, FT's two orders."""

from __future__ import annotations

from dataclasses import dataclass

from busfare.errors import InputError, NoGpuError
from busfare.measure.nas.machine import Machine
from busfare.measure.nas.problem import Benchmark
from busfare.measure.nas.programs import Programs

__all__ = ["MODES", "Case", "cases_of", "numbers", "words"]

MODES = ("cpu", "single", "multiple", "multiple-mps", "funneled")
_SHARED = ("multiple", "multiple-mps", "funneled")
ALGORITHMS = ("slabs", "packed-slabs")
#: Ranks that share the machine's GPUs where nothing else is said, and the most on its cores.
_SHARING_RANKS = (4, 8)
_MOST_CPU_RANKS = 8
_MOST_RANKS = 1024


@dataclass(frozen=True, slots=True)
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
    benchmark: Benchmark,
    machine: Machine,
    programs: Programs,
    modes: tuple[str, ...],
    ranks: tuple[int, ...],
) -> tuple[list[Case], list[dict[str, str]]]:
    """The runs to do, and what is left out with the reason. `modes` and `ranks` are those asked for; empty: all that the
    machine has.

    Raises NoGpuError where a mode on a GPU was asked for and there is none, InputError where it cannot be run otherwise.
    """
    cases: list[Case] = []
    obstacles: dict[str, list[str]] = {}
    for mode in modes or MODES:
        why = _obstacle(mode, machine, programs)
        if why and modes:
            missing = NoGpuError if not machine.gpus else InputError
            raise missing(f"mode {mode}: {why}")
        if why:
            obstacles.setdefault(why, []).append(mode)
            continue
        for number in _ranks_of(mode, machine, ranks):
            algorithms = ALGORITHMS if benchmark == "ft" else ("",)
            cases += [Case(mode, number, algorithm) for algorithm in algorithms]
    return cases, [{"case": f"mode {', '.join(without)}", "why": why} for why, without in obstacles.items()]


def _obstacle(mode: str, machine: Machine, programs: Programs) -> str:
    """Why a mode cannot run here; empty if it can."""
    if mode == "cpu":
        return ""
    if not machine.gpus:
        return "no GPU here: NVIDIA's driver (libcuda.so.1) shows none; --modes cpu needs none"
    if not programs.with_cuda:
        return "the programs were built without CUDA; build them where nvcc is found (hybrid/README.md)"
    if mode == "multiple-mps" and not machine.has_mps:
        return "nvidia-cuda-mps-control is not installed; it comes with NVIDIA's driver"
    return ""


def _ranks_of(mode: str, machine: Machine, asked: tuple[int, ...]) -> tuple[int, ...]:
    if asked:
        return asked
    if mode in _SHARED:
        return tuple(n for n in _SHARING_RANKS if n <= machine.cores) or (2,)
    most = machine.cores if mode == "cpu" else len(machine.gpus)
    return tuple(n for n in (1, 2, 4, _MOST_CPU_RANKS) if n <= most)


def words(text: str | None) -> tuple[str, ...]:
    """'funneled,multiple' as modes; none: all. Raises InputError for others."""
    if text is None:
        return ()
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for word in found:
        if word not in MODES:
            raise InputError(f"--modes {word[:40]!r}: give some of {', '.join(MODES)}")
    if not found:
        raise InputError(f"--modes: give some of {', '.join(MODES)}")
    return found


def numbers(text: str | None) -> tuple[int, ...]:
    """'1,4,8' as numbers of ranks; none: what the machine has. Raises InputError for others than powers of two."""
    if text is None:
        return ()
    found = []
    for word in text.split(","):
        number = int(word) if word.strip().isdecimal() else 0
        if not 1 <= number <= _MOST_RANKS or number & (number - 1):
            raise InputError(f"--ranks {text[:40]!r}: give powers of two up to {_MOST_RANKS}, such as 1,4,8")
        found.append(number)
    return tuple(dict.fromkeys(found))
