"""Programs before and after a change, and the script that judges them: what can be known without a GPU."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from busfare.cli import app
from busfare.node import load_node

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "validation" / "pairs"
EXAMPLES = ROOT / "src" / "busfare" / "examples"
#: Not programs: what they share, and what builds, reads and runs them.
SHARED = {"measured.py", "build.py", "table.py", "record.py", "process.py", "turns.py", "judged.py"}
#: Options of `what-if` that stand for changes, and whether they take a value; None: they may.
CHANGES = {
    "--pin": None,
    "--batch-below": True,
    "--streams": True,
    "--dedupe": False,
    "--prefetch": False,
    "--async": None,
    "--drop-synchronisations": None,
    "--remove": True,
    "--as-arguments": False,
    "--node": True,
}


@pytest.fixture
def replay_pairs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "validation"))
    import replay_pairs

    return replay_pairs


def plans(replay_pairs: ModuleType) -> list[Any]:
    return [replay_pairs.read_plan(path) for path in sorted(FOLDER.glob("*.toml"))]


def python_programs() -> list[str]:
    return sorted(path.name for path in FOLDER.glob("*.py") if path.name not in SHARED)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True, text=True, cwd=ROOT, check=False, env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip


def test_there_are_enough_pairs_of_real_programs(replay_pairs: ModuleType) -> None:
    plan = replay_pairs.read_plan()
    assert len(plan.pairs) >= 16
    by_program: dict[str, set[str]] = {}
    for pair in plan.pairs:
        if pair.change:
            by_program.setdefault(pair.program, set()).add(pair.change)
    assert len(by_program) >= 12 and all(len(changes) >= 2 for changes in by_program.values())
    libraries = [program.library for program in plan.programs.values()]
    assert libraries.count("PyTorch") >= 3 and libraries.count("CuPy") >= 3
    assert set(by_program) == set(plan.programs)
    assert {change for changes in by_program.values() for change in changes} == set(plan.findings)


def test_every_program_of_the_folder_is_in_a_plan_and_has_its_variants(replay_pairs: ModuleType) -> None:
    programs = [program for plan in plans(replay_pairs) for program in plan.programs.values()]
    assert len({program.name for program in programs}) == len(programs)
    assert {program.source for program in programs} == {*python_programs()} | {
        path.name for path in FOLDER.glob("*.cu")
    }
    for program in programs:
        assert program.name == Path(program.source).stem
        text = (FOLDER / program.source).read_text()
        pattern = r"Program\((.*?)\)\n" if program.is_python else r"const Program kProgram = \{(.*?)\};"
        said = re.search(pattern, text, re.DOTALL)
        assert said, program.source
        variants = re.findall(r'"([a-z-]+)"', said[1].split("(" if program.is_python else "{")[-1])
        assert variants == list(program.variants), program.source
        assert variants[0] == "before"


def test_every_option_is_one_of_what_if_and_every_finding_one_of_report(replay_pairs: ModuleType) -> None:
    context = click.Context(app)
    commands = {
        name: command for name in app.list_commands(context) if (command := app.get_command(context, name))
    }
    known = {option for parameter in commands["what-if"].params for option in parameter.opts}
    both = plans(replay_pairs)
    for name, option in {item for plan in both for item in plan.recorded_on_option.items()}:
        assert option in {own for parameter in commands[name].params for own in parameter.opts}
    for pair in (pair for plan in both for pair in plan.pairs):
        words = list(pair.options)
        assert words
        while words:
            option = words.pop(0)
            assert option in known, pair
            value = words.pop(0) if words and not words[0].startswith("--") else None
            assert CHANGES[option] is None or CHANGES[option] == (value is not None), pair
            if option == "--node":
                load_node(str(value))
    rules = (ROOT / "src" / "busfare" / "advise" / "rules.py").read_text()
    for ids in (ids for plan in both for ids in plan.findings.values()):
        assert all(f'"{id}",' in rules for id in ids)
    for node in {node for plan in both for node in plan.recorded_on.values()}:
        assert load_node(node).name == node


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (("program = \"jacobi\"\nafter = \"async\"", "program = \"jacobi\"\nafter = \"asink\""), "asink"),
        (("program = \"kmeans\"", "program = \"kmeens\""), "kmeens"),
        (("recording = \"before-fingerprint\"", "recording = \"after\""), "recording after"),
        (("change = \"dedupe\"", "change = \"dedup\""), "dedup"),
        (("to = \"h200\"", "to = \"h300\""), "h300"),
    ],
)  # fmt: skip
def test_a_slip_in_the_plan_is_named(
    replay_pairs: ModuleType, tmp_path: Path, change: tuple[str, str], place: str
) -> None:
    text = (FOLDER / "pairs.toml").read_text()
    assert change[0] in text
    wrong = tmp_path / "pairs.toml"
    wrong.write_text(text.replace(*change, 1))
    with pytest.raises(ValueError, match=place):
        replay_pairs.read_plan(wrong)


@pytest.mark.parametrize("name", python_programs())
def test_a_program_explains_itself_and_knows_a_known_answer(name: str) -> None:
    helped = run(str(FOLDER / name), "--help")
    assert helped.returncode == 0 and "before" in helped.stdout
    done = run(str(FOLDER / name), "--reference")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["right"] is True


@pytest.mark.parametrize("name", python_programs())
def test_heavy_libraries_wait_until_the_options_are_read(name: str) -> None:
    for node in ast.parse((FOLDER / name).read_text()).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in names} & {"torch", "cupy", "cupyx", "jax"}


RELEASED = """
import sys, time
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
    command = [sys.executable, str(script), "--wait", "--warm-ups", "1"]
    done = subprocess.run(
        command, input="warm\nmeasure\nmeasure\n", capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(FOLDER)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.split() == ["region", "region", *["start", "region", "stop"] * 2]
    ready, *said = done.stdout.splitlines()
    assert ready == "ready"
    warm, first, second, end = (json.loads(line) for line in said)
    assert warm == {"region": 0.0} and end["seconds"] == [first["region"], second["region"]]
    none = subprocess.run(
        command, input="", capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(FOLDER)},
    )  # fmt: skip
    assert none.returncode == 1 and "no region was asked for" in none.stderr


def test_a_wrong_result_fails_a_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import measured

    program = measured.Program("p", "what", ("before",), 5)
    assert measured.finish_reference(program, 0.5, 0.4) == 1
    assert measured.finish_reference(program, float("nan"), 0.4) == 1
    assert measured.finish_reference(program, 0.3, 0.4) == 0
    said = [json.loads(line)["right"] for line in capsys.readouterr().out.splitlines()]
    assert said == [False, False, True]


# Judging


def made_up(replay_pairs: ModuleType, folder: Path, **milliseconds: dict[str, float]) -> object:
    """Results of a GPU that nobody has: medians by program and variant."""
    programs = {
        program: {
            "variants": {
                variant: {"median_seconds": 1e-3 * median, "spread": 0.01, "seconds": [[1e-3 * median]]}
                for variant, median in variants.items()
            },
            "recordings": {},
            "failures": [] if len(variants) > 1 else ["pin: took longer than 60 s"],
        }
        for program, variants in milliseconds.items()
    }
    times = {"gpu": folder.name, "driver": "0", "date": "2000-01-01", "programs": programs}
    folder.mkdir(parents=True)
    (folder / "times.json").write_text(json.dumps(times))
    return replay_pairs.machines_in(folder.parent)[folder.name]


def test_speed_ups_are_ratios_of_medians_and_errors_ratios_of_speed_ups(
    replay_pairs: ModuleType, tmp_path: Path
) -> None:
    machine = made_up(replay_pairs, tmp_path / "h200", kmeans={"before": 200.0, "pin": 100.0})
    pair = replay_pairs.Pair("kmeans", "pin", ("--pin",), "pin")
    # The recording ran slower than the program alone: only the ratio counts.
    judged = replay_pairs.judge(
        pair,
        {"h200": machine},
        machine,
        lambda *_: replay_pairs.Predicted(0.231, 0.230, 0.230 / 2.18, (0.1, 0.12)),
    )
    assert judged.measured == pytest.approx(2.0)
    assert judged.error_percent == pytest.approx(9.0)
    assert judged.within
    # 0.230 / 0.12 to 0.230 / 0.1 times as fast.
    assert judged.range == pytest.approx((1.9167, 2.3), rel=1e-4) and judged.in_range
    judged = replay_pairs.judge(
        pair,
        {"h200": machine},
        machine,
        lambda *_: replay_pairs.Predicted(0.2, 0.2, 0.2 / 1.79, (0.11, 0.12)),
    )
    assert judged.error_percent == pytest.approx(-10.5)
    assert not judged.within and not judged.in_range


def test_a_change_of_node_is_measured_on_the_other_node(replay_pairs: ModuleType, tmp_path: Path) -> None:
    first = made_up(replay_pairs, tmp_path / "h100", tracers={"before": 300.0, "pin": 1.0})
    other = made_up(replay_pairs, tmp_path / "h200", tracers={"before": 250.0, "pin": 1.0})
    pair = replay_pairs.Pair("tracers", "before", ("--node", "h200-probed"), origin="h100", target="h200")
    both = {"h100": first, "h200": other}
    judged = replay_pairs.judge(pair, both, first, lambda *_: replay_pairs.Predicted(1, 1, 1, (1, 1)))
    assert judged.measured == pytest.approx(1.2)
    alone = replay_pairs.judge(
        pair, {"h100": first}, first, lambda *_: replay_pairs.Predicted(1, 1, 1, (1, 1))
    )
    assert alone.measured is None and "h200" in alone.why


def test_what_was_not_predicted_counts_as_missed_and_what_failed_is_listed(
    replay_pairs: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = made_up(
        replay_pairs, tmp_path / "h200", kmeans={"before": 2.0, "pin": 1.0}, tracers={"before": 2.0}
    )
    plan = replay_pairs.read_plan()

    def silent(*_: object) -> object:
        raise replay_pairs.NoAnswerError("no recording")

    judged = [
        replay_pairs.judge(replay_pairs.Pair("kmeans", "pin", ("--pin",), "pin"), {}, machine, silent),
        replay_pairs.judge(replay_pairs.Pair("tracers", "pin", ("--pin",), "pin"), {}, machine, silent),
    ]
    assert replay_pairs.show_pairs(judged, plan) is False
    out = capsys.readouterr().out
    assert "0 of 1 pairs" in out and "not measured: 1" in out
    assert "no recording" in out and "took longer than 60 s" in out


@pytest.mark.parametrize(
    ("hits", "count", "met"), [(10, 12, True), (9, 12, False), (0, 0, False), (40, 48, True)]
)
def test_ten_of_twelve(replay_pairs: ModuleType, hits: int, count: int, met: bool) -> None:
    assert replay_pairs.share_met(hits, count) is met


def test_the_first_advice_must_be_the_change_that_gained_most(
    replay_pairs: ModuleType, tmp_path: Path
) -> None:
    machine = made_up(replay_pairs, tmp_path / "h200", kmeans={"before": 200.0, "pin": 100.0, "dedupe": 40.0})
    plan = replay_pairs.read_plan()
    program = plan.programs["kmeans"]
    for first, hit in (("repeated-copies", True), ("pageable-copies", False), ("slow-link", False)):
        ranked = replay_pairs.rank(program, plan, machine, lambda *_, first=first: first)
        assert ranked.gained == (("dedupe", pytest.approx(0.8)), ("pin", pytest.approx(0.5)))
        assert ranked.hit is hit
    close = made_up(replay_pairs, tmp_path / "h100", kmeans={"before": 200.0, "pin": 43.5, "dedupe": 40.0})
    assert replay_pairs.rank(program, plan, close, lambda *_: "pageable-copies").hit
    one = made_up(replay_pairs, tmp_path / "l40s", kmeans={"before": 200.0, "pin": 40.5})
    assert replay_pairs.rank(program, plan, one, lambda *_: "pageable-copies") is None


def test_a_combination_counts_what_it_saves_beyond_the_rest_of_it(
    replay_pairs: ModuleType, tmp_path: Path
) -> None:
    medians = {"before": 400.0, "pin": 100.0, "pin-streams": 40.0, "async": 400.0}
    machine = made_up(replay_pairs, tmp_path / "h200", video_edges=medians)
    plan = replay_pairs.read_plan()
    program = plan.programs["video_edges"]
    ranked = replay_pairs.rank(program, plan, machine, lambda *_: "pageable-copies")
    assert ranked.gained == (
        ("pin", pytest.approx(0.75)), ("streams", pytest.approx(0.15)), ("async", pytest.approx(0))
    )  # fmt: skip
    assert ranked.hit


def test_a_recorded_run_is_asked_through_the_command_line(replay_pairs: ModuleType, tmp_path: Path) -> None:
    """A real recording of a training like the one of the pair, beside medians that nobody measured."""
    medians = {"before": 100.0, "pin": 90.0, "pin-async": 80.0, "fewer-syncs": 99.0}
    machine = made_up(replay_pairs, tmp_path / "h200", train_images=medians)
    shutil.copy(EXAMPLES / "train-images-h200.json.gz", machine.folder / "train_images-before.bf")
    done = run(
        str(ROOT / "validation" / "replay_pairs.py"), "--results", str(tmp_path), "--only", "train_images"
    )
    assert done.stderr == "" and done.returncode in (0, 1)
    speed_ups = re.findall(r"before → (\S+) +([0-9.]+)× \| +([0-9.]+)× \| +([+-][0-9.]+) %", done.stdout)
    assert [(after, float(measured)) for after, measured, *_ in speed_ups] == [
        ("pin", 1.111), ("fewer-syncs", 1.010), ("pin-async", 1.250)
    ]  # fmt: skip
    for _, measured, predicted, error in speed_ups:
        assert float(predicted) >= 1
        assert float(error) == pytest.approx(100 * (float(predicted) / float(measured) - 1), abs=0.2)
    assert re.search(r"within 10 %: \d of 3 pairs, 3 of them Python", done.stdout)
    assert re.search(r"first advice gained most: [01] of 1", done.stdout)


def test_without_results_it_says_so(tmp_path: Path) -> None:
    done = run(str(ROOT / "validation" / "replay_pairs.py"), "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "no results" in done.stdout
