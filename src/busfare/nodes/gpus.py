"""The catalogue's machines and aliases, and GPUs by the names of drivers and profilers: `gpus.toml`, and a node of each."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any, get_args

import msgspec

from busfare.errors import InputError
from busfare.nodes.component import Cpu, Memory, Source
from busfare.nodes.component import Gpu as GpuComponent
from busfare.nodes.graph import Node
from busfare.nodes.link import Generation, Lanes, Link, MemoryLink, PcieLink, SocketLink, link_in_short

#: Said in some names of a GPU and not in others, and never what tells two GPUs apart.
_IDLE = re.compile(
    r"\b(nvidia|amd|geforce|tesla|instinct|gpu|graphics|generation|edition|with|design)\b"
    r"|\bradeon(?= (rx|instinct)\b)|[®™]"
)
_MIG = re.compile(r"^(.+?)[ -]mig[ -](\d)g\.(\d+)gb(?:\+\S+)?$", re.IGNORECASE)
_GFX = re.compile(r"^gfx(\d{1,2})([0-9a-f])[0-9a-f]$")
#: Of a data sheet what a node's GPU says, under the same keys.
_OF_COMPONENT = (
    "memory_bytes", "memory_bandwidth_bytes_per_s", "multiprocessors", "clock_hz", "compute_capability", "copy_engines",
)  # fmt: skip
#: Units of the file: the key of a data sheet, and what brings figures to its unit.
_UNITS = {
    "gib": ("memory_bytes", 1 << 30),
    "gb_per_s": ("memory_bandwidth_bytes_per_s", 10**9),
    "mhz": ("clock_hz", 10**6),
    "l2_mib": ("l2_bytes", 1 << 20),
}
#: The source of a link in short.
PROTOCOL = Source("data-sheet", "the protocol itself: line rate and packet sizes of the generation")
#: What a driver leaves of the memory: a T4 with error correction shows 14.6 of its 16 GiB.
_LEAST_MEMORY = 7 / 8


class Gpu(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU's data sheet: bytes, bytes and operations a second, cycles a second; None where no document says.

    `peaks` are dense rates by type (`fp64`, `fp16_tensor`, …). `link` is a link in short, None where the GPU shares
    its memory with the processor. `node` names the catalogue's machine with this GPU. `sources` has the tag of each
    figure's source in `gpus.toml`, by key.
    """

    name: str
    title: str
    called: tuple[str, ...] = ()
    link: str | None = None
    unified_memory: bool = False
    compute_capability: str
    memory_bytes: int | None = None
    memory_bandwidth_bytes_per_s: float | None = None
    multiprocessors: int | None = None
    clock_hz: float | None = None
    l2_bytes: int | None = None
    copy_engines: int | None = None
    peaks: dict[str, float]
    node: str | None = None
    sources: dict[str, str]

    @property
    def has_node(self) -> bool:
        """Whether a node can be made of it: not of a name that GPUs of several rates share."""
        return (self.node or self.link or self.memory_bandwidth_bytes_per_s) is not None


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace says of a GPU beside its name; it tells GPUs of one name apart."""

    multiprocessors: int | None = None
    memory_bytes: int | None = None
    clock_hz: float | None = None
    compute_capability: str | None = None


def completed(gpu: Gpu, recorded: Mapping[str, Any]) -> Gpu:
    """`gpu`, with what a trace says of it where its data sheet does not."""
    figures = {key: recorded[key] for key in _OF_COMPONENT if getattr(gpu, key) is None and recorded.get(key)}
    return msgspec.structs.replace(gpu, **figures, sources=gpu.sources | dict.fromkeys(figures, "recorded"))


class _MeasuredRate(msgspec.Struct, forbid_unknown_fields=True):
    """Of memory's data sheet rate, of L2, or by an empty kernel, and where that was measured."""

    source: str
    share: float = 1.0
    gb_per_s: float = 0.0
    us: float = 0.0


class _File(msgspec.Struct, forbid_unknown_fields=True):
    sources: dict[str, Source]
    memory_share: dict[str, _MeasuredRate]
    l2: dict[str, _MeasuredRate]
    launch: dict[str, _MeasuredRate]
    peaks: dict[str, dict[str, float]]
    mig: dict[str, dict[int, tuple[int, int, int]]]
    doubles: dict[str, int]
    lanes: dict[str, int]
    tensor: dict[str, int]
    group: list[dict[str, Any]]


@cache
def catalogue_names() -> tuple[str, ...]:
    """The names of the machines that busfare knows, sorted: one file each in `catalogue/`."""
    entry_names = (entry.name for entry in files("busfare.nodes").joinpath("catalogue").iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in entry_names if name.endswith(".toml")))


def catalogue_text(name: str) -> str:
    """The TOML text of the catalogue's node called `name`."""
    return files("busfare.nodes").joinpath("catalogue", f"{name}.toml").read_text(encoding="utf-8")


@cache
def _file() -> _File:
    text = files("busfare.nodes").joinpath("gpus.toml").read_text(encoding="utf-8")
    return msgspec.toml.decode(text, type=_File, strict=False)


@cache
def gpus() -> dict[str, Gpu]:
    """Every GPU of the table by its name as a node, `rtx-3060-laptop`, in the order of the file."""
    rows = (group | row for group in _file().group for row in group["gpus"])
    return {gpu.name: gpu for gpu in map(_gpu, rows)}


def _gpu(row: dict[str, Any]) -> Gpu:
    """The data sheet of a GPU of the file, whose `row` holds the facts of its group, too."""
    del row["gpus"]
    title, source = row.pop("name"), row.pop("source")
    name, vendor = _plain(title), "gfx" if row["compute_capability"].startswith("gfx") else "cuda-gpus"
    peaks, source_of_peaks = _peaks(row, title, source)
    for unit, (key, scale) in _UNITS.items():
        if unit in row:
            row[key] = round(row.pop(unit) * scale)
    if name in catalogue_names():
        row.setdefault("node", name)
    sources = dict.fromkeys(
        ("memory_bytes", "clock_hz", "multiprocessors", "link", "memory_bandwidth_bytes_per_s"), source
    )
    of_l2 = "gfx" if vendor == "gfx" else "l2"
    sources |= {"compute_capability": vendor, "l2_bytes": of_l2, "copy_engines": "engines"}
    sources |= {"peaks": source_of_peaks} | row.pop("sources", {})
    peaks = {kind: rate * 1e12 for kind, rate in peaks.items()}
    return msgspec.convert({"name": name, "title": title, "peaks": peaks, **row, "sources": sources}, Gpu)


def _peaks(row: dict[str, Any], title: str, source: str) -> tuple[dict[str, float], str]:
    """1e12 operations a second by type, of tensor cores with sums in fp32 where the board has them, and their source."""
    file, capability = _file(), row["compute_capability"]
    named, fp32, fp64 = row.pop("peaks", None), row.pop("fp32", 0), row.pop("fp64", 0)
    cycles = 1e-6 * row.get("multiprocessors", 0) * row.get("mhz", 0)
    derived = 2 * file.lanes.get(capability, 0) * cycles
    peaks = file.peaks[named].copy() if named else {"fp32": fp32 or derived} if fp32 or derived else {}
    slowed = capability == "3.5" and title.startswith("GeForce") and "TITAN" not in title
    doubles = 8 if slowed else file.doubles.get(capability, 0)
    if fp64 := fp64 or peaks.get("fp32", 0) * doubles / file.lanes.get(capability, 1):
        peaks.setdefault("fp64", fp64)
    if named:
        return peaks, source
    half = file.tensor.get(capability, 0) * cycles / (2 if title.startswith("GeForce") else 1)
    if not half or "GTX" in title or source == "quadro-t":
        return peaks, "cuda-guide" if derived and not fp32 else source
    peaks["fp16_tensor"] = half
    if float(capability) >= 8.0:
        peaks |= {"bf16_tensor": half, "tf32_tensor": half / 2}
    if float(capability) >= 8.9:
        peaks["fp8_tensor"] = 2 * half
    return peaks, "tensor-cores"


def _plain(name: str) -> str:
    """`NVIDIA GeForce RTX 3060 Laptop GPU` → `rtx-3060-laptop`: what is left of any way to write a GPU's name."""
    words = _IDLE.sub(" ", re.sub(r"[\s_/()-]+", " ", name.strip().lower()))
    return "-".join(words.split())


@cache
def _named() -> dict[str, list[Gpu]]:
    """The GPUs that each plain name may mean."""
    by_name: dict[str, list[Gpu]] = {}
    for gpu in gpus().values():
        for name in dict.fromkeys([gpu.name, *map(_plain, gpu.called)]):
            by_name.setdefault(name, []).append(gpu)
    return by_name


def measured_rates(name: str, compute_capability: str) -> tuple[float, float | None, float | None]:
    """Of its data sheet's rate what streams reach of the memory of the GPU called `name` in the table, else of GPUs of its
    capability; bytes a second from its L2 and seconds of an empty kernel, None where nobody measured them.
    """
    file = _file()
    alike = next((key for key in file.memory_share if name.startswith(key)), compute_capability)
    l2, launch = file.l2.get(name), file.launch.get(name)
    share = file.memory_share.get(alike, file.memory_share["other"]).share
    return share, l2.gb_per_s * 1e9 if l2 else None, launch.us * 1e-6 if launch else None


def typical_launch_seconds() -> float:
    """Seconds of an empty kernel on a GPU of which nobody measured it: the mean of those measured."""
    return fmean(row.us for row in _file().launch.values()) * 1e-6


def clock_by_peak(gpu: Gpu) -> float | None:
    """The clock at which the GPU's multiprocessors reach its fp32 peak; None where that is not known."""
    lanes, peak = _file().lanes.get(gpu.compute_capability), gpu.peaks.get("fp32")
    return peak / (2 * lanes * gpu.multiprocessors) if lanes and peak and gpu.multiprocessors else None


def machine_like(gpu: Gpu) -> str | None:
    """The catalogue's machine with the chip of `gpu`, by generation and multiprocessors; the nearest by memory."""
    chip, size = (gpu.compute_capability, gpu.multiprocessors), gpu.memory_bytes or 0
    peers = [g for g in gpus().values() if g.node and (g.compute_capability, g.multiprocessors) == chip]
    return min(peers, key=lambda g: abs((g.memory_bytes or 0) - size)).node if peers else None


def gpu_names() -> list[str]:
    """The names of the GPUs that a node can be made of, sorted."""
    return sorted(name for name, gpu in gpus().items() if gpu.has_node)


def gpu_of_device_name(name: str, recorded: Recorded | None = None) -> Gpu | None:
    """The GPU that a profiler calls `name`, or None: never a near match.

    A name that several GPUs share, a code such as `gfx90a`, or no name at all means the one GPU that has what
    the trace has `recorded`. Where the trace cannot tell them apart, the GPU whose own name it is, if any. A GPU
    whose multiprocessors are others than those recorded is another GPU.
    """
    recorded = recorded or Recorded()
    if (slice_of := _MIG.match(name.strip())) is not None:
        return _slice(slice_of, recorded)
    plain = _plain(name)
    candidates = _named().get(plain, [])
    if not candidates and recorded.multiprocessors and recorded.memory_bytes:
        code = plain or recorded.compute_capability
        candidates = [g for g in gpus().values() if code in (g.compute_capability, _version(g))]
    fit = [gpu for gpu in candidates if _fits(gpu, recorded)]
    with_multiprocessors = [gpu for gpu in fit if gpu.multiprocessors]
    clocks = [(gpu, gpu.clock_hz or 0.0, recorded.clock_hz or 0.0) for gpu in with_multiprocessors]
    clocked = [gpu for gpu, clock, seen in clocks if seen and abs(clock - seen) < 0.01 * clock]
    for narrowed in (with_multiprocessors, clocked):
        if len(narrowed) == 1:
            return narrowed[0]
    return next((gpu for gpu in fit if gpu.name == plain), None)


def _version(gpu: Gpu) -> str:
    """How PyTorch's profiler writes an AMD target: gfx942 as 9.4."""
    code = _GFX.match(gpu.compute_capability)
    return f"{int(code[1])}.{int(code[2], 16)}" if code else gpu.compute_capability


def _fits(gpu: Gpu, recorded: Recorded) -> bool:
    if recorded.multiprocessors and gpu.multiprocessors not in (None, recorded.multiprocessors):
        return False
    if not recorded.memory_bytes or gpu.memory_bytes is None:
        return True
    return _LEAST_MEMORY * gpu.memory_bytes <= recorded.memory_bytes <= 1.001 * gpu.memory_bytes


def _slice(match: re.Match[str], recorded: Recorded) -> Gpu | None:
    """A MIG slice: its share of the multiprocessors, copy engines, memory and the memory's bandwidth."""
    whole = gpu_of_device_name(match[1])
    units, gigabytes = int(match[2]), int(match[3])
    if whole is None or whole.memory_bytes is None:
        return None
    units_of = _file().mig.get(re.split(r"[- ]", whole.title)[0], {})
    share = round(8 * gigabytes * 2**30 / whole.memory_bytes) / 8
    if units not in units_of or not 0 < share <= 1:
        return None
    multiprocessors, copy_engines, usual = units_of[units]
    # With more memory than usual come more multiprocessors, too; the guide does not say how many.
    usual_multiprocessors = multiprocessors if 8 * share == usual else 0
    figures = {
        "memory_bytes": round(whole.memory_bytes * share),
        "memory_bandwidth_bytes_per_s": (whole.memory_bandwidth_bytes_per_s or 0) * share or None,
        "multiprocessors": recorded.multiprocessors or usual_multiprocessors or None,
        "copy_engines": copy_engines,
        "l2_bytes": None if whole.l2_bytes is None else round(whole.l2_bytes * share),
    }
    sources = whole.sources | dict.fromkeys(figures, "mig")
    name, title = f"{whole.name}-mig-{units}g.{match[3]}gb", f"{whole.title} MIG {units}g.{match[3]}gb"
    return msgspec.structs.replace(
        whole, name=name, title=title, peaks={}, node=None, sources=sources, **figures
    )


def _in_short(link: Link) -> str:
    """`pcie:4x16`."""
    sizes = [getattr(link, key, None) for key in ("generation", "lanes", "links")]
    return f"{link.__struct_config__.tag}:" + "x".join(str(size) for size in sizes if size is not None)


def bare_node(link: Link) -> Node:
    """A host of which nothing is known, and a GPU on `link`: a link in short as a node."""
    return Node(
        name=_in_short(link),
        title=f"one GPU on {link.label}",
        components=(Memory(name="memory0"), Cpu(name="cpu0"), GpuComponent(name="gpu0")),
        links=(MemoryLink(between=("memory0", "cpu0")), msgspec.structs.replace(link, source="protocol")),
        sources={"protocol": PROTOCOL},
    )


def on_link(node: Node, link: Link) -> Node:
    """`node` with its GPUs in another slot: `link` in place of the last link between host and each GPU.

    It has no measurements over the old links, of copies of the host or between GPUs: data sheets and typical figures take
    their place. Raises InputError where a GPU has no link.
    """
    ordinals = range(len(node.gpus()))
    if any(gpu.unified_memory for gpu in node.gpus()):
        raise InputError(f"`link`: {node.name} has one memory for CPU and GPU, without a link; leave it out")
    slots = {node.host_path(gpu).links[-1].between for gpu in ordinals}
    moved = {slot: msgspec.structs.replace(link, between=slot, source="protocol") for slot in slots}
    crossed = len(ordinals) > 1 and any(part.between in slots for part in node.peer_path(0, 1).links)
    components = [
        msgspec.structs.replace(c, at_once=None) if isinstance(c, Memory) else c for c in node.components
    ]
    return replace(
        node,
        name=f"{node.name} on {_in_short(link)}",
        title=f"{node.title}; GPU on {link.label}",
        components=tuple(components),
        links=tuple(moved.get(old.between, old) for old in node.links),
        curves=tuple(c for c in node.curves if c.direction in ("d2d", "d2d" if crossed else "p2p")),
        contentions=(),
        collectives=() if crossed else node.collectives,
        sources=node.sources | {"protocol": PROTOCOL},
    )


def node_of_gpu(gpu: Gpu, generation: int | None = None, lanes: int | None = None) -> Node:
    """A host of which nothing is known, and `gpu` on its link: PCIe of the `generation` and `lanes` that a trace has
    recorded, else that of the data sheet.

    Raises InputError for a name that stands for several GPUs whose memories differ.
    """
    bandwidth, link_source = gpu.memory_bandwidth_bytes_per_s, gpu.sources["link"]
    link: Link | None = link_in_short(gpu.link) if gpu.link else None
    if link is None:
        if bandwidth is None:
            raise InputError(
                f"node {gpu.name!r}: modules with several rates have this name; choose one: busfare nodes {gpu.name}"
            )
        link = SocketLink(between=("cpu0", "gpu0"), title="one memory", bandwidth_bytes_per_s=bandwidth)
    elif isinstance(link, PcieLink) and generation in get_args(Generation) and lanes in get_args(Lanes):
        link = msgspec.structs.replace(link, generation=generation, lanes=lanes)
        link_source = "recorded"
    figures = {key: getattr(gpu, key) for key in _OF_COMPONENT} | {"flops_per_s": gpu.peaks.get("fp32")}
    figures = {key: value for key, value in figures.items() if value is not None}
    source_of = {key: gpu.sources["peaks" if key == "flops_per_s" else key] for key in figures}
    recorded = Source("measured", "the GPU and its link as recorded in the trace")
    sources = _file().sources | {"recorded": recorded}
    used = {*source_of.values(), link_source}
    memory = Memory(
        name="memory0",
        bandwidth_bytes_per_s=bandwidth if gpu.unified_memory else None,
        source=gpu.sources["memory_bandwidth_bytes_per_s"],
    )
    component = GpuComponent(
        name="gpu0",
        title=gpu.title,
        coherent=gpu.unified_memory or gpu.link == "c2c:1",
        unified_memory=gpu.unified_memory,
        source_of=source_of,
        **figures,
    )
    return Node(
        name=gpu.name,
        title=f"{gpu.title} on {link.label}, from its data sheet",
        description=sources[link_source].cite if sources[link_source].kind == "estimated" else "",
        components=(memory, Cpu(name="cpu0"), component),
        links=(MemoryLink(between=("memory0", "cpu0")), msgspec.structs.replace(link, source=link_source)),
        sources={tag: source for tag, source in sources.items() if tag in used},
    )
