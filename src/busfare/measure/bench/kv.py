"""`bench kv`: blocks of a cache fetched from the host in every layout, of several sizes, and with others leaving meanwhile;
what was measured beside what `plan kv` predicts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Protocol

import numpy as np

from busfare.measure.bench.results import HostAlone, KvBenchResult, KvCell, KvErrors, KvMeasured
from busfare.measure.bench.run import Run, best, off_percent, ranked
from busfare.measure.cases import Samples
from busfare.measure.device import GpuHost, UnavailableError
from busfare.measure.results import LeftOut
from busfare.plan import Machine
from busfare.plan.offload.kv import LAYOUTS, Blocks, Host, Layout, fetch, host_of

KIB, MIB = 1 << 10, 1 << 20
#: Bytes of a piece, and of all that are fetched.
PIECES, TOTALS = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB), (16 * MIB, 64 * MIB, 512 * MIB)
QUICK_PIECES, QUICK_TOTALS = (4 * KIB, 64 * KIB, MIB), (16 * MIB, 64 * MIB)
#: Of these pieces as many bytes leave as come, and half as many.
EVICTED_PIECES, EVICTED_TOTAL = (16 * KIB, 256 * KIB, MIB), 64 * MIB
#: Each layout is visited so often, by turns with the others; a visit runs it so many times after one that is not counted.
VISITS, RUNS = 2, 4
#: What would start after so many seconds is left out, and named.
BUDGET_S, QUICK_S = 40.0, 15.0
#: Nothing on the host: what the GPU takes by itself.
NO_HOST = Host(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
#: What a processor packs into its cache, and no more of.
SHORT_PACK_BYTES = 1 << 24
#: Layouts in which the host packs: its work is part of them.
PACKED = ("gather-host", "gather-host-halves")


class KvDevice(GpuHost, Protocol):
    """Fetches blocks."""

    def start(self, fetched: int, evicted: int) -> None:
        """Makes memory for so many bytes at most each way. Raises UnavailableError where that does not suffice."""

    def host_alone(self) -> HostAlone:
        """The host's part by itself, once memory is made."""

    def run(self, layout: Layout, blocks: Blocks, runs: int) -> Samples:
        """So many runs after one that is not counted, each checked: by the host's clock until all is there, of these until
        the last call has returned, and by events on the GPU with all submitted before it began, where that can be.

        Raises UnavailableError where the GPU or its driver refuses the layout, and WrongDataError where data arrived wrong.
        """


def cases(quick: bool) -> list[Blocks]:
    """What is run, the smallest total first: each piece is a block of its own."""
    pieces, totals = (QUICK_PIECES, QUICK_TOTALS) if quick else (PIECES, TOTALS)
    found = [Blocks(piece, total // piece) for total in totals for piece in pieces]
    beside = [
        Blocks(piece, EVICTED_TOTAL // piece, 1, EVICTED_TOTAL // piece // part)
        for piece in (EVICTED_PIECES[1:2] if quick else EVICTED_PIECES)
        for part in (1, 2)
    ]
    at = len(found) - (0 if quick else len(pieces))
    return [*found[:at], *beside, *found[at:]]


def asked(quick: bool, virtual: str | None) -> Callable[[Run[KvDevice]], KvBenchResult]:
    """It has no options of its own."""
    return kv_result


def kv_result(run: Run[KvDevice]) -> KvBenchResult:
    """Measures every case, each layout of it by turns with the others, and before each the host's own part, which one moment
    does not tell: a processor that others use is half as fast for seconds. And how far the predictions are off.
    """
    chosen, budget = _with_room(run, cases(run.quick)), QUICK_S if run.quick else BUDGET_S
    run.say(f"{len(chosen)} cases of {len(LAYOUTS)} layouts")
    order, moments, timed = random.Random(0), list[HostAlone](), list[tuple[Blocks, dict[Layout, Samples]]]()
    for n, blocks in enumerate(chosen):
        name = _name(blocks)
        run.show(n / len(chosen), name)
        if run.too_late(name, budget):
            continue
        with run.attempt("the host's own part"):
            moments.append(run.device.host_alone())
        timings = dict.fromkeys(LAYOUTS, Samples())
        for _ in range(1 if run.quick else VISITS):
            for layout in order.sample(list(timings), len(timings)):
                # What fails once is not tried again, and nothing of it counts.
                seen = timings.pop(layout)
                with run.attempt(f"{layout}, {name}"):
                    timings[layout] = seen + run.device.run(layout, blocks, RUNS)
        if timings:
            timed.append((blocks, timings))
    alone = _median_of(moments)
    checked = not run.device.virtual
    found = [
        _cell(run.machine, _host(run.machine, alone, blocks), blocks, timings, checked)
        for blocks, timings in timed
    ]
    origin = run.origin("kv", found)
    return KvBenchResult(cells=found, errors=errors_of(found), host=alone, **origin)


def _median_of(moments: Sequence[HostAlone]) -> HostAlone | None:
    """The medians of what was measured; None where nothing was."""
    short = [
        one.measured_short_pack_bytes_per_second
        for one in moments
        if one.measured_short_pack_bytes_per_second is not None
    ]
    if not moments:
        return None
    return HostAlone(
        median(one.measured_call_seconds for one in moments),
        median(one.measured_pack_bytes_per_second for one in moments),
        median(short) if short else None,
    )


def _host(machine: Machine, alone: HostAlone | None, blocks: Blocks) -> Host:
    """The host's part: as it was measured by itself, where that could be; else as the node has it."""
    if alone is None:
        return host_of(machine)
    rate, short = alone.measured_pack_bytes_per_second, alone.measured_short_pack_bytes_per_second
    if short is not None and blocks.moved("h2d")[0] <= SHORT_PACK_BYTES:
        rate = short
    return host_of(machine, train_s=alone.measured_call_seconds, core_rate=rate)


def _with_room(run: Run[KvDevice], chosen: list[Blocks]) -> list[Blocks]:
    """Those for which there is memory: the largest totals are left out where there is too little."""
    while chosen:
        most = max(blocks.moved("h2d")[0] for blocks in chosen)
        try:
            run.device.start(int(most), int(max(blocks.moved("d2h")[0] for blocks in chosen)))
        except UnavailableError as error:
            fewer = [blocks for blocks in chosen if blocks.moved("h2d")[0] < most]
            run.left_out += [LeftOut(_name(b), str(error)) for b in chosen if b not in fewer]
            chosen = fewer
        else:
            break
    return chosen


def _name(blocks: Blocks) -> str:
    out = f", {blocks.evicted} out" if blocks.evicted else ""
    return f"{blocks.count} pieces of {blocks.bytes / KIB:g} KiB{out}"


def _cell(
    machine: Machine, host: Host, blocks: Blocks, timings: Mapping[Layout, Samples], checked: bool
) -> KvCell:
    rows = sorted(
        (_measured(machine, host, blocks, *item, checked) for item in timings.items()),
        key=lambda row: row.measured_seconds,
    )
    samples: dict[str, tuple[float, ...]] = {row.layout: row.samples_seconds for row in rows}
    planned: dict[str, float] = {
        row.layout: row.predicted_seconds for row in rows if row.predicted_seconds is not None
    }
    # What lies in one piece is no paged cache.
    paged = {layout: own for layout, own in samples.items() if layout != "contiguous"} or samples
    return KvCell(
        piece_bytes=int(blocks.bytes),
        fetched_bytes=int(blocks.moved("h2d")[0]),
        evicted_bytes=int(blocks.moved("d2h")[0]),
        layouts=rows,
        ranking=ranked(samples, planned),
        best=best(paged, {layout: planned[layout] for layout in paged}),
    )


def _measured(
    machine: Machine, host: Host, blocks: Blocks, layout: Layout, timing: Samples, checked: bool
) -> KvMeasured:
    due, seconds = fetch(layout, blocks, machine, host), median(timing.host_s)
    alone = None
    if timing.device_s and layout not in PACKED:
        alone = fetch(layout, blocks, machine, NO_HOST).seconds
    device_s = median(timing.device_s) if timing.device_s else None
    return KvMeasured(
        layout=layout,
        measured_seconds=seconds,
        samples_seconds=timing.host_s,
        measured_calls_seconds=median(timing.api_s),
        measured_device_seconds=device_s,
        device_samples_seconds=timing.device_s,
        predicted_seconds=due.seconds,
        predicted_by=f"plan kv, bound by {due.limited_by}",
        error_percent=off_percent(due.seconds, seconds),
        predicted_device_seconds=alone,
        device_error_percent=off_percent(alone, device_s),
        checked=checked,
        **due.beside(machine),
    )


def beside_predictions(result: KvBenchResult, machine: Machine) -> list[KvCell]:
    """What was measured, beside what is predicted of it for `machine` and the host's own part as it was measured."""
    cells = list[KvCell]()
    for cell in result.cells:
        count, left = (size // cell.piece_bytes for size in (cell.fetched_bytes, cell.evicted_bytes))
        timings = {
            row.layout: Samples(
                row.device_samples_seconds, (row.measured_calls_seconds,), row.samples_seconds
            )
            for row in cell.layouts
        }
        checked = all(row.checked for row in cell.layouts)
        blocks = Blocks(cell.piece_bytes, count, 1, left)
        cells.append(_cell(machine, _host(machine, result.host, blocks), blocks, timings, checked))
    return cells


def errors_of(cells: Sequence[KvCell]) -> KvErrors:
    """How far the predictions of all layouts of some cells are off."""
    rows = [row for cell in cells for row in cell.layouts]
    off = np.abs([row.error_percent for row in rows if row.error_percent is not None])
    inside = [
        row.low_seconds <= row.measured_seconds <= row.high_seconds
        for row in rows
        if row.low_seconds is not None and row.high_seconds is not None
    ]
    return KvErrors(
        count=len(off),
        median_percent=float(np.median(off)),
        ninetieth_percent=float(np.quantile(off, 0.9)),
        largest_percent=float(off.max()),
        inside_percent=100 * float(np.mean(inside)) if inside else None,
        ranked_right=sum(not cell.ranking.wrong for cell in cells),
        picked=sum(cell.best.picked for cell in cells),
    )
