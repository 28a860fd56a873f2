"""The options of `what-if` as changes, in the order in which a program would be changed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from busfare.errors import InputError
from busfare.node import Gpu, Node, load_node
from busfare.quantities import parse_bytes, parse_factor
from busfare.timeline.changes.arguments import AsArguments
from busfare.timeline.changes.change import Change, CopySpeed, Kernels, Remove, ToNode
from busfare.timeline.changes.host import host_changes
from busfare.timeline.changes.packing import Batch, Collect
from busfare.timeline.changes.pin import Pin
from busfare.timeline.changes.prefetch import Prefetch
from busfare.timeline.changes.repeated import Dedupe
from busfare.timeline.changes.resident import KeepOnGpu
from busfare.timeline.changes.streams import Streams
from busfare.timeline.changes.waiting import Async, DropSynchronisations

__all__ = ["REMOVABLE", "Options", "changes_of", "kernel_changes"]

RATIOS = ("bandwidth", "clock")
REMOVABLE = ("h2d", "d2h", "d2d", "p2p", "copy", "set", "migration")


@dataclass(frozen=True)
class Options:
    """What was asked on the command line; None or empty: not asked."""

    pin: str | None = None
    asynchronous: str | None = None
    drop_synchronisations: str | None = None
    batch_below: str | None = None
    with_loop: bool = False
    collect_below: str | None = None
    as_arguments: bool = False
    streams: int | None = None
    kernel: str = ""
    dedupe: bool = False
    keep_on_gpu: bool = False
    prefetch: bool = False
    remove: tuple[str, ...] = ()
    link: str | None = None
    node: str | None = None
    kernels: tuple[str, ...] = ()
    host: str = "measured"
    copy_speed: str | None = None


def changes_of(options: Options, recorded_on: Node | None, *, check_only: bool = False) -> list[Change]:
    """The changes asked for. Raises InputError for what cannot be read, and where nothing was asked.

    With `check_only` rules that compare two nodes are passed over: nothing needs to be read to check the rest.
    """
    changes: list[Change] = []
    for what in options.remove:
        if what not in REMOVABLE:
            raise InputError(f"--remove {what[:40]!r}: one of {', '.join(REMOVABLE)}")
        changes.append(Remove(what))
    if options.dedupe:
        changes.append(Dedupe())
    if options.keep_on_gpu:
        changes.append(KeepOnGpu())
    if options.prefetch:
        changes.append(Prefetch())
    if options.pin is not None:
        changes.append(Pin(options.pin))
    if options.batch_below is not None:
        changes.append(Batch(parse_bytes(options.batch_below), options.with_loop))
    elif options.with_loop:
        raise InputError("--with-loop: goes with --batch-below SIZE, whose copies the loop makes")
    if options.collect_below is not None:
        changes.append(Collect(parse_bytes(options.collect_below)))
    if options.as_arguments:
        changes.append(AsArguments())
    if options.asynchronous is not None:
        changes.append(Async(options.asynchronous))
    if options.drop_synchronisations is not None:
        changes.append(DropSynchronisations(options.drop_synchronisations))
    if options.streams is not None:
        if not 1 <= options.streams <= 1024:
            raise InputError(f"--streams {options.streams}: give 1 to 1024")
        changes.append(Streams(options.streams, options.kernel))
    to: Node | None = None
    if options.link is not None:
        changes.append(ToNode(load_node(options.link)))
    if options.node is not None:
        to = load_node(options.node)
        changes.append(ToNode(to))
    rules = tuple(rule for rule in options.kernels if not (check_only and rule in RATIOS))
    changes += kernel_changes(rules, recorded_on, to)
    changes += host_changes(options.host, recorded_on, to)
    if options.copy_speed is not None:
        changes.append(CopySpeed(parse_factor(options.copy_speed, "--copy-speed")))
    if not changes and not options.kernels:
        raise InputError("what-if: say what to change, as in --pin, --streams 3 or --to h200-sxm; see --help")
    return changes


def kernel_changes(rules: tuple[str, ...], recorded_on: Node | None, to: Node | None) -> list[Change]:
    """Kernel times by rule: `keep`, `bandwidth`, `clock`, a factor, or REGEX=FACTOR. Raises InputError."""
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
    what = "memory_bandwidth_bytes_per_s" if rule == "bandwidth" else "clock_hz"
    rates = [_gpu_rate(node, what) for node in (recorded_on, to)]
    for node, rate in zip((recorded_on, to), rates, strict=True):
        if not rate:
            raise InputError(
                f"--kernels {rule}: {node.name} does not say {what} of its GPU; give a factor instead"
            )
    old, new = (rate or math.nan for rate in rates)
    return Kernels(old / new, "", f"ratio of {'memory bandwidths' if rule == 'bandwidth' else 'clocks'}")


def _gpu_rate(node: Node, what: str) -> float | None:
    gpu = next((component for component in node.components if isinstance(component, Gpu)), None)
    value = getattr(gpu, what, None)
    return None if value is None else float(value)
