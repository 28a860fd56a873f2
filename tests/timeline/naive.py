"""What a timeline means, played the slow way: every wait in full, one decision at a time, nothing kept for later."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tests.timeline.random_columns import BLOCKING, LEGACY, Columns

__all__ = ["Waits", "play", "waits"]

NONE, CALL, STREAM, DEVICE, EVENT, OPERATION = range(6)
RECORD = 1


@dataclass
class Waits:
    """Rows of the operations that each operation, and each call's return, waits for."""

    operation: list[set[int]] = field(default_factory=list)
    call: list[set[int]] = field(default_factory=list)


def waits(c: Columns) -> Waits:
    """By the rules of streams, events and the legacy default stream; nothing is left out because it is implied."""
    waits = Waits()
    awaited_by: dict[int, set[int]] = {}  # by stream: what it was told to wait for
    recorded: dict[int, set[int]] = {}
    looked_at: dict[tuple[int, int], int] = {}
    stream_of = c["operation_stream"].tolist()
    device_of = [int(c["stream_device"][stream]) for stream in stream_of]

    def issue(o: int) -> None:
        stream = stream_of[o]
        before = {p for p in range(o) if stream_of[p] == stream} | awaited_by.get(stream, set())
        if c["operation_after"][o] >= 0:
            before.add(int(c["operation_after"][o]))
        across = {LEGACY: BLOCKING, BLOCKING: LEGACY}.get(int(c["stream_kind"][stream]))
        before |= {
            p
            for p in range(o)
            if c["stream_context"][stream_of[p]] == c["stream_context"][stream]
            and c["stream_kind"][stream_of[p]] == across
        }
        waits.operation.append(before)

    for call in range(-1, len(c["call_own"])):
        issued = len(waits.operation)
        if call >= 0 and c["call_act"][call] and c["call_act_stream"][call] >= 0:
            stream, event = int(c["call_act_stream"][call]), int(c["call_act_event"][call])
            if c["call_act"][call] == RECORD:
                recorded[event] = _given(c, stream_of, stream, issued) | awaited_by.get(stream, set())
            else:
                awaited_by[stream] = awaited_by.get(stream, set()) | recorded.get(event, set())
        mine = np.flatnonzero(c["operation_call"] == call).tolist()
        for o in mine:
            issue(o)
        if call < 0:
            continue
        key, issued = int(c["call_wait_key"][call]), len(waits.operation)
        device = (int(c["call_thread"][call]), key)
        waits.call.append(
            {
                NONE: lambda: set(),
                CALL: lambda mine=mine: {o for o in mine if c["operation_launched"][o]},
                STREAM: lambda key=key, n=issued: (
                    _given(c, stream_of, key, n) | _open(awaited_by, waits, stream_of, key)
                ),
                # A thread that has waited for a device looks at what was issued since.
                DEVICE: lambda key=key, device=device, n=issued: {
                    p for p in range(looked_at.get(device, 0), n) if device_of[p] == key
                },
                EVENT: lambda key=key: set(recorded.get(key, set())),
                OPERATION: lambda key=key: {key},
            }[int(c["call_wait"][call])]()
        )
        if c["call_wait"][call] == DEVICE:
            looked_at[device] = issued
    return waits


def _given(c: Columns, stream_of: list[int], stream: int, issued: int) -> set[int]:
    """What a stream was given so far; the legacy default stream stands for the blocking ones of its context, too."""
    legacy = c["stream_kind"][stream] == LEGACY
    kind, context = c["stream_kind"], c["stream_context"]

    def counts(operation: int) -> bool:
        return bool(
            operation == stream
            or (legacy and kind[operation] == BLOCKING and context[operation] == context[stream] >= 0)
        )

    return {p for p in range(issued) if counts(stream_of[p])}


def _open(awaited_by: dict[int, set[int]], waits: Waits, stream_of: list[int], stream: int) -> set[int]:
    """What a stream was told to wait for that no operation in it waits for yet."""
    last = max((p for p in range(len(waits.operation)) if stream_of[p] == stream), default=None)
    return awaited_by.get(stream, set()) - (waits.operation[last] if last is not None else set())


class _Run:
    """Played from the start on, until nothing more can happen."""

    def __init__(self, c: Columns) -> None:
        self.c = c
        self.waits = waits(c)
        self.call_start: dict[int, int] = {}
        self.call_end: dict[int, int] = {}
        self.ready: dict[int, int] = {}
        self.start: dict[int, int] = {}
        self.end: dict[int, int] = {}
        threads = c["call_thread"].tolist()
        self.before = [
            max((p for p in range(call) if threads[p] == threads[call]), default=None)
            for call in range(len(threads))
        ]

        while True:
            while self._anything_certain():
                pass
            if not (decisions := list(self._decisions())):
                break
            _, operation, start = min(decisions)
            self.start[operation] = start

    def _anything_certain(self) -> bool:
        c, decided = self.c, self._decided()
        for call, before in enumerate(self.before):
            if call not in self.call_start:
                after, gap = int(c["call_after"][call]), int(c["call_gap"][call])
                needs = [p for p in (before, after) if p is not None and p >= 0]
                if all(p in self.call_end for p in needs):
                    start = [self.call_end[before] + (gap if after < 0 else 0)] if before is not None else []
                    start += [self.call_end[after] + gap] if after >= 0 else []
                    self.call_start[call] = max(start, default=gap)
            elif call not in self.call_end and all(o in self.end for o in self.waits.call[call]):
                ends = [self.end[o] + int(c["call_wait_lag"][call]) for o in self.waits.call[call]]
                begins = self._all_there("call", call, self.call_start[call])
                if begins is not None:
                    self.call_end[call] = max([begins + int(c["call_own"][call]), *ends])
        for o, before in enumerate(self.waits.operation):
            launched = bool(c["operation_launched"][o])
            call = int(c["operation_call"][o])
            if o in self.ready or (launched and call not in self.call_start) or not before <= self.end.keys():
                continue
            times = [0, int(c["operation_released"][o])]
            times += [self.call_start[call] + int(c["operation_launch_lag"][o])] if launched else []
            times += [self.end[p] + int(c["operation_order_lag"][o]) for p in before]
            self.ready[o] = max(times) + int(c["operation_extra"][o])
            if c["operation_engine"][o] < 0:
                self.start[o] = self.ready[o]
        for o in self.start.keys() - self.end.keys():
            begins = self._all_there("operation", o, self.start[o])
            if begins is not None:
                self.end[o] = begins + int(c["operation_duration"][o])
        return decided != self._decided()

    def _decided(self) -> int:
        return sum(map(len, (self.call_start, self.call_end, self.ready, self.start, self.end)))

    def _all_there(self, kind: str, row: int, start: int) -> int | None:
        """When it has started and all that it awaits has; None while that is not known."""
        joint = int(self.c[f"{kind}_awaits"][row]) if "joint_begin" in self.c else -1
        if joint < 0:
            return start
        calls = len(self.before)
        members = self.c["joint_members"][slice(*self.c["joint_begin"][joint : joint + 2])].tolist()
        starts = [self.call_start.get(m) if m < calls else self.start.get(m - calls) for m in members]
        decided = [at for at in starts if at is not None]
        return max([start, *decided]) if len(decided) == len(starts) else None

    def _decisions(self) -> Iterator[tuple[int, int, int]]:
        """For each engine that somebody wants: when it takes whom, and when that one starts."""
        of = self.c["operation_engine"].tolist()
        for engine, slots in enumerate(self.c["engine_slots"].tolist()):
            wanting = [o for o in self.ready if o not in self.start and of[o] == engine]
            if not wanting:
                continue
            first = min(self.ready[o] for o in wanting)
            ends = sorted(self.end[o] for o in self.start if of[o] == engine)
            running = [end for end in ends if end > first]
            now = first if len(running) < slots else running[-slots]
            # Those who have waited go before those who come just then.
            waited = [o for o in wanting if self.ready[o] < now]
            queue = waited or [o for o in wanting if self.ready[o] == now]
            taken = min(queue, key=lambda o: (self.c["operation_turn"][o], o))
            start = max(now, self.ready[taken])
            if slots == 1 and ends:
                start = max(self.ready[taken], ends[-1] + int(self.c["operation_order_lag"][taken]))
            yield now, taken, start


def play(c: Columns) -> dict[str, list[int]]:
    """Start and end of every call and operation."""
    run = _Run(c)
    times = {
        "call_start": run.call_start, "call_end": run.call_end, "operation_start": run.start,
        "operation_end": run.end,
    }  # fmt: skip
    return {name: [times_of[row] for row in sorted(times_of)] for name, times_of in times.items()}
