"""Changes to a program, as changes to its timeline. To add one: what makes it, in a module here, a field of `WhatIf`, and a
line of `changes_of`.
"""

from __future__ import annotations

from collections.abc import Sequence

from busfare.nodes import Node, load_node
from busfare.questions import WhatIf
from busfare.timeline.changes.elsewhere import copy_speed, host_changes, kernel_changes, on_node
from busfare.timeline.changes.fewer_copies import batch, collect, dedupe, keep_on_gpu, remove
from busfare.timeline.changes.holding import pin, without_synchronisations, without_waiting
from busfare.timeline.changes.prefetch import prefetch
from busfare.timeline.changes.streams import streams
from busfare.timeline.edit import Applied, Change, Setting
from busfare.timeline.model import NOTHING, Timeline, either

__all__ = ["Applied", "Change", "Setting", "apply_all", "changes_of"]


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
        *([] if asked.pin is None else [pin(asked.pin)]),
        *([] if asked.batch_below is None else [batch(asked.batch_below)]),
        *([] if asked.collect_below is None else [collect(asked.collect_below)]),
        *([] if asked.async_ is None else [without_waiting(asked.async_)]),
        *(
            []
            if asked.drop_synchronisations is None
            else [without_synchronisations(asked.drop_synchronisations)]
        ),
        *([] if asked.streams is None else [streams(asked.streams, asked.kernel)]),
        *(on_node(node) for node in (link, to) if node is not None),
        *([] if asked.copy_speed is None else [copy_speed(asked.copy_speed)]),
        *kernel_changes(asked.kernels, recorded_on, to),
        *host_changes(asked.host, recorded_on, to),
    ]


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
