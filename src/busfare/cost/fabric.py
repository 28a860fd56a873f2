"""What the links between ranks carry, and what NCCL makes of them: from the node's graph."""

import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from math import inf
from pathlib import Path
from typing import Any, Literal

from busfare.errors import InputError
from busfare.nodes import CollectiveCurve, Cpu, Gpu, Memory, Nic, Node, NvlinkLink, PcieLink, Switch
from busfare.nodes.link import PCIE, FabricLink, Link

#: NCCL's tables are by generation, the last one that a GPU's compute capability reaches.
GENERATIONS = ((7, "Volta"), (8, "Ampere"), (9, "Hopper"), (10, "Blackwell"))
#: The first and the last generation with timed kernels.
TIMED = (1, 2)
#: More ranks than any job has.
MOST_RANKS = 65536


@cache
def nccl() -> dict[str, Any]:
    """NCCL's own figures, as in `nccl.toml`: 1e9 bytes a second and microseconds."""
    figures: dict[str, Any] = tomllib.loads(Path(__file__).with_name("nccl.toml").read_text("utf-8"))
    return figures


@dataclass(frozen=True)
class Fabric:
    """The links of `ranks` GPUs, one per rank, the first GPUs of each of `hosts` equal nodes; bytes per second.

    `wires`: the narrowest link of a ring, all channels together. `searched`: NCCL's estimate of it, `channels` times a rate
    from its list. `pair`: from one rank to the next. `fan_out`: from a rank to all others. `generation`: the row of NCCL's
    tables. `timed_as`: the nearest generation with timed kernels. `through`: the connection between the GPUs of a node.
    `network`: of a node; None with a single node. `nvls`: channels of reductions in the switch, and their rate; None if off.
    """

    ranks: int
    hosts: int
    generation: int
    timed_as: int
    capability: float
    local: Literal["nvlink", "pcie"]
    through: str
    wires: float
    searched: float
    channels: int
    pair: float
    fan_out: float
    processor: Literal["amd", "power", "other"]
    network: float | None
    nvls: tuple[int, float] | None
    rung: Literal["datasheet", "typical"]
    curves: tuple[CollectiveCurve, ...] = ()

    @classmethod
    def of(cls, node: Node, ranks: int, hosts: int = 1, nvls: bool | None = None) -> "Fabric":
        """The fabric of `ranks` GPUs on `hosts` such nodes. `nvls`: None for what the node's switch says. Raises InputError
        for numbers of ranks that do not fit, GPUs that NCCL does not run on, and GPUs without a path.
        """
        if not 2 <= ranks <= MOST_RANKS or hosts < 1 or ranks % hosts:
            raise InputError(
                f"`ranks` {ranks} on `hosts` {hosts}: give 2 to {MOST_RANKS} ranks, the same number on each host"
            )
        local = ranks // hosts
        if local > len(node.gpus()):
            raise InputError(
                f"node {node.name}: has {len(node.gpus())} GPU{'s' * (len(node.gpus()) > 1)}, not {local}; name a node that "
                "has, or give the number of such nodes with `hosts`"
            )
        capability = _capability(node, node.gpu(0))
        links = _Links(node, [gpu.name for gpu in node.gpus()[:local]], capability)
        # One card a GPU where the file names none, and as NCCL takes an unknown one where it does not say its rate.
        unknown = nccl()["links"]["network"] * 1e9
        cards = [c.bandwidth_bytes_per_s for c in node.components if isinstance(c, Nic)]
        network = sum(rate or unknown for rate in cards or [None] * local) if hosts > 1 else inf
        wires = min(links.ring, network)
        channels, rate = _channels(wires, capability)
        switch = links.switch
        wanted = bool(switch and switch.multicast) if nvls is None else nvls
        generation = max([n for n, (least, _) in enumerate(GENERATIONS) if capability >= least], default=0)
        return cls(
            ranks=ranks,
            hosts=hosts,
            generation=generation,
            timed_as=min(max(generation, TIMED[0]), TIMED[1]),
            capability=capability,
            local="nvlink" if links.nvlink or local == 1 else "pcie",
            through=links.through,
            wires=wires,
            searched=channels * rate,
            channels=channels,
            pair=min(links.pair, network / local),
            fan_out=min(links.fan_out, network / local),
            processor=_processor(node),
            network=network if hosts > 1 else None,
            nvls=_nvls(links, local, capability) if wanted and hosts == 1 else None,
            rung="typical" if hosts > 1 and not (cards and all(cards)) else "datasheet",
            curves=tuple(
                curve
                for curve in node.collectives
                if (curve.ranks, curve.hosts) == (ranks, hosts) and (nvls is None or curve.nvls == nvls)
            ),
        )


def _capability(node: Node, gpu: Gpu) -> float:
    text = gpu.compute_capability
    if text is None or text.startswith("gfx"):
        why = (
            "is from AMD, and RCCL performs differently" if text else "has no compute_capability in its file"
        )
        raise InputError(
            f"node {node.name}: its GPU {why}: collectives need NCCL; name a node with NVIDIA GPUs"
        )
    return float(text)


def _processor(node: Node) -> Literal["amd", "power", "other"]:
    titles = " ".join(c.title for c in node.components if isinstance(c, Cpu)).upper()
    return "amd" if "AMD" in titles or "EPYC" in titles else "power" if "POWER" in titles else "other"


class _Links:
    """The links between the GPUs called `names`: of a ring of them, from one to the next, and out of one."""

    def __init__(self, node: Node, names: list[str], capability: float) -> None:
        self.node, self.capability = node, capability
        self.switch: Switch | None = None
        self.nvlink, self.through = True, "nothing"
        self.ring = self.pair = self.fan_out = inf
        if len(names) == 1:
            return
        if not self._switched(names) and not self._direct(names):
            self._by_host(names)

    def rate(self, link: Link) -> float:
        """What NCCL takes a link to carry; bytes a second and direction."""
        figures = nccl()["links"]
        if isinstance(link, NvlinkLink):
            rates = {float(key): value for key, value in figures["nvlink"].items()}
            listed = [key for key in rates if key <= self.capability]
            return float(link.links * rates[max(listed, default=min(rates))] * 1e9)
        if isinstance(link, PcieLink):
            return float(figures["pcie_share"] * link.lanes * PCIE[link.generation].bits_per_s / 8)
        if isinstance(link, FabricLink):
            raise InputError(
                f"node {self.node.name}: its GPUs are joined by {link.label}, unknown to NCCL's model; name another node"
            )
        return link.line_rate

    def _switched(self, names: list[str]) -> bool:
        """Whether one switch joins all by NVLink."""
        for switch in (c for c in self.node.components if isinstance(c, Switch)):
            widths = [self._between(name, switch.name) for name in names]
            if all(widths):
                self.switch, self.through = switch, "NVLink switch"
                self.ring = self.pair = self.fan_out = min(widths)
                return True
        return False

    def _between(self, first: str, second: str) -> float:
        """NVLinks between two components."""
        ends = {first, second}
        return sum(
            self.rate(w) for w in self.node.links if isinstance(w, NvlinkLink) and set(w.between) == ends
        )

    def _direct(self, names: list[str]) -> bool:
        """Whether NVLinks between the GPUs themselves reach all: rings take every link of the GPU that has the fewest."""
        wires = {frozenset(ends): self._between(*ends) for ends in combinations(names, 2)}
        joined = [names[0]]
        for here in joined:
            joined += [name for name in names if name not in joined and wires[frozenset((here, name))]]
        if len(joined) < len(names):
            return False
        self.through = "NVLink"
        self.ring = min(sum(rate for ends, rate in wires.items() if name in ends) for name in names)
        self.pair = min(rate for rate in wires.values() if rate)
        # Of data to all, a pair that no NVLink joins has another GPU in between, and takes two links.
        self.fan_out = min(min(self.ring, (len(names) - 1) * wires[ends] or self.ring / 2) for ends in wires)
        return True

    def _by_host(self, names: list[str]) -> None:
        """PCIe and processors in between: each link carries the hops of the ring that cross it, a direction each."""
        self.nvlink = False
        hops = list(pairwise([*names, names[0]]))
        # Each link of a route with the end at which data enters it.
        routes = [
            [(link, link.between[not forward]) for link, forward in self.node.route(a, b).crossed(a)]
            for a, b in hops
        ]
        rates = {id(link): self.rate(link) for route in routes for link, _ in route}
        flows = Counter((id(link), end) for route in routes for link, end in route)
        crossing = any(isinstance(self.node.component(end), Cpu) for route in routes for _, end in route)
        processor = _processor(self.node)
        peers = not crossing or (processor == "amd" and len(names) == 2)
        share = nccl()["links"]["intel_peer_share"] if crossing and processor == "other" else 1.0
        self.through = "PCIe" if peers else "host memory"
        self.ring = self.fan_out = min(rates[link] / count for (link, _), count in flows.items()) * share
        self.pair = min(min(rates[id(link)] for link, _ in route) for route in routes) * share
        held = [c.bandwidth_bytes_per_s for c in self.node.components if isinstance(c, Memory)]
        if not peers and held and all(held):
            # Every hop through host memory writes and reads it.
            memory = sum(rate for rate in held if rate)
            self.ring = min(self.ring, memory / (2 * len(names)))
            self.fan_out, self.pair = min(self.fan_out, self.ring), min(self.pair, memory / 2)


def _rates(capability: float) -> list[float]:
    """Rates that a channel may have, fastest first."""
    listed = nccl()["channels"]["rates"]
    return [rate * 1e9 for rate in listed[max((k for k in listed if capability >= float(k)), key=float)]]


def _channels(wires: float, capability: float) -> tuple[int, float]:
    """How many channels NCCL finds, and at which rate: the first that fill the wires, else those that come nearest. Fast
    channels are doubled, at half the rate each.
    """
    rates, most = _rates(capability), nccl()["channels"]["most"]
    best = (1, min(wires, rates[-1]))
    for place, rate in enumerate(rates):
        count = min(int(wires // rate), most)
        if count * rate > best[0] * best[1]:
            best = (count, rate)
        # It stops where the wires are full, and tries no rate of less than half the one found.
        if count and (best[0] * best[1] >= wires or rates[min(place + 1, len(rates) - 1)] < 0.49 * best[1]):
            break
    count, rate = best
    if rate < 25e9 or (capability > 8.0 and rate < 50e9 and count > 4):
        return best
    doubled = min(2 * count, most)
    return doubled, rate * count / doubled


def _nvls(links: _Links, ranks: int, capability: float) -> tuple[int, float]:
    """Channels of reductions in the switch, one a GPU, and their rate. Raises InputError where there can be none."""
    if links.switch is None or capability < 9:
        raise InputError(
            f"node {links.node.name}: nvls needs Hopper or newer GPUs on one NVLink switch; leave it out"
        )
    return ranks, max(
        rate for rate in _rates(capability) if rate * ranks <= max(links.ring, _rates(capability)[-1] * ranks)
    )
