"""The same program elsewhere: on another node or link, with other times of kernels, copies and the host."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.node import Gpu, Node, load_node
from busfare.quantities import parse_factor
from busfare.timeline.build.links import shared_links
from busfare.timeline.changes.change import Applied, Asked, Change, Option, Setting
from busfare.timeline.changes.prefetch import kernels_held
from busfare.timeline.edit import among, bytes_of, matching, with_durations
from busfare.timeline.model import Timeline
from busfare.timeline.prices import nanoseconds_on

__all__ = [
    "OPTIONS",
    "PLACE",
    "CopySpeed",
    "Host",
    "Kernels",
    "ToNode",
    "asked",
    "host_changes",
    "host_ratio",
    "kernel_changes",
]

#: Rules for kernel times that compare two nodes: a rate of the GPU, and how it is called.
RATIOS = {"bandwidth": "memory_bandwidth_bytes_per_s", "clock": "clock_hz"}
#: Calls by which hosts compare: a fixed piece of the processor's work at quiet moments (on a machine probed twice 1 to 8 %
#: apart, where launches and synchronisations are 0 to 16 %), else what programs call most.
HOST_CALLS = (("pace",), ("launch", "synchronise"))
PLACE = 90
OPTIONS = (
    Option("--link", "Another link: pcie:5 (x16), nvlink:2x3, c2c:1.", "LINK"),
    Option("--node", "Run on another node.", "NODE", aliases=("--to",)),
    Option(
        "--kernels",
        "Kernel times: keep, bandwidth, clock, 0.8x or REGEX=0.8x; may be repeated.",
        "RULE",
        multiple=True,
    ),
    Option(
        "--host",
        "Host times on another node: measured (by what was measured on both), keep, or 0.8x.",
        "RULE",
        default="measured",
    ),
    Option("--copy-speed", "All copies so many times as fast: 2x.", "FACTOR"),
)


def asked(options: Asked) -> list[Change]:
    """Another link or node, then rules for kernels, the host and copies. Raises InputError."""
    changes: list[Change] = []
    link, node, to = options.text("link"), options.text("node"), None
    if link is not None:
        changes.append(ToNode(load_node(link)))
    if node is not None:
        to = load_node(node)
        changes.append(ToNode(to))
    rules = [r for r in options.several("kernels") if not (options.check_only and r in RATIOS)]
    changes += kernel_changes(tuple(rules), options.recorded_on, to)
    changes += host_changes(options.text("host") or "measured", options.recorded_on, to)
    if (speed := options.text("copy_speed")) is not None:
        changes.append(CopySpeed(parse_factor(speed, "--copy-speed")))
    return changes


@dataclass(frozen=True)
class ToNode:
    """The copies run on another node, or over another link."""

    node: Node

    @property
    def title(self) -> str:
        return f"on {self.node.name}"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--to", self.node.name)

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        if setting.recorded_on is None:
            raise InputError(
                f"{timeline.trace.path}: the trace names no GPU that busfare knows; "
                "say where it was recorded with --from NODE"
            )
        moved = among(timeline, "kind", "copy", "migration")
        duration = nanoseconds_on(timeline, setting.recorded_on, self.node, setting.model)
        changed = with_durations(timeline, kernels_held(timeline, duration))
        links = shared_links(timeline.operations, self.node)
        return Applied(
            replace(changed, node=self.node, links=links),
            int(moved.sum()),
            bytes_of(timeline, moved),
            ["kernels keep their times, and the host where not both were measured, unless a rule is given"],
        )


@dataclass(frozen=True)
class CopySpeed:
    """Every copy and migration takes `factor` times less."""

    factor: float

    @property
    def title(self) -> str:
        return f"copies {self.factor:g} times as fast"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--copy-speed", f"{self.factor:g}x")

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        moved = among(timeline, "kind", "copy", "migration")
        duration = timeline.columns["operation_duration"] / np.where(moved, self.factor, 1.0)
        changed = with_durations(timeline, kernels_held(timeline, duration))
        return Applied(changed, int(moved.sum()), bytes_of(timeline, moved))


@dataclass(frozen=True)
class Kernels:
    """Kernel times by a rule: every kernel whose name matches takes `factor` times its time."""

    factor: float
    pattern: str = ""
    why: str = ""

    @property
    def title(self) -> str:
        which = f" of {self.pattern}" if self.pattern else ""
        return f"kernel times{which} × {self.factor:.4g}" + (f" ({self.why})" if self.why else "")

    @property
    def options(self) -> tuple[str, ...]:
        return ("--kernels", f"{self.pattern}={self.factor:g}x" if self.pattern else f"{self.factor:g}x")

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        chosen = among(timeline, "kind", "kernel", "graph", "set")
        chosen &= matching(timeline, self.pattern)
        duration = timeline.columns["operation_duration"] * np.where(chosen, self.factor, 1.0)
        return Applied(with_durations(timeline, duration), int(chosen.sum()))


@dataclass(frozen=True)
class Host:
    """What the host does in calls and between them takes `factor` times its time; its waits are what they wait for."""

    factor: float
    why: str = ""

    @property
    def title(self) -> str:
        return f"host times × {self.factor:.4g}" + (f" ({self.why})" if self.why else "")

    @property
    def options(self) -> tuple[str, ...]:
        return ("--host", f"{self.factor:g}x")

    def apply(self, timeline: Timeline, setting: Setting) -> Applied:
        columns = timeline.columns
        changed = {name: self._scaled(columns[name]) for name in ("call_own", "call_gap")}
        return Applied(
            timeline.with_columns(**changed),
            timeline.calls.height,
            0,
            ["all that the host does becomes faster or slower alike"],
        )

    def _scaled(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        # A gap below zero is a call that began before the one it waits for had ended.
        return np.where(times > 0, np.round(times * self.factor), times).astype(np.int64)


def host_ratio(old: Node, new: Node) -> float | None:
    """Host seconds on `new` over those on `old`, by the first of HOST_CALLS that both nodes measured; None without any."""
    for names in HOST_CALLS:
        costs = [(old.call_cost(name), new.call_cost(name)) for name in names]
        if all(here and there and here.call_s and there.call_s for here, there in costs):
            ratios = [there.call_s / here.call_s for here, there in costs if here and there]
            return float(np.exp(np.mean(np.log(ratios))))
    return None


def host_changes(rule: str, recorded_on: Node | None, to: Node | None) -> list[Change]:
    """Host times by rule: `measured` (kept where not both nodes were), `keep`, or a factor. Raises InputError."""
    if rule == "keep":
        return []
    if rule != "measured":
        return [Host(parse_factor(rule, "--host"))]
    ratio = host_ratio(recorded_on, to) if recorded_on is not None and to is not None else None
    return [] if ratio is None or ratio == 1 else [Host(ratio, "measured on both")]


def kernel_changes(rules: tuple[str, ...], recorded_on: Node | None, to: Node | None) -> list[Change]:
    """Kernel times by rule: `keep`, `bandwidth`, `clock`, a factor, or REGEX=FACTOR. Raises InputError.

    Whatever rule is not given, kernels keep their recorded times.
    """
    changes: list[Change] = []
    for rule in rules:
        if rule == "keep":
            continue
        if rule in RATIOS:
            changes.append(_by_ratio(rule, recorded_on, to))
            continue
        pattern, _, factor = rule.rpartition("=")
        changes.append(Kernels(parse_factor(factor, "--kernels"), pattern))
    return changes


def _by_ratio(rule: str, recorded_on: Node | None, to: Node | None) -> Kernels:
    if recorded_on is None or to is None:
        raise InputError(
            f"--kernels {rule}: compares two nodes; name the other with --to, and this with --from"
        )
    old, new = (_gpu_rate(node, rule) for node in (recorded_on, to))
    return Kernels(old / new, "", f"ratio of {'memory bandwidths' if rule == 'bandwidth' else 'clocks'}")


def _gpu_rate(node: Node, rule: str) -> float:
    gpu = next((component for component in node.components if isinstance(component, Gpu)), None)
    value = float(getattr(gpu, RATIOS[rule], None) or math.nan)
    if math.isnan(value):
        raise InputError(
            f"--kernels {rule}: {node.name} does not say {RATIOS[rule]} of its GPU; give a factor instead"
        )
    return value
