"""`busfare bench` as a user meets it, on virtual nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from busfare.measure.bench.methods import crossover
from busfare.measure.bench.run import ranked


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "busfare", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_strategies_say_what_was_played_and_predicted(tmp_path: Path) -> None:
    page = tmp_path / "s.html"
    done = run("strategies", "--virtual", "rtx-4090", "--quick", "--json", "--html", str(page))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert next(iter(result)) == "schema"
    assert result["schema"] == "busfare.bench-strategies/1"
    assert result["virtual"] is True
    assert result["node"]["source"].startswith("probed just before")
    for cell in result["cells"]:
        strategies = {v["strategy"] for v in cell["versions"]}
        assert strategies >= {"explicit", "batched", "mapped", "streams", "hybrid", "graph"}
        numbers = [v["streams"] for v in cell["versions"] if v["strategy"] == "streams"]
        assert cell["streams"]["predicted_best"] in numbers
        assert {1, 8, 42, 128} <= set(numbers)
    text = page.read_text(encoding="utf-8")
    assert "VIRTUAL" in text and "http-equiv" in text and "predicted" in text
    assert "src=" not in text.split("<script>")[0]


def test_methods_say_what_was_played_and_published(tmp_path: Path) -> None:
    page = tmp_path / "m.html"
    done = run(
        "methods", "--virtual", "rtx-4090", "--node", "rtx-4090", "--quick", "--json", "--html", str(page)
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["schema"] == "busfare.bench-methods/1"
    assert result["node"] == {
        "name": "rtx-4090", "title": result["node"]["title"], "source": "given with --node"
    }  # fmt: skip
    assert result["published"]["situation_1"]["managed"] == 3.5657
    assert {m["method"] for m in result["cells"][0]["methods"]} == {
        "pageable", "pinned", "managed", "managed-prefetch", "zero-copy", "registered", "batched",
    }  # fmt: skip
    text = page.read_text(encoding="utf-8")
    assert "VIRTUAL" in text and "published" in text


@pytest.mark.parametrize("command", ["methods", "strategies"])
def test_an_earlier_result_is_shown_again(command: str, tmp_path: Path) -> None:
    first = run(command, "--virtual", "gtx-titan", "--node", "gtx-titan", "--quick", "--json")
    kept, page = tmp_path / "kept.json", tmp_path / "page.html"
    kept.write_text(first.stdout)
    shown = run(command, "--from", str(kept), "--html", str(page))
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("VIRTUAL")
    assert all(len(line) <= 160 for line in shown.stdout.splitlines())
    assert "VIRTUAL" in page.read_text(encoding="utf-8")
    other = {"methods": "strategies", "strategies": "methods"}[command]
    assert run(other, "--from", str(kept)).returncode == 2
    broken = json.loads(first.stdout) | {"cells": [{"name": "nothing else"}]}
    schema = {"schema": f"busfare.bench-{command}/1"}
    for text, message in (
        ("{", "not of schema"),
        ("[]", "not of schema"),
        (first.stdout[:300], "not of schema"),
        (json.dumps(broken), "a figure is missing or wrong"),
        (json.dumps(schema), "a figure is missing"),
    ):
        kept.write_text(text)
        done = run(command, "--from", str(kept))
        assert done.returncode == 2 and message in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
@pytest.mark.parametrize("command", ["methods", "strategies"])
def test_without_a_gpu_one_line_says_what_was_looked_for(command: str) -> None:
    done = run(command)
    assert done.returncode == 3
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "looked for" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("methods", "--largest", "1000"), "--largest '1000'"),
        (("methods", "--largest", "many"), "'many' is not a number"),
        (("strategies", "--kernel", "none.cu"), "none.cu: No such file"),
        (("strategies", "--virtual", "no-such-node"), "no-such-node"),
        (("strategies", "--virtual", "gtx-titan", "--node", "no-such-node"), "no-such-node"),
    ],
)
def test_what_cannot_be_used_gets_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_kernel_of_ones_own_needs_a_gpu(tmp_path: Path) -> None:
    path = tmp_path / "mine.cu"
    path.write_text('extern "C" __global__ void mine(const double* a, double* b) {}')
    done = run("strategies", "--virtual", "gtx-titan", "--kernel", str(path))
    assert done.returncode == 2
    assert "a virtual node computes nothing" in done.stderr


def test_the_crossover_lies_on_the_line_between_two_accesses() -> None:
    assert crossover([1, 2, 4], [1.0, 2.0, 4.0], [2.5, 2.5, 2.5]) == pytest.approx(2.5)
    assert crossover([1, 2], [3.0, 4.0], [2.0, 2.0]) == 1.0
    assert crossover([1, 2], [1.0, 1.5], [2.0, 2.0]) is None


def test_a_ranking_is_wrong_where_measurements_that_lie_apart_were_predicted_the_other_way_round() -> None:
    samples = {"pinned": [1.0, 1.1, 1.2], "zero-copy": [1.15, 1.3, 1.4], "managed": [5.0, 5.1, 5.2]}
    assert ranked(samples, {"pinned": 2.0, "zero-copy": 1.0, "managed": 3.0}).wrong == []
    assert ranked(samples, {"pinned": 2.0, "zero-copy": 3.5, "managed": 3.0}).wrong == [
        ["zero-copy", "managed"]
    ]
    assert ranked(samples, {"pinned": 3.0, "managed": 3.0}).wrong == []
