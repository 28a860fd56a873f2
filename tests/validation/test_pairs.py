"""Programs before and after a change, and the script that judges them: what can be known without a GPU."""

from __future__ import annotations

import ast
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from busfare.cli import app

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "validation" / "pairs"
#: Not programs: what they share, and what builds, reads and runs them.
SHARED = {"measured.py", "build.py", "table.py", "record.py"}


@pytest.fixture
def judging(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "validation"))
    import replay_pairs

    return replay_pairs


def python_programs() -> list[str]:
    return sorted(path.name for path in FOLDER.glob("*.py") if path.name not in SHARED)


def run(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, input=text, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(FOLDER)}
    )


@pytest.mark.parametrize("name", ["pairs", "unseen"])
def test_every_program_recorded_is_here_with_its_variants(judging: ModuleType, name: str) -> None:
    plan = judging.read_plan(f"{name}.toml")
    for program in plan.programs.values():
        text = (FOLDER / program.source).read_text("utf-8")
        assert all(re.search(rf"^(//|#|)\s*{variant}\b", text, flags=re.M) for variant in program.variants)
    for machine in judging.machines(name):
        assert set(machine.times["programs"]) <= set(plan.programs)
        for program in machine.times["programs"]:
            for recording in plan.programs[program].recordings:
                assert machine.recording(program, recording).stat().st_size > 0


def test_every_option_is_one_of_what_if(judging: ModuleType) -> None:
    what_if = app.get_command(click.Context(app), "what-if")
    known = {name for option in what_if.get_params(click.Context(what_if)) for name in option.opts}
    for name in ("pairs", "unseen"):
        for pair in judging.read_plan(f"{name}.toml").pair:
            assert {option for option in pair.options if option.startswith("--")} <= known


@pytest.mark.parametrize(
    ("slip", "said"),
    [
        (("jacobi", "jakobi"), "no such program"),
        (('after = "pin"', 'after = "pinn"'), "is not among its variants"),
        (('change = "batch"', 'change = "bunch"'), "is not under [findings]"),
    ],
)
def test_a_slip_in_the_plan_is_named(
    judging: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slip: tuple[str, str], said: str
) -> None:
    from pairs import table

    text = (FOLDER / "pairs.toml").read_text("utf-8")
    head, mark, rest = text.partition("\n[[pair]]\n")
    (tmp_path / "pairs.toml").write_text(head + mark + rest.replace(*slip))
    monkeypatch.setattr(table, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=re.escape(said)):
        judging.read_plan("pairs.toml")


@pytest.mark.parametrize("name", python_programs())
def test_a_program_knows_a_known_answer_without_heavy_libraries(name: str) -> None:
    done = run(str(FOLDER / name), "--reference")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["right"] is True
    for node in ast.parse((FOLDER / name).read_text()).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in names} & {"torch", "cupy", "cupyx", "jax"}


RELEASED = """
import sys
import measured
program = measured.Program("p", "what", ("before",), 5)
options = measured.options_of(program)
calls = []
def named(name):
    return lambda: calls.append(name)
seconds = measured._measure(options, named("region"), wait=lambda: None, start=named("start"), stop=named("stop"),
                            push=lambda: None, pop=lambda: None)
print(*calls, file=sys.stderr)
sys.exit(measured.finish(program, options, seconds, 0.0, 1.0))
"""


def test_a_waiting_program_measures_a_region_a_line(tmp_path: Path) -> None:
    script = tmp_path / "released.py"
    script.write_text(RELEASED)
    command = (str(script), "--wait", "--warm-ups", "1")
    done = run(*command, text="warm\nmeasure\nmeasure\n")
    assert done.returncode == 0, done.stderr
    assert done.stderr.split() == ["region", "region", *["start", "region", "stop"] * 2]
    ready, *rest = done.stdout.splitlines()
    assert ready == "ready"
    warm, first, second, end = (json.loads(line) for line in rest)
    assert warm == {"region": 0.0} and end["seconds"] == [first["region"], second["region"]]
    none = run(*command)
    assert none.returncode == 1 and "no region was asked for" in none.stderr


@pytest.mark.parametrize(("error", "status"), [(0.5, 1), (math.nan, 1), (0.3, 0)])
def test_a_wrong_result_fails_a_program(monkeypatch: pytest.MonkeyPatch, error: float, status: int) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import measured

    program = measured.Program("p", "what", ("before",), 5)
    assert measured.finish_reference(program, error, 0.4) == status


@pytest.fixture
def machine(judging: ModuleType) -> Any:
    """A machine that nobody has: seconds by variant of one program."""

    class MadeUp(judging.Machine):
        times = {  # noqa: RUF012
            "programs": {
                "jacobi": {
                    "failures": ["batch: took longer than 60 s"],
                    "variants": {
                        "before": {"median_seconds": 0.3, "seconds": [[0.29, 0.3, 0.31]]},
                        "pin": {"median_seconds": 0.15, "seconds": [[0.15], [0.1]]},
                    },
                }
            }
        }

    return MadeUp("pairs/h100")


def pair_of(judging: ModuleType, **changed: str) -> Any:
    return judging.Pair(
        **{"program": "jacobi", "after": "pin", "options": ("--pin",), "change": "pin"} | changed
    )


@pytest.mark.parametrize(
    ("predicted", "within"), [(2.0, True), (2.19, True), (2.21, False), (1.79, False), (None, False)]
)
def test_speed_ups_are_ratios_of_medians_and_errors_of_speed_ups(
    judging: ModuleType, machine: Any, monkeypatch: pytest.MonkeyPatch, predicted: float | None, within: bool
) -> None:
    def foretold(*_: object) -> float:
        if predicted is None:
            raise judging.NoAnswerError("no such copy")
        return predicted

    monkeypatch.setattr(judging, "predicted_speed_up", foretold)
    one = judging.judge(pair_of(judging), machine, [machine])
    assert one.measured == pytest.approx(2.0)
    assert (one.least, one.most) == pytest.approx((2.0, 3.0)) and one.scattered
    assert one.within is within
    assert one.why == ("" if predicted else "no such copy")


def test_what_failed_or_ran_nowhere_is_not_judged(judging: ModuleType, machine: Any) -> None:
    assert judging.judge(pair_of(judging, after="batch"), machine, [machine]) is None
    assert judging.judge(pair_of(judging, program="unknown"), machine, [machine]) is None


def test_a_real_recording_is_asked_through_the_command_line(judging: ModuleType) -> None:
    here = judging.Machine("pairs/h200")
    pair = next(
        p for p in judging.read_plan("pairs.toml").pair if (p.program, p.after) == ("jacobi", "batch")
    )
    assert judging.judge(pair, here, [here]).within
    with pytest.raises(judging.NoAnswerError, match="what-if"):
        judging.busfare("what-if", "nothing.bf", "--pin")
