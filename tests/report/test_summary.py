"""The keys that scripts rely on, and that every face shows the same numbers."""

from __future__ import annotations

import json

import msgspec
import pytest

from busfare.advise import amounts
from busfare.errors import InputError
from busfare.node import load_node
from busfare.project import project
from busfare.report.page import report_page
from busfare.report.predictions import show_comparison, show_projection
from busfare.report.projections import compared, projection_result
from busfare.report.summary import summarise
from busfare.report.terminal import show_report
from busfare.trace import Omission, read
from tests.traces import EXAMPLES, copy, kernel, trace
from validation.stored import probed_node, unpacked

HOSTILE = "evil<script>alert(1)</script>[bold]&\u202e\x1b[31mred</title>"


def test_the_contracts_keys_are_there() -> None:
    result = json.loads(msgspec.json.encode(summarise(read(EXAMPLES / "train-images-h100.json.gz"))))
    assert next(iter(result)) == "schema"
    assert result["schema"] == "busfare.report/1"
    assert set(result["transfers"]) >= {"count", "bytes", "seconds", "exposed_seconds", "share_of_gpu_time"}
    assert set(result["kernels"]) >= {"count", "seconds"}
    assert isinstance(result["makespan_seconds"], float)
    for row in result["by_path"]:
        assert set(row) >= {
            "direction",
            "source_memory",
            "destination_memory",
            "count",
            "bytes",
            "seconds",
            "bytes_per_second",
        }
    for row in result["size_histogram"]:
        assert set(row) == {"lower_bytes", "upper_bytes", "count", "seconds"}
    assert result["findings"]
    for row in result["findings"]:
        assert set(row) >= {"id", "title", "evidence", "change", "predicted_gain_seconds"}
    assert result["omissions"] == []


def test_paths_and_sizes_add_up_to_the_total() -> None:
    result = summarise(read(EXAMPLES / "generate-text-h100.json.gz"))
    assert sum(r["count"] for r in result["by_path"]) == result["transfers"]["count"]
    assert sum(r["count"] for r in result["size_histogram"]) == result["transfers"]["count"]
    assert sum(r["seconds"] for r in result["by_path"]) == pytest.approx(result["transfers"]["seconds"])


def test_a_guessed_node_is_said_to_be_a_guess() -> None:
    recorded = trace(copy(0, 1, 1), gpu="NVIDIA H100 80GB HBM3")
    assert summarise(recorded)["node"] == {
        "name": "h100-sxm",
        "guessed_from_gpu_name": True,
        "measured": False,
    }
    assert summarise(recorded, load_node("gh200"))["node"] == {
        "name": "gh200",
        "guessed_from_gpu_name": False,
        "measured": False,
    }
    assert summarise(trace(copy(0, 1, 1)))["node"] is None


@pytest.fixture(autouse=True)
def as_wide_as_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are where they are whatever terminal the tests are started from."""
    monkeypatch.setenv("COLUMNS", "160")


def test_gains_say_which_figures_they_rest_on(capsys: pytest.CaptureFixture[str]) -> None:
    """A real recording. Bounds that nothing replayed are the data sheet's, whatever was measured."""
    recorded = read(EXAMPLES / "train-images-h100.json.gz")
    for node, said in (
        ("h100-probed", "what was measured on h100-probed"),
        ("h100-sxm", "the data sheet of h100-sxm"),
    ):
        result = summarise(recorded, load_node(node))
        show_report(result)
        assert f"(gains are predicted, by {said}; in brackets, 80 % ranges)" in capsys.readouterr().out
        assert said in report_page(result, recorded)
    copies = trace(copy(0, 16_000, 1 << 26, memory="pageable"), kernel(16_000, 17_000))
    show_report(summarise(copies, load_node("h100-probed")))
    assert "by the data sheet of h100-probed" in capsys.readouterr().out


def test_gains_are_of_the_run_without_its_recorder(capsys: pytest.CaptureFixture[str]) -> None:
    """Recorded on an H100: pinning saved more of the unrecorded run than packing; the recording, in which every call takes
    longer, shows packing first.
    """
    folder = unpacked("pairs/h100")
    recorded, node = read(folder / "matched_filter-before.bf"), probed_node("h100-eighth-run1")
    times = json.loads((folder / "times.json").read_text(encoding="utf-8"))
    medians = {
        name: each["median_seconds"] for name, each in times["programs"]["matched_filter"]["variants"].items()
    }
    unrecorded = medians["before"]
    assert medians["pin"] < medians["batch"] < unrecorded
    told, plain = summarise(recorded, node, unrecorded), summarise(recorded, node)
    assert plain["recording_cost"] is None
    assert [f["id"] for f in plain["findings"]][:2] == ["small-copies", "pageable-copies"]
    assert [f["id"] for f in told["findings"]][:2] == ["pageable-copies", "small-copies"]
    assert told["makespan_seconds"] == plain["makespan_seconds"] > 1.05 * unrecorded
    cost = told["recording_cost"]
    assert cost["replayed_seconds"] == pytest.approx(unrecorded, rel=0.01) and cost["call_seconds"] > 0
    path = sum(part["seconds"] for part in told["critical_path"])
    assert path == pytest.approx(cost["replayed_seconds"], rel=0.01)
    first = told["findings"][0]
    assert first["what_if"] == ["--pin", "--unrecorded", f"{unrecorded:g}s"]
    # Of the unrecorded run, not of the recorded one.
    show_report(told)
    share = f"of {amounts.time(cost['replayed_seconds'])} ({first['predicted_gain_seconds'] / cost['replayed_seconds']:.0%})"
    for text in (capsys.readouterr().out, report_page(told, recorded)):
        assert share in text and "a call taken out for the recorder" in text


def test_a_run_that_cannot_be_replayed_has_no_recorder_taken_out() -> None:
    with pytest.raises(InputError, match="--unrecorded needs a run that can be replayed"):
        summarise(trace(copy(0, 1, 1)), None, 1.0)


def test_a_report_fits_100_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    recorded = trace(
        copy(0, 16_000, 1 << 26, memory="pageable"),
        kernel(16_000, 17_000, "a_very_long_kernel_name<" * 20),
        omissions=[Omission("cut-window", 3, "words " * 40)],
    )
    show_report(summarise(recorded))
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 100
    assert any("cut-window: 3 words" in line for line in lines)
    assert any("saves at most" in line or "gain not known" in line for line in lines)


def test_a_trace_without_gpu_work_is_not_said_to_be_well(capsys: pytest.CaptureFixture[str]) -> None:
    empty, busy = trace(), trace(kernel(0, 10))
    for recorded, well in ((empty, False), (busy, True)):
        show_report(summarise(recorded))
        for face in (capsys.readouterr().out, report_page(summarise(recorded), recorded)):
            assert ("Nothing worth doing" in face) is well
            assert ("holds no kernels and no transfers" in face) is not well


def test_control_characters_never_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_report(summarise(trace(kernel(0, 10, HOSTILE), copy(10, 20, 1))))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "[bold]" in out


def test_a_page_shows_a_hostile_name_as_text() -> None:
    recorded = trace(kernel(0, 10, HOSTILE), copy(10, 20, 1), omissions=[Omission("x", 1, HOSTILE)])
    page = report_page(summarise(recorded), recorded)
    assert "alert(1)</script>" not in page
    assert "evil&lt;script&gt;" in page
    assert "evil\\u003cscript" not in page  # escaped as HTML before it became data, too
    assert page.partition("<script")[0].count("</title>") == 1


def test_a_page_loads_nothing_from_elsewhere() -> None:
    recorded = read(EXAMPLES / "smooth-out-of-core-h100.json.gz")
    page = report_page(summarise(recorded), recorded)
    assert "default-src 'none'" in page
    assert 'src="http' not in page
    assert "<link" not in page


def test_predicted_and_recorded_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    recorded = read(EXAMPLES / "smooth-out-of-core-h100.json.gz")
    home, away = load_node("h100-sxm"), load_node("pcie:3x16")
    result = projection_result([project(recorded, home, away, "calibrated")])
    show_projection(result)
    out = capsys.readouterr().out
    assert "h100-sxm (recorded)" in out
    assert "pcie:3x16 (predicted)" in out
    page = report_page(summarise(recorded, home), recorded, result)
    assert "transfers, recorded" in page
    assert "transfers, predicted" in page


def test_projections_carry_the_contracts_keys() -> None:
    recorded = read(EXAMPLES / "smooth-out-of-core-h100.json.gz")
    home = load_node("h100-sxm")
    result = projection_result(
        [project(recorded, home, load_node(n), "datasheet") for n in ("gh200", "dgx-a100")]
    )
    assert list(result)[:4] == ["schema", "from", "to", "model"]
    assert set(result["transfers"]) >= {"recorded_seconds", "predicted_seconds"}
    assert set(result["makespan"]) >= {"recorded_seconds", "replayed_seconds", "predicted_seconds"}
    assert [p["to"] for p in result["projections"]] == ["gh200", "dgx-a100"]


def test_every_model_that_applies_is_compared_best_first(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (read(EXAMPLES / f"smooth-out-of-core-streams-{gpu}.json.gz") for gpu in ("h100", "h200"))
    result = compared(first, second, load_node("h100-sxm"), load_node("h200-sxm"))
    errors = [m["wmape_percent"] for m in result["models"]]
    assert {m["model"] for m in result["models"]} >= {"datasheet", "ahead", "peak", "envelope", "calibrated"}
    assert errors == sorted(errors)
    assert result["wmape_percent"] == errors[0]
    show_comparison(result)
    assert f"{errors[0]:.2f} %" in capsys.readouterr().out
