"""Raw samples → a node's curves, contention, costs and kernels: nothing here asks a model of whole programs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import msgspec
import numpy as np

from busfare.measure import cases
from busfare.measure.cases import HOST_DIRECTIONS, SHARES, Case, Measurement, Record, interquartile_mean
from busfare.measure.kernels import collective_curves, kernels_of
from busfare.measure.node_file import SOURCE, bare_node
from busfare.nodes import Contention, Cost, Curve, FloatArray, Node, Shares, Together
from busfare.nodes.component import AtOnce, Memory
from busfare.nodes.contention import START_BYTES
from busfare.nodes.transfers import LEAST_GAP, Direction, MemoryKind, fit

#: From here on a copy takes a copy engine on every GPU seen; shorter ones may travel with the commands.
ENGINE_BYTES = 4096
#: Copies for which what goes before them is measured: longer ones vary by more than that.
WAITING_BYTES = 1 << 20
#: Streams that hold a copy each, for the issue intervals and for the detail. Into the GPU the number makes no difference
#: but for the first; out of it more than some 180 take longer each. Where a probe lacks one, its next larger one.
INTERVALS = {"h2d": (2, 256), "d2h": (2, 32, 256)}
DETAIL = {"h2d": (2, 256), "d2h": (8, 96, 256)}
#: How single transfers of each path are issued, and the most pieces that they are worth: the fewest that keep the errors on
#: held-out sizes (docs/models.md).
_PATHS: tuple[tuple[Direction, MemoryKind, str, int], ...] = (
    ("h2d", "pinned", "copies", 3), ("d2h", "pinned", "copies", 1), ("h2d", "pageable", "copies", 3),
    ("d2h", "pageable", "copies", 2), ("h2d", "mapped", "kernel", 1), ("d2h", "mapped", "kernel", 1),
    ("h2d", "managed", "prefetch", 1), ("d2h", "managed", "prefetch", 1), ("h2d", "managed", "touch", 1),
    ("d2h", "managed", "touch", 1), ("d2d", "device", "copies", 1),
)  # fmt: skip

#: Calls that cost by the byte.
_BY_SIZE: dict[Any, Case] = {
    "allocate-pinned": Case("none", "pinned", "allocate", 1),
    "register": Case("none", "pageable", "register", 1),
}

#: What was measured of one GPU, as if it were the first.
Cases = dict[Case, Measurement]


def profile(record: Record) -> Node:
    """The machine of `record`, with the parameters of every path that it has samples of."""
    gpus = sorted({m.gpu for m in record.measurements})
    node, count = bare_node(record), len(record.facts["gpus"])
    collectives = tuple(collective_curves(record.measurements, count))
    parameters: dict[str, Any] = {"collectives": collectives}
    for gpu in gpus:
        runs = {replace(m.case, gpu=0): m for m in record.measurements if m.gpu == gpu}
        curves = list(_curves(runs))
        tables: dict[str, Iterable[Any]] = {
            "curves": curves,
            "contentions": _contention(runs, curves),
            "costs": _costs(runs),
            "kernels": kernels_of(runs, record.facts["gpus"][gpu]),
        }
        tag = {"gpu": gpu if len(gpus) > 1 else None, "source": SOURCE}
        for name, rows in tables.items():
            tagged = (msgspec.structs.replace(row, **tag) for row in rows)
            parameters[name] = (*parameters.get(name, ()), *tagged)
    if (at_once := _at_once(record.measurements, count)) is not None:
        parameters["components"] = tuple(
            msgspec.structs.replace(part, at_once=at_once) if isinstance(part, Memory) else part
            for part in node.components
        )
    return replace(node, **parameters)


def _at_once(measurements: Sequence[Measurement], gpus: int) -> AtOnce | None:
    """What the one memory carried of all GPUs' copies; None where any of it is missing."""
    flows = [(mode, direction) for mode in cases.ALL_AT_ONCE for direction in HOST_DIRECTIONS]
    rows = [m for m in measurements if (m.mode, m.direction) in flows and m.device_ns]
    rates = {(m.mode, m.direction): gpus * m.case.total_bytes / m.undisturbed_s for m in rows}
    return AtOnce(*(rates[flow] for flow in flows)) if all(flow in rates for flow in flows) else None


def _curves(runs: Cases) -> Iterator[Curve]:
    """The curve of every path that was measured."""
    paths = [(Case(direction, memory, mode, 1), most) for direction, memory, mode, most in _PATHS]
    peers = sorted({c.peer for c in runs if c.peer is not None})
    paths += [(Case("p2p", "device", "copies", 1, peer=peer), 1) for peer in peers]
    for like, most in paths:
        points = _points(runs, like)
        if not len(points[0]):
            continue
        fields: dict[str, Any] = fit(*points, most=most).lines
        if like.memory == "pinned":
            fields["issue_interval_s"] = _intervals(runs, like, fields["gap_per_byte_s"][-1])
            together = _streams(runs, like, DETAIL[like.direction])
            fields["detail"] = tuple(Together(streams=n, **fit(*_points(runs, c)).lines) for n, c in together)
            fields["after_kernel_s"] = _after_kernel(runs, like)
        if like.direction == "h2d":
            fields["event_wait_s"] = _added(runs, like, "event-kernel", _launch_s(runs))
        yield Curve(
            # Cases have words for what is no path, too; those of paths have none of them.
            direction=like.direction,  # type: ignore[arg-type]
            memory=like.memory,  # type: ignore[arg-type]
            faults=like.mode == "touch",
            timing="call" if like.memory == "pageable" else "device",
            peer=like.peer,
            **fields,
        )


def _points(runs: Cases, like: Case) -> tuple[FloatArray, FloatArray]:
    """Sizes and seconds of the fitted cases that differ from `like` in size alone."""
    points = sorted(
        (case.bytes, m.undisturbed_s)
        for case, m in runs.items()
        # What is cheap to compare goes first: a probe has thousands of cases.
        if (case.mode, case.count) == (like.mode, like.count)
        and replace(case, bytes=like.bytes) == like
        and not cases.is_held_out(case)
    )
    columns = np.array(points, np.float64).reshape(-1, 2).T
    return columns[0], columns[1]


def _streams(runs: Cases, path: Case, wanted: Sequence[int]) -> list[tuple[int, Case]]:
    """Of the measured numbers of streams the ones `wanted`, or the next above, with what gives all but the size."""
    counts = {c.count for c in runs if c.mode == "streams" and c.direction == path.direction}
    # One size alone is no curve.
    numbers = [n for n in sorted(counts) if len(_points(runs, replace(path, mode="streams", count=n))[0]) > 1]
    taken = {next((n for n in numbers if n >= count), numbers[-1]) for count in wanted} if numbers else set()
    return [(n, replace(path, mode="streams", count=n)) for n in sorted(taken)]


def _intervals(runs: Cases, path: Case, gap: float) -> dict[int, float]:
    """What each further copy adds beside its bytes, `gap` s/B: in one stream, and in several that hold one copy each."""
    intervals = _back_to_back(runs, path)
    for count, like in _streams(runs, path, INTERVALS[path.direction]):
        sizes, seconds = _points(runs, like)
        alone = np.interp(sizes, *_points(runs, path))
        further = (seconds - alone) / (count - 1) - sizes * gap
        long = sizes >= ENGINE_BYTES if (sizes >= ENGINE_BYTES).any() else sizes > 0
        intervals[count] = max(median(further[long].tolist()), 0.0)
    return intervals


def _added(runs: Cases, path: Case, mode: str, besides: float = 0.0) -> float:
    """What copies take longer in `mode` than behind another copy, less `besides` (s); 0 where nobody measured it."""
    added = [
        interquartile_mean(m.seconds) - interquartile_mean(runs[plain].seconds) - besides
        for c, m in runs.items()
        if (c.mode, c.direction) == (mode, path.direction)
        and ENGINE_BYTES <= c.bytes <= WAITING_BYTES
        and (plain := replace(c, mode=path.mode)) in runs
    ]
    return max(median(added), 0.0) if added else 0.0


def _after_kernel(runs: Cases, path: Case) -> float:
    """What a copy takes longer behind a kernel: out of the GPU, where the kernel itself follows a copy in."""
    added = [
        interquartile_mean(m.seconds) - sum(interquartile_mean(runs[alone].seconds) for alone in (into, out))
        for c, m in runs.items()
        if (c.mode, path.direction) == ("there-and-back", "d2h")
        and {into := replace(c, mode="copies"), out := replace(into, direction="d2h")} <= runs.keys()
    ]
    return max(median(added) - _launch_s(runs), 0.0) if added else _added(runs, path, "after-kernel")


def _launch_s(runs: Cases) -> float:
    """Seconds of an empty kernel on the device."""
    launch = runs.get(Case("none", "none", "launch"))
    return interquartile_mean(launch.device_s) if launch and launch.device_ns else 0.0


def _back_to_back(runs: Cases, path: Case) -> dict[int, float]:
    """g: what each further copy in the same stream adds, from the shortest copies in the longest train."""
    trains = [
        c for c in runs
        if (c.mode, c.memory, c.direction) == ("copies", "pinned", path.direction) and c.count > 1
    ]  # fmt: skip
    if not trains:
        return {}
    longest = max(trains, key=lambda c: (c.count, -c.bytes))
    shorter = min((c for c in trains if c.bytes == longest.bytes), key=lambda c: c.count)
    if shorter.count == longest.count:
        return {}
    rise = runs[longest].undisturbed_s - runs[shorter].undisturbed_s
    return {1: max(rise / (longest.count - shorter.count), 0.0)}


def _contention(runs: Cases, paths: list[Curve]) -> Iterator[Contention]:
    """The shares of the paths; none where no data moved both ways at once."""
    pinned, mapped = Case("h2d", "pinned", "copies", 1), Case("h2d", "mapped", "kernel", 1)
    kept = {key: _shares(runs, mapped if "kernel" in mode else pinned, mode) for mode, key in SHARES.items()}
    measured: dict[str, Any] = {key: shares for key, shares in kept.items() if shares is not None}
    if measured:
        duplex = runs.get(replace(mapped, mode="kernel-both", bytes=START_BYTES))
        start = _duplex_start(duplex, Contention(**measured), paths)
        yield Contention(**measured, mapped_both_start_s=start, across_streams=_across_streams(runs, paths))


def _duplex_start(duplex: Measurement | None, shares: Contention, paths: list[Curve]) -> float:
    """What a kernel that reads and writes START_BYTES each takes beyond the L+o and the slowed bytes of both directions."""
    mapped = {c.direction: c for c in paths if c.memory == "mapped"}
    if duplex is None or len(mapped) < 2:
        return 0.0
    kept = [(c, shares.mapped_both.of(direction)) for direction, c in mapped.items()]
    moving = max(START_BYTES * float(c.gap_per_byte(START_BYTES)) / share for c, share in kept)
    latency = sum(float(c.latency_overhead(START_BYTES)) for c, _ in kept)
    return max(duplex.undisturbed_s - latency - moving, 0.0)


def _across_streams(runs: Cases, paths: list[Curve]) -> float | None:
    """What the bytes of chunks both ways take in three streams, over what they take in a stream a chunk: the times, but for
    the first chunk in, the last one out and the issue intervals. None where any of it was not measured.
    """
    pinned = [c for c in paths if c.memory == "pinned" and c.direction in HOST_DIRECTIONS]
    streams = min((c for c in runs if c.mode == cases.ACROSS_STREAMS), default=None)
    engines = streams and replace(streams, mode=cases.ACROSS_ENGINES)
    if streams is None or engines not in runs or len(pinned) < 2:
        return None
    in_engines, in_streams = (
        runs[case].quietest_s
        - sum(float(c.seconds(case.bytes)) + (case.count - 1) * float(c.issue_interval(n)) for c in pinned)
        for case, n in ((engines, 1), (streams, streams.count))
    )
    return min(max(in_engines / in_streams, 1e-3), 1.0) if in_streams > 0 else None


def _shares(runs: Cases, like: Case, mode: str) -> Shares | None:
    """The rate of the longest transfers of `mode` over that of the path alone, each at its quietest moments: what moves
    data both ways waits for the host's memory. None where either direction lacks one of them.
    """
    shares = []
    for direction in HOST_DIRECTIONS:
        # A kernel both ways is the same, whichever direction is asked for.
        measured = "h2d" if mode == "kernel-both" else direction
        loaded = [c for c in runs if (c.mode, c.memory, c.direction) == (mode, like.memory, measured)]
        alone = [c for c in runs if replace(c, bytes=1) == replace(like, direction=direction)]
        if not loaded or not alone:
            return None
        gaps = [_long_gap(runs, cases) for cases in (alone, loaded)]
        shares.append(min(max(gaps[0] / gaps[1], 1e-3), 1.0))
    return Shares(*shares)


def _long_gap(runs: Cases, cases: Sequence[Case]) -> float:
    """Seconds a byte between the longest case and the next of at most a quarter: a kernel's start takes megabytes' time."""
    ordered = sorted(cases, key=lambda c: (c.total_bytes, c.bytes))
    largest = ordered[-1]
    seconds, bytes_ = runs[largest].quietest_s, largest.total_bytes
    smaller = [c for c in ordered if c.count == largest.count and 4 * c.total_bytes <= bytes_]
    if smaller:
        seconds, bytes_ = seconds - runs[smaller[-1]].quietest_s, bytes_ - smaller[-1].total_bytes
    return max(seconds / bytes_, LEAST_GAP)


def _costs(runs: Cases) -> Iterator[Cost]:
    """What calls take: medians, and lines through the largest two sizes, which cost the most."""
    for call in ("launch", "synchronise"):
        if m := runs.get(Case("none", "none", call)):
            device_s = interquartile_mean(m.device_s) if m.device_ns else None
            yield Cost(call=call, call_s=interquartile_mean(m.api_s), device_s=device_s)
    short = [m for c, m in runs.items() if (c.memory, c.mode, c.count) == ("pinned", "copies", 1)]
    calls = [interquartile_mean(m.api_s) for m in short if m.bytes <= 1 << 16]
    if calls:
        yield Cost(call="copy", call_s=median(calls))
    for name, like in _BY_SIZE.items():
        sizes, seconds = _points(runs, like)
        if len(sizes) > 1:
            start, rate = _line(sizes, seconds)
            yield Cost(call=name, call_s=start, call_per_byte_s=rate)
    anew = sorted(c for c in runs if c.mode == "reallocated")
    if len(anew) > 1:
        sizes = np.array([float(c.bytes) for c in anew])
        start, rate = _line(sizes, [interquartile_mean(runs[c].api_s) for c in anew])
        _, whole = _line(sizes, [interquartile_mean(runs[c].device_s) for c in anew])
        wait = max(whole - rate, 0.0)
        yield Cost(call="allocate-device", call_s=start, call_per_byte_s=rate, wait_per_byte_s=wait)


def _line(sizes: FloatArray, seconds: FloatArray | Sequence[float]) -> tuple[float, float]:
    """Start (s) and slope (s/B) of the line through the largest two sizes; neither is below zero."""
    rate = max(float((seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])), 0.0)
    return max(float(seconds[-1] - rate * sizes[-1]), 0.0), rate


@dataclass(frozen=True)
class Residual:
    """A case that nothing was fitted to: measured and predicted seconds."""

    case: Case
    measured_s: float
    predicted_s: float

    @property
    def percent(self) -> float:
        """Predicted over measured, less one, in percent."""
        return 100 * (self.predicted_s / self.measured_s - 1)


def _predicted(curves: Iterable[Curve], case: Case) -> float | None:
    """Seconds of a case by the parameters; None where they do not hold it."""
    if case.mode not in ("copies", "streams") or (case.mode == "copies" and case.count > 1):
        return None
    wanted = (case.direction, case.memory, case.peer)
    for curve in curves:
        if (curve.direction, curve.memory, curve.peer) == wanted and curve.gpu in (None, case.gpu):
            return float(curve.together(case.count, case.bytes))
    return None


def residuals(curves: Iterable[Curve], record: Record, held_out_only: bool = True) -> list[Residual]:
    """What `curves` predict for the cases of `record` beside what was measured there."""
    curves = tuple(curves)
    return [
        Residual(m.case, m.undisturbed_s, seconds)
        for m in record.measurements
        if cases.is_held_out(m.case) or not held_out_only
        if (seconds := _predicted(curves, m.case)) is not None
    ]
