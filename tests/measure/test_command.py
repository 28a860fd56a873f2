"""`busfare probe` as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from busfare.cli import app
from busfare.measure import probe as probing
from busfare.measure.raw import read
from busfare.nodes import load_node
from busfare.show import probe as probe_document
from validation.stored import probe_raw


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "busfare", "probe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_json_alone_is_on_standard_output(tmp_path: Path) -> None:
    toml, page, raw = tmp_path / "n.toml", tmp_path / "n.html", tmp_path / "r.json.gz"
    done = run(
        "--virtual", "gtx-titan", "--quick", "--json", "-o", str(toml), "--html", str(page), "--raw", str(raw)
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert next(iter(result)) == "schema"
    assert result["schema"] == "busfare.probe/1"
    assert {"median_percent", "max_percent"} <= result["residuals"].keys()
    assert load_node(str(toml)).curves
    text = page.read_text(encoding="utf-8")
    assert "VIRTUAL" in text and "http-equiv" in text
    assert raw.stat().st_size > 1000


def test_a_virtual_result_says_that_it_is_one() -> None:
    done = run("--virtual", "gtx-titan", "--quick")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("VIRTUAL")


@pytest.mark.parametrize("broken", ["fit", "terminal"])
def test_samples_and_node_are_on_file_before_they_are_fitted_and_shown(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_(*_: object) -> None:
        raise RuntimeError(f"the {broken} broke")

    late = {"fit": (probing, "evaluated"), "terminal": (probe_document, "probe_document")}
    monkeypatch.setattr(*late[broken], break_)
    raw, toml = tmp_path / "raw.json.gz", tmp_path / "node.toml"
    asked = ["probe", "--virtual", "gtx-titan", "--quick", "--raw", str(raw), "-o", str(toml)]
    assert f"the {broken} broke" in str(CliRunner().invoke(app, asked).exception)
    assert read(raw).measurements
    assert toml.exists() == (broken == "terminal")
    assert broken == "fit" or load_node(str(toml)).curves


def test_what_cannot_be_shown_fails_before_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(probing, "open_device", lambda *_, **__: opened.append("device"))
    monkeypatch.setitem(sys.modules, "busfare.show.probe", None)
    done = CliRunner().invoke(app, ["probe", "--virtual", "gtx-titan", "--quick"])
    assert isinstance(done.exception, ImportError)
    assert not opened


def test_measuring_needs_no_table_or_plot_library() -> None:
    code = (
        "import sys, busfare.cli, busfare.measure.probe, busfare.measure.virtual, busfare.show.progress; "
        "print([m for m in ('polars', 'plotly', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_raw_samples_of_a_real_gpu_are_fitted_anew() -> None:
    done = run("--from", str(probe_raw("h100-run1")), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["virtual"] is False
    assert all(h["sound"] for h in result["health"])
    assert result["residuals"]["median_percent"] <= 1
