"""`busfare probe` and `busfare bench` as a user meets them, on virtual nodes."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from busfare.cli import app, measuring
from busfare.measure.cases import read_record
from busfare.nodes import load_node
from tests.conftest import Run
from validation.stored import probe_raw

#: The node that is played, and predicted for where it is not probed first.
PLAYED = {"methods": "gtx-titan", "strategies": "rtx-4090"}


def test_json_alone_is_on_standard_output(run_here: Run, tmp_path: Path) -> None:
    toml, page, raw = tmp_path / "n.toml", tmp_path / "n.html", tmp_path / "r.json.gz"
    written = ("-o", str(toml), "--html", str(page), "--raw", str(raw))
    done = run_here("probe", "--virtual", "gtx-titan", "--quick", "--json", *written)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert next(iter(result)) == "schema"
    assert result["schema"] == "busfare.probe/1"
    assert {"median_percent", "max_percent"} <= result["residuals"].keys()
    assert load_node(str(toml)).curves
    text = page.read_text(encoding="utf-8")
    assert "VIRTUAL" in text and "http-equiv" in text
    assert raw.stat().st_size > 1000


def test_a_virtual_result_is_labelled_virtual(run_here: Run) -> None:
    done = run_here("probe", "--virtual", "gtx-titan", "--quick")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("VIRTUAL")


@pytest.mark.parametrize("broken", ["fit", "terminal"])
def test_samples_and_node_are_on_file_before_they_are_fitted_and_shown(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_(*_: object) -> None:
        raise RuntimeError(f"the {broken} broke")

    monkeypatch.setattr(measuring, {"fit": "evaluated", "terminal": "probe_document"}[broken], break_)
    raw, toml = tmp_path / "raw.json.gz", tmp_path / "node.toml"
    command = ["probe", "--virtual", "gtx-titan", "--quick", "--raw", str(raw), "-o", str(toml)]
    assert f"the {broken} broke" in str(CliRunner().invoke(app, command).exception)
    assert read_record(raw).measurements
    assert toml.exists() == (broken == "terminal")
    assert broken == "fit" or load_node(str(toml)).curves


def test_what_cannot_be_shown_fails_before_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("busfare.answers.measure.opened", lambda *_, **__: opened.append("device"))
    monkeypatch.setitem(sys.modules, "busfare.show.probe", None)
    monkeypatch.delitem(sys.modules, "busfare.cli.measuring")
    done = CliRunner().invoke(app, ["probe", "--virtual", "gtx-titan", "--quick"])
    assert isinstance(done.exception, ImportError)
    assert not opened


def test_raw_samples_of_a_real_gpu_are_fitted_anew(run_here: Run) -> None:
    done = run_here("probe", "--from", str(probe_raw("h100-run1")), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["virtual"] is False
    assert all(h["sound"] for h in result["health"])
    assert result["residuals"]["median_percent"] <= 1


def played(run_here: Run, benchmark: str, *more: str) -> dict[str, Any]:
    done = run_here("bench", benchmark, "--virtual", PLAYED[benchmark], "--quick", "--json", *more)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert next(iter(result.items())) == ("schema", f"busfare.bench-{benchmark}/1")
    assert result["virtual"] is True
    return result


@pytest.mark.parametrize("benchmark", PLAYED)
def test_what_was_played_is_shown_and_shown_again(benchmark: str, run_here: Run, tmp_path: Path) -> None:
    page, kept = tmp_path / "page.html", tmp_path / "kept.json"
    result = played(run_here, benchmark, "--node", PLAYED[benchmark])
    assert result["node"]["source"] == "as given"
    kept.write_text(json.dumps(result))
    shown = run_here("bench", benchmark, "--from", str(kept), "--html", str(page))
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("VIRTUAL") and "predicted" in shown.stdout
    assert all(len(line) <= 160 for line in shown.stdout.splitlines())
    before = shown.stdout.partition("played")[0]
    assert "measured" not in before.replace("nothing was measured", "")
    text = page.read_text(encoding="utf-8")
    assert "VIRTUAL" in text and "http-equiv" in text and "<svg" in text
    assert "src=" not in text.split("<script>")[0]
    mismatched = "methods" if benchmark != "methods" else "strategies"
    assert run_here("bench", mismatched, "--from", str(kept)).returncode == 2
    schema = {"schema": f"busfare.bench-{benchmark}/1"}
    cells = result | {"cells": [{"name": "nothing else"}]}
    for broken in ("{", "[]", json.dumps(result)[:300], json.dumps(cells), json.dumps(schema)):
        kept.write_text(broken)
        done = run_here("bench", benchmark, "--from", str(kept))
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
        assert "no result of this benchmark" in done.stderr


def test_strategies_are_predicted_by_a_probe_and_swept(run_here: Run) -> None:
    result = played(run_here, "strategies")
    assert result["node"]["source"].startswith("probed just before")
    for cell in result["cells"]:
        strategies = {v["strategy"] for v in cell["versions"]}
        assert strategies >= {"explicit", "batched", "mapped", "streams", "hybrid", "graph"}
        numbers = [v["streams"] for v in cell["versions"] if v["strategy"] == "streams"]
        assert cell["streams"]["predicted_best"] in numbers
        assert {1, 8, 42, 128} <= set(numbers)


def test_methods_are_shown_with_the_published_times(run_here: Run) -> None:
    result = played(run_here, "methods", "--node", "gtx-titan")
    assert result["published"]["situation_1"]["managed"] == 3.5657
    assert {m["method"] for m in result["cells"][0]["methods"]} == {
        "pageable", "pinned", "managed", "managed-prefetch", "zero-copy", "registered", "batched",
    }  # fmt: skip


@pytest.mark.parametrize("command", [("probe",), *(("bench", benchmark) for benchmark in PLAYED)])
def test_without_a_gpu_a_single_line_says_what_was_looked_for(
    command: tuple[str, ...], run_here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = run_here(*command)
    assert done.returncode == 3
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "not found" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("methods", "--largest", "1000"), "--largest '1000'"),
        (("methods", "--largest", "many"), "'many' is not a number"),
        (("strategies", "--virtual", "no-such-node"), "no-such-node"),
        (("strategies", "--virtual", "gtx-titan", "--node", "no-such-node"), "no-such-node"),
    ],
)  # fmt: skip
def test_unusable_input_gets_a_single_line(arguments: tuple[str, ...], message: str, run_here: Run) -> None:
    done = run_here("bench", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
