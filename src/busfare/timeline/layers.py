"""Layers of a recorded run that streams their data from the host: found from ranges that name them, or from what repeats."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.errors import InputError
from busfare.timeline.model import ACT, Mask, Timeline
from busfare.trace.columns import numbered
from busfare.trace.lanes import Union
from busfare.trace.sites import innermost

Rows = NDArray[np.int64]
NONE = np.iinfo(np.int64).max
#: Copies that bring less than this part of what the most for one kernel is are inputs and scalars, not what is streamed.
A_PART = 0.01
#: A pattern repeats so often at least; one that repeats less is as likely the program's outline.
LEAST_REPEATS = 3
#: Kernels that are looked at for a pattern, and of how many one may be: a pass over a network of 126 layers has some 2,000.
LOOKED_AT, LONGEST = 16_384, 2_048
#: What repeats covers this part of the kernels looked at, and the layers found this part of the streamed bytes.
COVERED = 0.6
#: A layer's names, as people number them; steps and batches are numbered, too, but hold all layers each.
LAYER_NAME = r"(?i)layer|block|module|encoder|decoder|transformer"
STEP_NAME = r"(?i)step|iter|batch|epoch|token|request|pass|rank"
INSTEAD = (
    "give the layers instead (`layers`, `bytes_per_layer`, `seconds_per_layer`), or name them in the program with NVTX "
    "ranges layer.0, layer.1, … and record it again"
)


@dataclass(frozen=True)
class StreamedLayers:
    """Units, each the work of one layer in one pass, in the order in which the host issued their kernels.

    `unit`: of each operation, -1 for none, shape (operations,): kernels, the copies to the GPU that they need first, and
    copies back. `number`: of the layer of each unit within its pass, and `pass_number` of each unit; shape (units,).
    `left_out`: seconds of kernels and bytes of copies to the GPU outside all units.
    """

    timeline: Timeline
    unit: Rows
    number: Rows
    pass_number: Rows
    evidence: str
    notes: list[str]

    def of_units(self, mask: Mask, values: Rows) -> Rows:
        """The sum of each unit's `values` of operations, those of `mask`; shape (units,)."""
        chosen = mask & (self.unit >= 0)
        sums = np.bincount(self.unit[chosen], weights=values[chosen], minlength=len(self.number))
        return sums.astype(np.int64)

    @cached_property
    def copies(self) -> Mask:
        """Copies to the GPU that some layer waits for; shape (operations,)."""
        return _into(self.timeline) & (self.unit >= 0)

    @cached_property
    def kernels(self) -> Mask:
        """Kernels of layers; shape (operations,)."""
        return self.timeline.kernels & (self.unit >= 0)

    @cached_property
    def bytes(self) -> Rows:
        """Copied to the GPU for each unit; shape (units,)."""
        return self.of_units(self.copies, self.timeline.sizes)

    @cached_property
    def back_bytes(self) -> Rows:
        """Copied back behind each unit's kernels, where at least half of the units do; shape (units,)."""
        back = self.of_units(self.timeline.among("direction", "d2h"), self.timeline.sizes)
        return back if 2 * np.count_nonzero(back) >= len(back) else np.zeros_like(back)

    @cached_property
    def compute_ns(self) -> Rows:
        """How long at least one kernel of each unit runs; shape (units,)."""
        starts, ends = (times[self.kernels] for times in self.timeline.recorded_spans)
        spans = pl.DataFrame({"unit": self.unit[self.kernels], "start": starts, "end": ends})
        spans = spans.sort("unit", "start")
        # Within a unit a kernel counts from where the ones before it have ended.
        since = pl.max_horizontal("start", pl.col("end").cum_max().shift().over("unit"))
        alone = spans.select((pl.col("end") - since).clip(lower_bound=0)).to_series()
        return np.bincount(spans["unit"], weights=alone, minlength=len(self.number)).astype(np.int64)

    def left_out(self) -> tuple[float, int]:
        """Seconds in which kernels of no unit run, and bytes copied to the GPU for none."""
        run, outside = self.timeline, self.unit < 0
        busy = Union.of(*(times[run.kernels & outside] for times in run.recorded_spans))
        return busy.length() * 1e-9, int(run.sizes[_into(run) & outside].sum())


def streamed_layers(timeline: Timeline) -> StreamedLayers:
    """The layers of a run. Raises InputError, with what to give instead, where nothing tells them for sure."""
    path = timeline.trace.path
    if timeline.calls.height == 0:
        raise InputError(
            f"{path}: copies cannot be assigned to layers without API calls; record API calls, too"
        )
    into = _into(timeline)
    if not into.any():
        raise InputError(f"{path}: no layer is streamed, because nothing is copied to the GPU; {INSTEAD}")
    user = _first_users(timeline, into)
    compute = np.flatnonzero(timeline.kernels & timeline.launched)
    brought = np.zeros(len(into), np.int64)
    used = into & (user < NONE)
    np.add.at(brought, user[used], timeline.sizes[used])
    heavy = brought[compute] > A_PART * brought.max()
    if np.count_nonzero(heavy) < LEAST_REPEATS:
        raise InputError(
            f"{path}: {np.count_nonzero(heavy)} kernels wait for data from the host, too few for streamed "
            "layers; {INSTEAD}"
        )
    layers = _by_ranges(timeline, compute, brought) or _by_pattern(timeline, compute, heavy)
    if layers is None:
        raise InputError(
            f"{path}: no NVTX ranges name layers, and no pattern of kernels and copies repeats; {INSTEAD}"
        )
    unit_of, numbers, evidence = layers
    unit = np.full(len(into), -1, np.int64)
    unit[compute] = unit_of
    unit[used] = unit[user[used]]
    # A copy to the host is of the unit of the last kernel that ended before it.
    starts, ends = timeline.recorded_spans
    back = np.flatnonzero(timeline.copies("d2h"))
    order = compute[np.argsort(ends[compute], kind="stable")]
    before = np.searchsorted(ends[order], starts[back], side="right")
    unit[back] = np.append(-1, unit[order])[before]
    taken, whole = (int(timeline.sizes[some].sum()) for some in (into & (unit >= 0), into))
    if taken < COVERED * whole:
        raise InputError(
            f"{path}: {evidence} accounts for {taken} of {whole} bytes copied to the GPU, too few for its layers; "
            f"{INSTEAD}"
        )
    count, notes = int(unit.max()) + 1, []
    if numbers is None:
        alike = StreamedLayers(timeline, unit, np.arange(count), np.zeros(count, np.int64), evidence, [])
        numbers, note = _within_passes(alike, unit_of)
        notes = [note] if note else []
    pass_number = np.concatenate([[0], np.cumsum(np.diff(numbers) <= 0)])
    return StreamedLayers(timeline, unit, numbers, pass_number, evidence, notes)


def _into(timeline: Timeline) -> Mask:
    """Copies to the GPU that a call made by itself."""
    alone = timeline.operations["graph_node"].is_null().to_numpy()
    return np.asarray(timeline.copies("h2d") & timeline.launched & alone)


def _first_users(timeline: Timeline, copies: Mask) -> Rows:
    """Of each of `copies` the first kernel issued that can only begin behind it, NONE where there is none; shape
    (operations,).

    By its own stream; by the events that other streams wait for; else by what its thread launches once it has waited for it.
    """
    columns, compute = timeline.columns, timeline.kernels & timeline.launched
    call, stream, device = (columns[name] for name in ("operation_call", "operation_stream", "stream_device"))
    thread = np.where(call >= 0, columns["call_thread"][np.maximum(call, 0)], -1)

    def first_from(chosen: Mask, calls: Rows) -> Rows:
        """The first row of `chosen` that each of `calls`, or a later one, launched."""
        rows = np.append(np.flatnonzero(chosen), NONE)
        return rows[np.searchsorted(call[rows[:-1]], calls)]

    act, key, act_stream = (columns[f"call_act{name}"] for name in ("", "_event", "_stream"))
    records, waits = np.flatnonzero(act == ACT["record"]), np.flatnonzero((act == ACT["wait"]) & (key >= 0))
    recorded_by = np.full(int(key.max(initial=-1)) + 1, -1, np.int64)
    recorded_by[key[records]] = records
    waits = waits[recorded_by[key[waits]] >= 0]
    first_user = np.full(len(call), NONE)
    for copy_stream in np.unique(stream[copies]):
        mine = np.flatnonzero(copies & (stream == copy_stream))
        kernels = np.append(np.flatnonzero(compute & (stream == copy_stream)), NONE)
        stream_waits = waits[act_stream[recorded_by[key[waits]]] == copy_stream]
        behind = [
            (recorded_by[key[some]], first_from(compute & (stream == act_stream[some[0]]), some))
            for some in _apart(stream_waits, act_stream)
        ]
        users = np.minimum(kernels[np.searchsorted(kernels, mine)], _earliest(behind, call[mine]))
        if (users == NONE).any():
            events = key[(act == ACT["record"]) & (act_stream == copy_stream)]
            holding = timeline.waiting("operation") & timeline.calls_of(copies & (stream == copy_stream))
            for kind, keys in (
                ("stream", [copy_stream]),
                ("device", [device[copy_stream]]),
                ("event", events),
                ("given", mine),
            ):
                holding |= timeline.waiting(kind) & np.isin(columns["call_wait_key"], keys)
            held = [
                (some + 1, first_from(compute & (thread == columns["call_thread"][some[0]]), some + 1))
                for some in _apart(np.flatnonzero(holding), columns["call_thread"])
            ]
            users = np.where(users == NONE, _earliest(held, call[mine]), users)
        first_user[mine] = users
    return first_user


def _apart(rows: Rows, groups: NDArray[np.int32]) -> list[Rows]:
    """Those of `rows` in each group."""
    return [rows[groups[rows] == group] for group in np.unique(groups[rows])]


def _earliest(behind: list[tuple[Rows, Rows]], issued: Rows) -> Rows:
    """Of each call that `issued` a copy, the least row among those of pairs (call, row) with a later call."""
    if not behind:
        return np.full(len(issued), NONE)
    calls, rows = (np.concatenate(parts) for parts in zip(*behind, strict=True))
    order = np.argsort(calls, kind="stable")
    least = np.append(np.minimum.accumulate(rows[order][::-1])[::-1], NONE)
    return least[np.searchsorted(calls[order], issued, side="right")]


def _by_ranges(timeline: Timeline, compute: Rows, brought: Rows) -> tuple[Rows, Rows | None, str] | None:
    """The unit of each kernel and the number of each unit's layer, from ranges like layer.0, layer.1, … around the calls."""
    ranges = timeline.trace.markers.filter(pl.col("end_ns") > pl.col("start_ns"))
    name = pl.col("name").cast(pl.String)
    named = ranges.with_columns(stem=name.str.replace_all(r"\d+", "#"), digits=name.str.extract_all(r"\d+"))
    stem_text = pl.col("stem").str
    named = named.filter(stem_text.contains("#", literal=True) & ~stem_text.contains(STEP_NAME))
    launching = timeline.columns["operation_call"][compute]
    calls = timeline.calls.select("process", "thread", "start_ns")[launching]
    spent = timeline.columns["operation_duration"][compute]
    best, most = None, 0
    for (stem,), some in named.group_by("stem", maintain_order=True):
        names = some["name"].n_unique()
        layers = 2 * names <= some.height or pl.Series([stem]).str.contains(LAYER_NAME).item()
        if names < LEAST_REPEATS or not layers:
            continue
        around = innermost(some, calls).cast(pl.Int64).fill_null(-1).to_numpy()
        inside = around >= 0
        covered = int(spent[inside].sum())
        if covered > 1.02 * most and brought[compute][inside].any():
            best, most = (str(stem), some["digits"], around), covered
    if best is None:
        return None
    stem, digits, around = best
    inside, unit = around >= 0, np.full(len(around), -1, np.int64)
    unit[inside], first = numbered([around[inside]])
    # What is no number of 64 bits is like all of those.
    numbers = digits.list.eval(pl.element().cast(pl.Int64, strict=False).fill_null(-1))
    of_units = [tuple(number) for number in numbers.gather(around[inside][first]).to_list()]
    layer = {number: at for at, number in enumerate(sorted(set(of_units)))}
    return unit, np.array([layer[number] for number in of_units], np.int64), f"ranges {stem}"


def _by_pattern(timeline: Timeline, compute: Rows, heavy: Mask) -> tuple[Rows, None, str] | None:
    """The unit of each kernel, from the shortest sequence of kernels that repeats, and at which streamed data is needed."""
    token = _tokens(timeline, compute)
    begin = int(np.flatnonzero(heavy)[0])
    window = token[begin : begin + LOOKED_AT]
    for period in range(1, min(LONGEST, len(window) // LEAST_REPEATS) + 1):
        if np.count_nonzero(window[period:] == window[:-period]) < COVERED / 2 * len(window):
            continue
        starts, ends = _repeating(window, period)
        if (ends - starts).sum() >= COVERED * len(window):
            break
    else:
        return None
    places = np.flatnonzero(heavy)
    for longer in range(period, max(period, min(LONGEST, len(token) // LEAST_REPEATS)) + 1, period):
        # Most kernels that need streamed data have another one like them that much later.
        later = places + longer
        inside = later < len(token)
        if inside.any() and 2 * np.count_nonzero(heavy[later[inside]]) >= np.count_nonzero(inside):
            period = longer
            break
    unit, count = np.full(len(compute), -1, np.int64), 0
    for start, end in zip(*_repeating(token, period, 1), strict=True):
        places = np.flatnonzero(heavy[start:end])
        first = start + (int((places % period).min()) if len(places) else 0)
        whole = (end - first) // period
        if len(places) and whole:
            unit[first : first + whole * period] = count + np.repeat(np.arange(whole), period)
            count += whole
    return (unit, None, f"a pattern of {period} kernels") if count >= LEAST_REPEATS else None


def _tokens(timeline: Timeline, compute: Rows) -> Rows:
    """A number for each kernel's name and grid, where the trace tells it; shape (kernels,)."""
    operations = timeline.operations[compute]
    identity = pl.DataFrame({"name": operations["name"].to_physical()})
    if "launch" in operations.columns and timeline.trace.launches.height:
        grid = timeline.trace.launches.select("grid_x", "grid_y", "grid_z")
        identity = pl.concat([identity, grid[operations["launch"].fill_null(0)]], how="horizontal")
    return identity.select(pl.struct(pl.all()).rank("dense")).to_series().cast(pl.Int64).to_numpy()


def _repeating(token: Rows, period: int, least: int = LEAST_REPEATS - 1) -> tuple[Rows, Rows]:
    """Starts and ends of stretches that hold one sequence of `period` tokens `least` + 1 times or more."""
    alike = np.concatenate([[False], token[period:] == token[:-period], [False]])
    edges = np.flatnonzero(alike[1:] != alike[:-1])
    starts, ends = edges[::2], edges[1::2]
    long = ends - starts >= least * period
    return starts[long], ends[long] + period


def _within_passes(layers: StreamedLayers, unit_of: Rows) -> tuple[Rows, str]:
    """The number of each unit's layer in its pass over all layers, and what is to be said of it. A pass is what repeats
    among units: where the data comes from, how much of it there is, and what lies between them.
    """
    timeline, unit, count = layers.timeline, layers.unit, len(layers.number)
    copied = np.flatnonzero(layers.copies)
    came = np.zeros(count, np.uint64)
    if "source_address" in timeline.operations.columns:
        address = timeline.operations["source_address"].fill_null(0).to_numpy()
        np.add.at(came, unit[copied], address[copied])
    back = layers.of_units(timeline.among("direction", "d2h"), timeline.sizes)
    issued = np.flatnonzero(unit_of >= 0)
    first = issued[np.unique(unit_of[issued], return_index=True)[1]]
    outside = np.cumsum(unit_of < 0)[first]
    between = np.diff(outside, prepend=0) > 0
    shape = pl.DataFrame({"bytes": layers.bytes, "from": came, "back": np.roll(back, 1), "between": between})
    token = shape.select(pl.struct(pl.all()).rank("dense")).to_series().to_numpy()[1:]
    alone = np.arange(count)
    if len(np.unique(token)) == 1:
        return alone, f"the end of a pass over the layers is not recorded: all {count} count as one pass"
    for length in range(2, count // 2 + 1):
        if np.array_equal(token[length:], token[:-length]):
            ended = between[1:] | (np.roll(back, 1)[1:] > 0)
            begins = 0 if ended.all() or not ended.any() else int(np.argmax(ended) + 1) % length
            return (alone - begins) % length, ""
    return alone, ""
