"""The parts of a job: the traces that paths, globs and folders name, each once, in order."""

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from busfare.errors import InputError
from busfare.printable import printable
from busfare.trace import is_trace_directory, may_be_trace
from busfare.trace.readers.nsys import REPORTS
from busfare.trace.readers.recorded import is_recording

#: What `report` replays: of a job of more traces, or of more operations, only some are read a second time, of so many
#: operations in all; and none where even the fewest, LEAST_RANKS, have more together.
MOST_TRACES, MOST_OPERATIONS, SOME_OPERATIONS = 64, 2_000_000, 500_000
LEAST_RANKS = 6
#: What JAX and TensorFlow write of a host: its profile, and timelines made of it.
XSPACE, TIME_LINE, PERFETTO = ".xplane.pb", ".trace.json.gz", "perfetto_trace.json.gz"
#: Forms of one run, each with those that hold more. rocprof and rocprofv3 write a file for each form that was asked for, and
#: of CSV a file for each kind of record, which that of the kernels stands for.
MORE_IN: dict[str, tuple[str, ...]] = dict.fromkeys(REPORTS, (".sqlite",))
MORE_IN |= {".json": (".db",), ".csv": (".db",), ".pftrace": (".db", ".json")}
RUN, KERNELS, FULLER = "results", "kernel_trace.csv", (".db", ".json")


class Part(NamedTuple):
    """A file or directory of tables. `named` by the user: it must be a trace; `of_many`: more than are replayed alone."""

    path: str
    named: bool
    of_many: bool = False


@dataclass
class Parts:
    """`duplicates` lead to a file that is among the parts, or are other forms of one: reports beside their export, time
    lines beside the profile that they were made of, what AMD's profilers wrote of a run in several formats.

    `unlisted`: folders that cannot be listed, and why.
    """

    parts: list[Part] = field(default_factory=list)
    duplicates: int = 0
    unlisted: dict[str, str] = field(default_factory=dict)
    seen: set[tuple[int, int]] = field(default_factory=set)

    def take(self, part: Part) -> None:
        identity = _identity(part.path)
        if identity in self.seen:
            self.duplicates += 1
            return
        if identity is not None:
            self.seen.add(identity)
        self.parts.append(part)

    def search(self, folder: Path) -> None:
        """Takes the files below `folder`, and its directories of tables; links that lead in circles are seen through."""

        def closed(error: OSError) -> None:
            why = f"cannot list the directory ({error.strerror}); check its permissions"
            self.unlisted[shown(error.filename)] = why

        entered: set[tuple[int, int]] = set()
        for here, folders, files in os.walk(folder, onerror=closed, followlinks=True):
            identity = _identity(here)
            if identity is None or identity in entered:  # gone meanwhile, or a link back up
                folders.clear()
                continue
            entered.add(identity)
            tables = any(name.endswith((".parquet", ".arrow")) for name in files)
            whole = tables and is_trace_directory(Path(here))
            # Each recording in a folder is a part.
            if whole and not any(is_recording(Path(here, name)) for name in files):
                self.take(Part(here, False))
                folders.clear()
                continue
            folders.sort()
            present = {*files}
            for name in sorted(files):
                if _forms_with_more(name, present) & present:
                    self.duplicates += 1
                else:
                    self.take(Part(str(Path(here, name)), False))


def shown(path: str | Path) -> str:
    """A path as text that can be written anywhere: bytes that are no UTF-8 stand as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def only_trace(paths: list[Path]) -> Path | None:
    """The path of the only trace that `paths` name, or None where they name a job.

    The content decides: a directory is one trace if it holds recordings or the tables of an export itself. Where what
    stands for tables of rocprofv3 says more than these, it is taken.
    """
    named = [file for path in paths for file in _expanded(path)]
    if len(named) != 1 or (named[0].is_dir() and not is_trace_directory(named[0])):
        return None
    fuller = _fuller(named[0]) or named
    return fuller[0] if len(fuller) == 1 else None


def _fuller(path: Path) -> list[Path]:
    """Files in a folder that say more of a run than its CSV of rocprofv3; none where some have no such file."""
    files = {file.name for file in path.iterdir()} if path.is_dir() else set()
    runs = [name.removesuffix(KERNELS) + RUN for name in files if name.endswith(KERNELS)]
    more = [next((run + form for form in FULLER if run + form in files), "") for run in runs]
    return sorted(path / name for name in more) if all(more) else []


def size_of(path: str | Path) -> int:
    """Bytes of what lies at `path`, of a directory those of its files; 0 if it cannot be read."""
    try:
        status = os.stat(path)  # noqa: PTH116  ten thousand of them: no object for each
        if not os.path.isdir(path):  # noqa: PTH112
            return status.st_size
        with os.scandir(path) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.is_file())
    except OSError:
        return 0


def find_parts(paths: list[Path]) -> Parts:
    """All parts that `paths` name, folders searched in depth. Raises InputError for a missing path or an empty glob."""
    parts = Parts()
    for path in (file for given in paths for file in _expanded(given)):
        try:
            folder = path.stat() and path.is_dir()
        except OSError as error:
            raise InputError(
                f"{printable(shown(path))}: cannot be read ({error.strerror}); check the path"
            ) from None
        if folder:
            parts.search(path)
        else:
            parts.take(Part(str(path), True))
    parts.parts.sort()
    return parts


def trace_paths(path: Path) -> list[Path]:
    """The traces that `path` names: itself, or all in the folder, in order. Raises InputError where there is none."""
    if path.is_file() or is_trace_directory(path):
        return _fuller(path) or [path]
    files = [Path(part.path) for part in find_parts([path]).parts]
    traces = [file for file in files if file.is_dir() or may_be_trace(file)]
    if not traces:
        raise InputError(f"{printable(shown(path))}: no trace found; give the folder of all ranks' traces")
    return traces


def _expanded(path: Path) -> Iterator[Path]:
    """`path`, or the paths that it matches as a glob where nothing has that very name."""
    text = str(path)
    if "\0" in text:
        raise InputError(f"{printable(shown(path))}: not a usable path (it contains a NUL)")
    if os.path.realpath(text) == "/":
        raise InputError("/: is the root folder; name the folder with the traces")
    if not glob.has_magic(text) or os.path.lexists(text):
        yield path
        return
    matches = sorted(glob.glob(text, recursive=True))  # noqa: PTH207  Path.glob refuses absolute patterns
    if not matches:
        raise InputError(
            f"{printable(shown(path))}: no file matches; check the pattern (** matches nested folders) and quote it"
        )
    yield from map(Path, matches)


def _forms_with_more(name: str, files: set[str]) -> set[str]:
    """What files are called that hold more of the run of file `name`."""
    stem, form = Path(name).stem, Path(name).suffix
    if name == PERFETTO:
        return {file for file in files if file.endswith(XSPACE)}
    if name.endswith(TIME_LINE):
        return {name.removesuffix(TIME_LINE) + XSPACE}
    more = {stem + better for better in MORE_IN.get(form, ())}
    if name.endswith(KERNELS):
        more |= {name.removesuffix(KERNELS) + RUN + better for better in FULLER}
    elif form == ".pftrace" and stem.endswith(RUN):
        more.add(stem.removesuffix(RUN) + KERNELS)
    return more


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116  ten thousand of them: no object for each
    except OSError:
        return None
    return status.st_dev, status.st_ino
