"""The readers, a package a profiler, each of which declares its formats and makes a `Trace`; and what a format declares."""

import re
from collections import ChainMap
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from busfare.trace.model import Trace
from busfare.trace.readers.compressed import whole
from busfare.trace.readers.tables import SqliteTables


@dataclass(frozen=True)
class Source:
    """A file or directory to read, an SQLite file with its `database`; whether the trace gets `launches`, `activity`."""

    path: Path
    packed: bool = False
    launches: bool = False
    activity: bool = False
    database: SqliteTables | None = None

    @property
    def tables(self) -> SqliteTables:
        """The open database of an SQLite file."""
        assert self.database is not None
        return self.database

    def unpacked(self) -> AbstractContextManager[Path]:
        """Where its content lies uncompressed; a copy goes afterwards."""
        return whole(self.path, self.packed)


#: Where launchers tell a process its rank, the nearest to it first: a batch script's own stands in every environment.
RANK_VARIABLES = (
    "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID", "SLURM_PROCID",
)  # fmt: skip
#: torchrun and its like set these together, in each of the processes that they start.
TORCHRUN_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


@dataclass(frozen=True)
class RecordAgain:
    """How to record with the same profiler what a trace lacks, as it stands behind 'record with'; '' where nobody knows."""

    gpu: str = "the GPU's activity on"
    allocations: str = ""
    activity: str = ""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format: its name (`Trace.format`), its marks, of which any is enough, and its reader."""

    name: str
    read: Callable[[Source], Trace]
    #: The profiler and its files, for a message; '' where another format of the package names them.
    title: str = ""
    #: How its files begin.
    begins: re.Pattern[bytes] | None = None
    #: What stands in the first bytes of its JSON.
    json: re.Pattern[bytes] | None = None
    #: Whether it takes JSON that no other format and no refused one claims.
    any_json: bool = False
    #: Whether an SQLite file is of this format, by its tables.
    database: Callable[[SqliteTables], bool] | None = None
    #: Whether a directory is a trace of this format. May raise InputError, and OSError where it cannot be listed.
    directory: Callable[[Path], bool] | None = None
    #: What its files may be called. Those of `sure_suffixes` are of this format even without a mark.
    suffixes: tuple[str, ...] = ()
    sure_suffixes: tuple[str, ...] = ()
    #: Of the files of a run in a folder, how the one begins that is read for all of them.
    leads: re.Pattern[bytes] | None = None
    #: How files begin that the profiler writes beside its traces, and that are none.
    companions: re.Pattern[bytes] | None = None
    #: Makes of a file of this format, whose content lies at the second path, the SQLite file that is read in its place.
    export: Callable[[Path, Path], Path] | None = None
    record_again: RecordAgain = RecordAgain()
    #: Sentences of omissions that only the readers of this package note, by key.
    sentences: Mapping[str, str] = field(default_factory=dict)


@cache
def formats() -> tuple[Format, ...]:
    """All formats: `FORMATS` of each package in this folder, in order of their names."""
    packages = sorted(module.name for module in iter_modules(__path__) if module.ispkg)
    return tuple(format for name in packages for format in import_module(f"{__name__}.{name}").FORMATS)


def record_again(name: str) -> RecordAgain:
    """How to record again with the profiler of the format `name`."""
    return next((format.record_again for format in formats() if format.name == name), RecordAgain())


def sentence_of_reader(key: str) -> str:
    """The sentence of an omission that only one reader notes. Raises KeyError without one."""
    return ChainMap(*(dict(format.sentences) for format in formats()))[key]
