"""The script that runs programs before and after a change: with a program in the place of a real one, whose recording it
writes itself, and processors whose paces are told. No GPU.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from busfare.measure.processors import Place

FOLDER = Path(__file__).parents[2] / "validation" / "pairs"

STAND_IN = """
import json, os, pathlib, sys, time
words = sys.argv
variant = words[words.index("--variant") + 1]
if variant == "import-fails":
    raise SystemExit("no module named cupy")
output = os.environ.get("BUSFARE_RECORD_OUTPUT")
order = pathlib.Path(__file__).with_name("order")
print("ready", flush=True)
count = 0
for line in sys.stdin:
    if variant == "hangs":
        time.sleep(60)
    took = (0.3 if output else 0.02 if variant == "short" else 0.2) if line == "measure\\n" else 0.0
    count += took > 0
    with order.open("a") as file:
        file.write(f"{variant}{' recorded' if output else ''} {line}")
    print(json.dumps({"region": took}), flush=True)
if output:
    assert os.environ["BUSFARE_RECORD_CAPTURE"] == "profiler-calls"
    hashed = "BUSFARE_RECORD_FINGERPRINT" in os.environ
    words = f"{'hashed' if hashed else 'plain'} {count}"
    pathlib.Path(output.replace("%p", str(os.getpid()))).write_text(words)
print(json.dumps({"variant": variant, "rounds": 7, "error": 0.0, "right": variant != "wrong"}))
"""


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    import record

    return record


class Paced:
    """Stands for the processors: paces as told, one a look at a place; quiet up to 1.3."""

    quiet_s, limit_s = 1.0, 1.3

    def __init__(self, *paces: float) -> None:
        self.paces, self.places = list(paces), 0

    def all_again(self) -> None:
        pass

    def place(self, threads: int, patience_s: float) -> object:
        self.places += 1
        return Place(min(os.sched_getaffinity(0)), ())

    def pace_at(self, place: object, threads: int) -> float:
        return self.paces.pop(0) if self.paces else 1.0


@pytest.fixture
def bench(record: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    source = tmp_path / "stand_in.py"
    source.write_text(STAND_IN)
    library = tmp_path / "library.so"
    library.write_bytes(b"")
    monkeypatch.setattr(sys, "argv", ["record.py", "--timeout", "4", "--build", str(tmp_path)])
    out = tmp_path / "out"
    out.mkdir()
    return record.Bench(record.arguments()[0], out, library, Paced())


def stand_in(record: ModuleType, bench: object, *variants: str, fingerprint: bool = False) -> object:
    source = str(bench.out.parent / "stand_in.py")  # type: ignore[attr-defined]
    from table import Program

    return Program("stand_in", source, variants, fingerprint)


def order_of(bench: object) -> list[str]:
    return (bench.out.parent / "order").read_text().splitlines()  # type: ignore[attr-defined]


def test_regions_are_released_by_turns_and_before_is_recorded(record: ModuleType, bench: object) -> None:
    result = bench.run(stand_in(record, bench, "before", "pin", fingerprint=True))  # type: ignore[attr-defined]
    assert result["failures"] == []
    # There and back, a process each; the third turn is the first processes' again.
    turn = [f"{variant} {word}" for variant in ("before", "pin") for word in ("warm", "measure", "measure")]
    back = turn[3:] + turn[:3]
    again = [line for line in turn if not line.endswith("warm")]
    recorded = ["before recorded warm", "before recorded measure"]
    assert order_of(bench) == turn + back + again + recorded * 2
    pin = result["variants"]["pin"]
    assert pin["seconds"] == [[0.2] * 4, [0.2] * 2] and pin["median_seconds"] == 0.2 and pin["spread"] == 0
    assert len(pin["regions"]) == 6 and pin["quiet"] == 6
    assert result["rounds"] == 7
    assert result["recordings"]["before"]["all_measured_seconds"] == [0.3]
    assert result["recordings"]["before"]["recorded_over_unrecorded"] == pytest.approx(1.5)
    written = {path.name: path.read_text() for path in bench.out.iterdir()}  # type: ignore[attr-defined]
    assert written == {"stand_in-before.bf": "plain 1", "stand_in-before-fingerprint.bf": "hashed 1"}


def test_short_regions_are_warmed_up_at_each_visit(record: ModuleType, bench: object) -> None:
    bench.run(stand_in(record, bench, "short"))  # type: ignore[attr-defined]
    assert order_of(bench)[:9] == ["short warm", "short measure", "short measure"] * 3


def test_more_regions_are_released_until_enough_were_quiet(record: ModuleType, bench: object) -> None:
    bench.processors = Paced(1.0, 1.0, 1.0, 1.0, 1.0, 2.0)  # type: ignore[attr-defined]
    result = bench.run(stand_in(record, bench, "before"))  # type: ignore[attr-defined]
    regions = result["variants"]["before"]["regions"]
    # The third region ended at a slow moment: three visits have five quiet ones, a fourth makes up for it.
    assert [(r["process"], r["pace_before_s"], r["pace_after_s"]) for r in regions] == [
        *[(0, 1.0, 1.0)] * 4, (1, 1.0, 2.0), *[(1, 1.0, 1.0)] * 3
    ]  # fmt: skip
    assert result["variants"]["before"]["quiet"] == 7


def test_a_processor_that_has_become_slow_is_left_between_two_regions(
    record: ModuleType, bench: object
) -> None:
    bench.options.regions = 2  # type: ignore[attr-defined]
    for paces, places in (([], 3), ([1.0, 1.0, 2.0, 1.1, 1.0], 4)):
        bench.processors = Paced(*paces)  # type: ignore[attr-defined]
        result = bench.run(stand_in(record, bench, "before"))  # type: ignore[attr-defined]
        second = result["variants"]["before"]["regions"][1]
        assert second["pace_before_s"] == (1.1 if paces else 1.0)
        assert bench.processors.places == places  # type: ignore[attr-defined]


def test_on_a_machine_that_is_never_quiet_it_ends(record: ModuleType, bench: object) -> None:
    bench.processors = Paced(*[2.0] * 1000)  # type: ignore[attr-defined]
    result = bench.run(stand_in(record, bench, "before"))  # type: ignore[attr-defined]
    before = result["variants"]["before"]
    assert len(before["regions"]) == 24 and before["quiet"] == 0
    assert sum(len(process) for process in before["seconds"]) == 4
    assert len(result["recordings"]["before"]["regions"]) == 2


def test_what_counts_is_chosen_by_the_pace_alone(record: ModuleType) -> None:
    import turns

    def region(seconds: float, before: float, after: float) -> object:
        return turns.Region(0, seconds, before, after, 0)

    quiet = [region(9.0, 1.0, 1.1), region(1.0, 1.3, 1.0), region(5.0, 1.0, 1.0)]
    slow = [region(2.0, 1.0, 3.0), region(2.1, 2.0, 1.0)]
    assert turns.counted([slow[0], *quiet, slow[1]], 2, 1.3) == quiet
    assert turns.counted([slow[0], *quiet, slow[1]], 4, 1.3) == [*quiet, slow[1]]
    assert turns.counted(slow, 4, 1.3) == slow


def test_failures_are_said_and_the_others_run(record: ModuleType, bench: object) -> None:
    program = stand_in(record, bench, "before", "import-fails", "wrong", "hangs")
    result = bench.run(program)  # type: ignore[attr-defined]
    assert set(result["variants"]) == {"before"}
    assert result["recordings"]["before"]["bytes"] == len("plain 1")
    said = "\n".join(result["failures"])
    assert said.count("no module named cupy") == 2
    assert said.count("wrong: error 0.0, status 0") == 2
    assert said.count("hangs: took longer than 4 s") == 2


def test_the_quickest_paced_recording_is_kept(record: ModuleType, bench: object) -> None:
    # Of the first one's three looks the second is at another processor, which is as slow.
    slow = [3.0, 3.0, 3.0, 1.0, 2.0]
    bench.processors = Paced(*[1.0] * 12, *slow)  # type: ignore[attr-defined]
    result = bench.run(stand_in(record, bench, "before"))  # type: ignore[attr-defined]
    tries = result["recordings"]["before"]
    assert [(r["pace_before_s"], r["pace_after_s"]) for r in tries["regions"]] == [(3.0, 3.0), (1.0, 2.0)]
    assert (tries["pace_before_s"], tries["pace_after_s"]) == (1.0, 2.0)


def test_a_program_that_was_not_built_is_a_failure(record: ModuleType, bench: object) -> None:
    from table import Program

    result = bench.run(Program("absent", "absent.cu", ("before", "pin")))  # type: ignore[attr-defined]
    assert result["variants"] == {} and len(result["failures"]) == 6


def test_gpus_have_short_names(record: ModuleType) -> None:
    plan = record.read_plan()
    assert record.short_name("NVIDIA H100 80GB HBM3", plan) == "h100"
    assert record.short_name("NVIDIA H200", plan) == "h200"
    assert record.short_name("NVIDIA GeForce RTX 4090", plan) == "nvidia-geforce-rtx-4090"


def test_a_second_call_runs_what_is_left_and_what_failed(
    record: ModuleType, bench: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from table import Plan, Program

    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA H200, 580.1, 1980 MHz, 3201 MHz, 5, 16'\n")
    (tools / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    programs = {
        name: Program(name, str(tmp_path / "stand_in.py"), variants)
        for name, variants in (("good", ("before",)), ("bad", ("before", "wrong")))
    }
    plan = Plan(programs, (), {}, {"h200": "h200-probed"})
    monkeypatch.setattr(record, "read_plan", lambda _: plan)
    monkeypatch.setattr(record, "build", lambda *_: [])
    monkeypatch.setattr(record, "recorder_library", lambda _: tmp_path / "library.so")
    monkeypatch.setattr(record, "Processors", Paced)
    monkeypatch.setattr(sys, "argv", ["record.py", "--out", str(tmp_path / "results"), "--processes", "1"])
    file = tmp_path / "results" / "h200" / "times.json"
    for turn, ran in enumerate((["good", "bad"], ["bad"])):
        (tmp_path / "order").write_text("")
        assert record.main() == 1
        times = json.loads(file.read_text())
        assert set(times["programs"]) == {"good", "bad"}
        assert times["gpu"] == "NVIDIA H200" and times["driver"] == "580.1"
        assert (tmp_path / "order").read_text().count("recorded warm\n") == len(ran), turn
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--only", "good", "--budget", "0"])
    assert record.main() == 0
    assert json.loads(file.read_text()) == times


def test_without_a_gpu_nothing_is_run(
    record: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit) as stopped:
        record.gpu_facts()
    assert stopped.value.code == 3
