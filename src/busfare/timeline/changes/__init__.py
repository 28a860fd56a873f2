"""Changes to a program, as changes to its timeline. To add one: what makes it, in a module here, and its row of OPTIONS."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from busfare.errors import InputError
from busfare.nodes import Node, load_node
from busfare.quantities import parse_bytes, parse_factor
from busfare.timeline.changes.elsewhere import RATIOS, copy_speed, host_changes, kernel_changes, on_node
from busfare.timeline.changes.fewer_copies import batch, collect, dedupe, keep_on_gpu, remove
from busfare.timeline.changes.holding import pin, without_synchronisations, without_waiting
from busfare.timeline.changes.prefetch import prefetch
from busfare.timeline.changes.streams import streams
from busfare.timeline.edit import Applied, Change, Setting
from busfare.timeline.model import NOTHING, Timeline, either

__all__ = ["OPTIONS", "Applied", "Change", "Option", "Setting", "apply_all", "as_options", "changes_of"]


@dataclass(frozen=True)
class Option:
    """An option of `what-if`. `metavar` None: a flag; in brackets: its value may be left out and is then empty.

    `make` makes the change of its value, as `read` from text, and of that of the option `beside` it; without `make` it is
    that option, or a rule about two nodes.
    """

    name: str
    help: str
    make: Callable[..., Change] | None = None
    metavar: str | None = None
    read: Callable[[str], Any] = str
    beside: str | None = None
    multiple: bool = False
    default: str | None = None
    aliases: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name of its value."""
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def bare(self) -> bool:
        """Whether its value may be left out."""
        return bool(self.metavar and self.metavar.startswith("["))

    def changes(self, values: Mapping[str, Any]) -> list[Change]:
        """Those that its values ask for."""
        given = values.get(self.key)
        if self.make is None or given is None or given is False:
            return []
        if self.metavar is None:
            return [self.make()]
        beside = [values[self.beside]] if self.beside and values.get(self.beside) else []
        return [self.make(self.read(each), *beside) for each in (given if self.multiple else [given])]


#: Of `what-if`, in the order in which a program would be changed: first by what copies carry, while all are there.
OPTIONS = (
    Option("--dedupe", "Send unchanged buffers once.", dedupe),
    Option("--keep-on-gpu", "What comes back and goes in again stays on the GPU.", keep_on_gpu),
    Option(
        "--remove", "Do without h2d, d2h, d2d, p2p, copy, set or migration; may be repeated.", remove, "WHAT",
        multiple=True,
    ),
    Option("--prefetch", "Send managed memory before kernels need it.", prefetch),
    Option("--pin", "Pageable host buffers become pinned; all, or those of matching copies.", pin, "[REGEX]"),
    Option(
        "--batch-below", "Pack copies smaller than this that follow each other.", batch, "SIZE",
        partial(parse_bytes, option="--batch-below"),
    ),
    Option(
        "--collect-below", "Results smaller than this stay on the GPU and come back once, at the end.", collect, "SIZE",
        partial(parse_bytes, option="--collect-below"),
    ),
    Option(
        "--async", "Copies to the GPU, or all that match, no longer hold the host up.", without_waiting, "[REGEX]"
    ),
    Option(
        "--drop-synchronisations", "Only waits behind copies to the host, and last ones, stay.",
        without_synchronisations, "[REGEX]",
    ),
    Option(
        "--streams", "Spread chunks of one stream over N streams and buffers.", streams, "N", int, beside="kernel",
    ),
    Option("--kernel", "With --streams: only chunks with such a kernel.", None, "REGEX", default=""),
    Option(
        "--link", "Another link: pcie:5 (x16), nvlink:2x3, c2c:1.", on_node, "LINK", load_node,
    ),
    Option("--node", "Run on another node.", on_node, "NODE", load_node, aliases=("--to",)),
    Option(
        "--kernels", "Kernel times: keep, bandwidth, clock, 0.8x or REGEX=0.8x; may be repeated.", None, "RULE",
        multiple=True,
    ),
    Option(
        "--host", "Host times on another node: measured (by what was measured on both), keep, or 0.8x.", None, "RULE",
        default="measured",
    ),
    Option(
        "--copy-speed", "All copies so many times as fast: 2x.", copy_speed, "FACTOR",
        partial(parse_factor, option="--copy-speed"),
    ),
)  # fmt: skip


def changes_of(
    values: Mapping[str, Any], recorded_on: Node | None, *, check_only: bool = False, others: bool = False
) -> list[Change]:
    """The changes asked for, by the options' keys. Raises InputError for what cannot be read, or where nothing was asked,
    and no `others` than these.

    With `check_only` rules that compare two nodes are passed over: nothing needs to be read to check the rest.
    """
    if values.get("kernel") and values.get("streams") is None:
        raise InputError("--kernel: says which chunks --streams N spreads; add that")
    changes = [change for option in OPTIONS for change in option.changes(values)]
    if values.get("link") is not None and values.get("node") is not None:
        raise InputError("--link, --to: both say where the run goes; give one of them")
    to = load_node(values["node"]) if values.get("node") is not None else None
    rules = tuple(values.get("kernels") or ())
    asked = tuple(rule for rule in rules if not (check_only and rule in RATIOS))
    changes += kernel_changes(asked, recorded_on, to)
    changes += host_changes(values.get("host") or "measured", recorded_on, to)
    if not changes and not rules and not others:
        raise InputError("what-if: say what to change, as in --pin, --streams 3 or --to h200-sxm; see --help")
    return changes


def as_options(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of a command that ask for the same."""
    words: list[str] = []
    for option in OPTIONS:
        given = values.get(option.key, ())
        for each in given if isinstance(given, tuple) else (given,):
            words += [option.name, *([] if each in ("", True) else [str(each)])]
    return tuple(words)


def apply_all(timeline: Timeline, changes: Sequence[Change], setting: Setting) -> Applied:
    """`timeline` after `changes`, in the order given; counts, bytes and conditions of all of them. Raises InputError."""
    done = Applied(timeline, 0, touched=NOTHING)
    for change in changes:
        applied = change.apply(done.timeline, setting)
        conditions = list(dict.fromkeys([*done.rests_on, *applied.rests_on]))
        sums = done.count + applied.count, done.bytes + applied.bytes
        touched = either(done.touched, applied.touched if applied.count else NOTHING)
        done = Applied(applied.timeline, *sums, conditions, touched)
    return done
