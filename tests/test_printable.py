"""Text of unknown origin, made fit for one line."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from busfare.nodes.gpus import catalogue_text
from busfare.printable import print_json, printable
from busfare.trace import read
from tests.conftest import Run
from tests.trace.build_kineto import call, kernel, small_events, write_kineto
from tests.trace.build_nsys import small_export


def test_what_would_not_stay_on_its_line_is_spelt_out() -> None:
    for text in ("plain, é, 中, 🚀", ""):
        assert printable(text) == text
    assert printable("two\nlines\r\x1b[31mred\0") == "two\\nlines\\r\\x1b[31mred\\x00"
    assert printable("\u202e\udcff") == "\\u202e\\udcff"


#: An escape sequence, one that a C1 character begins, text turned around, a NUL, a bell, an end of line.
NASTY = "gemm\x1b[31m\x9b2J\u202egpj.\x00\x07\u2028end\n"
SPELT = "gemm\\x1b[31m\\x9b2J\\u202egpj.\\x00\\x07\\u2028end\\n"


def nsys(folder: Path) -> Path:
    export = small_export()
    export.kernel(NASTY.replace("\0", ""), 500, 600, 40)
    export.call(NASTY.replace("\0", ""), 480, 490, 40)
    export.add("NVTX_EVENTS", start=1, end=9, eventType=59, text=NASTY.replace("\0", ""))
    export.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value=NASTY.replace("\0", ""))
    export.add("DIAGNOSTIC_EVENT", severity=3, text=NASTY.replace("\0", ""))
    return export.write(folder / "n\u202eys.sqlite")


def kineto(folder: Path) -> Path:
    events = [*small_events(), call(NASTY, 80, 20, 40), kernel(NASTY, 100, 50, 40)]
    gpu = {"id": 0, "name": NASTY, "totalGlobalMem": 1 << 30}
    return write_kineto(folder / "k\x1bineto.json", events, {"deviceProperties": [gpu], "hostname": NASTY})


@pytest.mark.parametrize("build", [nsys, kineto])
@pytest.mark.parametrize("more", [("--json",), ("--html", "page.html")])
def test_names_of_a_trace_do_nothing_to_a_terminal_or_a_page(
    run_here: Run, build: Callable[[Path], Path], more: tuple[str, ...], tmp_path: Path
) -> None:
    path = build(tmp_path)
    done = run_here("report", str(path), more[0], *(str(tmp_path / name) for name in more[1:]))
    assert done.returncode == 0, done.stderr
    printed = done.stdout + done.stderr
    page = tmp_path / "page.html"
    if page.exists():
        printed += page.read_text(encoding="utf-8")
        assert "\\u202e" in printed
    assert printable(printed, but="\n") == printed.replace("\t", "\\t")
    assert any(name in printed for name in (SPELT[:12], SPELT[:12].replace("\\", "\\\\")))
    names = read(path).operations["name"].cast(pl.String).drop_nulls()
    assert all(printable(name) == name for name in names)
    assert any(name.startswith("gemm\\x1b") for name in names)


def test_a_path_that_cannot_be_read_is_shown_as_it_is_spelt(run_here: Run) -> None:
    done = run_here("report", "a\u202eb\x1b[31m.sqlite")
    assert "a\\u202eb\\x1b[31m.sqlite" in done.stderr
    done = run_here("what-if", "x", "--pin", "y", "--link", "\u202e\x1b[31m")
    assert printable(done.stderr, but="\n") == done.stderr


@pytest.mark.parametrize("nasty", ["\\u001B[31m", "\\u202E", "\\u0000", "\\u0085"])
def test_a_node_file_holds_plain_text(run_here: Run, nasty: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = catalogue_text("k20")
    file.write_text(text.replace('title = "', f'title = "{nasty}', 1), encoding="utf-8")
    assert file.read_text(encoding="utf-8") != text
    done = run_here("nodes", "check", str(file))
    assert done.returncode == 2
    assert "mine.toml:" in done.stderr and "control character" in done.stderr
    file.write_text(text.replace('title = "', 'title = "\u00a0é 中 ', 1), encoding="utf-8")
    assert run_here("nodes", "check", str(file)).returncode == 0


def test_json_with_such_text_decodes_to_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": NASTY, "plain": "é → 中 🚀", "beyond": "\U000e0001"})
    printed = capsys.readouterr().out
    assert printable(printed, but="\n") == printed
    assert "é → 中 🚀" in printed
    assert json.loads(printed) == {"name": NASTY, "plain": "é → 中 🚀", "beyond": "\U000e0001"}
