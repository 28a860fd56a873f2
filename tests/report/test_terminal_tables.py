"""Tables in terminals of any width: what gives way, and what never does. And standard error, when all is well."""

from __future__ import annotations

import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections import Counter
from collections.abc import Callable
from fcntl import ioctl
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from busfare.advise import amounts
from busfare.cli import app
from busfare.report.tables import Bar, Table, console, table
from tests.traces import EXAMPLES
from validation.stored import probe_raw

RESULTS = Path(__file__).parents[2] / "results"
STREAMS, OTHER = (str(EXAMPLES / f"smooth-out-of-core-{name}.json.gz") for name in ("h100", "h200"))
TRAINING = str(EXAMPLES / "train-images-h100.json.gz")
ASKED = ("--h2d", "336MB", "--d2h", "504MB", "--kernel", "12ms", "--node", "h100-sxm")

#: Every command that shows tables: what shows its result, and its arguments.
COMMANDS = {
    "report": ("terminal:show_report", "report", TRAINING),
    "job": ("jobs:show_job", "report", STREAMS, OTHER),
    "what-if": ("what_ifs:show_what_if", "what-if", STREAMS, "--pin", "--streams", "3"),
    "project": ("predictions:show_projection", "project", STREAMS, "--to", "gh200", "--to", "pcie:3x16"),
    "compare": ("predictions:show_comparison", "compare", STREAMS, OTHER),
    "price": ("predictions:show_prices", "price", "--node", "h100-sxm", "--bytes", "64MiB"),
    "plan": ("plan_terminal:show_plan", "plan", *ASKED, "--to", "gh200", "--sweep", "kernel"),
    "nodes": ("predictions:show_nodes", "nodes"),
    "methods": ("benches:show_methods", "bench", "methods", "--from", f"{RESULTS}/bench/methods/methods-h100.json"),
    "strategies": ("benches:show_strategies", "bench", "strategies", "--from", f"{RESULTS}/bench/strategies-h100.json"),
    "probe": ("probes:show_probe", "probe", "--from", f"{probe_raw('h100-eighth-run1')}"),
}  # fmt: skip
Shown = Callable[[str], tuple[Any, Callable[[Any], None]]]


@pytest.fixture(scope="module")
def shown() -> Shown:
    """A command's result, computed once, and what shows it."""
    known: dict[str, Any] = {}

    def of(name: str) -> tuple[Any, Callable[[Any], None]]:
        where, *arguments = COMMANDS[name]
        if name not in known:
            done = run(*arguments, "--json", capture_output=True)
            assert done.stderr == ""
            known[name] = json.loads(done.stdout)
        module, function = where.split(":")
        return known[name], getattr(import_module(f"busfare.report.{module}"), function)

    return of


@pytest.mark.parametrize("name", COMMANDS)
def test_no_width_cuts_a_number_or_a_unit(
    name: str, shown: Shown, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result, show = shown(name)
    numbers: list[str] = []
    add_row = Table.add_row

    def noted(self: Table, *cells: object) -> None:
        numbers.extend(str(cell) for cell, text in zip(cells, self.texts, strict=True) if not text and cell)
        add_row(self, *cells)

    monkeypatch.setattr(Table, "add_row", noted)
    for width in (60, 80, 100, 160):
        monkeypatch.setenv("COLUMNS", str(width))
        numbers.clear()
        show(result)
        text = capsys.readouterr().out
        for line in text.splitlines():
            # A path is a word and stays whole.
            assert cell_len(line) <= width or cell_len(max(line.split(), key=cell_len)) > width - 24, line
            assert line == line.rstrip()
        # All of them, of times and gains too; those of first columns that stand twice may be more.
        assert len(numbers) > 3
        assert not Counter(numbers) - Counter(re.split(r"\s{2,}|\n", text)), width


numbers = st.builds(amounts.time, st.floats(1e-9, 1e5))
names = st.text(st.sampled_from("abc <>:,*漢"), max_size=300)


@given(
    st.integers(20, 170),
    st.lists(st.sampled_from(["whole run", "time", "name ", "of it", "by time  "]), min_size=1, max_size=9),
    st.data(),
)
def test_any_table_keeps_its_numbers_and_headings(
    width: int, columns: list[str], data: st.DataObject
) -> None:
    made = table("of what ", *columns)
    rows = [
        [
            Bar(0.5) if c.endswith("  ") else data.draw(names if c.endswith(" ") else numbers)
            for c in ["of what ", *columns]
        ]
        for _ in range(data.draw(st.integers(0, 4)))
    ]
    for row in rows:
        made.add_row(*row)
    screen = console()
    screen.width = width
    with screen.capture() as captured:
        screen.print(made)
    lines = captured.get().splitlines()
    # A name of 16, two between, and the longest number or heading: no terminal is narrower.
    assert all(cell_len(line) <= max(width, 16 + 2 + 16) for line in lines)
    words = Counter(" ".join(lines).split())
    given_numbers = [cell for row in rows for cell in row if isinstance(cell, str) and re.match(r"\d", cell)]
    assert not Counter(" ".join(given_numbers).split()) - words
    assert not Counter(word for c in columns if not c.endswith("  ") for word in c.split()) - words


def test_names_shrink_in_their_middle_and_before_anything_else() -> None:
    made = table("kernel ", "time", "gain")
    made.add_row("void first<" + "x" * 500 + ">(last)", "12.3 ms", "+4.5 %")
    screen = console()
    screen.width = 60
    with screen.capture() as captured:
        screen.print(made)
    line = captured.get().splitlines()[1]
    assert cell_len(line) == 60
    assert re.fullmatch(r"void first<x+…x+>\(last\)  12.3 ms  \+4.5 %", line)


@pytest.mark.parametrize(
    ("number", "what", "said"),
    [(1, "copy", "1 copy"), (0, "copy", "0 copies"), (2000, "launch", "2,000 launches"), (2, "day", "2 days"),
     (2, "access", "2 accesses"), (1, "access", "1 access")],
)  # fmt: skip
def test_one_is_no_plural(number: int, what: str, said: str) -> None:
    assert amounts.several(number, what) == said


def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    code = "from busfare.cli import main; main()"
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], text=True, check=True, env=environment, **more
    )


def test_a_pipe_is_wide_and_wide_shortens_nothing() -> None:
    piped = run("report", TRAINING, capture_output=True).stdout
    assert 100 < max(map(len, piped.splitlines())) <= 160 and "…" in piped
    wide = run("report", TRAINING, "--wide", capture_output=True).stdout
    assert "…" not in wide
    assert any(line.startswith("void cudnn::bn_bw") and line.endswith(" ms") for line in wide.splitlines())


def test_a_terminal_is_as_wide_as_it_is() -> None:
    ours, its = pty.openpty()
    ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    run("nodes", stdout=its, stderr=subprocess.PIPE)
    os.close(its)
    text = os.read(ours, 1 << 16).decode()
    os.close(ours)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in text.splitlines()]
    assert {line.split()[0] for line in lines} >= {"node", "h100-sxm"}
    assert 50 < max(map(len, lines)) <= 60


#: Beside the commands above, which are run so too: those that write files, and text.
WRITING = {
    "demo": ("demo", "-o", "{folder}"),
    "page": ("report", STREAMS, "--html", "{folder}/page.html"),
    "comparison": ("compare", TRAINING, OTHER.replace("smooth-out-of-core", "train-images")),
    "export": ("export", STREAMS, "--to", "perfetto", "-o", "{folder}/line.json"),
    "node": ("nodes", "show", "gh200"),
    "record": ("record", "--help"),
}


@pytest.mark.parametrize("name", WRITING)
def test_nothing_is_said_on_standard_error_when_all_is_well(name: str, tmp_path: Path) -> None:
    arguments = [part.format(folder=tmp_path / "new") for part in WRITING[name]]
    assert run(*arguments, capture_output=True).stderr == ""


def test_every_command_is_rendered_here() -> None:
    seen = {arguments[1] for arguments in COMMANDS.values()} | {
        arguments[0] for arguments in WRITING.values()
    }
    assert seen == set(app.list_commands(None))  # type: ignore[arg-type]
