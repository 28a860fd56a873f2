"""What `results/` holds, unpacked where it is asked for: raw samples of probes, tables, and programs as recorded."""

from __future__ import annotations

import gc
import gzip
import io
import json
import lzma
import sys
import tarfile
from collections.abc import Collection, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from busfare.cli import main
from busfare.measure.cases import read_record
from busfare.measure.node_file import encode
from busfare.measure.probe import evaluated
from busfare.nodes import Node, load_node

sys.path.append(str(Path(__file__).parent))  # for who imports this from elsewhere
import packed_recordings
import packed_traces

#: What the name of a trace or recording ends with that is kept as columns.
PACKED = ".columns"
RECORDING, TRACE = ".bf", ".json.gz"
#: For columns: no number lies at a multiple of four bytes.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "nice_len": 273, "lc": 4, "pb": 0}]
RESULTS = Path(__file__).resolve().parents[1] / "results"
#: Six means of about 85 samples a case are kept; how sure they are is read off their number.
SAMPLES = 10
#: Removed when the program ends.
_places: list[TemporaryDirectory[str]] = []


def _place() -> Path:
    _places.append(TemporaryDirectory(prefix="busfare-results-"))
    return Path(_places[-1].name)


@cache
def unpacked(archive: str) -> Path:
    """The folder that `results/ARCHIVE.tar.xz` was unpacked into, until this program ends."""
    folder = _place()
    with tarfile.open(RESULTS / f"{archive}.tar.xz") as packed:
        for member in packed:
            # By its last two names alone, whatever path it claims.
            parts = [part for part in Path(member.name).parts if part not in ("..", "/")]
            if member.isreg() and (content := packed.extractfile(member)):
                path = folder.joinpath(*parts[-2:])
                path.parent.mkdir(exist_ok=True)
                if path.suffix == PACKED:
                    path = path.with_suffix("")
                    kept_as = packed_recordings if path.suffix == RECORDING else packed_traces
                    path.write_bytes(kept_as.unpack(content.read()))
                else:
                    path.write_bytes(content.read())
    return folder


def pack(
    files: Mapping[str, Path | bytes], archive: Path, grain_ns: int = 1, without: Collection[str] = (),
    whole: bool = False,
) -> None:  # fmt: skip
    """Writes `archive` of these files by their names in it: recordings (as `packed_recordings.pack` does) and traces of
    PyTorch's profiler (`.json.gz`; `whole`, or what a replay needs) as columns, texts as they are.
    """
    with (
        lzma.open(archive, "w", check=lzma.CHECK_CRC32, filters=FILTERS) as file,
        tarfile.open(fileobj=file, mode="w") as packed,
    ):
        for name, kept in sorted(files.items()):
            content = kept if isinstance(kept, bytes) else kept.read_bytes()
            if isinstance(kept, Path) and kept.suffix == RECORDING:
                name, content = name + PACKED, packed_recordings.pack(kept, grain_ns, without)
            elif name.endswith(TRACE):
                trace = json.loads(gzip.decompress(content))
                name, content = name.removesuffix(".gz") + PACKED, packed_traces.pack(trace, whole)
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))


def read_table(name: str) -> Any:
    """`results/NAME.json.xz`."""
    return json.loads(lzma.decompress((RESULTS / f"{name}.json.xz").read_bytes()))


@cache
def probe_raw(name: str) -> Path:
    """Samples of one process of `probe`: `h100-eighth-run1`. Each that is kept stands for SAMPLES of those taken."""
    raw = json.loads((unpacked("probe") / f"{name}.json").read_text("utf-8"))
    for case in raw["cases"]:
        case |= {key: [ns for ns in case[key] for _ in range(SAMPLES)] for key in ("device_ns", "api_ns")}
        case["visits"] = [1] * (SAMPLES * len(case["visits"]))
    path = _place() / f"{name}.json"
    path.write_text(json.dumps(raw), "utf-8")
    return path


def probe_names(run: int = 1) -> list[str]:
    """Machines that were probed: `h100-eighth` and so on; `run` 2: those on which a second process followed."""
    return sorted(path.stem.removesuffix(f"-run{run}") for path in unpacked("probe").glob(f"*-run{run}.json"))


@cache
def probed_node(name: str) -> Node:
    """The node that the samples `name` are fitted to by the models of today."""
    return evaluated(read_record(probe_raw(name))).node


@cache
def node_file(name: str) -> str:
    """The path of that node as a file, for a command line."""
    path = _place() / f"{name}.toml"
    path.write_text(encode(probed_node(name)), "utf-8")
    return str(path)


def nodes_by_rung(gpu: str, probed: Node) -> dict[str, Node]:
    """A machine with an `h100` or an `h200` by what may be known of it."""
    return {"probed": probed, "elsewhere": load_node(f"{gpu}-probed"), "datasheet": load_node(f"{gpu}-sxm")}


class NoAnswerError(Exception):
    """A prediction or a measurement that is not there; the message says why."""


@dataclass(frozen=True)
class Machine:
    """Programs of `validation/pairs` as they ran on one GPU and its host: `archive` of `results/`, as `pairs/h100`."""

    archive: str

    @property
    def name(self) -> str:
        return Path(self.archive).name

    @property
    def gpu(self) -> str:
        """`h100` of `h100-2026-11-23-0426`."""
        return self.name.partition("-")[0]

    @cached_property
    def times(self) -> dict[str, Any]:
        return dict(json.loads((unpacked(self.archive) / "times.json").read_text("utf-8")))

    @property
    def node(self) -> str:
        """The file of the node that was probed there just before."""
        probe = self.times["probe"]
        return node_file(probe) if probe else str(unpacked(self.archive) / "node.toml")

    def processes(self, program: str, variant: str) -> list[float]:
        """Seconds of the measured region, unrecorded: the median of each process. Raises NoAnswerError for none."""
        timed = self.times["programs"].get(program)
        if timed is None:
            raise NoAnswerError(f"{program} was not run on {self.name}")
        if variant not in timed["variants"]:
            raise NoAnswerError(f"{variant} failed: {'; '.join(timed['failures']) or 'no reason given'}")
        return [median(process) for process in timed["variants"][variant]["seconds"]]

    def seconds(self, program: str, variant: str) -> float:
        """The median of all its regions. Raises NoAnswerError where there are none."""
        self.processes(program, variant)
        return float(self.times["programs"][program]["variants"][variant]["median_seconds"])

    def recording(self, program: str, name: str) -> Path:
        """Raises NoAnswerError where it is missing."""
        path = unpacked(self.archive) / f"{program}-{name}.bf"
        if not path.exists():
            raise NoAnswerError(f"no recording {path.name}")
        return path

    def has(self, program: str, name: str) -> bool:
        """Whether there is such a recording."""
        return (unpacked(self.archive) / f"{program}-{name}.bf").exists()


def machines(folder: str) -> list[Machine]:
    """Those of `results/FOLDER`."""
    return [
        Machine(f"{folder}/{path.name.removesuffix('.tar.xz')}")
        for path in sorted((RESULTS / folder).glob("*.tar.xz"))
    ]


def busfare(*arguments: str) -> dict[str, Any]:
    """What a command of busfare answers with --json. Raises NoAnswerError where it fails."""
    out, errors, status = io.StringIO(), io.StringIO(), 0
    given = ["busfare", *arguments, "--json"]
    with patch.object(sys, "argv", given), redirect_stdout(out), redirect_stderr(errors):
        try:
            main()
        except SystemExit as stop:
            status = stop.code
    gc.unfreeze()
    if status:
        raise NoAnswerError(f"busfare {arguments[0]}: {' '.join(errors.getvalue().split())[-300:]}")
    return dict(json.loads(out.getvalue()))
