"""Any two changes can be asked for together, on any run: none crashes another, and the run that they make plays."""

import itertools
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busfare.advise import guess_node
from busfare.errors import InputError
from busfare.nodes import load_node
from busfare.questions import Scaled, WhatIf
from busfare.timeline import Timeline, critical_path_shares, play, timeline
from busfare.timeline.changes import Setting, changes_of
from busfare.trace import Trace, read
from tests.published import published
from tests.traces import EXAMPLES, call, copy, kernel, made, run, trace

CHANGES = {
    "pin": WhatIf(pin=""),
    "async": WhatIf(async_=""),
    "all asynchronous": WhatIf(async_="."),
    "drop synchronisations": WhatIf(drop_synchronisations=""),
    "batch": WhatIf(batch_below=64 << 10),
    "batch all": WhatIf(batch_below=1 << 30),
    "collect": WhatIf(collect_below=1 << 20),
    "streams": WhatIf(streams=3),
    "dedupe": WhatIf(dedupe=True),
    "prefetch": WhatIf(prefetch=True),
    "remove": WhatIf(remove=("h2d", "set")),
    "remove all": WhatIf(remove=("copy", "migration")),
    "node": WhatIf(node="gh200"),
    "link": WhatIf(link="pcie:5x8"),
    "kernels": WhatIf(kernels=(Scaled(0.5),)),
    "host": WhatIf(host=0.8),
    "copy speed": WhatIf(copy_speed=2.0),
}
PAIRS = list(itertools.combinations(CHANGES, 2))
HERE = load_node("h100-sxm")
RECORDINGS = sorted(EXAMPLES.glob("*.json.gz"))


def played_together(taken_apart: Timeline, first: str, second: str) -> int:
    """The makespan in ns after both, or -1 where the run lacks what one of them needs."""
    node = guess_node(taken_apart.trace) or HERE
    try:
        question = WhatIf(**CHANGES[first].given() | CHANGES[second].given())
        for change in changes_of(question, node):
            taken_apart = change.apply(taken_apart, Setting(node)).timeline
    except InputError as refused:
        assert "\n" not in str(refused)
        return -1
    assert sum(part.seconds for part in critical_path_shares(taken_apart)) >= 0
    return play(taken_apart).makespan_ns


def sixth_of_pairs(recorded: Trace, number: int) -> None:
    """Plays every sixth pair, from `number` on."""
    taken_apart = timeline(recorded)
    makespan = play(taken_apart).makespan_ns
    for first, second in PAIRS[number % 6 :: 6]:
        ends = played_together(taken_apart, first, second)
        assert ends >= -1
        # Work that is gone, or faster, holds nothing up for long: packing and other links may cost some.
        if {first, second} <= {"remove", "remove all", "copy speed", "kernels", "dedupe"}:
            assert ends <= 1.02 * makespan + 100_000, (first, second)


@pytest.mark.parametrize(
    ("number", "path"), list(enumerate(RECORDINGS)), ids=[path.name for path in RECORDINGS]
)
def test_pairs_of_changes_play_on_recordings(number: int, path: Path) -> None:
    sixth_of_pairs(read(path), number)


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("number", "path"), list(enumerate(published())), ids=[path.name for path in published()]
)
def test_pairs_of_changes_play_on_published_traces(number: int, path: Path) -> None:
    sixth_of_pairs(read(path), number)


SIZES = st.sampled_from([None, 0, 4, 3000, 70_000, 5_000_000])
CALLS = {"none": "cudaMemcpyAsync", "operation": "cudaMemcpy", "device": "cudaDeviceSynchronize"}


@st.composite
def runs(draw: st.DrawFn) -> Trace:
    """A run of up to 25 operations: any kinds, sizes that are not known, calls that are missing, times that overlap."""
    operations: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    now = 0.0
    for number in range(draw(st.integers(1, 25))):
        now += draw(st.sampled_from([0.5, 4.0, 60.0]))
        took = draw(st.sampled_from([0.0, 2.0, 90.0]))
        at = {
            "stream": draw(st.sampled_from([None, 7, 13])),
            "context": draw(st.sampled_from([None, 1])),
            "correlation": draw(st.sampled_from([None, number, number // 2])),
        }
        kind = draw(st.sampled_from(["kernel", "copy", "migration", "set", "graph"]))
        direction = draw(st.sampled_from(["h2d", "d2h", "d2d"]))
        memory = draw(st.sampled_from([None, "pageable", "pinned", "managed"]))
        if kind in ("copy", "migration"):
            place = {"destination_address": draw(st.sampled_from([None, 4096, 8192]))}
            operations.append(
                copy(now, now + took, draw(SIZES), direction, memory, **at, **place) | {"kind": kind}
            )
        else:
            operations.append(kernel(now, now + took, **at) | {"kind": kind})
        if draw(st.booleans()):
            waits = draw(st.sampled_from(list(CALLS)))
            begun = now - draw(st.sampled_from([0.0, 3.0, 30.0]))
            ended = max(begun, now + took + draw(st.sampled_from([-80.0, -1.0, 3.0])))
            calls.append(call(begun, ended, CALLS[waits], waits, correlation=number))
    return trace(*operations, calls=calls)


@settings(max_examples=40)
@given(runs(), st.lists(st.sampled_from(PAIRS), min_size=3, max_size=3))
def test_any_two_changes_play_on_any_run(recorded: Trace, pairs: list[tuple[str, str]]) -> None:
    taken_apart = timeline(recorded)
    assert abs(play(taken_apart).makespan_ns - taken_apart.recorded_ns) <= 0.01 * taken_apart.recorded_ns + 1
    for first, second in pairs:
        assert played_together(taken_apart, first, second) >= -1


def test_missing_sizes_stay_missing_when_copies_are_packed() -> None:
    copies = [copy(10.0 * n, 10.0 * n + 3, None if n == 4 else 512, context=1) for n in range(5)]
    sent = [made(row, 10.0 * n, 10.0 * n + 2, "cudaMemcpyAsync") for n, row in enumerate(copies)]
    recorded = run(*sent, made(kernel(60, 80, context=1), 50, 52))
    packed = changes_of(WhatIf(batch_below=64 << 10), HERE)[0].apply(timeline(recorded), Setting(HERE))
    assert packed.count == 4
    assert packed.timeline.operations["bytes"].dtype == pl.Int64
    assert packed.timeline.operations["bytes"].to_list() == [2048, None, None]
