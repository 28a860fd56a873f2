"""Raw samples → the parameters of every path."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from busfare.measure.case import Case, Mode
from busfare.measure.fit import LEAST_GAP, fit
from busfare.measure.middle import median, middle, spread
from busfare.measure.plan import HOST_WAYS, ROW_COUNTS, is_held_out
from busfare.measure.quiet import quiet, quiet_pace_s
from busfare.measure.raw import Measurement, Record
from busfare.node import Cost, Measured, Row
from busfare.node.arrays import FloatArray

__all__ = ["SOURCE", "Profile", "profile"]

#: The tag under which a node file says that its figures are from this probe.
SOURCE = "probe"
#: Pieces pass this near to what the GPU moves itself: its visits repeat within it.
NEAR = 0.005
#: The processor moves pageable data, and shares its cache and memory while it does: medians repeat within this.
NEAR_BY_HOST = 0.05
#: From here on a copy takes a copy engine on every GPU seen; shorter ones may travel with the commands.
ENGINE_BYTES = 4096
#: Where a wait is not over when the GPU first looks, it is put aside and taken up later, which takes 5 to 6 µs; copies of a
#: few KiB are done before. What is added to longer ones than these drowns in their own scatter.
_WAITED_BYTES, _LONGEST_BYTES = 64 << 10, 1 << 20
#: Copies up to this size show what each of a train adds.
_SHORT_BYTES = 4 << 20
#: Copies that mapped writes slow by less than this go on in a lull hardly faster than beside them: it does not show.
LEAST_SLOWED = 2.0
#: What runs the other way in each mode: copies, or a kernel on mapped memory.
_COPIES_SLOWED = {"both": "both_directions_gap_per_byte_s", "beside-mapped": "mapped_gap_per_byte_s"}
_MAPPED_KEY = _COPIES_SLOWED["beside-mapped"]
_MAPPED_SLOWED = {
    "kernel-beside-copies": "both_directions_gap_per_byte_s",
    "kernel-both": "mapped_gap_per_byte_s",
}
#: The calls whose cost a node file holds.
_CALLS = ("empty", "launch", "synchronise", "create-stream", "create-event")


@dataclass(frozen=True)
class Profile:
    """The parameters that a node file holds."""

    measured: tuple[Measured, ...]
    costs: tuple[Cost, ...]


def profile(record: Record) -> Profile:
    """The parameters of every path that `record` has samples of, from those of quiet moments."""
    pace = quiet_pace_s(record)
    record = quiet(record)
    gpus = sorted({m.case.gpu for m in record.measurements})
    told = {
        "source": SOURCE,
        "tool": "busfare probe --virtual" if record.virtual else "busfare probe",
        "date": record.date,
        "driver": str(record.facts.get("driver") or ""),
        "command": record.command,
    }
    measured: list[Measured] = []
    costs: list[Cost] = []
    for gpu in gpus:
        own = {m.case: m for m in record.measurements if m.case.gpu == gpu}
        measured += [m for m in _of_gpu(own, gpu, told) if m is not None]
        costs += _costs(own, gpu)
    if pace is not None:
        costs.append(Cost(call="pace", call_s=pace, source=SOURCE))
    return Profile(tuple(measured), tuple(costs))


def _of_gpu(own: dict[Case, Measurement], gpu: int, told: dict[str, Any]) -> Iterable[Measured | None]:
    for way in HOST_WAYS:
        pinned = Case(way, "pinned", "copies", 1, 1, gpu)
        yield _path(own, pinned, told | _pinned_extras(own, pinned), NEAR)
        pageable = replace(pinned, memory="pageable")
        yield _path(own, pageable, told | {"timing": "call"} | _written(own, pageable), NEAR_BY_HOST)
        mapped = replace(pinned, memory="mapped", mode="kernel")
        yield _path(own, mapped, told | _slowed(own, mapped, _MAPPED_SLOWED), NEAR)
        managed = replace(pinned, memory="managed", mode="prefetch")
        yield _path(own, managed, told | _faults(own, managed) | _written(own, managed), NEAR_BY_HOST)
    yield _path(own, Case("d2d", "device", "copies", 1, 1, gpu), told, NEAR)
    for peer in sorted({c.peer for c in own if c.peer is not None}):
        yield _path(own, Case("p2p", "device", "copies", 1, 1, gpu, peer), told | {"peer": peer}, NEAR)


def _path(own: dict[Case, Measurement], like: Case, extras: dict[str, Any], near: float) -> Measured | None:
    """The pieces of the path of `like`, which gives all but the size; None where nothing was measured."""
    sizes, seconds, doubt = _curve(own, like)
    if not len(sizes):
        return None
    pieces = fit(sizes, seconds, near, doubt).pieces
    parts = {"direction": like.direction, "memory": like.memory, "gpu": like.gpu, "pieces": pieces}
    return Measured(**(parts | {"timing": "device"} | extras))


def _curve(own: dict[Case, Measurement], like: Case) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sizes, middle seconds and their doubt of the fitted cases that differ from `like` in size alone."""
    found = sorted(
        (case.bytes, m.undisturbed_s, min(spread(m.counted), 1.0))
        for case, m in own.items()
        # What is cheap to compare goes first: a probe has thousands of cases.
        if (case.mode, case.count) == (like.mode, like.count)
        and replace(case, bytes=like.bytes) == like
        and not is_held_out(case)
    )
    columns = np.array(found, np.float64).reshape(-1, 3).T
    return columns[0], columns[1], columns[2]


def _pinned_extras(own: dict[Case, Measurement], one: Case) -> dict[str, Any]:
    extras: dict[str, Any] = {}
    rows = []
    counts = {c.count for c in own if c.mode == "streams" and c.direction == one.direction}
    for count in sorted(counts & {*ROW_COUNTS}):
        sizes, seconds, doubt = _curve(own, replace(one, mode="streams", count=count))
        # One size alone is no curve: the quick run has it for the hybrid's sake.
        if len(sizes) > 1:
            rows.append(Row(copies=count, pieces=fit(sizes, seconds, NEAR, doubt, ENGINE_BYTES).pieces))
    if rows:
        extras["rows"] = tuple(rows)
    short = [m.samples.api_s for c, m in own.items() if replace(c, bytes=1) == one and c.bytes <= 1 << 16]
    if short:
        extras["call_s"] = median([middle(samples) for samples in short])
    extras |= _gap(own, one)
    extras |= _added(own, one, "copies", "after-kernel", "after_kernel_s")
    if one.direction == "h2d":
        extras |= _kernels_wait(own, one) | _after_copy(own, one)
    else:
        extras |= _added(own, one, "after-kernel", "after-event", "event_wait_s", _WAITED_BYTES)
    extras |= _slowed(own, one, _COPIES_SLOWED) | _gap_beside(own, one) | _written(own, one)
    extras |= _beside_gpu(own, one)
    if one.direction == "h2d":  # a host buffer is made once, whichever way its data go
        extras |= _lull(own, one)
        extras |= _line(own, Case("none", "pinned", "allocate", 1, 1, one.gpu), "allocation_s")
        extras |= _line(own, Case("none", "pageable", "register", 1, 1, one.gpu), "pinning_s")
    return extras


def _faults(own: dict[Case, Measurement], one: Case) -> dict[str, Any]:
    """Pages of managed memory that move when they are touched."""
    sizes, seconds, doubt = _curve(own, replace(one, mode="touch"))
    return {"faults": fit(sizes, seconds, NEAR_BY_HOST, doubt).pieces} if len(sizes) else {}


def _written(own: dict[Case, Measurement], one: Case) -> dict[str, Any]:
    """Copies, or page faults, of what the processor has just written."""
    sizes, seconds, doubt = _curve(own, replace(one, mode="written"))
    return {"written": fit(sizes, seconds, NEAR_BY_HOST, doubt).pieces} if len(sizes) else {}


def _lull(own: dict[Case, Measurement], one: Case) -> dict[str, float]:
    """For how long, in each kernel that writes mapped memory, copies go on as if it did not: what a hybrid takes less
    than its copies in and its kernels one after the other, beyond what `plan` says of the queue of such writes.
    """
    hybrids = [c for c in own if replace(c, bytes=1, count=1) == replace(one, mode="hybrid")]
    if not hybrids:
        return {}
    hybrid = max(hybrids, key=lambda c: c.bytes)
    copies = own.get(replace(hybrid, mode="streams"))
    kernel = own.get(Case("d2h", "mapped", "kernel", hybrid.bytes, 1, one.gpu))
    sizes, seconds, _ = _curve(own, Case("d2h", "mapped", "kernel", 1, 1, one.gpu))
    starved, slope = _slowed(own, one, _COPIES_SLOWED), _long_gap(own, one)
    if copies is None or kernel is None or len(sizes) < 2 or not slope or _MAPPED_KEY not in starved:
        return {}
    READS_SHARE = 0.4  # noqa: N806

    # The kernel reads a byte of device memory for each that it writes.
    slowed = 1 + (starved[_MAPPED_KEY] / slope - 1) / (1 + READS_SHARE)
    writing = hybrid.bytes * (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])
    start = max(kernel.undisturbed_s - writing, 0.0)
    in_turn = copies.undisturbed_s + hybrid.count * writing + start
    hidden = (in_turn - own[hybrid].quietest_s) / (hybrid.count - 1)
    if slowed < LEAST_SLOWED:
        return {}
    lull = (hidden - writing / slowed) / (1 - 1 / slowed)
    return {"mapped_lull_s": float(min(max(lull, 0.0), writing / 2))}


def _long_gap(own: dict[Case, Measurement], one: Case) -> float:
    """G of long copies (s/B), from the two largest; 0 where there are none."""
    sizes, seconds, _ = _curve(own, one)
    return float((seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])) if len(sizes) > 1 else 0.0


def _slowed(own: dict[Case, Measurement], one: Case, keys: dict[str, str]) -> dict[str, float]:
    """G of the largest case of each mode in which data move the other way too, by its key of the node file: at the
    quietest moments, for it is the host's memory that it waits for.

    Of kernels on mapped memory, what the larger of two takes longer: their starts take as long as megabytes.
    """
    found = {}
    for mode, key in keys.items():
        loaded = [c for c in own if (c.mode, c.memory, c.direction) == (mode, one.memory, one.direction)]
        if not loaded:
            continue
        *smaller, largest = sorted(loaded, key=lambda c: c.total_bytes)
        bytes_, seconds = largest.total_bytes, own[largest].quietest_s
        if one.memory == "mapped" and smaller:
            bytes_ -= smaller[-1].total_bytes
            seconds -= own[smaller[-1]].quietest_s
        found[key] = max(seconds / bytes_, LEAST_GAP)
        if mode == "both" and (trains := _trains(own, one)) is not None:
            found[key] = max(trains[0], LEAST_GAP)
    return found


def _gap(own: dict[Case, Measurement], one: Case) -> dict[str, float]:
    """g: what each further copy in the same stream adds, from the shortest copies in the longest train."""
    trains = [
        c for c in own
        if c.mode == "copies" and c.memory == "pinned" and c.direction == one.direction and c.count > 1
    ]  # fmt: skip
    if not trains:
        return {}
    longest = max(trains, key=lambda c: (c.count, -c.bytes))
    shorter = min((c for c in trains if c.bytes == longest.bytes), key=lambda c: c.count)
    if shorter.count == longest.count:
        return {}
    rise = own[longest].undisturbed_s - own[shorter].undisturbed_s
    return {"gap_s": max(rise / (longest.count - shorter.count), 0.0)}


def _gap_beside(own: dict[Case, Measurement], one: Case) -> dict[str, float]:
    """What each further copy adds while copies run the other way."""
    trains = _trains(own, one)
    return {} if trains is None else {"both_directions_gap_s": max(trains[1], 0.0)}


def _beside_gpu(own: dict[Case, Measurement], one: Case) -> dict[str, float]:
    """G while copies go both ways on this GPU and on another of the host: beside the one that slows it the most."""
    beside = [
        m.quietest_s / c.total_bytes
        for c, m in own.items()
        if c.mode == "both-beside-gpu" and c.direction == one.direction
    ]
    return {"both_directions_beside_gpu_gap_per_byte_s": max(beside)} if beside else {}


def _trains(own: dict[Case, Measurement], one: Case) -> tuple[float, float] | None:
    """Seconds a byte, and what each further copy adds, while copies run the other way: of a train of many short copies
    and of one of long ones, each its start, its bytes and what its copies add. Of several long trains the quickest one
    counts: each is slow only where it was disturbed. None where not both kinds were measured.
    """
    trains = [c for c in own if c.mode == "both" and c.direction == one.direction and c.count > 1]
    short = [c for c in trains if ENGINE_BYTES < c.bytes <= _SHORT_BYTES]
    long = [c for c in trains if c.bytes > _SHORT_BYTES]
    if not short or not long or one not in own:
        return None
    many = max(short, key=lambda c: (c.count, c.bytes))
    start, quick = own[one].undisturbed_s, own[many].quietest_s

    def pace(train: Case) -> float:
        times = (train.count - 1) / (many.count - 1)
        bytes_ = train.total_bytes - times * many.total_bytes
        return (own[train].quietest_s - start - times * (quick - start)) / bytes_

    found = min(pace(train) for train in long)
    return found, (quick - start - many.total_bytes * found) / (many.count - 1)


def _added(
    own: dict[Case, Measurement], one: Case, plain: Mode, mode: Mode, key: str, least: int = ENGINE_BYTES
) -> dict[str, float]:
    """What copies of `least` bytes and more take longer in one mode than in another: the way from a kernel to a copy
    engine, or a wait for an event of another stream.
    """
    added = [
        middle(m.seconds) - middle(own[other].seconds)
        for c, m in own.items()
        if c.mode == mode and c.direction == one.direction and least <= c.bytes <= _LONGEST_BYTES
        and (other := replace(c, mode=plain)) in own
    ]  # fmt: skip
    return {key: max(median(added), 0.0)} if added else {}


def _kernels_wait(own: dict[Case, Measurement], one: Case) -> dict[str, float]:
    """What a kernel takes longer that waits for a copy of another stream: beyond the copy and an empty kernel alone. Which
    way the copy goes makes no difference.
    """
    launch = own.get(Case("none", "none", "launch", 0, 1, one.gpu))
    if launch is None or not launch.samples.device_s:
        return {}
    added = [
        middle(m.seconds) - middle(own[plain].seconds) - middle(launch.samples.device_s)
        for c, m in own.items()
        if c.mode == "event-kernel"
        and _WAITED_BYTES <= c.bytes <= _LONGEST_BYTES
        and (plain := replace(c, mode="copies")) in own
    ]
    return {"event_wait_s": max(median(added), 0.0)} if added else {}


def _after_copy(own: dict[Case, Measurement], one: Case) -> dict[str, float]:
    """What a copy in, an empty kernel and a copy out of one stream take longer than each of them alone, the copy out behind
    a kernel. Each alone holds what two events take, three of them once too often each: where that is long, it is less.
    """
    launch = own.get(Case("none", "none", "launch", 0, 1, one.gpu))
    if launch is None or not launch.samples.device_s:
        return {}
    added = []
    for c, m in own.items():
        into, out = replace(c, mode="copies"), replace(c, direction="d2h", mode="after-kernel")
        if c.mode == "there-and-back" and c.bytes >= ENGINE_BYTES and into in own and out in own:
            alone = middle(own[into].seconds) + middle(own[out].seconds)
            added.append(middle(m.seconds) - alone - middle(launch.samples.device_s))
    return {"after_copy_s": median(added)} if added else {}


def _line(own: dict[Case, Measurement], like: Case, key: str) -> dict[str, float]:
    """A constant and a rate of a cost by size: the line through the largest two sizes, which cost the most."""
    sizes, seconds, _ = _curve(own, like)
    if len(sizes) < 2:
        return {}
    rate = max((seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2]), 0.0)
    found = {key: max(float(seconds[-1] - rate * sizes[-1]), 0.0)}
    return found | ({key.replace("_s", "_per_byte_s"): float(rate)} if rate > 0 else {})


def _costs(own: dict[Case, Measurement], gpu: int) -> Iterable[Cost]:
    for call in _CALLS:
        m = own.get(Case("none", "none", call, 0, 1, gpu))
        if m is not None:
            device_s = middle(m.samples.device_s) if m.samples.device_s else None
            yield Cost(call=call, call_s=middle(m.samples.api_s), device_s=device_s, gpu=gpu, source=SOURCE)  # type: ignore[arg-type]
    for memory, mode, name in (
        ("device", "allocate", "allocate-device"),
        ("pinned", "allocate", "allocate-pinned"),
        ("pageable", "register", "register"),
    ):
        line = _line(own, Case("none", memory, mode, 1, 1, gpu), "call_s")  # type: ignore[arg-type]
        if line:
            yield Cost(call=name, gpu=gpu, source=SOURCE, **line)  # type: ignore[arg-type]
