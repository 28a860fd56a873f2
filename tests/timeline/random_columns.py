"""Random timelines as columns of the core: threads that hand over, streams of all kinds, events, engines, links, joints.

And what a trace of one that was played would say, and the timeline that is found from it alone.
"""

from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from busfare.timeline import _core
from busfare.timeline.model import at_rest, typed

__all__ = ["TIMES", "Columns", "columns", "joined", "only_operations", "recorded", "taken_apart", "timelines"]

Columns = dict[str, np.ndarray[Any, Any]]
TIMES = ("call_start", "call_end", "operation_start", "operation_end")
LEGACY, BLOCKING, NON_BLOCKING = 0, 1, 2
#: The shortest operation, and how far lags go below zero; so what is known when an operation starts comes in time.
SHORTEST, EARLIEST = 20, -4


@st.composite
def timelines(draw: st.DrawFn, *, calls: int = 24, joints: bool = False, **how: bool) -> Columns:
    """Valid columns with up to `calls` calls, with joints or without, as in `columns`."""
    chance = draw(st.randoms(use_true_random=False))
    scale = draw(st.sampled_from([1, 300, 5000]))
    drawn = columns(chance, draw(st.integers(1, calls)), scale, **how)
    return joined(chance, drawn, scale) if joints else drawn


def joined(chance: Random, columns: Columns, scale: int) -> Columns:
    """`columns` with joints, mutual and one-sided, that can all happen.

    As it plays without them, at some moment all that arrive have begun and none that awaits them has ended, so nobody
    comes in time only by ending first.
    """
    played = _core.play(columns)
    calls, operations = len(columns["call_own"]), len(columns["operation_call"])
    # Lags below zero let others begin before an end, and operations before their launch.
    begun = np.append(played["call_start"], played["operation_start"] - EARLIEST * scale)
    ended = np.append(played["call_end"], played["operation_end"] + 2 * EARLIEST * scale)
    awaits = np.full(calls + operations, -1, np.int32)
    may = np.append(np.ones(calls, bool), columns["operation_bytes_per_s"] == 0)
    members: list[list[int]] = []
    for joint in range(chance.randint(0, 5)):
        now = chance.randint(0, int(played["makespan"]))
        # The nearest: others would hardly wait.
        there = sorted(np.flatnonzero(begun < now).tolist(), key=begun.item)[-5:]
        running = sorted(np.flatnonzero((ended > now) & may & (awaits < 0)).tolist(), key=ended.item)[:5]
        members.append(chance.sample(there, chance.randint(0, len(there))))
        awaits[chance.sample(running, chance.randint(0, len(running)))] = joint
    waiting = awaits[calls:] >= 0
    return columns | typed(
        {
            "call_awaits": awaits[:calls],
            "operation_awaits": awaits[calls:],
            "joint_begin": np.cumsum([0, *map(len, members)]),
            "joint_members": [member for joint in members for member in joint],
            "operation_engine": np.where(waiting, -1, columns["operation_engine"]),
            "operation_takes": np.where(waiting, 1, columns["operation_takes"]),
            # What follows a joint must come in time for engines, too, whatever lags lie below zero.
            "call_own": columns["call_own"] - 4 * EARLIEST * scale * (awaits[:calls] >= 0),
        }
    )


def columns(
    chance: Random, count: int, scale: int, *, engines: bool = True, links: bool = False, early: bool = True,
    unordered: bool = False, squeezed: bool = False,
) -> Columns:  # fmt: skip
    """A timeline of `count` calls whose times are multiples of `scale` ns. `early`: lags may lie below zero; `unordered`:
    orders may be broken; `squeezed`: operations may take several slots of their engine.
    """
    pick = chance.randint
    earliest = EARLIEST if early else 0
    devices, threads = pick(1, 2), pick(1, 3)
    streams = [
        {"device": device, "context": device, "kind": kind}
        for device in range(devices)
        for kind in [LEGACY] * pick(0, 1) + [BLOCKING] * pick(0, 2) + [NON_BLOCKING] * pick(1, 2)
    ]
    slots = [pick(1, 3 + squeezed) for _ in range(pick(1, 3))] if engines else []
    wires = pick(1, 3) if links else 0
    call_rows: list[dict[str, int]] = []
    rows: list[dict[str, Any]] = []
    on: list[list[int]] = []
    for call in range(-1, count):
        for _ in range(pick(0, 2)):
            launched = int(call >= 0 and pick(0, 5) > 0)
            duration = pick(SHORTEST, 90) * scale
            engine = pick(-1, len(slots) - 1) if slots else -1
            rows.append(
                {
                    "call": call,
                    "launched": launched,
                    "stream": pick(0, len(streams) - 1),
                    "engine": engine,
                    "takes": pick(1, slots[engine]) if squeezed and engine >= 0 else 1,
                    "duration": duration,
                    "launch_lag": pick(earliest, 30) * scale,
                    "order_lag": pick(2 * earliest, 9) * scale,
                    "extra": max(0, pick(-30, 9)) * scale,
                    "turn": pick(0, 40),
                    "after": pick(0, len(rows) - 1) if rows and pick(0, 6) == 0 else -1,
                    "released": 0 if launched else pick(0, 500) * scale,
                    "unordered": pick(0, 7) if unordered else 0,
                    "bytes_per_s": float(pick(1, 40)) if wires and pick(0, 3) else 0.0,
                    "weight": pick(2, 6) / 4,
                }
            )
            on.append(chance.sample(range(wires), pick(1, wires)) if rows[-1]["bytes_per_s"] else [])
        if call >= 0:
            wait = pick(0, 5) if pick(0, 1) else 0
            wait = 0 if wait == 5 and not rows else wait
            most = {2: len(streams), 3: devices, 4: 3, 5: len(rows)}
            call_rows.append(
                {
                    "thread": min(pick(0, threads - 1), call),
                    "gap": pick(0, 30) * scale,
                    "own": pick(0, 30) * scale,
                    "after": pick(0, call - 1) if call and pick(0, 5) == 0 else -1,
                    "wait": wait,
                    "wait_key": pick(0, most[wait] - 1) if wait in most else -1,
                    "wait_lag": pick(earliest, 9) * scale,
                    "act": max(0, pick(-1, 2)),
                    "act_stream": pick(-1, len(streams) - 1),
                    "act_event": pick(0, 2),
                }
            )
    tables = {"call": call_rows, "operation": rows, "stream": streams}
    made = at_rest(
        count,
        len(rows),
        len(streams),
        operation_link_begin=np.cumsum([0, *map(len, on)]) if wires else [],
        operation_links=[link for taken in on for link in taken],
        operation_link_cost=[pick(2, 12) / 4 for taken in on for _ in taken],
        engine_slots=slots,
        link_bytes_per_s=[float(pick(1, 60)) for _ in range(wires)],
        link_both=[pick(5, 10) / 10 for _ in range(wires)],
        link_opposite=[pick(-1, wires - 1) for _ in range(wires)],
    )
    values = {
        f"{table}_{name}": [row[name] for row in table_columns]
        for table, table_columns in tables.items()
        for name in (table_columns or [{}])[0]
    }
    return made | typed(values)


def only_operations(count: int, **given: Any) -> Columns:
    """So many operations without calls, each at once in a stream of its own, but for the columns that are given."""
    return at_rest(0, count, count, **{"operation_stream": range(count)} | given)


def recorded(columns: Columns, played: dict[str, Any], classes: int) -> Columns:
    """What a trace of `played` would say."""
    return {name: played[name] for name in TIMES} | {
        "call_class": (np.arange(len(columns["call_own"])) % classes).astype(np.uint8),
        "operation_class": (np.arange(len(columns["operation_call"])) % classes).astype(np.uint8),
        "operation_unit": (np.arange(len(columns["operation_call"])) % classes // 2).astype(np.uint8),
    }


def taken_apart(columns: Columns, trace: Columns) -> Columns:
    """`columns` as they are found from a recording alone: durations, gaps, turns, and what explain makes of the rest."""
    before = np.zeros(len(columns["call_own"]), np.int64)
    last: dict[int, int] = {}
    for call, thread in enumerate(columns["call_thread"].tolist()):
        after = int(columns["call_after"][call])
        before[call] = trace["call_end"][after] if after >= 0 else last.get(thread, 0)
        last[thread] = int(trace["call_end"][call])
    linked = columns | {
        "call_gap": trace["call_start"] - before,
        "operation_duration": trace["operation_end"] - trace["operation_start"],
        "operation_turn": trace["operation_start"],
    }
    explained = _core.explain(linked, trace)
    return linked | {name: explained[name] for name in linked if name in explained}
