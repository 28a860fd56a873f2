"""The same program elsewhere: on another node or link, with other times of kernels, copies and the host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from busfare.errors import InputError
from busfare.nodes import Gpu, Node
from busfare.questions import HostRule, KernelRule, Scaled
from busfare.statements import statement
from busfare.timeline.build.links import shared_links
from busfare.timeline.changes.prefetch import kernels_held
from busfare.timeline.edit import (
    Applied,
    Change,
    Setting,
    applied,
    host_paced,
    nanoseconds_of_kernels,
    nanoseconds_on,
    titled,
    with_durations,
)
from busfare.timeline.model import Timeline, matching

__all__ = [
    "RATIOS", "copy_speed", "host_changes", "host_ratio", "host_times", "kernel_changes", "kernel_times", "on_node",
]  # fmt: skip

#: Rules for kernel times that compare two nodes: a rate of the GPU.
RATIOS = {"bandwidth": "memory_bandwidth_bytes_per_s", "clock": "clock_hz"}
#: Calls by which hosts compare: what programs call most.
HOST_CALLS = ("launch", "synchronise", "copy")


def on_node(node: Node) -> Change:
    """The copies run on another node, or over another link."""

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        if setting.recorded_on is None:
            raise InputError(
                f"{timeline.trace.path}: the trace names no GPU that busfare knows; "
                "say where it was recorded with `recorded_on` NODE"
            )
        duration = nanoseconds_on(timeline, setting.recorded_on, node, setting.model)
        changed = with_durations(timeline, kernels_held(timeline, duration))
        changed = replace(changed, node=node, links=shared_links(timeline.operations, node))
        return applied(
            timeline, changed, timeline.among("kind", "copy", "migration"), statement("assumes.host-kept")
        )

    return Change("node", statement("change.on-node", node=node.name), apply, node)


def copy_speed(factor: float) -> Change:
    """Every copy and migration takes `factor` times less."""

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        moved = timeline.among("kind", "copy", "migration")
        duration = timeline.columns["operation_duration"] / np.where(moved, factor, 1.0)
        return applied(timeline, with_durations(timeline, kernels_held(timeline, duration)), moved)

    return Change("copy_speed", statement("change.copy-speed", factor=factor), apply)


def kernel_times(factor: float, pattern: str = "", ratio: str = "") -> Change:
    """Every kernel whose name matches takes `factor` times its time; `ratio`: the rule of RATIOS that says so."""

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        chosen = matching(timeline, pattern, timeline.among("kind", "kernel", "graph", "set"), "`kernels`")
        duration = timeline.columns["operation_duration"] * np.where(chosen, factor, 1.0)
        return Applied(with_durations(timeline, duration), int(chosen.sum()))

    scaled = titled("kernels", pattern, factor=factor)
    return Change("kernels", statement("change.by", change=scaled, rate=ratio) if ratio else scaled, apply)


def _predicted_kernels(to: Node) -> Change:
    """Kernels take what is predicted for `to`; those of which nothing is predicted keep their times."""

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        if setting.recorded_on is None:
            return Applied(timeline, 0)
        try:
            prices = setting.kernel_prices(timeline, to)
        except InputError as error:
            return Applied(timeline, 0, 0, [statement("assumes.kernels-kept", why=str(error))])
        known = np.isfinite(prices.seconds)
        times = nanoseconds_of_kernels(timeline.columns["operation_duration"], prices, prices.seconds)
        kept = int((~known).sum())
        rests_on = [statement("assumes.some-kernels-kept", count=kept)] if kept else []
        return Applied(with_durations(timeline, times), int(known.sum()), 0, rests_on)

    return Change("kernels", statement("change.kernels-predicted", node=to.name), apply, to)


def host_times(factor: float, measured: bool = False) -> Change:
    """What the host does in calls and between them takes `factor` times its time; its waits are what they wait for.
    `measured`: by what was measured on both nodes.
    """

    def apply(timeline: Timeline, setting: Setting) -> Applied:
        rests_on = [statement("assumes.host-alike")]
        return Applied(host_paced(timeline, factor), timeline.calls.height, 0, rests_on)

    return Change("host", statement(f"change.host{'-measured' * measured}", factor=factor), apply)


def host_ratio(old: Node, new: Node) -> float | None:
    """Host seconds on `new` over those on `old`: the geometric mean of those of HOST_CALLS that both nodes measured; None
    without any.
    """
    costs = [(old.call_cost(name), new.call_cost(name)) for name in HOST_CALLS]
    ratios = [
        there.call_s / here.call_s for here, there in costs if here and there and here.call_s and there.call_s
    ]
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else None


def host_changes(rule: HostRule, recorded_on: Node | None, to: Node | None) -> list[Change]:
    """Host times by rule: `measured` (kept where not both nodes were), `keep`, or a factor."""
    if rule == "keep":
        return []
    if rule != "measured":
        return [host_times(rule)]
    ratio = host_ratio(recorded_on, to) if recorded_on is not None and to is not None else None
    return [] if ratio is None or ratio == 1 else [host_times(ratio, measured=True)]


def kernel_changes(rules: Sequence[KernelRule], recorded_on: Node | None, to: Node | None) -> list[Change]:
    """Kernel times by rule: `predicted` for the other node, where there is one, which goes without saying; `keep`,
    `bandwidth`, `clock`, or a factor. Raises InputError where a node that a rule compares is not known.
    """
    changes: list[Change] = []
    for rule in rules or ("predicted",):
        if rule == "predicted":
            changes += [] if to is None else [_predicted_kernels(to)]
        elif isinstance(rule, Scaled):
            changes.append(kernel_times(*rule))
        elif rule != "keep":
            changes.append(_by_ratio(rule, recorded_on, to))
    return changes


def _by_ratio(rule: str, recorded_on: Node | None, to: Node | None) -> Change:
    if recorded_on is None or to is None:
        raise InputError(
            f"`kernels` {rule}: compares two nodes; name the other with `node`, and this with `recorded_on`"
        )
    fact = RATIOS[rule]
    rates = []
    for node in (recorded_on, to):
        gpu = next((component for component in node.components if isinstance(component, Gpu)), None)
        rates.append(float(getattr(gpu, fact, None) or math.nan))
        if math.isnan(rates[-1]):
            raise InputError(
                f"`kernels` {rule}: {node.name} does not say {fact} of its GPU; give a factor instead"
            )
    return kernel_times(rates[0] / rates[1], ratio=rule)
