"""Whatever a trace holds, its report comes out: extreme times and sizes, nothing known, one of everything."""

import json
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from busfare import cost
from busfare.answers.project import project, projected
from busfare.answers.report import examine
from busfare.answers.what_if import answer_what_if
from busfare.errors import InputError
from busfare.nodes import load_node
from busfare.questions import Scaled, WhatIf
from busfare.show.notebook import predicted_trace
from busfare.show.page import page
from busfare.show.predictions import projection_document, what_if_document
from busfare.show.report import report_document
from busfare.show.terminal import show
from busfare.show.time_line_rows import time_line
from busfare.timeline import timeline
from busfare.timeline.changes import Setting, changes_of
from busfare.trace import tables
from busfare.trace.lanes import is_transfer
from busfare.trace.sound import EARLIEST, LARGEST, LATEST, make_sound
from busfare.trace.write import perfetto, perfetto_of_pair
from tests.traces import as_json, trace

times = st.one_of(st.integers(-5, 200), st.integers(EARLIEST - 5, LATEST + 5), st.none())
sizes = st.one_of(st.none(), st.integers(-3, 10**6), st.sampled_from([0, LARGEST, LARGEST + 1]))
memory = st.one_of(st.none(), st.sampled_from(tables.MEMORY_KINDS))
ordinal = st.one_of(st.none(), st.integers(-2, 3), st.just(2**31 - 1))
name = st.one_of(st.none(), st.text(max_size=8))


lengths = st.one_of(st.none(), st.integers(0, 50))
addresses = st.one_of(st.integers(0, 50), st.integers(0, 2**64 - 1))


def ended(row: dict[str, Any]) -> dict[str, Any]:
    """Of the length that is asked for, where its start is known."""
    length, start = row.pop("length"), row["start_ns"]
    return row if None in (length, start) else row | {"end_ns": start + length}


operations_of = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(tables.KINDS),
        "direction": st.one_of(st.none(), st.sampled_from(tables.DIRECTIONS)),
        "start_ns": times,
        "end_ns": times,
        "length": lengths,
        "bytes": sizes,
        "source_memory": memory,
        "destination_memory": memory,
        "device": ordinal,
        "peer_device": ordinal,
        "stream": st.one_of(st.none(), st.integers(-1, 2**40)),
        "process": ordinal,
        "correlation": st.one_of(st.none(), st.integers(0, 3)),
        "name": name,
        "copy_count": st.one_of(st.none(), st.integers(1, 5)),
        "source_address": st.one_of(st.none(), addresses),
        "destination_address": st.one_of(st.none(), addresses),
    }
).map(ended)
calls_of = st.fixed_dictionaries(
    {
        "start_ns": times,
        "end_ns": times,
        "process": ordinal,
        "thread": ordinal,
        "name": st.one_of(name, st.sampled_from(["cudaMemcpy", "cudaMemcpyToSymbol", "cuLaunchHostFunc"])),
        "correlation": st.one_of(st.none(), st.integers(0, 3)),
        "waits_for": st.sampled_from(tables.WAITS_FOR),
    }
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(operations_of, max_size=8),
    st.lists(calls_of, max_size=4),
    st.sampled_from([None, "NVIDIA H100 PCIe"]),
)
def test_a_report_comes_out_of_anything(
    capsys: pytest.CaptureFixture[str], operations: list[dict[str, Any]], calls: list[dict[str, Any]],
    gpu: str | None,
) -> None:  # fmt: skip
    recorded = trace(*operations, calls=calls, gpu=gpu)
    make_sound(recorded)
    assert recorded.operations.filter(pl.col("end_ns") < pl.col("start_ns")).is_empty()

    result, run, findings = examine(recorded)
    plain = as_json(result)
    between = (row["count"] for row in plain["by_path"] if row["direction"] not in ("d2d", "h2h"))
    assert plain["transfers"]["count"] == sum(between)
    assert 0 <= plain["transfers"]["exposed_seconds"] <= plain["makespan_seconds"] * (1 + 1e-12)
    assert plain["transfers"]["bytes"] >= 0
    assert 0 <= plain["transfers"]["share_of_gpu_time"] <= 1
    for finding in plain["findings"]:
        assert finding["predicted_gain_seconds"] is None or finding["predicted_gain_seconds"] >= 0
    document = report_document(result, time_line(recorded, run, findings))
    show(document)
    assert "whole run" in capsys.readouterr().out
    assert page(document).endswith("</html>")
    assert len(json.loads(perfetto(recorded))["traceEvents"]) >= recorded.operations.height

    if recorded.operations.filter(is_transfer()).height:
        home, away = load_node("pcie:3x16"), load_node("gh200")
        for model in cost.model_names():
            show(projection_document(projected([project(recorded, home, away, model)]), "x"))
        assert "nan" not in capsys.readouterr().out


EVERYTHING = WhatIf(
    pin="",
    async_=".",
    drop_synchronisations="",
    batch_below=64 << 10,
    collect_below=64 << 10,
    streams=3,
    prefetch=True,
    remove=("d2d",),
    node="gh200",
    kernels=(Scaled(0.5),),
    copy_speed=2.0,
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(operations_of, max_size=10),
    st.lists(calls_of, max_size=6),
    st.sampled_from([None, "h100-probed", "dgx-a100"]),
)
def test_an_answer_to_what_if_comes_out_of_anything(
    capsys: pytest.CaptureFixture[str], operations: list[dict[str, Any]], calls: list[dict[str, Any]],
    node: str | None,
) -> None:  # fmt: skip
    recorded = trace(*operations, calls=calls)
    make_sound(recorded)
    home = load_node(node) if node else None
    try:
        result, changed = answer_what_if(recorded, changes_of(EVERYTHING, home), Setting(home), False)
    except InputError as refused:
        assert "\n" not in str(refused)
        assert home is None or (recorded.operations.is_empty() and recorded.calls.is_empty())
        return
    plain = as_json(result)
    assert plain["predicted_seconds"] is None or plain["predicted_seconds"] >= 0
    baseline = plain["baseline"]
    assert baseline["replayed_seconds"] == pytest.approx(baseline["recorded_seconds"], rel=0.01)
    assert len(plain["changes"]) == 11
    after = predicted_trace(changed)
    drawn = time_line(recorded, timeline(recorded, home), predicted=(after, changed))
    document = what_if_document(result, drawn)
    show(document)
    assert "nan" not in capsys.readouterr().out
    assert page(document).endswith("</html>")
    assert json.loads(perfetto_of_pair(recorded, after))["traceEvents"] or recorded.operations.is_empty()
