"""The accuracy claims, recomputed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(ROOT / "validation" / script), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, check=False
    )


def test_what_follows_from_the_papers_own_formulas_follows() -> None:
    done = run("papers.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "MISSED" not in done.stdout
    assert "Not reproduced" in done.stdout


def test_the_probes_medians_and_bandwidths_meet_their_goals() -> None:
    steady = [
        str(ROOT / "results" / "probe" / f"{name}-run1.json.gz") for name in ("h100-tenth", "h100-fourth")
    ]
    done = run("probe.py", *steady)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("nvbandwidth's method") >= 4


@pytest.mark.parametrize(
    "name", ["h200-x2", "h200-sixth", "h100-eighth", "h200-eleventh", "h200-twelfth", "h200-sixteenth"]
)
def test_the_probe_of_these_machines_meets_its_goals(name: str) -> None:
    done = run("probe.py", str(ROOT / "results" / "probe" / f"{name}-run1.json.gz"))
    assert done.returncode == 0, done.stdout + done.stderr
    judged = [line for line in done.stdout.splitlines() if "sizes not fitted" in line or "bandwidth " in line]
    assert len(judged) == 4 + 4 + 2
    assert not [line for line in judged if "MISSED" in line]


def test_goals_that_a_changing_host_missed_are_said() -> None:
    done = run("probe.py", str(ROOT / "results" / "probe" / "h100-second-run1.json.gz"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "first run was disturbed" in done.stdout and "MISSED" in done.stdout


def test_w14s_best_strategies_are_the_predicted_ones() -> None:
    done = run("plan_papers.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "MISSED" not in done.stdout
    assert done.stdout.count("determined, whatever t_E") == 6
    assert "Not in the paper" in done.stdout


@pytest.mark.conformance
@pytest.mark.skipif("BUSFARE_SHARED" not in os.environ, reason="needs the published measurements")
def test_the_data_sheet_model_meets_its_goals() -> None:
    done = run("datasheet.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "held-out machines" in done.stdout


def test_without_the_measurements_it_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUSFARE_SHARED", str(tmp_path))
    done = run("datasheet.py")
    assert done.returncode != 0
    assert "BUSFARE_SHARED" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_results_of_benchmarks_nothing_is_claimed(tmp_path: Path) -> None:
    (tmp_path / "validation").mkdir()
    script = tmp_path / "validation" / "bench.py"
    script.write_text((ROOT / "validation" / "bench.py").read_text(encoding="utf-8"), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("no results")
    assert len(done.stdout.splitlines()) == 1


def test_benchmarks_on_real_gpus_say_which_goals_they_miss() -> None:
    """The figures that the guide and the README give."""
    done = run("bench.py")
    assert not done.stderr
    assert done.returncode == 1, "goals are missed, and every result says which"
    h100, h200 = (
        next(
            text for text in done.stdout.split("\n\n") if text.startswith(name) and "bench strategies" in text
        )
        for name in ("NVIDIA H100", "NVIDIA H200")
    )
    for text in (h100, h200):
        assert "best picked in 12 of 12 cells (goal: all) met" in text
        assert "a factor of" in text and "(goal 2) MISSED; at the predicted" not in text
    assert "errors of strategies at their fastest: median 1.26 %, largest 10.86 % (goal 5) MISSED" in h100
    assert "errors of hybrid: median 1.29 %, largest 3.57 %" in h100
    assert "errors of strategies at their fastest: median 0.39 %, largest 3.41 % (goal 5) met" in h200
    assert "errors of hybrid: median 0.68 %, largest 3.41 %" in h200
    two = next(text for text in done.stdout.split("\n\n") if "--node /tmp/r/h200-x2.toml" in text)
    assert "streams-2gpu, beside these: median 1.18 %, largest 3.27 %" in two
    assert "errors of strategies at their fastest: median 0.44 %, largest 3.60 % (goal 5) met" in two
    assert "best picked in 11 of 12 cells (goal: all) MISSED" in two
    held_out = [
        text
        for text in done.stdout.split("\n\n")
        if any(f"T{at}:" in text for at in ("14:50", "17:18", "17:25", "18:19"))
    ]
    assert [text.rpartition("\n  ")[2].partition(":")[0] for text in held_out] == [
        "goals missed",
        *2 * ["every goal is met"],
        "goals missed",
    ]
    for text, largest in zip(held_out, ("7.13", "3.20", "4.67", "6.95"), strict=True):
        assert re.search(
            rf"errors of strategies at their fastest: median 0\.\d+ %, largest {largest} %", text
        )
    streams_2gpu = "streams-2gpu, beside these: median 1.63 %, largest 6.33 %"
    assert streams_2gpu in held_out[-1]
    assert done.stdout.count("goals missed: ") == 4
    assert done.stdout.count("best picked in 21 of 21 cases, ranking predicted in 21 (goal: all)") == 3
    assert "measured 1.59, predicted 1.57, a factor of 1.01 (goal 1.5) met" in done.stdout


def test_the_guides_table_of_strategies_is_what_was_measured() -> None:
    guide = (ROOT / "docs" / "which-method.md").read_text(encoding="utf-8")
    files = [ROOT / "results" / "bench" / f"strategies-{gpu}.json" for gpu in ("h100", "h200")]
    cells = [json.loads(path.read_text(encoding="utf-8"))["cells"] for path in files]
    assert len(cells[0]) == len(cells[1]) == 12
    for one, other in zip(*cells, strict=True):
        assert one["name"] == other["name"]
        row = f"| {one['name']} "
        for cell in (one, other):
            judged = ("explicit", "mapped", "streams", "three-streams", "hybrid")
            versions = [v for v in cell["versions"] if v["strategy"] in judged]
            best = min(versions, key=lambda v: v["measured_seconds"])
            plain = next(v for v in versions if v["strategy"] == "explicit")
            row += f"| {best['strategy']} | {plain['measured_seconds'] / best['measured_seconds']:.2f} "
        assert f"{row}|" in guide


def bench_version(strategy: str, streams: int, measured: float, predicted: float) -> dict[str, object]:
    return {
        "strategy": strategy,
        "streams": streams,
        "measured_seconds": measured,
        "predicted_seconds": predicted,
    }


def test_benchmarks_are_judged_from_their_seconds_alone(tmp_path: Path) -> None:
    """Figures made up so that each verdict can be reckoned by hand."""
    cell = {
        "name": "state 42×1048576", "kernel": "state", "levels": 42, "level_elements": 1 << 20,
        "measured_link_seconds": 0.019, "measured_kernel_seconds": 0.001,
        "best": {"predicted": {"strategy": "mapped", "streams": 1, "seconds": 0.0195}},
        "streams": {"predicted_best": 8},
        "versions": [
            bench_version("explicit", 1, 0.040, 0.041), bench_version("mapped", 1, 0.021, 0.0195),
            bench_version("streams", 8, 0.0202, 0.02), bench_version("streams", 32, 0.02, 0.0201),
            bench_version("hybrid", 1, 0.03, 0.03),
        ],
    }  # fmt: skip
    result = {
        "schema": "busfare.bench-strategies/1", "virtual": True, "gpu": "made up", "driver": None, "date": "-",
        "command": "-", "node": {"name": "made up", "source": "-"}, "left_out": [], "disturbances": [], "cells": [cell],
    }  # fmt: skip
    path = tmp_path / "made-up.json"
    path.write_text(json.dumps(result))
    done = subprocess.run(
        [sys.executable, str(ROOT / "validation" / "bench.py"), str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, "mapped was picked, and costs 5 % more than streams"
    assert "VIRTUAL, nothing measured" in done.stdout
    assert "costs 5.00 % (measured)" in done.stdout
    assert (
        "a factor of 4.00 (goal 2) MISSED; at the predicted number 1.00 % above the best (goal 2) met"
        in done.stdout
    )
    assert "streams reach 95.0 % of the limit" in done.stdout
    assert "state on W14's grid: the better is streams, 95.0 % (goal 95) met" in done.stdout
    assert "largest 7.14 % (goal 5) MISSED" in done.stdout
    assert "best picked in 0 of 1 cells (goal: all) MISSED" in done.stdout


def test_the_share_of_the_limit_is_judged_on_w14s_grid_by_the_better_submission(tmp_path: Path) -> None:
    """Figures made up: 95 % by streams, 97.4 by three; 90 % on a smaller grid, of which nobody asked."""
    cells = [
        {
            "name": f"state 42×{level}", "kernel": "state", "levels": 42, "level_elements": level,
            "measured_link_seconds": link, "measured_kernel_seconds": 0.001,
            "best": {"predicted": {"strategy": "streams", "streams": 8, "seconds": 0.02}},
            "streams": {"predicted_best": 8},
            "versions": [
                bench_version("explicit", 1, 0.04, 0.04), bench_version("mapped", 1, 0.03, 0.03),
                bench_version("streams", 8, 0.02, 0.02), bench_version("three-streams", 8, 0.0195, 0.0195),
                bench_version("hybrid", 1, 0.03, 0.03),
            ],
        }
        for level, link in ((1 << 20, 0.019), (8, 0.01755))
    ]  # fmt: skip
    result = {
        "schema": "busfare.bench-strategies/1", "virtual": True, "gpu": "made up", "driver": None, "date": "-",
        "command": "-", "node": {"name": "made up", "source": "-"}, "left_out": [], "disturbances": [], "cells": cells,
    }  # fmt: skip
    path = tmp_path / "made-up.json"
    path.write_text(json.dumps(result))
    done = run("bench.py", str(path))
    assert "state on W14's grid: the better is three-streams, 97.4 % (goal 95) met" in done.stdout
    assert "three-streams reach 90.0 % of the limit" in done.stdout
    assert done.stdout.count("(goal 95)") == 1 and "95 % of the limit" not in done.stdout.split("missed")[-1]


def test_results_of_bench_are_predicted_again_and_say_so() -> None:
    """What is left over of the runs that the models were made from."""
    folder = ROOT / "results" / "bench"
    found = [folder / "development" / "h200-18h" / f"{kind}-h200.json" for kind in ("strategies", "methods")]
    done = run("bench.py", "--again", *map(str, found))
    assert done.stdout.count("PREDICTED AGAIN, after the run") == 2
    assert "best picked in 12 of 12 cells" in done.stdout
    # From the raw samples, read in today's way.
    assert "models, from h200-third-run1.json.gz" in done.stdout
    assert "ranking predicted in 21 (goal: all)" in done.stdout
    said = run("bench.py", str(found[0]))
    assert "PREDICTED AGAIN" not in said.stdout
    assert "largest 17.92 % (goal 5) MISSED" in said.stdout


def test_nas_on_shared_gpus_is_judged_from_raw_runs() -> None:
    done = run("hybrid.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "official values" in done.stdout
    assert "× multiple-mps (measured)" in done.stdout
    assert "% of the limit, the link" in done.stdout and "% of the limit, the kernels" in done.stdout


def test_nas_runs_that_missed_their_values_fail(tmp_path: Path) -> None:
    """Figures made up: a limit of 0.5 s, a run of 0.625 s whose checksums are off, and one that ended without a result."""
    half = 2 * 16 * 512**3 / 0.5
    result = {
        "schema": "busfare.hybrid.ft/1", "mode": "funneled", "device": "made up", "ranks": 4, "class": "C",
        "algorithm": "slabs", "iterations": 1, "verified": False, "seconds": 0.7, "iteration_seconds": [0.625],
        "breakdown_seconds": {"fft_1d": 0, "fft_2d": 0, "outstanding_communication": 0.1, "synchronous_local_copies": 0.5,
                              "barrier": 0},
    }  # fmt: skip
    packed = result | {"algorithm": "packed-slabs", "iteration_seconds": [0.5], "verified": True}
    found = {
        "machine": "made up", "gpu": "made up", "driver": "-", "date": "-",
        "limits": {"both_directions": [{"each_way_together_bytes_per_second": half}], "device_copy_bytes_per_second": 1e15},
        "runs": [
            {"command": "a", "status": 1, "result": result}, {"command": "b", "status": 0, "result": packed},
            {"command": "nas_ft", "status": 70, "result": None},
        ],
    }  # fmt: skip
    path = tmp_path / "made-up.json"
    path.write_text(json.dumps(found))
    command = [sys.executable, str(ROOT / "validation" / "hybrid.py"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert (
        "official values: 1 of 2 runs that were compared, 1 ended without a result (goal: all) MISSED"
        in done.stdout
    )
    assert "slabs, funneled 0.80 × packed slabs, funneled (measured) (goal 1) MISSED" in done.stdout
    assert "class C, 4 ranks, funneled: 80.0 % of the limit, the link (goal 90) MISSED" in done.stdout
    path.write_text(json.dumps(found | {"superseded": True}))
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "MISSED" not in again.stdout and "SUPERSEDED" in again.stdout
    path.write_text("[]")
    assert subprocess.run(command, capture_output=True, text=True, check=False).returncode == 2
