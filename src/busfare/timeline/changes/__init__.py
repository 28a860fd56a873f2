"""Changes to a program, as changes to its timeline. To add one: what makes it, in a module here, a field of `WhatIf`, and a
line of `changes_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from busfare.nodes import Node, load_node
from busfare.questions import WhatIf
from busfare.timeline.changes.durations import copy_speed, host_changes, kernel_changes, on_node, prefetch
from busfare.timeline.changes.fewer_copies import batch, collect, dedupe, keep_on_gpu, remove
from busfare.timeline.changes.overlap import pin, streams, without_synchronisations, without_waiting
from busfare.timeline.edit import Applied, Change, Setting
from busfare.timeline.model import NOTHING, Timeline

__all__ = ["Applied", "Change", "Setting", "apply_all", "changes_of"]

Value = TypeVar("Value")


def changes_of(asked: WhatIf, recorded_on: Node | None) -> list[Change]:
    """The changes to a program that are asked for, in the order in which it would be changed. Raises InputError for a node
    that is not known, and for rules that need to know two.
    """
    to, link = (None if where is None else load_node(where) for where in (asked.node, asked.link))
    return [
        *[dedupe()] * asked.dedupe,
        *[keep_on_gpu()] * asked.keep_on_gpu,
        *map(remove, asked.remove),
        *[prefetch()] * asked.prefetch,
        *_given(pin, asked.pin),
        *_given(batch, asked.batch_below),
        *_given(collect, asked.collect_below),
        *_given(without_waiting, asked.async_),
        *_given(without_synchronisations, asked.drop_synchronisations),
        *([] if asked.streams is None else [streams(asked.streams, asked.kernel)]),
        *_given(on_node, link),
        *_given(on_node, to),
        *_given(copy_speed, asked.copy_speed),
        *kernel_changes(asked.kernels, recorded_on, to),
        *host_changes(asked.host, recorded_on, to),
    ]


def _given(change: Callable[[Value], Change], value: Value | None) -> list[Change]:
    return [] if value is None else [change(value)]


def apply_all(timeline: Timeline, changes: Sequence[Change], setting: Setting) -> Applied:
    """`timeline` after `changes`, in the order given; counts, bytes and conditions of all of them. Raises InputError."""
    done = Applied(timeline, 0, touched=NOTHING)
    for change in changes:
        done = done.then(change.apply(done.timeline, setting))
    return done
