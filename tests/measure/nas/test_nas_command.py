"""`busfare bench ft|mg` as a user meets it: on processors for real, and from results recorded on H200s."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from busfare.measure.nas.limit import Rates
from busfare.measure.nas.programs import Programs, environment
from busfare.measure.nas.result import row_of

ROOT = Path(__file__).parents[3]
RECORDED = ROOT / "results" / "hybrid" / "h200-one-gpu.json"


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "busfare", "bench", *arguments]
    found = os.environ | {"CUDA_VISIBLE_DEVICES": ""} | variables
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=found)


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize(("benchmark", "runs"), [("ft", 4), ("mg", 2)])
def test_processors_run_it_and_reach_the_official_values(
    benchmark: str, runs: int, build: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    asked = ("--class", "S", "--modes", "cpu", "--ranks", "1,2", "--build", str(build))
    done = run(benchmark, *asked, "--json", "--html", str(page))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert next(iter(result)) == "schema"
    assert result["schema"] == f"busfare.bench-{benchmark}/1"
    assert result["all_verified"] is True
    assert [(r["mode"], r["ranks"], r["verified"]) for r in result["runs"]].count(
        ("cpu", 2, True)
    ) == runs / 2
    for found in result["runs"]:
        assert found["limit"] is None, "the model knows links and GPUs"
        assert found["iterations"] == len(found["iteration_seconds"]) == {"ft": 6, "mg": 4}[benchmark]
        parts = found["measured_parts_seconds"]
        assert all(seconds >= 0 for seconds in parts.values())
        assert sum(parts.values()) * found["iterations"] >= 0.99 * sum(found["iteration_seconds"])
    assert any(g["over"] == "packed slabs, cpu" for g in result["gains"]) is (benchmark == "ft")
    text = page.read_text(encoding="utf-8")
    assert "processors, no GPU" in text and "No limit is predicted" in text
    kept = tmp_path / "kept.json"
    kept.write_text(done.stdout)
    again = run(benchmark, "--from", str(kept), "--json")
    assert json.loads(again.stdout) == result


def test_without_a_gpu_it_runs_mode_cpu_and_says_so(build: Path) -> None:
    done = run("mg", "--class", "S", "--ranks", "1", "--build", str(build))
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("only mode cpu runs here: no GPU")
    assert "cpu, 1 rank" in done.stdout
    assert "left out: mode single, multiple, multiple-mps, funneled: no GPU" in " ".join(done.stdout.split())


def test_the_path_over_a_gpu_is_read_from_the_programs_themselves(build: Path) -> None:
    """On stand-ins made of host threads: nothing is predicted of those."""
    programs = Programs(Path("mpirun"), build / "nas_ft", None)
    start = [str(programs.launcher), "-n", "4", str(programs.benchmark), "--class", "S", "--mode", "funneled"]
    start += ["--device", "standin", "--standin-gpus", "2", "--exchange", "host", "--timed"]
    done = subprocess.run(start, capture_output=True, text=True, check=True, timeout=120, env=environment())
    row = row_of("ft", json.loads(done.stdout), None, Rates(5e10, 4e12, "made up"), None)
    assert (row["mode"], row["ranks"], row["gpus"], row["verified"]) == ("funneled", 4, 2, True)
    assert row["variant"]["exchange"] == "host"
    assert row["parts_timed"] is True and row["measured_parts_seconds"]["fft_2d"] > 0
    assert row["limit"] is None


def test_a_mode_on_a_gpu_that_was_asked_for_needs_one(build: Path) -> None:
    done = run("ft", "--modes", "cpu,funneled", "--build", str(build))
    assert done.returncode == 3
    assert "mode funneled: no GPU" in one_line(done)


def test_without_programs_it_says_how_to_build_them(tmp_path: Path) -> None:
    done = run("ft", "--build", str(tmp_path))
    assert done.returncode == 2
    assert "no program nas_ft" in (line := one_line(done)) and "cmake -S hybrid" in line


def test_without_a_launcher_it_says_what_to_install(build: Path, tmp_path: Path) -> None:
    done = run("mg", "--build", str(build), PATH=str(tmp_path))
    assert done.returncode == 2
    assert "no mpirun" in one_line(done)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("--class", "Q"), "one of S, W, A"),
        (("--ranks", "3"), "powers of two"),
        (("--ranks", "one"), "powers of two"),
        (("--modes", "shared"), "give some of cpu"),
        (("--modes", ","), "give some of cpu"),
        (("--timeout", "0"), "above 0"),
        (("--node", "no-such-node"), "no-such-node"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(
    asked: tuple[str, ...], message: str, build: Path
) -> None:
    done = run("mg", *asked, "--build", str(build))
    assert done.returncode == 2
    assert message in one_line(done)


def test_raw_results_of_an_h200_are_shown_beside_their_limit() -> None:
    done = run("ft", "--from", str(RECORDED), "--json")
    assert done.returncode == 0, done.stderr
    result, raw = json.loads(done.stdout), json.loads(RECORDED.read_text(encoding="utf-8"))
    assert result["gpu"] == "NVIDIA H200" and result["driver"] == raw["driver"]
    each_way = max(row["each_way_together_bytes_per_second"] for row in raw["limits"]["both_directions"])
    assert result["rates"]["each_way_bytes_per_second"] == each_way
    whole = [r for r in result["runs"] if r["class"] == "C"]
    assert {r["mode"] for r in whole} == {"multiple", "multiple-mps", "funneled"}
    for found in whole:
        # These runs are older than the transpose inside the GPU: the grid crosses the link twice each way.
        assert found["limit"]["predicted_seconds"] == pytest.approx(2 * 16 * 512**3 / each_way)
        assert found["limit"]["by"] == "link"
        assert "device_phases" in found["measured_parts_seconds"], "their parts were not timed"


def test_raw_results_of_mg_are_told_apart_by_mode_and_ranks() -> None:
    result = json.loads(run("mg", "--from", str(RECORDED), "--json").stdout)
    raw = json.loads(RECORDED.read_text(encoding="utf-8"))
    memory = raw["limits"]["device_copy_bytes_per_second"]
    best = min(
        (r for r in result["runs"] if (r["class"], r["mode"], r["ranks"]) == ("C", "funneled", 4)),
        key=lambda r: r["measured_iteration_seconds"],
    )
    # Reads and writes of the points of each level: 9.375 at the top, 5.375 of each below, whose points are a seventh.
    assert best["limit"]["predicted_seconds"] == pytest.approx(8 * 512**3 * (9.375 + 5.375 / 7) / memory)
    assert best["alone_share_percent"] is None, "kernels of another form were timed then"
    gain = next(g for g in result["gains"] if (g["class"], g["ranks"], g["over"]) == ("C", 4, "multiple"))
    slow = next(r for r in result["runs"] if (r["class"], r["mode"], r["ranks"]) == ("C", "multiple", 4))
    assert (
        gain["measured_times_as_fast"]
        == slow["measured_iteration_seconds"] / best["measured_iteration_seconds"]
    )


def broken(change: dict[str, Any]) -> str:
    return json.dumps(json.loads(RECORDED.read_text(encoding="utf-8")) | change)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not of schema"),
        ("[]", "not of schema"),
        ("[" * 100_000, "not of schema"),
        ('{"schema": "busfare.bench-mg/1"}', "not of schema"),
        ('{"schema": "busfare.bench-ft/1"}', "the file is not whole"),
        (broken({"runs": {}}), "no list of runs"),
        (broken({"runs": []}), "no run of nas_ft"),
        (broken({"limits": {}}), "no result of device_limits"),
        (
            broken({"runs": [{"command": "x", "result": {"schema": "busfare.hybrid.ft/1"}}]}),
            "missing or wrong",
        ),
    ],
)
def test_a_file_that_holds_something_else_is_refused_in_one_line(
    text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    done = run("ft", "--from", str(path))
    assert done.returncode == 2
    assert message in one_line(done)
