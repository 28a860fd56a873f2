"""doctor, completion, and help."""

import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from busfare.answers import doctor
from busfare.cli import COMMANDS, app
from busfare.cli.about import every_command
from tests.conftest import run


def test_doctor_says_what_works_and_what_to_do_for_the_rest(tmp_path: Path) -> None:
    (tmp_path / "nsys").write_text("#!/bin/sh\n")
    (tmp_path / "nsys").chmod(0o755)
    done = run("doctor", "--json", PATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert result["schema"] == "busfare.doctor/1"
    checks = {check["what"]: check for check in result["checks"]}
    assert checks["busfare itself"]["works"] and checks["extra 'jobs'"]["works"]
    assert checks["nsys"] == checks["nsys"] | {"works": True, "is_there": str(tmp_path / "nsys")}
    assert not checks["mpirun"]["works"] and "install Open MPI" in checks["mpirun"]["change"]
    shown = run("doctor", PATH=str(tmp_path)).stdout
    assert re.search(r"missing +mpirun", shown) and "How to fix the rest" in shown


def test_doctor_of_a_broken_installation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "NATIVE", ("trace._columns", "trace._not_there"))
    first = doctor.examined().checks[0]
    assert (first.works, first.is_there) == (False, "trace._not_there: cannot be loaded")


def test_every_command_has_help_by_three_names() -> None:
    by_help = run("help", "plan", "kv").stdout
    assert by_help == run("plan", "kv", "-h").stdout == run("plan", "kv", "--help").stdout
    assert "--bytes-per-token SIZE" in by_help
    wrong = run("help", "plan", "kvv")
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1)
    assert "did you mean `busfare plan kv`" in wrong.stderr


CONTEXTS = [click.Context(app, info_name="busfare"), *every_command(app)]


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.command_path)
def test_help_fits_a_screen(context: click.Context) -> None:
    words = context.command_path.split()[1:]
    shown, by_help = (
        CliRunner().invoke(app, arguments, prog_name="busfare", terminal_width=80).output
        for arguments in ([*words, "--help"], ["help", *words])
    )
    assert shown == by_help and shown.startswith(f"Usage: {context.command_path} [OPTIONS]")
    lines = shown.splitlines()
    assert len(lines) <= 45 and max(map(len, lines)) <= 80
    assert not any(line.endswith("...") for line in lines[1:])  # a summary that is cut
    titles = {line for line in lines if line.endswith(":") and not line.startswith(" ")}
    many = len([param for param in context.command.params if isinstance(param, click.Option)]) > 4
    assert {"Output:"} < titles if many else titles


def test_rarely_used_options_stand_in_the_whole_help() -> None:
    usual, whole = run("plan", "--help").stdout, run("plan", "--help-all").stdout
    assert "--launch" not in usual and "--help-all" in usual
    texts = ("--h2d SIZE", "busfare plan offload", "busfare plan kv", "busfare plan [OPTIONS] [FILE.toml]")
    for text in texts:
        assert text in usual
    assert "--launch TIME" in whole and len(whole) > len(usual)
    assert run("diff", "--help-all").returncode == 2  # it has none


@pytest.mark.parametrize(
    ("words", "expected"),
    [("busfare pro", ["project", "probe"]), ("busfare plan k", ["kv"]), ("busfare plan --d2", ["--d2h"])],
)
def test_a_shell_completes_commands(words: str, expected: list[str]) -> None:
    source = run("completion", "bash").stdout
    assert "complete -o nosort -F _busfare_completion busfare" in source
    *_, last = words.split()
    shell_request = {
        "_BUSFARE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = run(**shell_request)
    assert [line.split(",")[1] for line in done.stdout.splitlines()] == expected
    assert all(name.startswith(last) for name in expected)


def test_no_command_is_without_a_word_of_help() -> None:
    context = click.Context(app, info_name="busfare")
    for name in COMMANDS:
        command = app.get_command(context, name)
        assert command is not None and command.get_short_help_str()
