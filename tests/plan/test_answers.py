"""What `plan` says around its ranking: the roofline, other nodes, traces, words and page."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from busfare.answers.plan import answer_plan
from busfare.errors import InputError
from busfare.nodes import load_node
from busfare.planning import Problem, machine_of
from busfare.planning.problem import recorded_problem
from busfare.planning.strategies import roofline_of
from busfare.questions import Plan
from busfare.show.page import page
from busfare.show.plans import plan_document
from busfare.show.terminal import render, show
from busfare.show.words import worded
from busfare.trace import read
from tests.traces import EXAMPLES, as_json, copy, kernel, trace

H100 = machine_of(load_node("h100-sxm"))
PROBLEM = Problem("x", 336e6, 504e6, 12e-3, levels=42, accesses_in=3, flops=12e9, device_bytes=2.52e9)
OPTIONS = {"h2d": "336MB", "d2h": "504MB", "kernel": "12ms", "node": "h100-sxm", "levels": "42"}


def answered(options: dict[str, Any]) -> Any:
    return as_json(answer_plan(Plan.of(**options)))


def test_the_roofline_by_hand() -> None:
    bounds = roofline_of(PROBLEM, H100)
    into, out = 336e6 * H100.h2d.copy.long_gap_per_byte_s, 504e6 * H100.d2h.copy.long_gap_per_byte_s
    assert bounds.data_intensity == pytest.approx(12e9 / 840e6)
    assert bounds.operational_intensity == pytest.approx(12e9 / 2.52e9)
    assert bounds.roof == pytest.approx(3.35e12 * 12e9 / 2.52e9)
    assert bounds.full_overlap == pytest.approx(12e9 / out)
    assert bounds.no_overlap == pytest.approx(12e9 / (into + out + 12e9 / bounds.roof))
    assert bounds.mapped == pytest.approx(12e9 / (3 * into))
    assert bounds.no_overlap <= bounds.full_overlap <= bounds.roof


def test_the_roofline_needs_rates_and_flops() -> None:
    assert roofline_of(PROBLEM, machine_of(load_node("pcie:4x16"))) is None
    assert roofline_of(Problem("x", 1e6, 1e6, 1e-3), H100) is None


def test_kernels_of_a_trace_take_only_their_copies() -> None:
    recorded = trace(
        copy(0, 10, 1000),
        kernel(10, 30, "mine"),
        copy(30, 35, 500, "d2h"),
        copy(40, 50, 7000),
        kernel(50, 90, "other"),
        copy(90, 95, 7000, "d2h"),
        copy(100, 110, 1000),
        kernel(110, 130, "mine"),
        copy(130, 135, 500, "d2h"),
    )
    matched = recorded_problem(recorded, "^mine$")
    assert (matched.problem.h2d_bytes, matched.problem.d2h_bytes) == (2000, 1000)
    assert matched.problem.kernel_seconds == pytest.approx(40e-6)
    assert (matched.kernels.launches, matched.kernels.streams) == (2, 1)
    assert (matched.kernels.copies_in, matched.kernels.copies_out) == (2, 2)
    assert matched.kernels.span_seconds == pytest.approx(135e-6)
    assert matched.problem.memory == "pinned"


def test_a_trace_without_such_copies_is_refused() -> None:
    with pytest.raises(InputError, match="no copies"):
        recorded_problem(trace(kernel(0, 10, "mine")), "mine")
    with pytest.raises(InputError, match="it has mine"):
        recorded_problem(trace(kernel(0, 10, "mine")), "other")


def test_a_real_trace_is_planned() -> None:
    path = EXAMPLES / "smooth-out-of-core-h100.json.gz"
    matched = recorded_problem(read(path), "smooth")
    assert matched.kernels.launches == 24
    assert matched.problem.memory == "pageable"
    assert matched.problem.h2d_bytes == pytest.approx(matched.problem.d2h_bytes, rel=0.05)
    answer = answered({"from_trace": path, "kernel_name": "smooth", "streams": "24"})
    assert answer["node"] == "h100-sxm"
    predicted = {r["strategy"]: r["predicted_seconds"] for r in answer["ranking"]}
    # The program copies pageable memory with blocking calls, chunk by chunk.
    assert predicted["streams-pageable"] == pytest.approx(answer["recorded"]["span_seconds"], rel=0.4)


def test_pageable_copies_are_as_fast_as_the_trace_shows() -> None:
    path = EXAMPLES / "smooth-out-of-core-h100.json.gz"
    matched = recorded_problem(read(path), "smooth")
    answer = answered({"from_trace": path, "kernel_name": "smooth"})
    rates = {b["parameter"]: b for b in answer["basis"] if b["kind"] == "recorded"}
    for direction, size in (("h2d", matched.problem.h2d_bytes), ("d2h", matched.problem.d2h_bytes)):
        assert matched.pageable[direction].bytes == size
        took = matched.pageable[direction].seconds
        assert rates[f"G {direction} pageable"]["value"] * size == pytest.approx(took, rel=0.01)
    predicted = {r["strategy"]: r["predicted_seconds"] for r in answer["ranking"]}
    # Copies and kernels one after the other, as they were recorded, without the host's time between them.
    assert predicted["explicit-pageable"] == pytest.approx(answer["recorded"]["span_seconds"], rel=0.1)


def test_how_often_a_traces_kernel_touches_an_element_is_not_assumed() -> None:
    options = {"from_trace": EXAMPLES / "smooth-out-of-core-h100.json.gz", "kernel_name": "smooth"}
    answer = answered(options)
    mapped = next(r for r in answer["ranking"] if r["strategy"] == "mapped")
    assert mapped["assumes"] == ["accesses_in", "accesses_out"]
    assert (answer["ranking"][0]["strategy"], answer["ranking"][0]["assumes"]) == ("three-streams", [])
    often = answered(options | {"accesses_in": "17", "accesses_out": "1"})
    strategies = [r["strategy"] for r in often["ranking"]]
    assert strategies.index("mapped") > strategies.index("explicit")
    # Where mapped memory would be ahead, the answer says from how many accesses on it is not.
    show(plan_document(answer_plan(Plan.of(**(OPTIONS | {"node": "gtx-titan", "kernel": "1ms"})))))


def test_streams_of_a_real_program_are_predicted_from_the_data_sheet_alone() -> None:
    for machine in ("h100", "h200"):
        path = EXAMPLES / f"smooth-out-of-core-streams-{machine}.json.gz"
        answer = answered({"from_trace": path, "kernel_name": "smooth", "streams": "24"})
        streams = next(r for r in answer["ranking"] if r["strategy"] == "streams")
        ratio = streams["predicted_seconds"] / answer["recorded"]["span_seconds"]
        assert 0.8 < ratio < 1.15


def test_the_answer_has_the_keys_that_scripts_rely_on() -> None:
    answer = answered(OPTIONS | {"to": ["gh200"]})
    assert next(iter(answer.items())) == ("schema", "busfare.plan/1")
    assert set(answer["ranking"][0]) >= {"strategy", "streams", "predicted_seconds"}
    assert set(answer["bounds"]) == {"full_overlap_seconds", "no_overlap_seconds", "mapped_seconds"}
    assert set(answer["streams"]) >= {"smallest_useful", "largest_useful"}
    assert answer["dominant"] == "kernel"
    assert [n["node"] for n in answer["nodes"]] == ["h100-sxm", "gh200"]
    json.dumps(answer, allow_nan=False)


def test_options_and_a_file_are_not_mixed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave it out"):
        answered({"file": tmp_path / "x.toml", "h2d": "1MB"})
    with pytest.raises(InputError, match="give one of them"):
        answered({"file": tmp_path / "x.toml", "from_trace": tmp_path / "y"})
    with pytest.raises(InputError, match="the trace already defines this"):
        answered({"from_trace": tmp_path / "y", "kernel_name": "x", "h2d": "1MB"})


def many(tmp_path: Path) -> Path:
    file = tmp_path / "many.toml"
    tables = [f'[[kernel]]\nname = "kernel [red]{n}"\nh2d = "{n + 1}MB"\nkernel = "1ms"\n' for n in range(60)]
    file.write_text('node = "gh200"\n' + "\n".join(tables), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"memory": "pageable", "copies_in": "9", "launch": "4us", "flops": "12G"},
        {"to": ["gh200", "mi300a", "pcie:6x16"], "levels": "3"},
        {"node": "gtx-680", "kernel_at": ["42=15ms"]},
    ],
)
def test_the_terminal_shows_it_within_100_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    show(plan_document(answer_plan(Plan.of(**(OPTIONS | more)))))
    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines()) <= 100
    for word in ("dominate", "Best: ", "predicted", "touched once"):
        assert word in shown


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"memory": "pageable", "flops": "10G", "device_bytes": "3GB"},
        {"memory": "pageable", "copies_in": "9", "launch": "4us"},
        {"d2h": None, "to": ["h200-sxm"]},
    ],
)
def test_a_terminal_of_80_columns_shows_30_lines_and_with_details_the_rest(more: dict[str, Any]) -> None:
    document = plan_document(answer_plan(Plan.of(**(OPTIONS | more))))
    short, whole = ([text for text, _ in render(document, 80, details, True)] for details in (False, True))
    detailed = ("Assumptions: ", "Bounds", "Figures used")
    assert len(short) <= 30 and not any(line.startswith(detailed) for line in short)
    for start in ("Assumptions: ", "Equations", "Bounds (predicted): ", "Figures used"):
        assert any(line.startswith(start) for line in whole)
    assert short[2].startswith("Best: ")
    roofline = "roofline with transfers, " if "flops" in more else ""
    assert f"Add --details for: equations, {roofline}figures used." in short


@pytest.mark.parametrize("node", ["h100-sxm", "h100-probed", "gh200", "gtx-680", "gtx-titan"])
@pytest.mark.parametrize("levels", ["1", "42"])
def test_no_sentence_names_a_direction_without_data(node: str, levels: str) -> None:
    for direction, absent in {
        "h2d": "copies out|results|writes|after",
        "d2h": "copies in|reads|before",
    }.items():
        given = {"h2d": None, "d2h": None, direction: "336MB"}
        answer = worded(answer_plan(Plan.of(**(OPTIONS | given | {"node": node, "levels": levels}))))
        assert [text for text in answer.words if re.search(absent, text) and "Assumptions" not in text] == []
        assert "hybrid" not in [row.strategy for row in answer.ranking]
        assert levels == "42" or not any("chunk" in text for text in answer.words)


def test_managed_memory_is_not_pinned() -> None:
    accessed = {"memory": "pageable", "accesses_in": "1", "accesses_out": "1"}
    answer = worded(answer_plan(Plan.of(**(OPTIONS | accessed | {"node": "mi300a"}))))
    assert answer.ranking[0].strategy == "managed" and not any("pin it" in text for text in answer.words)


def test_many_kernels_are_shown_in_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(plan_document(answer_plan(Plan.of(file=many(tmp_path)))))
    shown = capsys.readouterr().out
    assert "the first of 60 kernels" in shown
    assert "kernel [red]1" in shown
    assert "20 more" in shown


def test_the_page_shows_plots_and_keeps_text_text(tmp_path: Path) -> None:
    answer = answer_plan(Plan.of(**(OPTIONS | {"flops": "12G", "to": ["gh200"]})))
    answer.name = "<img src=x onerror=alert(1)>"
    shown = page(plan_document(answer))
    assert "<img" not in shown
    for figure in ("ranking", "roofline"):
        assert re.search(f'<figure id="{figure}"><div class="scroll"[^>]*><svg', shown)
    assert "kernel [red]59" in page(plan_document(answer_plan(Plan.of(file=many(tmp_path)))))


def test_results_in_pageable_memory_that_nobody_wrote_take_longer() -> None:
    options = {"node": "h100-sxm", "h2d": "1GB", "d2h": "1GB", "kernel": "1ms"}

    def untouched(**more: str | None) -> list[str]:
        words = worded(answer_plan(Plan.of(**(options | {"memory": "pageable"} | more)))).words
        return [sentence for sentence in words if "nothing has written" in sentence]

    # Published rates of 1.14 to 3.2 GB/s.
    assert "take 524 ms (312 ms to 877 ms, published) instead of 121 ms" in " ".join(untouched())
    assert untouched(memory="pinned") == untouched(d2h=None) == untouched(node="mi300a") == []
