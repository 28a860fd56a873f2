"""The programs of `hybrid/` on this machine: where they lie, and what starts them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from busfare.errors import InputError
from busfare.measure.nas.problem import Benchmark

__all__ = ["Programs", "environment", "find_programs"]

#: Where the two commands of the documentation put them.
_FOLDERS = ("build/hybrid", "hybrid/build")
_HOW = "cmake -S hybrid -B build/hybrid && cmake --build build/hybrid --parallel (see hybrid/README.md)"


@dataclass(frozen=True, slots=True)
class Programs:
    """The benchmark's program, and `device_limits` where the folder was built with CUDA."""

    launcher: Path
    benchmark: Path
    limits: Path | None

    @property
    def with_cuda(self) -> bool:
        """Whether they can use a GPU: only a build with CUDA has `device_limits`."""
        return self.limits is not None

    @property
    def mps_probe(self) -> Path | None:
        """The program that tries an MPS daemon; builds without CUDA, and older ones, have none."""
        path = self.benchmark.parent / "mps_probe"
        return path if path.is_file() else None


def find_programs(benchmark: Benchmark, build: Path | None) -> Programs:
    """In `build`; else in the folders that the documentation builds in, then on the PATH.

    Raises InputError, with the command that builds them, where they or MPI's launcher are missing.
    """
    name = f"nas_{benchmark}"
    launcher = shutil.which("mpirun") or shutil.which("mpiexec")
    if launcher is None:
        raise InputError(
            "no mpirun: install an MPI (apt-get install openmpi-bin libopenmpi-dev libfftw3-dev), then build: "
            + _HOW
        )
    folders = [build] if build else [Path(folder) for folder in _FOLDERS]
    for folder in folders:
        if (folder / name).is_file():
            return Programs(Path(launcher), (folder / name).resolve(), _limits_in(folder))
    on_path = None if build else shutil.which(name)
    if on_path is None:
        looked = ", ".join(str(folder) for folder in folders) + ("" if build else " and on the PATH")
        raise InputError(f"no program {name} in {looked}; build it: {_HOW}, or name its folder with --build")
    return Programs(Path(launcher), Path(on_path).resolve(), _limits_in(Path(on_path).parent))


def _limits_in(folder: Path) -> Path | None:
    path = folder / "device_limits"
    return path.resolve() if path.is_file() else None


def environment() -> dict[str, str]:
    """This process's environment, in which Open MPI lets several ranks share a core, as a container's root too, and
    binds none: an owner's thread beside its rank needs a core of its own. Other MPIs ask for none of it.
    """
    asked = {
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
    }
    if os.geteuid() == 0:
        asked |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return asked | dict(os.environ)
