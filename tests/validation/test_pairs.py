"""Programs before and after a change, and the script that judges them: what can be known without a GPU."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

import busfare
from busfare.cli import app
from tests.processes import finished
from tests.traces import EXAMPLES

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
    environment = os.environ | {"PYTHONPATH": str(FOLDER)}
    return finished([sys.executable, *arguments], input=text, env=environment)


def test_the_sources_that_are_kept_cover_every_library_and_change(judging: ModuleType) -> None:
    libraries, changes = set(), set()
    for name in ("pairs", "unseen"):
        plan = judging.read_plan(f"{name}.toml")
        kept = {name: program for name, program in plan.programs.items() if program.source}
        for program in kept.values():
            assert program.variants[0] == "before" and len(program.variants) > 1
            libraries.add(program.library)
        changes |= {pair.change for pair in plan.pair if pair.program in kept}
    assert libraries == {"CUDA", "CuPy", "PyTorch", "JAX"}
    findings = (judging.read_plan(f"{name}.toml").findings for name in ("pairs", "unseen"))
    assert changes - {""} == {change for changes_of_plan in findings for change in changes_of_plan}


@pytest.mark.parametrize("name", ["pairs", "unseen"])
def test_every_program_and_variant_of_a_plan_was_recorded(judging: ModuleType, name: str) -> None:
    plan = judging.read_plan(f"{name}.toml")
    ran = {
        (program, variant)
        for machine in judging.machines(name)
        for program, timed in machine.times["programs"].items()
        for variant in timed["variants"]
    }
    assert {(pair.program, variant) for pair in plan.pair for variant in (pair.before, pair.after)} <= ran
    for machine in judging.machines(name):
        assert set(machine.times["programs"]) <= set(plan.programs)
        for program in machine.times["programs"]:
            kept = [name for name in plan.programs[program].recordings if machine.has(program, name)]
            assert kept
            assert all(machine.recording(program, name).stat().st_size > 0 for name in kept)


def test_every_option_belongs_to_what_if(judging: ModuleType) -> None:
    what_if = app.get_command(click.Context(app), "what-if")
    options = {name for option in what_if.get_params(click.Context(what_if)) for name in option.opts}
    for name in ("pairs", "unseen"):
        for pair in judging.read_plan(f"{name}.toml").pair:
            assert {option for option in pair.options if option.startswith("--")} <= options


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        (('jacobi"\n', 'jakobi"\n'), "no such program"),
        (('after = "pin"', 'after = "pinn"'), "is not among its variants"),
        (('change = "batch"', 'change = "bunch"'), "is not under [findings]"),
    ],
)
def test_a_slip_in_the_plan_is_named(
    judging: ModuleType, tmp_path: Path, slip: tuple[str, str], message: str
) -> None:
    text = (FOLDER / "pairs.toml").read_text("utf-8")
    head, mark, rest = text.partition("\n[[pair]]\n")
    (tmp_path / "pairs.toml").write_text(head + mark + rest.replace(*slip))
    with pytest.raises(ValueError, match=re.escape(message)):
        judging.read_plan(str(tmp_path / "pairs.toml"))


@pytest.mark.parametrize("name", python_programs())
def test_a_program_computes_a_checked_answer_without_heavy_libraries(name: str) -> None:
    done = run(str(FOLDER / name), "--reference")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["right"] is True
    for node in ast.parse((FOLDER / name).read_text()).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in names} & {"torch", "cupy", "cupyx", "jax"}


RELEASED = '''"""Says what it is told.

before  as it was
"""
import sys
import measured
calls = []
def named(name):
    return lambda: calls.append(name)
def check():
    print(*calls, file=sys.stderr)
    return 0.0, 1.0
nothing = lambda: None
profiler = measured.Profiler(nothing, named("start"), named("stop"), nothing, nothing)
measured.PROFILERS["none"] = lambda: profiler
measured.run("none", 5, lambda options: (named("region"), check), check)
'''


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


@pytest.mark.parametrize(("error", "status"), [("0.5", 1), ("float('nan')", 1), ("0.3", 0)])
def test_a_wrong_result_fails_a_program(tmp_path: Path, error: str, status: int) -> None:
    script = tmp_path / "checked.py"
    script.write_text(
        f'"""Is off."""\nimport measured\nmeasured.run("none", 1, None, lambda: ({error}, 0.4))\n'
    )
    assert run(str(script), "--reference").returncode == status


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
    usual = {"program": "jacobi", "after": "pin", "options": ("--pin",), "change": "pin"}
    return judging.Pair(**usual | changed)


@pytest.mark.parametrize(
    ("predicted", "within"), [(2.0, True), (2.19, True), (2.21, False), (1.79, False), (None, False)]
)
def test_speed_ups_are_ratios_of_medians_and_errors_of_speed_ups(
    judging: ModuleType, machine: Any, monkeypatch: pytest.MonkeyPatch, predicted: float | None, within: bool
) -> None:
    def foretold(*_: object) -> Any:
        if predicted is None:
            raise judging.NoAnswerError("no such copy")
        return judging.SpeedUp(predicted, 0.96 * predicted, 1.01 * predicted)

    monkeypatch.setattr(judging, "predicted_speed_up", foretold)
    verdict = judging.judged(pair_of(judging), machine, [machine])
    assert verdict.measured == pytest.approx(2.0)
    assert (verdict.least, verdict.most) == pytest.approx((2.0, 3.0)) and verdict.scattered
    assert verdict.within is within
    assert verdict.in_range is (predicted == 2.0)
    assert verdict.why == ("" if predicted else "no such copy")


def test_what_failed_or_ran_nowhere_is_not_judged(judging: ModuleType, machine: Any) -> None:
    assert judging.judged(pair_of(judging, after="batch"), machine, [machine]) is None
    assert judging.judged(pair_of(judging, program="unknown"), machine, [machine]) is None


def test_a_real_recording_is_predicted_through_the_command_line(judging: ModuleType) -> None:
    here = judging.Machine("pairs/h200")
    pairs = judging.read_plan("pairs.toml").pair
    pair = next(p for p in pairs if (p.program, p.after) == ("jacobi", "batch"))
    assert judging.judged(pair, here, [here]).within
    with pytest.raises(judging.NoAnswerError, match="what-if"):
        judging.busfare("what-if", "nothing.bf", "--pin")


def test_times_of_a_recording_and_bytes_of_its_twin_name_what_to_send_once(judging: ModuleType) -> None:
    """Of JAX on an H200, where sending each batch once made the run 1.37 times as fast."""
    machine = next(m for m in judging.machines("unseen") if m.name.endswith("2026-11-28-0201"))
    names = ("before-threads", "before-fingerprint")
    of_times, of_bytes = (machine.recording("jax_pretrain", name) for name in names)
    setting = {"recorded_on": machine.node, "fingerprints": of_bytes}
    findings = {finding.id: finding for finding in busfare.report(of_times, **setting).findings}
    sent_again = findings["repeated-copies"]
    assert sent_again.high_seconds >= sent_again.predicted_gain_seconds > 0.04
    # Leaving the losses on the GPU was measured to save more, 1.57 times as fast.
    assert next(iter(findings)) == "small-results"
    dedupe = {"dedupe": True, "unrecorded": machine.seconds("jax_pretrain", "before")}
    assert busfare.what_if(of_times, **setting, **dedupe).speedup == pytest.approx(1.37, rel=0.1)
    with pytest.raises(busfare.BusfareError, match="does not record the contents of the copied buffers"):
        busfare.what_if(of_times, dedupe=True)
    with pytest.raises(busfare.BusfareError, match="is of one run"):
        busfare.report(sorted(EXAMPLES.glob("train-images-h?00.json.gz")), **setting)
