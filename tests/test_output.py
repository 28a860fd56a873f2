"""What is written never destroys what is read, nor what was there before if writing fails."""

import json
import os
import resource
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from busfare.cli import COMMANDS, app
from busfare.cli.options import OUTPUT
from busfare.errors import InputError
from busfare.files import replacing, write_file
from busfare.trace import read
from busfare.trace.write import FORMATS, export
from tests.conftest import BUSFARE, Run
from tests.trace.build_directory import export_directory
from tests.trace.build_nsys import small_export
from tests.traces import EXAMPLES

TRACE = EXAMPLES / "smooth-out-of-core-h100.json.gz"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of one's own, with other names for it beside."""
    path = tmp_path / "run.json.gz"
    path.write_bytes(TRACE.read_bytes())
    (tmp_path / "symbolic").symlink_to(path.name)
    (tmp_path / "hard").hardlink_to(path)
    return path


WRITES = [
    ("report", "{}", "--html"),
    ("report", "{}", "{}", "--jobs", "1", "--html"),
    ("what-if", "{}", "--pin", "--perfetto"),
    ("what-if", "{}", "--pin", "--html"),
    ("project", "{}", "--to", "gh200", "--html"),
    ("export", "{}", "--to", "perfetto", "-o"),
    ("export", "{}", "--to", "parquet", "-o"),
    ("plan", "--from-trace", "{}", "--kernel-name", "smooth", "--html"),
    ("probe", "--from", "{}", "-o"),
    ("probe", "--from", "{}", "--raw"),
    ("bench", "methods", "--from", "{}", "--html"),
]


@pytest.mark.parametrize("arguments", WRITES)
@pytest.mark.parametrize("name", ["run.json.gz", "symbolic", "hard", "../{}/run.json.gz"])
def test_no_command_writes_over_what_it_reads(
    run_here: Run, arguments: tuple[str, ...], name: str, trace: Path
) -> None:
    before = trace.read_bytes()
    output = trace.parent / name.format(trace.parent.name)
    done = run_here(*(word.format(trace) for word in arguments), str(output))
    assert done.returncode == 2
    assert "overlaps the input" in done.stderr and len(done.stderr.splitlines()) == 1
    assert trace.read_bytes() == before


def test_a_node_file_is_an_input_too(run_here: Run, trace: Path) -> None:
    node = trace.with_name("mine.toml")
    node.write_text("name = 'mine'")
    done = run_here("project", str(trace), "--to", str(node), "--html", str(node))
    assert "overlaps the input" in done.stderr
    assert node.read_text() == "name = 'mine'"


def test_a_folder_that_is_or_holds_the_input_is_no_output(run_here: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    tables = export_directory(
        small_export().write(tmp_path / "run.sqlite"), tmp_path / "in" / "tables", ".parquet"
    )
    before = {file: file.read_bytes() for file in tables.iterdir()}
    within = next(iter(before))
    for output in (tables, tables.parent, f"{tables}/../tables", within):
        done = run_here("export", str(tables), "--to", "parquet", "-o", str(output))
        assert (done.returncode, "overlaps the input" in done.stderr) == (2, True), output
    assert {file: file.read_bytes() for file in tables.iterdir()} == before


def test_a_page_may_stand_in_the_folder_of_a_job_and_be_written_again(run_here: Run, trace: Path) -> None:
    page = trace.with_name("job.html")
    folder = str(trace.parent)
    for _ in range(2):
        assert run_here("report", folder, "--jobs", "1", "--html", str(page)).returncode == 0
    done = run_here("report", f"{folder}/*.gz", "--jobs", "1", "--html", str(trace))
    assert done.returncode == 2
    assert read(trace).operations.height


@pytest.mark.parametrize("mode", ["w", "a"])
def test_a_page_does_not_go_where_standard_output_goes(tmp_path: Path, mode: str) -> None:
    page = tmp_path / "page.html"
    with page.open(mode) as stdout:
        words = [*BUSFARE, "report", TRACE, "--html", page]
        done = subprocess.run(words, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, page.read_text()) == (2, "")
    assert "page.html: standard output goes to this file, too; name another place" in done.stderr


def _commands(group: click.Group) -> Iterator[click.Command]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield from _commands(command) if isinstance(command, click.Group) else (command,)


def test_every_option_that_is_written_to_is_guarded() -> None:
    written = {"html", "output", "perfetto", "raw"}
    for command in _commands(app):
        for param in command.params:
            if param.name in written and command.name != "record":  # which makes new files only
                assert isinstance(param.type, type(OUTPUT)), (command.name, param.name)
    assert len(list(_commands(app))) >= len(COMMANDS)


def test_what_was_there_stays_if_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("before")

    def fails() -> None:
        with replacing(path) as place:
            place.write_text("half a pa")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails()
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text() == "before"


@pytest.mark.parametrize("to", FORMATS)
def test_a_failed_export_leaves_nothing(to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for function in ("perfetto", "_write_tables"):
        monkeypatch.setattr(f"busfare.trace.write.{function}", full)
    with pytest.raises(InputError, match="No space left"):
        export(read(TRACE), to, tmp_path / "made")
    assert list(tmp_path.iterdir()) == []


def test_links_modes_and_devices_stay(tmp_path: Path) -> None:
    (tmp_path / "page").write_text("before")
    (tmp_path / "page").chmod(0o600)
    (tmp_path / "link").symlink_to("page")
    write_file(tmp_path / "link", "after")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "page").read_text() == "after"
    assert stat.S_IMODE((tmp_path / "page").stat().st_mode) == 0o600
    write_file(Path(os.devnull), "nothing")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_a_folder_of_tables_is_written_again_among_unrelated_files(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    export(read(TRACE), "parquet", folder)
    (folder / "notes.txt").write_text("mine")
    (folder / "operations.parquet").write_text("old")
    export(read(TRACE), "parquet", folder)
    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder / "operations.parquet").read_bytes().startswith(b"PAR1")
    assert [file.name for file in tmp_path.iterdir()] == ["tables"]


def test_an_empty_path_is_refused(run_here: Run) -> None:
    for arguments in (("report", ""), ("export", str(TRACE), "--to", "parquet", "-o", "")):
        done = run_here(*arguments)
        assert (done.returncode, "an empty path" in done.stderr) == (2, True)


def test_a_change_of_all_copies_writes_its_time_line_again(run_here: Run, trace: Path) -> None:
    """`--pin` without a value is an empty text, and no path."""
    for _ in range(2):
        done = run_here("what-if", str(trace), "--pin", "--perfetto", str(trace.with_name("line.json")))
        assert (done.returncode, done.stderr) == (0, "")


def test_two_outputs_with_the_same_name_are_refused(run_here: Run, trace: Path) -> None:
    names = str(trace.with_name("out")), f"{trace.parent}/../{trace.parent.name}/out"
    done = run_here("what-if", str(trace), "--pin", "--perfetto", names[0], "--html", names[1])
    assert (done.returncode, done.stdout) == (2, "")
    assert "--perfetto and --html name the same file" in done.stderr
    assert not trace.with_name("out").exists()


@pytest.mark.parametrize("mode", [os.O_APPEND, 0])
def test_standard_output_does_not_go_into_what_is_read(mode: int, trace: Path) -> None:
    before = trace.read_bytes()
    opened = os.open(trace, os.O_RDWR | mode)
    done = subprocess.run(
        [*BUSFARE, "report", trace], stdout=opened, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(opened)
    assert (done.returncode, trace.read_bytes()) == (2, before)
    assert done.stderr.count("\n") == 1 and "standard output goes to this input" in done.stderr


def test_a_full_disk_is_an_error_of_a_single_line(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    for to in FORMATS:
        command = [*BUSFARE, "export", TRACE, "--to", to, "-o", tmp_path / to]
        done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limited)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), to
        assert "cannot be written" in done.stderr and not (tmp_path / to).exists()


@pytest.mark.parametrize(
    "command", ["report", "report --json", "what-if --pin --from t4 --json", "export --to parquet -o out"]
)
def test_a_path_that_is_not_utf8_is_no_error(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = os.fsencode(tmp_path) + b"/\xff\xfe.sqlite"
    small_export().write(tmp_path / "t.sqlite").rename(os.fsdecode(path))
    done = subprocess.run([*BUSFARE, *command.split(), path], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    if "--json" in command:
        named = json.loads(done.stdout)["trace"]
        assert os.fsencode(named["path"] if isinstance(named, dict) else named) == path
