"""docs/papers.md: every command of its tables runs and prints the figures of its row; what is not run says why."""

import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import Run, run
from tests.docs.examples import ROOT
from tests.processes import finished
from validation.stored import unpacked

PAGE = (ROOT / "docs" / "papers.md").read_text("utf-8")
#: Of each paper the last number of its equations, figures and tables.
NUMBERED = {"W14": (6, 10, 3), "A19": (10, 11, 4), "F12": (0, 0, 0), "S16": (0, 7, 0), "U11": (0, 12, 1)}
ROMAN = {"I": 1, "II": 2, "III": 3, "IV": 4}
#: Shell variables that the page sets and its commands use.
VARIABLES = dict(re.findall(r'^([A-Z]+)="(.+)"$', PAGE, re.M))


class Row(NamedTuple):
    """A row of the tables. `mark`: what its command needs, or empty; `misses`: it names a missed goal.."""

    paper: str
    number: str
    command: str
    mark: str
    figures: list[str]
    misses: bool = False


def table_rows() -> list[Row]:
    rows, paper = [], ""
    for line in PAGE.splitlines():
        paper = line[3:6] if line.startswith("## ") else paper
        if listed := re.fullmatch(r"- \*\*(.+?)\*\* (.+)", line):
            rows.append(Row(paper, listed[1], "", "", []))
        if not line.startswith("| **"):
            continue
        title, stated, _, ours = (cell.strip() for cell in line.split("|")[1:-1])
        parts = re.fullmatch(r"`(.+)`(?: \((.+)\))?", stated)
        number = re.match(r"\*\*(.+?)\*\* .", title)
        assert parts and number, line
        figures = re.findall(r"`([^`]+)`", ours)
        assert figures or parts[2], line
        command = re.sub(r"\$([A-Z]+)", lambda name: VARIABLES[name[1]], parts[1])
        rows.append(Row(paper, number[1], command, parts[2] or "", figures, "goal missed" in ours))
    return rows


ROWS = table_rows()
COMMANDS = list(dict.fromkeys(row.command for row in ROWS if row.command and not row.mark))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Example traces, unpacked results and a log of the old profiler, by the names in the tables."""
    made = tmp_path_factory.mktemp("papers")
    shutil.copytree(ROOT / "src" / "busfare" / "examples", made, dirs_exist_ok=True)
    for name in ("bench", "hybrid"):
        shutil.copytree(unpacked(name), made, dirs_exist_ok=True)
    (made / "cuda_profile_0.log").write_text("# CUDA_PROFILE_LOG_VERSION 2.0\n# CUDA_DEVICE 0 Tesla\n")
    return made


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_the_figures_of_its_rows(
    command: str, folder: Path, run_here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("BUSFARE_NAS_RUNNER", str(ROOT / "hybrid" / "run" / "nas_bench"))
    program, *arguments = shlex.split(command)
    if program == "python":
        done = finished([sys.executable, *arguments], cwd=ROOT)
    else:  # `bench ft` and `bench mg` become their runner
        done = (run if arguments[1] in ("ft", "mg") else run_here)(*arguments)
    printed = " ".join((done.stdout + done.stderr).split())
    missed = any(row.misses for row in ROWS if row.command == command)
    assert done.returncode == (2 if arguments[-1].endswith(".log") else int(missed)), done.stderr
    claims = [(row.number, figure) for row in ROWS if row.command == command for figure in row.figures]
    assert [claim for claim in claims if claim[1] not in printed] == [], printed


@pytest.mark.parametrize("row", [row for row in ROWS if row.mark], ids=lambda row: row.command)
def test_what_a_marked_command_needs_is_there(row: Row, run_here: Run) -> None:
    assert row.mark in ("minutes", "GPU", "MPI", "shared data")
    program, *arguments = shlex.split(row.command)
    if program == "busfare":
        assert run_here(*arguments, "--help").returncode == 0
    elif program.startswith("hybrid/build/"):
        assert f"add_executable({Path(program).name}" in (ROOT / "hybrid" / "CMakeLists.txt").read_text(
            "utf-8"
        )
        sources = "".join(path.read_text("utf-8") for path in (ROOT / "hybrid" / "nas").glob("*.cpp"))
        assert [w for w in arguments if w.startswith("--") and f'"{w}"' not in sources] == []
    else:
        assert (ROOT / (arguments or [program])[0]).is_file()


@pytest.mark.parametrize("paper", NUMBERED)
def test_every_number_of_a_paper_has_a_row(paper: str) -> None:
    covered: dict[str, set[int]] = {"eq": set(), "fig": set(), "table": set()}
    for number in (row.number for row in ROWS if row.paper == paper):
        for kind, numbers in re.findall(r"\b(eq|fig|table)s? ((?:[\dIV]+[–, ]*)+)", number):
            for first, last in re.findall(r"([\dIV]+)(?:–([\dIV]+))?", numbers):
                ends = [ROMAN.get(end) or int(end) for end in (first, last or first)]
                covered[kind] |= set(range(ends[0], ends[1] + 1))
    assert [*covered.values()] == [set(range(1, last + 1)) for last in NUMBERED[paper]]


def test_code_of_the_papers_is_there() -> None:
    files = finished(["git", "ls-files"], cwd=ROOT).stdout
    places = re.findall(
        r"`([\w/.-]+)`(?: \(((?:`[\w.]+`(?:, )?)+)\))?", "".join(re.findall(r"^Code: (?:.+\n)+", PAGE, re.M))
    )
    assert len(places) > 30
    for path, stated in places:
        kept = [place for place in files.splitlines() if f"/{path.rstrip('/')}" in f"/{place}"]
        assert kept, path
        text = (ROOT / kept[0]).read_text("utf-8") if stated else ""
        names = re.findall(r"`(\w+)[.\w]*`", stated)
        assert [name for name in names if name not in text] == [], path
