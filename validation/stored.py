"""What `results/` holds, unpacked where it is asked for: raw samples of probes, recordings, and tables."""

from __future__ import annotations

import json
import lzma
import tarfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from busfare.measure.node_file import encode
from busfare.measure.probe import again
from busfare.node import Node

__all__ = ["RESULTS", "node_file", "probe_names", "probe_raw", "probed_node", "read_table", "unpacked"]

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
                path.write_bytes(content.read())
    return folder


def read_table(name: str) -> Any:
    """`results/NAME.json.xz`."""
    return json.loads(lzma.decompress((RESULTS / f"{name}.json.xz").read_bytes()))


@cache
def probe_raw(name: str) -> Path:
    """Samples of one process of `probe`: `h100-eighth-run1`. Each that is kept stands for SAMPLES of those taken."""
    raw = json.loads((unpacked("probe") / f"{name}.json").read_text("utf-8"))
    for case in raw["cases"]:
        for key in ("device_ns", "api_ns", "moments"):
            case[key] = [sample for sample in case[key] for _ in range(SAMPLES)]
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
    return again(probe_raw(name)).node


@cache
def node_file(name: str) -> str:
    """The path of that node as a file, for a command line."""
    path = _place() / f"{name}.toml"
    path.write_text(encode(probed_node(name)), "utf-8")
    return str(path)
