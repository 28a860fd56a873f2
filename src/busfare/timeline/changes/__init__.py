"""Changes to a program's timeline. To add one: a module here that makes it, a field of `WhatIf`, a line of `changes_of`."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from busfare.nodes import Node, load_node
from busfare.questions import WhatIf
from busfare.timeline.changes.device_memory import pool
from busfare.timeline.changes.durations import copy_speed, host_changes, kernel_changes, on_node, prefetch
from busfare.timeline.changes.fewer_copies import batch, collect, dedupe, keep_on_gpu, remove
from busfare.timeline.changes.overlap import pin, streams, without_synchronisations, without_waiting
from busfare.timeline.edit import Applied, Change, Setting
from busfare.timeline.model import NOTHING, Timeline

__all__ = ["Applied", "Change", "Setting", "apply_all", "changes_of"]

Value = TypeVar("Value")


def changes_of(question: WhatIf, recorded_on: Node | None) -> list[Change]:
    """The changes to a program that are asked for, in the order in which it would be changed. Raises InputError for a node
    that is not known, and for rules that need to know two.
    """
    to, link = (None if where is None else load_node(where) for where in (question.node, question.link))
    return [
        *[dedupe()] * question.dedupe,
        *[keep_on_gpu()] * question.keep_on_gpu,
        *map(remove, question.remove),
        *[prefetch()] * question.prefetch,
        *_given(pin, question.pin),
        *_given(batch, question.batch_below),
        *_given(collect, question.collect_below),
        *_given(without_waiting, question.async_),
        *[pool()] * question.pool,
        *_given(without_synchronisations, question.drop_synchronisations),
        *([] if question.streams is None else [streams(question.streams, question.kernel)]),
        *_given(on_node, link),
        *_given(on_node, to),
        *_given(copy_speed, question.copy_speed),
        *kernel_changes(question.kernels, recorded_on, to),
        *host_changes(question.host, recorded_on, to),
    ]


def _given(change: Callable[[Value], Change], value: Value | None) -> list[Change]:
    return [] if value is None else [change(value)]


def apply_all(timeline: Timeline, changes: Sequence[Change], setting: Setting) -> Applied:
    """`timeline` after `changes`, in the order given; counts, bytes and conditions of all of them. Raises InputError."""
    done = Applied(timeline, touched=NOTHING)
    for change in changes:
        done = done.then(change.apply(done.timeline, setting))
    return done
