"""Published copy measurements, and the rules by which some are left out. No row is named by hand.

The file is `data/measurements.csv` of the folder that `BUSFARE_SHARED` names, else of `../shared`.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from busfare.errors import BusfareError, InputError
from busfare.nodes import (
    C2cLink,
    Cpu,
    Link,
    MemoryLink,
    Node,
    NvlinkLink,
    PcieLink,
    catalogue_names,
    load_node,
)
from busfare.trace import Trace
from busfare.trace import read as read_trace

#: Published measurements and traces.
SHARED = Path(os.environ.get("BUSFARE_SHARED", "../shared"))
#: Tools whose copies are large where no size is printed: their defaults are 32 MB and up.
LARGE_BY_DEFAULT = {
    "bandwidthTest": 32_000_000,
    "nvbandwidth": 512 << 20,
    "superbenchmark": 512 << 20,
    "superbenchmark gpu_copy_bw": 256 << 20,
    "rocm_bandwidth_test": 512 << 20,
    "busGrind": 64 << 20,
    "clpeak": 64 << 20,
}
LARGE_BYTES = 32_000_000


#: What notes say of copies between GPUs that do not go straight from one to the other, or by a kernel.
NOT_DIRECT = re.compile(
    r"disabled|staged|p2p off|across|\bsm\b|bridges|inferred|virtual|unverified|not verified"
)
#: Pageable and managed copies of contention.csv.
IN_CONTENTION = {
    "pageable_copy": "pageable",
    "managed_prefetch": "managed",
    "managed_fault_migration": "managed",
}


class Row(msgspec.Struct, frozen=True):
    """One published figure, of a copy of `size` bytes (0: not printed); `generation` and `width` are of the link."""

    gpu: str
    link: str
    direction: str
    memory: str
    tool: str
    source: str
    notes: str
    host: str = msgspec.field(name="cpu_or_host")
    generation: str = msgspec.field(name="gen")
    width: str = msgspec.field(name="lanes_or_links")
    size: int = msgspec.field(name="size_bytes")
    bytes_per_second: float = msgspec.field(name="bandwidth_GBps")

    @property
    def author(self) -> str:
        """The source without its file, so that one author's many files weigh as one."""
        if self.source.startswith("github:"):
            return ":".join(self.source.split(":")[:2])
        return self.source

    @property
    def group(self) -> str:
        """The machine."""
        return f"{self.gpu} | {self.host}"

    @property
    def copied(self) -> int:
        """Bytes of the copy: as printed, else the tool's default."""
        return self.size or LARGE_BY_DEFAULT.get(self.tool, 0)

    @property
    def between(self) -> bool:
        """Whether it went straight from one GPU to another."""
        return self.direction == "p2p" and not NOT_DIRECT.search(self.notes)

    @property
    def fitted(self) -> bool:
        """Whether the machine is in the group that parameters may look at: a hash of its name decides."""
        return hashlib.sha256(self.group.encode()).digest()[0] % 2 == 0


def read() -> list[Row]:
    """All rows. Raises SystemExit where the file is not there."""
    path = SHARED / "data/measurements.csv"
    if not path.is_file():
        raise SystemExit(f"{path}: not there; set BUSFARE_SHARED to the folder of published measurements")
    return [
        msgspec.convert(
            line
            | {
                "size_bytes": int(float(line["size_bytes"] or 0)),
                "bandwidth_GBps": float(line["bandwidth_GBps"] or 0) * 1e9,
                "notes": (line["notes"] or "").lower(),
            },
            Row,
        )
        for line in _lines(path)
    ]


def _lines(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def of_contention() -> Iterator[Row]:
    """Copies of contention.csv that were verified, and are not in measurements.csv, too (the thesis's are)."""
    for line in _lines(SHARED / "data/contention.csv"):
        wire = re.fullmatch(r"(PCIe|NVLink)(\d) x(\d+)(?: host)?|C2C", line["link"].strip())
        notes = line["notes"]
        quoted = "cwpearson" in line["source"] or "measurements.csv" in notes or "quotes" in notes
        is_rate = (line["unit"], line["verified"]) == ("GB/s", "yes")
        if line["metric"] not in IN_CONTENTION or not wire or not is_rate or quoted:
            continue
        inferred = "inferred" in line["gpu"]
        yield Row(
            gpu=line["gpu"] + (" (inferred)" if inferred else ""),
            host="",
            link=(wire[1] or "nvlink-c2c").lower(),
            generation=wire[2] or "",
            width=wire[3] or "",
            direction=line["direction"],
            memory=IN_CONTENTION[line["metric"]],
            size=int(float(line["size_bytes"] or LARGE_BYTES)),
            bytes_per_second=float(line["value"]) * 1e9,
            tool="",
            source=re.split(r"[ (]", line["source"])[0],
            notes=notes.lower() + (" link inferred" if inferred else ""),
        )


def traces() -> Iterator[tuple[Path, Trace]]:
    """Others' traces, those that can be read."""
    for path in sorted(p for p in (SHARED / "data/traces").rglob("*") if p.is_file()):
        with suppress(BusfareError):
            yield path, read_trace(path)


def _says(*words: str) -> Callable[[Row], bool]:
    return lambda row: any(word in row.notes for word in words)


#: What the row itself says. In this order; a row is counted under the first rule that it breaks.
BY_NOTES: list[tuple[str, Callable[[Row], bool]]] = [
    (
        "link inferred from the rate",
        _says("lanes inferred", "gen inferred", "generation inferred", "link inferred"),
    ),
    (
        "link not stated",
        lambda row: not row.link or (row.link == "pcie" and not (row.generation and row.width)),
    ),
    ("memory integrated: no link", _says("integrated")),
    ("another socket's memory", _says("remote")),
    ("virtual machine", lambda row: _says("virtual", "vm")(row) or " vm" in row.host.lower()),
    ("confidential computing", _says("confidential")),
    ("sum over several GPUs", _says("cumulative", "sum over")),
    ("degraded link, said so", _says("degraded", "below normal", "downgraded", "riser")),
    ("kernel copies, not the copy engine", _says("sm (kernel)", "shader", "gfx executor", "kernel copy")),
    ("one cold copy with its synchronisation", _says("far below steady", "whole time")),
    ("quoted, not a run", lambda row: row.tool == "quoted"),
]


def derived_mean(row: Row) -> bool:
    """A sum that the source table has already divided by the number of GPUs is a mean, and stays."""
    return row.notes.startswith("derived: printed sum")


def sift(rows: Iterable[Row]) -> tuple[list[Row], dict[str, int]]:
    """The rows that break no rule, and how many broke each."""
    kept, left_out = [], {name: 0 for name, _ in BY_NOTES}
    for row in rows:
        broken = next((name for name, breaks in BY_NOTES if breaks(row) and not derived_mean(row)), None)
        if broken is None:
            kept.append(row)
        else:
            left_out[broken] += 1
    return kept, left_out


def node_of(row: Row) -> Node | None:
    """The catalogue's machine with that GPU on such a link, else the link in short; None where neither is."""
    for node in map(load_node, catalogue_names()):
        path = node.host_path(0).links
        if _same_gpu(node, row) and _is(
            row, next(w for w in reversed(path) if not isinstance(w, MemoryLink))
        ):
            return node
    try:
        return load_node("c2c:1" if row.link == "nvlink-c2c" else f"{row.link}:{row.generation}x{row.width}")
    except InputError:
        return None


def joined_node_of(row: Row) -> Node | None:
    """The catalogue's machine whose GPUs are joined to each other as the row says."""
    for node in map(load_node, catalogue_names()):
        gpus = [gpu.name for gpu in node.gpus()]
        if len(gpus) > 1 and _same_gpu(node, row):
            wires = [w for w in node.route(gpus[0], gpus[1]).links if isinstance(w, NvlinkLink)]
            if wires and _is(row, wires[0]):
                return node
    return None


def _same_gpu(node: Node, row: Row) -> bool:
    words = row.gpu.split("(")[0].lower().replace("-", " ").split()
    title = node.gpus()[0].title.lower()
    return all(word in title for word in words) or (row.link == "nvlink-c2c" and words[0] == node.name)


def _is(row: Row, wire: Link) -> bool:
    """Whether a row's link is such a wire."""
    match wire:
        case PcieLink():
            named = ("pcie", str(wire.generation), str(wire.lanes))
        case NvlinkLink():
            named = ("nvlink", str(wire.generation), str(wire.links))
        case _:
            return (row.link == "nvlink-c2c") == isinstance(wire, C2cLink)
    return (row.link, row.generation, row.width) == named


def without_copy_rates(node: Node) -> Node:
    """The node without its processor's measured `memcpy` rates: some were read off the very sweeps judged here."""
    bare = dict.fromkeys(
        ("copy_bandwidth_bytes_per_s", "cached_copy_bandwidth_bytes_per_s", "cache_bytes"), None
    )
    parts = tuple(msgspec.structs.replace(c, **bare) if isinstance(c, Cpu) else c for c in node.components)
    return replace(node, components=parts)
