"""`busfare doctor`: what works on this machine, what is missing for the rest, and what to do about that.

It imports nothing that needs the compiled parts, for it tells where those cannot be loaded.
"""

import ctypes
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

from msgspec import Struct

from busfare import __version__
from busfare.errors import InputError
from busfare.measure.record import LINE_TOOLS, cupti_libraries, recorder_library, shared_library
from busfare.trace.readers.nsys import installed as installed_nsys

NATIVE = ("trace._columns", "trace._sqlite_columns", "trace._kineto_events", "timeline._core")


class Check(Struct):
    """Something that a command needs: what there is of it, or what to do where it is missing."""

    needed_for: str
    what: str
    works: bool
    is_there: str
    change: str = ""


class Doctor(Struct, tag_field="schema", tag="busfare.doctor/1"):
    version: str
    python: str
    machine: str
    checks: list[Check]


def examined() -> Doctor:
    """This machine. Looks only: no GPU is used, and nothing is changed."""
    version = ".".join(map(str, sys.version_info[:3]))
    checks = [check for look in (_core, _driver, _recorder, _extras, _programs) for check in look()]
    return Doctor(__version__, version, f"{platform.system()} {platform.machine()}", checks)


def _core() -> Iterator[Check]:
    broken = []
    for name in NATIVE:
        try:
            import_module(f"busfare.{name}")
        except ImportError:
            broken.append(name)
    is_there = f"{', '.join(broken)}: cannot be loaded" if broken else "compiled parts loaded"
    yield Check("report, what-if, project, plan", "busfare itself", not broken, is_there, "reinstall busfare")


def _driver() -> Iterator[Check]:
    cuda, version, count = shared_library("libcuda.so.1"), ctypes.c_int(0), ctypes.c_int(0)
    names = []
    if cuda is not None:
        cuda.cuDriverGetVersion(ctypes.byref(version))
        if cuda.cuInit(0) == 0:
            cuda.cuDeviceGetCount(ctypes.byref(count))
        for place in range(count.value):
            name = ctypes.create_string_buffer(128)
            cuda.cuDeviceGetName(name, len(name), place)
            names.append(name.value.decode("utf-8", "replace"))
    number = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    yield Check(
        "record, probe, bench",
        "NVIDIA driver and GPU",
        bool(names),
        f"{number}; {', '.join(names) or 'no GPU to be seen'}" if cuda else "libcuda.so.1 cannot be loaded",
        "install NVIDIA's driver, or run on a machine with an NVIDIA GPU; everything else works without one, and "
        "`busfare probe --virtual NODE` plays one",
    )


def _recorder() -> Iterator[Check]:
    try:
        recorder_library()
        is_there, works = "installed", True
    except InputError as error:
        is_there, works = str(error), False
    yield Check("record", "the recorder's library", works, is_there, "reinstall busfare")
    named = (name for name in ("libcupti.so.13", "libcupti.so.12") if shared_library(name))
    cupti = next((str(place) for place in (*cupti_libraries(), *named)), None)
    yield Check("record", "CUPTI", bool(cupti), cupti or "not found", "pip install nvidia-cuda-cupti")


def _extras() -> Iterator[Check]:
    extras = (
        ("gpu", "probe, bench", ("cuda.bindings", "nvtx", "pynvml")),
        ("jobs", "report --scheduler", ("distributed",)),
        ("notebook", "pictures in a notebook, .to_pandas()", ("IPython", "pandas", "pyarrow")),
    )
    for extra, needed_for, packages in extras:
        missing = [name for name in packages if not _is_installed(name)]
        is_there = f"missing: {', '.join(missing)}" if missing else "installed"
        yield Check(needed_for, f"extra '{extra}'", not missing, is_there, f"pip install 'busfare[{extra}]'")


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _programs() -> Iterator[Check]:
    nsys = "install Nsight Systems, or run elsewhere: nsys export --type sqlite RUN.nsys-rep"
    mpi = "install Open MPI or MPICH, and hybrid/ (hybrid/README.md)"
    for name, places, needed_for, change in (
        ("nsys", installed_nsys(), "traces in .nsys-rep", nsys),
        ("mpirun", [shutil.which("mpirun")], "bench ft, bench mg", mpi),
        (LINE_TOOLS[0], map(shutil.which, LINE_TOOLS), "record --stacks", "install binutils"),
    ):
        place = next(filter(None, places), None)
        yield Check(needed_for, name, bool(place), place or "not found", change)
