"""One kind of GPU against another over several machines: real recordings, and machines made of them that differ."""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from pathlib import Path

import polars as pl
import pytest

from tests.validation.test_claims import run

sys.path.insert(0, str(Path(__file__).parents[2] / "validation"))

from machine_kinds import Copies, Kinds, off_percent
from pairs.judged import NoAnswerError
from pairs.table import read_plan
from replay_pairs import machines_in

ROOT = Path(__file__).parents[2]
PROGRAM = "denoise_volume"


def machine_like(folder: Path, name: str, of: str, slower: float = 1.0, packed: bool = False) -> None:
    """A machine's folder with one program: the recording of `of` in results/pairs, and its runs so many times as long."""
    there, here = folder / name, ROOT / "results" / "pairs" / of
    there.mkdir(parents=True)
    shutil.copy(here / "node.toml", there)
    said = json.loads((here / "times.json").read_text())
    said["programs"] = {PROGRAM: said["programs"][PROGRAM]}
    for variant in said["programs"][PROGRAM]["variants"].values():
        variant["median_seconds"] *= slower
    (there / "times.json").write_text(json.dumps(said))
    recording = here / f"{PROGRAM}-before.bf"
    if packed:
        with tarfile.open(there / "recordings.tar.xz", "w:xz") as archive:
            archive.add(recording, recording.name)
    else:
        shutil.copy(recording, there)


def kinds_in(folder: Path) -> Kinds:
    return Kinds(list(machines_in(folder).values()), read_plan(), [PROGRAM])


def test_a_kind_is_the_mean_of_its_machines(tmp_path: Path) -> None:
    machine_like(tmp_path, "h100", "h100")
    machine_like(tmp_path, "h200-one", "h200", 0.8)
    machine_like(tmp_path, "h200-two", "h200", 1.2)
    kinds = kinds_in(tmp_path)
    assert [machine.name for machine in kinds.machines["h200"]] == ["h200-one", "h200-two"]
    one, two = (kinds.of_pair(kinds.machines["h100"][0], target)[1][0] for target in kinds.machines["h200"])
    together = kinds.of_kinds("h100", "h200")[1][0]
    assert together.measured == pytest.approx((one.measured + two.measured) / 2)
    assert one.measured * 1.5 == pytest.approx(two.measured)
    # Each is 20 % off, and their mean as near as one machine of each kind is.
    assert abs(one.error_percent) > 15 and abs(two.error_percent) > 15
    assert abs(together.error_percent) < 2
    back = kinds.of_kinds("h200", "h100")[1][0]
    from_each = [kinds.from_machine(machine, "h100")[1][0].predicted for machine in kinds.machines["h200"]]
    assert back.predicted == pytest.approx(sum(from_each) / 2)


def test_machines_of_one_kind_are_held_beside_each_other(tmp_path: Path) -> None:
    machine_like(tmp_path, "h100", "h100")
    machine_like(tmp_path, "h200-one", "h200")
    machine_like(tmp_path, "h200-two", "h200", 1.25)
    kinds = kinds_in(tmp_path)
    one, two = kinds.machines["h200"]
    copies, runs = kinds.beside_others(two)
    assert copies.wmape_percent == 0 and off_percent(runs) == pytest.approx(25)
    assert off_percent(kinds.beside_others(one)[1]) == pytest.approx(20)
    assert kinds.beside_others(kinds.machines["h100"][0])[1] == []


def test_halves_of_a_kind_say_what_chance_makes(tmp_path: Path) -> None:
    for name, slower in (("one", 0.5), ("two", 1.0), ("three", 1.0), ("four", 1.5), ("fifth", 9.0)):
        machine_like(tmp_path, f"h200-{name}", "h200", slower)
    machine_like(tmp_path, "h100", "h100")
    kinds = kinds_in(tmp_path)
    machines = {machine.name: machine for machine in kinds.machines["h200"]}
    kinds.machines["h200"] = [machines[f"h200-{name}"] for name in ("one", "two", "three", "four", "fifth")]
    # One and two beside three and four, one and three beside two and four: 0.75 and 1.25; one and four: as the others.
    off = sorted(off_percent(runs) for _, runs in kinds.halves("h200"))
    assert off == pytest.approx([0, 40, 40])
    assert all(copies.wmape_percent == 0 for copies, _ in kinds.halves("h200"))
    assert kinds.halves("h100") == []


def test_copies_are_listed_machine_by_machine_beside_their_probes() -> None:
    kinds = Kinds(list(machines_in(ROOT / "results" / "pairs").values()), read_plan(), ["video_edges"])
    told = kinds.on_each("h200", "video_edges", "h2d", 8_294_400)
    assert told["on each machine"] == [pytest.approx(0.98e-3, rel=0.01)]
    assert told["by the probes, at quiet moments"] == [pytest.approx(0.60e-3, rel=0.01)]
    # Pinned ones, and sizes that it does not copy.
    assert kinds.on_each("h200", "video_edges", "h2d", 12_345) == {}


def test_recordings_that_lie_packed_are_those_that_do_not(tmp_path: Path) -> None:
    machine_like(tmp_path, "h100-packed", "h100", packed=True)
    machine_like(tmp_path, "h100-plain", "h100")
    packed, plain = machines_in(tmp_path).values()
    assert packed.recording(PROGRAM, "before").read_bytes() == plain.recording(PROGRAM, "before").read_bytes()
    with pytest.raises(NoAnswerError, match="no recording"):
        packed.recording(PROGRAM, "streams")


def test_copies_count_as_often_as_they_are_made() -> None:
    rows = pl.DataFrame(
        {
            "program": ["a", "a"],
            "direction": ["h2d", "d2h"],
            "count": [9, 1],
            "measured": [1.0, 11.0],
            "predicted": [2.0, 11.0],
        }
    )
    assert Copies(rows).wmape_percent == pytest.approx(100 * 9 / 20)
    assert Copies(rows).by(["direction"]) == [(("d2h",), 11.0, 0.0), (("h2d",), 9.0, 100.0)]


def test_all_machines_of_the_repository_are_listed_both_ways() -> None:
    done = run("node_change.py", "--only", "asian_options,matched_filter")
    assert "Traceback" not in done.stderr
    _, found, said = done.stdout.partition("one kind of GPU against another: 2 programs")
    assert found
    single = said.partition("one machine against one machine")[2].partition("one machine against the other")[
        0
    ]
    # Five machines of the one kind, of which the held-out one ran `matched_filter` alone, and fourteen of the other.
    assert single.count("→") == 2 * 5 * 14 and single.count("matched_filter") == 2 * 14
    assert "h100 → h200, means over 5 and 14 machines" in said
    assert "h200 → h100, means over 14 and 5 machines" in said
    assert "whole runs of Python programs" in said


def test_pieces_of_work_slow_down_alike_at_quiet_moments() -> None:
    done = run("host_pieces.py")
    assert done.returncode == 0, done.stderr
    ratios = {
        line[2:26].strip(): float(line[26:].split()[2])
        for line in done.stdout.splitlines()
        if len(line.split()) >= 6 and line.split()[-1].count(".") == 1 and line.startswith("  ")
    }
    checksum = ratios["checksum of 16 KiB"]
    interpreters = ("bare loop", "objects, 1.5 MB", "compiling", "reading JSON", "torch_host", "cupy_host")
    assert all(abs(ratios[name] / checksum - 1) < 0.05 for name in interpreters), ratios


def test_kernels_that_memory_holds_up_are_listed_first() -> None:
    done = run("kernels_there.py")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if "%  " in line]
    ratios = [float(row[4]) for row in rows]
    assert rows[0][0] == "tracers" and ratios == sorted(ratios)
    # As docs/replay.md says of all others that count.
    assert all(0.9 <= ratio <= 1.1 for ratio in ratios if ratio != ratios[0])
