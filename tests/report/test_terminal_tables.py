"""Tables in terminals of any width: what gives way, and what never does. And standard error, when all is well."""

import os
import pty
import re
import struct
import subprocess
import termios
from collections import Counter
from fcntl import ioctl
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from busfare.advise import amounts
from busfare.cli import app, output
from busfare.show.blocks import omitted
from busfare.show.document import Column, Document, Table, numbers, words
from busfare.show.terminal import render
from busfare.trace import Omission
from tests.conftest import BUSFARE, run
from tests.traces import EXAMPLES
from validation.stored import probe_raw, unpacked

STREAMS, STREAMS_H200 = (str(EXAMPLES / f"smooth-out-of-core-{name}.json.gz") for name in ("h100", "h200"))
ROOT = Path(__file__).parents[2]
TRAINING = str(EXAMPLES / "train-images-h100.json.gz")
PLANNED = ("--h2d", "336MB", "--d2h", "504MB", "--kernel", "12ms", "--node", "h100-sxm")

#: Every command that shows tables, and its arguments.
COMMANDS = {
    "report": ("report", TRAINING),
    "job": ("report", STREAMS, STREAMS_H200),
    "what-if": ("what-if", STREAMS, "--pin=", "--streams", "3"),
    "project": ("project", STREAMS, "--to", "gh200", "--to", "pcie:3x16"),
    "compare": ("compare", STREAMS, STREAMS_H200),
    "price": ("price", "--node", "h100-sxm", "--bytes", "64MiB"),
    "diff": ("diff", TRAINING, STREAMS),
    "plan": ("plan", *PLANNED, "--to", "gh200"),
    "nodes": ("nodes",),
    "methods": ("bench", "methods", "--from", f"{unpacked('bench')}/methods-h100.json"),
    "strategies": ("bench", "strategies", "--from", f"{unpacked('bench')}/strategies-h100.json"),
    "probe": ("probe", "--from", f"{probe_raw('h100-eighth-run1')}"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_width_cuts_a_number_or_a_unit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    documents: list[Document] = []
    monkeypatch.setattr(output, "show", documents.append)
    CliRunner().invoke(app, COMMANDS[name], catch_exceptions=False)
    (document,) = documents
    shown = [b for b in document.blocks if isinstance(b, Table) and b.face not in ("page", "folded")]
    given = Counter(
        cell
        for block in shown
        for row in block.rows[: block.most]
        for column, cell in zip(block.columns, row, strict=True)
        if column.numeric and cell
    )
    assert given.total() > 3
    for width in (60, 80, 120, 160):
        lines = [line for line, _ in render(document, width, details=True)]
        for line in lines:
            # A path is a word and stays whole.
            assert cell_len(line) <= width or cell_len(max(line.split(), key=cell_len)) > width - 24, line
            assert line == line.rstrip()
        # All of them, of times and gains too; those of first columns that stand twice may be more.
        assert not given - Counter(part for line in lines for part in re.split(r"\s{2,}", line)), width


cells = {"number": st.builds(amounts.time, st.floats(1e-9, 1e5))}
cells["name"] = st.text(st.sampled_from("abc <>:,*漢"), max_size=300)


@given(
    st.integers(20, 170),
    st.lists(
        st.tuples(st.sampled_from(["whole run", "time", "of it"]), st.sampled_from(["number", "name"])),
        min_size=1,
        max_size=9,
    ),
    st.data(),
)
def test_any_table_keeps_its_numbers_and_headings(
    width: int, kinds: list[tuple[str, str]], data: st.DataObject
) -> None:
    kinds = [("of what", "name"), *kinds]
    rows = [[data.draw(cells[kind]) for _, kind in kinds] for _ in range(data.draw(st.integers(0, 4)))]
    lines = drawn(Table(tuple(Column(name, kind == "number") for name, kind in kinds), rows), width)
    # A name of 16, two between, and the longest number or heading: no terminal is narrower.
    assert all(cell_len(line) <= max(width, 16 + 2 + 16) for line in lines)
    words = Counter(" ".join(lines).split())
    given_numbers = [cell for row in rows for cell in row if re.match(r"\d", cell)]
    assert not Counter(" ".join(given_numbers).split()) - words
    assert not Counter(" ".join(name for name, _ in kinds).split()) - words


def drawn(table: Table, width: int) -> list[str]:
    return [line for line, _ in render(Document("", "", blocks=[table]), width)]


def test_names_shrink_in_their_middle_and_before_anything_else() -> None:
    row = ("void first<" + "x" * 500 + ">(last)", "12.3 ms", "+4.5 %")
    line = drawn(Table(words("kernel") + numbers("time", "gain"), [row]), 60)[1]
    assert cell_len(line) == 60
    assert re.fullmatch(r"void first<x+…x+>\(last\)  12.3 ms  \+4.5 %", line)


@pytest.mark.parametrize(
    ("number", "what", "expected"),
    [(1, "copy", "1 copy"), (0, "copy", "0 copies"), (2000, "launch", "2,000 launches"), (2, "day", "2 days"),
     (2, "access", "2 accesses"), (1, "access", "1 access")],
)  # fmt: skip
def test_a_count_of_1_is_singular(number: int, what: str, expected: str) -> None:
    assert amounts.several(number, what) == expected


@pytest.mark.parametrize(
    ("share", "shown", "signed"),
    [(0.273, "27 %", "+27.3 %"), (0.0441, "4.4 %", "+4.4 %"), (0.0996, "10 %", "+10.0 %"), (0.0, "0 %", "0.0 %"),
     (-0.0441, "−4.4 %", "−4.4 %"), (-0.0001, "0.0 %", "0.0 %"), (1.5, "150 %", "+150.0 %")],
)  # fmt: skip
def test_percentages_have_a_single_format(share: float, shown: str, signed: str) -> None:
    assert (amounts.percent(share), amounts.signed_percent(share)) == (shown, signed)


def test_negative_amounts_have_a_minus_and_no_hyphen() -> None:
    expected = ("−3.2 ms", "−1.2 GB", "−3 ns")
    assert (amounts.time(-0.0032), amounts.size(-1.2e9), amounts.time(-3e-9)) == expected


def test_percentages_and_counts_are_formatted_by_amounts() -> None:
    formats = r":[+]?[.]\d%[}]|:[+]?[.]\df[}] ?%|[{][a-z_.]+:(?:,|count)[}] [a-z-]+s\b"
    for file in (ROOT / "src" / "busfare" / "show").glob("*.*"):
        lines = file.read_text("utf-8").splitlines() if file.suffix in (".py", ".toml") else []
        assert [line for line in lines if re.search(formats, line) and "width:" not in line] == [], file.name


def test_a_page_may_say_of_an_omission_how_often_it_occurred() -> None:
    left_out = omitted([Omission("damaged", 3, "run.bf: chunks with a wrong checksum: skipped")])
    assert left_out[0].items == ["damaged (3×): run.bf: chunks with a wrong checksum: skipped"]


def test_a_pipe_is_wide_and_wide_shortens_nothing() -> None:
    piped = run("report", TRAINING, "--details").stdout
    assert 100 < max(map(len, piped.splitlines())) <= 160 and "…" in piped
    wide = run("report", TRAINING, "--details", "--wide").stdout
    assert not any("…" in line for line in wide.splitlines() if "`" not in line)
    assert any(line.startswith("void cudnn::bn_bw") and line.endswith(" ms") for line in wide.splitlines())


def test_a_terminal_is_as_wide_as_it_is() -> None:
    ours, its = pty.openpty()
    ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    subprocess.run([*BUSFARE, "nodes"], check=True, stdout=its, env={**os.environ, "COLUMNS": ""})
    os.close(its)
    text = os.read(ours, 1 << 16).decode()
    os.close(ours)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in text.splitlines()]
    assert {line.split()[0] for line in lines} >= {"node", "h100-sxm"}
    assert 50 < max(map(len, lines)) <= 60


#: Beside the commands above, which are run so too: those that write files, and text.
WRITING = {
    "demo": ("demo", "-o", "{folder}"),
    "page": ("report", STREAMS, "--html", "{folder}.html"),
    "comparison": ("compare", TRAINING, STREAMS_H200.replace("smooth-out-of-core", "train-images")),
    "export": ("export", STREAMS, "--to", "perfetto", "-o", "{folder}/line.json"),
    "node": ("nodes", "show", "gh200"),
    "doctor": ("doctor",),
    "completion": ("completion", "bash"),
    "help": ("help", "plan"),
    "record": ("record", "--help"),
}


@pytest.mark.parametrize("name", WRITING)
def test_standard_error_is_empty_when_all_is_well(name: str, tmp_path: Path) -> None:
    arguments = [part.format(folder=tmp_path / "new") for part in WRITING[name]]
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_is_rendered_here() -> None:
    seen = {arguments[0] for arguments in [*COMMANDS.values(), *WRITING.values()]}
    seen |= {"try"}  # in tests/trial, beside the stand-in for a driver
    assert seen == set(app.list_commands(None))  # type: ignore[arg-type]


@pytest.mark.parametrize("columns", ["0", "1", "-5", "x"])
def test_a_width_of_nothing_hides_nothing(columns: str) -> None:
    done = run("price", "--node", "t4", "--bytes", "1MB", COLUMNS=columns)
    assert done.returncode == 0 and "envelope" in done.stdout


def test_columns_that_do_not_fit_in_a_row_stand_below() -> None:
    table = Table((*words("model"), *numbers("time (80 % range)")), [["datasheet", "84–949 µs"]])
    document = Document("", "", blocks=[table])
    lines = [line for line, _ in render(document, 16)]
    assert lines == ["model", "datasheet", "  time (80 %", "  range)", "  84–949 µs"]
    assert [line for line, _ in render(document, 40)][1] == "datasheet          84–949 µs"


def test_a_table_without_rows_says_that() -> None:
    document = Document("", "", blocks=[Table(words("model"), [], "Prices")])
    assert [line for line, _ in render(document, 40)] == ["Prices", "model", "No rows."]
