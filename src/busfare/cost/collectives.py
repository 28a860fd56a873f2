"""Collectives priced: by what was measured on the node, else by NCCL's own model of its links, with earned ranges; and by a
line through times that were seen.

NCCL takes latency + bytes / bandwidth of each algorithm and protocol and runs the least; so does this (`chosen`). The time
then is priced (`taken`) at the rate that the links carry, where NCCL reckons with channels of round rates, and with what a
kernel takes that NCCL leaves out because every algorithm has it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from busfare.cost.fabric import Fabric as Fabric
from busfare.cost.fabric import nccl
from busfare.cost.ranges import LONG_COPY_BYTES, range_of
from busfare.errors import InputError
from busfare.nodes import FloatArray
from busfare.nodes.transfers import NEAR, Collective, Pieces, fit

#: Seconds over bytes.
SecondsOf = Callable[[FloatArray], FloatArray]
KINDS: tuple[str, ...] = get_args(Collective)
PROTOCOLS = ("LL", "LL128", "Simple")
#: What LL128, Simple and NVLS take beyond NCCL's latencies, which only rank them; and what a ring's all-reduce takes beyond
#: its steps, in steps, by generation: one of them reduces, stores and sends at once. Chosen by the published all-reduces of
#: 5 to 8 A100 and the bandwidth of 4 and 8 H100 at 1 GiB; Volta as Ampere, Blackwell as Hopper (docs/collectives.md).
START_S, FURTHER_STEPS = 30e-6, {1: 0.6, 2: 0.3}
#: Up to here sends go by LL [NCCL_P2P_LL_THRESHOLD, src/enqueue.cc].
SEND_LL_BYTES = 16384
#: Sizes of less than this ratio do not tell latency from bandwidth.
LEAST_SPAN = 4.0
#: More distinct sizes are joined to so many, even in their logarithms.
MOST_POINTS = 96
#: Times so many typical errors off the line are of waiting, not of the transfer: they weigh less from there on.
FAR, PASSES = 1.5, 4


class Line(NamedTuple):
    """Seconds = `latency` + bytes · `gap`, and of the first `first` bytes as much more as `first_gap` says."""

    latency: float
    gap: float
    first_gap: float = 0.0
    first: float = 0.0

    def seconds(self, sizes: FloatArray, share: FloatArray | float = 1.0) -> FloatArray:
        """Of `sizes`, at a `share` of the bandwidth."""
        return self.latency + (sizes * self.gap + np.minimum(sizes, self.first) * self.first_gap) / share


@dataclass(frozen=True)
class Option:
    """An algorithm with a protocol: as NCCL reckons, and as priced. `correction`: of the bandwidth, by powers of two of
    bytes from 64 on; `most_bytes`: where it ends.
    """

    algorithm: str
    protocol: str
    chosen: Line
    taken: Line
    correction: FloatArray | None = None
    most_bytes: float = float("inf")


def bus_factor(kind: str, ranks: int) -> float:
    """Bytes on the slowest link over the bytes of the collective [nccl-tests, PERFORMANCE.md]."""
    if kind in ("broadcast", "reduce", "send_receive"):
        return 1.0
    return (2 if kind == "all_reduce" else 1) * (ranks - 1) / ranks


def options(fabric: Fabric, kind: str) -> list[Option]:
    """What NCCL may run for a collective of this kind; LL128 is on over NVLink from Volta on."""
    if kind in ("all_to_all", "send_receive"):
        return _sends(fabric, kind)
    protocols = (0, 1, 2) if fabric.local == "nvlink" and fabric.capability >= 7 else (0, 2)
    choices = [_ring(fabric, kind, p) for p in protocols]
    if kind == "all_reduce":
        choices += [_tree(fabric, p) for p in protocols]
    if fabric.nvls and kind not in ("broadcast", "reduce"):
        choices.append(_nvls(fabric, kind))
    return choices


def _most(fabric: Fabric, what: str) -> float:
    """NCCL's limit of a row of its tables, bytes a second: of all channels together, but `ll` of each alone."""
    rows, column = nccl()["most"][what], min(fabric.hosts, 3) - 1
    if what == "ll":
        return float(
            rows[fabric.generation if fabric.hosts == 1 else fabric.processor == "amd"][column] * 1e9
        )
    return float(rows[fabric.generation][column] * 1e9 * fabric.channels)


def _hops(fabric: Fabric, algorithm: str, protocol: int) -> tuple[float, float]:
    """A hop within a node and one between nodes, seconds."""
    tables = nccl()["hop_us"]
    # With one rank a node, latencies of the network are a tree's.
    between = tables["network"]["tree" if fabric.ranks == fabric.hosts else algorithm][protocol]
    within = tables[fabric.local][algorithm][protocol]
    if fabric.processor == "power" and fabric.local == "pcie" and (algorithm, protocol) == ("tree", 2):
        within = tables["pcie"]["ring"][2]
    return within * 1e-6, between * 1e-6


def _ring(fabric: Fabric, kind: str, protocol: int) -> Option:
    n, hosts = fabric.ranks, fabric.hosts
    steps = {"all_reduce": 2 * (n - 1), "broadcast": n, "reduce": n}.get(kind, n - 1)
    within, between = _hops(fabric, "ring", protocol)
    latency = nccl()["base_us"]["ring"][protocol] * 1e-6
    if kind in ("broadcast", "reduce"):
        # Where channels differ, as in meshes of NVLinks, each rank adds a piece.
        hop = nccl()["hop_us"]["network" if hosts > 1 else fabric.local]
        mesh = fabric.through == "NVLink" and n > 2
        latency += (steps if mesh else 1) * hop["tree" if mesh and protocol == 2 else "ring"][protocol] * 1e-6
    else:
        far = 0 if hosts == 1 else (2 if kind == "all_reduce" else 1) * (hosts - 1)
        # Rings between nodes start every step through the network's proxy.
        posting = 2e-6 if fabric.processor == "amd" else 1e-6
        posted = 0.0 if hosts == 1 else posting * (3 if protocol == 2 else 1)
        latency += (steps - far) * max(within, posted) + far * between
    if hosts > 1 and kind == "all_reduce" and protocol == 2:
        latency *= 1.9 if fabric.capability < 8 else 1.4  # NCCL's plateau of rings between nodes
    lines = []
    for bus in (fabric.searched, fabric.wires):
        rate = bus * nccl()["share"]["ring"][protocol]
        rate = min(rate, (_most(fabric, "ll"), _most(fabric, "ring_ll128"), rate)[protocol])
        lines.append(Line(latency, steps / (n * rate)))
    chosen, taken = lines
    if protocol == 2 and _timed(fabric):
        return Option("ring", "Simple", chosen, _simple_ring(fabric, kind, steps))
    slower = 1 + FURTHER_STEPS[fabric.timed_as] / steps if kind == "all_reduce" else 1.0
    taken = Line(_started(fabric, latency, protocol), taken.gap * slower)
    return Option("ring", PROTOCOLS[protocol], chosen, taken)


def _timed(fabric: Fabric) -> bool:
    """Whether kernels of the Simple protocol were timed on such GPUs: from Hopper on, over NVLink."""
    return fabric.timed_as >= 2 and fabric.local == "nvlink" and fabric.hosts == 1


def _simple_ring(fabric: Fabric, kind: str, steps: int) -> Line:
    """What its kernel takes: the links carry `steps` parts, the channels of a GPU take in or hand on one part more, and
    until all channels have a whole chunk each part waits for half of another.
    """
    figures, n = nccl()["simple"], fabric.ranks
    passes = 2 * n - 1 if kind == "all_reduce" else steps + 1
    links, channels = figures["share"] * fabric.wires, figures["passed"] * 1e9
    gap = max(steps / (n * links), passes / (n * channels))
    first = n * figures["first_mb"] * 1e6
    return Line(figures["start_us"] * 1e-6, gap, 0.5 / (n * min(links, channels)), first)


def _started(fabric: Fabric, latency: float, protocol: int) -> float:
    """With START_S, but for LL128 where kernels were timed: 4 H200 take no more there than NCCL reckons."""
    quick = protocol == 0 or (protocol == 1 and _timed(fabric))
    return latency + (0.0 if quick else START_S)


def _tree(fabric: Fabric, protocol: int) -> Option:
    figures = nccl()["share"]
    within, between = _hops(fabric, "tree", protocol)
    latency = nccl()["base_us"]["tree"][protocol] * 1e-6
    latency += 2 * ((fabric.ranks // fabric.hosts - 1) * within + int(log2(fabric.hosts)) * between)
    lines = []
    for bus in (fabric.searched, fabric.wires):
        rate = min(bus * figures["tree"], _most(fabric, "tree"))
        if protocol == 0:
            rate = min(rate * figures["tree_ll"], _most(fabric, "ll"))
        elif protocol == 1:
            share = figures["tree_ll128" if fabric.hosts == 1 else "tree_ll128_hosts"]
            rate = min(rate * share, _most(fabric, "tree_ll128"))
        lines.append(Line(latency, 2 / rate))
    correction = np.array([*nccl()["tree_correction"][PROTOCOLS[protocol]], 1.0])
    taken = Line(_started(fabric, latency, protocol), lines[1].gap)
    return Option("tree", PROTOCOLS[protocol], lines[0], taken, correction)


def _nvls(fabric: Fabric, kind: str) -> Option:
    assert fabric.nvls is not None
    channels, rate = fabric.nvls
    n = fabric.ranks
    efficiency = nccl()["share"]["nvls"][fabric.generation]
    bus = channels * rate * efficiency * (channels - 1) / channels
    # An all-reduce has two operations in the pipe; of the others each rank's own part stays.
    gap = 2 * (n - 1) / (n * 2 * bus) if kind == "all_reduce" else n / ((n - 1) * bus)
    line = Line(nccl()["hop_us"]["nvlink"]["nvls"][2] * 1e-6, gap)
    return Option("nvls", "Simple", line, Line(_started(fabric, line.latency, 2), gap))


def _sends(fabric: Fabric, kind: str) -> list[Option]:
    """Sends and receives, of which NCCL has no estimate: the base of a ring, one hop, and what the links carry."""
    n = fabric.ranks
    gap = 1 / fabric.pair if kind == "send_receive" else (n - 1) / (n * fabric.fan_out)
    most_ll = float(SEND_LL_BYTES * (1 if kind == "send_receive" else n))
    choices = []
    for protocol, most in ((0, most_ll), (2, float("inf"))):
        hop = max(_hops(fabric, "ring", protocol)) if fabric.hosts > 1 else _hops(fabric, "ring", protocol)[0]
        base = nccl()["base_us"]["ring"][protocol] * 1e-6
        line = Line(base + hop, gap / nccl()["share"]["ring"][protocol])
        if protocol == 2 and _timed(fabric):
            figures = nccl()["simple_send"]
            steady = gap / figures["share"]
            part = 1.0 if kind == "send_receive" else (n - 1) / n
            line = Line(figures["start_us"] * 1e-6, steady, 0.5 * steady, figures["first_mb"] * 1e6 / part)
        choices.append(Option("send", PROTOCOLS[protocol], line, line, most_bytes=most))
    return choices


@dataclass(frozen=True)
class CollectivePrices:
    """Of collectives, shape (collectives,): seconds with their 80 % range (NaN where none is known), bytes a second on the
    bus as nccl-tests has it, and what NCCL runs (None where the times were measured). `rung`: the weakest.
    """

    seconds: FloatArray
    low_seconds: FloatArray
    high_seconds: FloatArray
    bus_bytes_per_second: FloatArray
    algorithm: list[str | None]
    protocol: list[str | None]
    rung: str


def price_collectives(
    fabric: Fabric, kinds: Sequence[str], sizes: FloatArray, measured: bool = True
) -> CollectivePrices:
    """What collectives of `kinds` and `sizes` (bytes, as nccl-tests count them) take on `fabric`, once all ranks are there.

    Sizes: of an all-reduce, broadcast and reduce the buffer, of an all-gather its output, of a reduce-scatter and an
    all-to-all the input of a rank, of send and receive the message. `measured`: by the node's file, where it says.

    Raises InputError for a kind that there is none of, and sizes below 0.
    """
    sizes = np.asarray(sizes, np.float64)
    named = list(dict.fromkeys(kinds))
    if unknown := [kind for kind in named if kind not in KINDS]:
        raise InputError(f"collective {unknown[0]!r}: unknown; choose one of {', '.join(KINDS)}")
    if sizes.shape != (len(kinds),) or not np.all(np.isfinite(sizes) & (sizes >= 0)):
        raise InputError("collectives: give one size in bytes (0 or more) for each")
    of = np.array(kinds, object)
    seconds, bus, low, high = np.full((4, len(sizes)), np.nan)
    algorithm, protocol = np.full((2, len(sizes)), None, object)
    rungs: list[str] = []
    for kind in named:
        rows = np.flatnonzero(of == kind)
        kind_sizes = sizes[rows]
        curve = next((c for c in fabric.curves if c.kind == kind), None) if measured else None
        rungs.append("probed" if curve else fabric.rung)
        if curve is not None:
            seconds[rows] = curve.seconds(kind_sizes)
        else:
            listed = options(fabric, kind)
            seconds[rows], which = _modelled(listed, kind_sizes)
            algorithm[rows] = np.array([o.algorithm for o in listed], object)[which]
            protocol[rows] = np.array([o.protocol for o in listed], object)[which]
        low[rows], high[rows] = seconds[rows] * _factors(fabric, kind, curve is not None, kind_sizes)
        bus[rows] = bus_factor(kind, fabric.ranks) * kind_sizes / seconds[rows]
    rung = max(rungs, key=("probed", "datasheet", "typical").index, default=fabric.rung)
    return CollectivePrices(seconds, low, high, bus, algorithm.tolist(), protocol.tolist(), rung)


def _modelled(listed: Sequence[Option], sizes: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    """Seconds, and which of the options NCCL takes for the least."""
    # Powers of two from 64 bytes on, at which corrections of trees are listed.
    octave = np.clip(np.frexp(np.maximum(sizes, 1.0) / 64)[1] - 1, -1, 1000)
    least, which = np.full(len(sizes), np.inf), np.zeros(len(sizes), np.intp)
    seconds = np.full(len(sizes), np.nan)
    for place, option in enumerate(listed):
        share: FloatArray | float = 1.0
        if option.correction is not None:
            share = np.where(octave < 0, 1.0, option.correction.take(octave, mode="clip"))
        reckoned = option.chosen.seconds(sizes, share)
        better = (reckoned < least) & (sizes <= option.most_bytes)
        taken = option.taken.seconds(sizes, share)
        least, which = np.where(better, reckoned, least), np.where(better, place, which)
        seconds = np.where(better, taken, seconds)
    return seconds, which


def _factors(fabric: Fabric, kind: str, probed: bool, sizes: FloatArray) -> FloatArray:
    """Lows and highs over the price, by size; NaN where nothing is known. Shape (2, collectives)."""
    what = "collective" if probed else held_with(fabric, kind)
    modelled = "nccl-untimed" if what == "collective" and fabric.timed_as != fabric.generation else "nccl"
    model, figures = ("fitted", "probed") if probed else (modelled, "datasheet")
    ends = [range_of(what, model, figures, size) or (np.nan, np.nan) for size in (0, LONG_COPY_BYTES)]
    return np.array(ends).T[:, (sizes >= LONG_COPY_BYTES).astype(int)]


def held_with(fabric: Fabric, kind: str) -> str:
    """What shares a range in `ranges.toml`: everything between hosts; sends within one; the others."""
    sends = kind in ("all_to_all", "send_receive")
    return "collective-network" if fabric.hosts > 1 else "collective-send" if sends else "collective"


def fit_collectives(sizes: FloatArray, seconds: FloatArray, model: SecondsOf | None = None) -> SecondsOf:
    """The line through times of collectives of one kind on one fabric; at most three pieces where one will not do.

    Robust: medians of each size, and sizes far off the line weigh less. `model`: seconds over sizes that is scaled to the
    times where the sizes are within a factor of 4, and so do not tell latency from bandwidth.

    Raises ValueError for no times above 0, or sizes that tell nothing and no `model`.
    """
    sizes, seconds = np.asarray(sizes, np.float64), np.asarray(seconds, np.float64)
    good = np.isfinite(sizes) & np.isfinite(seconds) & (sizes > 0) & (seconds > 0)
    sizes, seconds = sizes[good], seconds[good]
    if not len(sizes):
        raise ValueError("nothing to fit")
    if sizes.max() >= LEAST_SPAN * sizes.min():
        return _robust(*_medians(sizes, seconds)).seconds
    if model is None:
        raise ValueError("sizes within a factor of 4 cannot separate latency from bandwidth: give a model")
    scale = float(np.median(seconds / model(sizes)))
    return lambda wanted: scale * model(np.asarray(wanted, np.float64))


def _medians(sizes: FloatArray, seconds: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The median time of each size, or of each of so many classes of sizes; and how many times it is of."""
    if len(np.unique(sizes)) > MOST_POINTS:
        steps = np.log(sizes / sizes.min()) / np.log(sizes.max() / sizes.min())
        of = np.minimum((steps * MOST_POINTS).astype(np.intp), MOST_POINTS - 1)
    else:
        of = np.unique(sizes, return_inverse=True)[1]
    classes = [np.flatnonzero(of == group) for group in np.unique(of)]
    middle = [rows[np.argsort(seconds[rows] / sizes[rows])[len(rows) // 2]] for rows in classes]
    return sizes[middle], seconds[middle], np.array([len(rows) for rows in classes], np.float64)


def _robust(sizes: FloatArray, seconds: FloatArray, counts: FloatArray) -> Pieces:
    doubt = NEAR * np.sqrt(counts.max() / counts)
    fitted = fit(sizes, seconds, doubt)
    for _ in range(PASSES):
        off = np.abs(fitted.seconds(sizes) / seconds - 1)
        typical = max(float(np.median(off)), 1e-6)
        # Huber's weights: a point's doubt grows with the root of how far it is off.
        fitted = fit(sizes, seconds, doubt * np.sqrt(np.maximum(1.0, off / (FAR * typical))))
    return fitted
