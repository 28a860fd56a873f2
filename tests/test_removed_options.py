"""Options and commands of earlier versions exit 2 and name what to use."""

from __future__ import annotations

import click
import pytest

from busfare.cli.removed import REMOVED_COMMANDS, REMOVED_OPTIONS, replacement
from tests.conftest import run


@pytest.mark.parametrize(("path", "option"), REMOVED_OPTIONS)
def test_a_removed_option_names_what_to_use(path: str, option: str) -> None:
    done = run(*path.split(), option)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path} {option} was removed; {REMOVED_OPTIONS[path, option]}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("path", REMOVED_COMMANDS)
def test_a_removed_command_names_what_to_use(path: str) -> None:
    done = run(*path.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path} was removed; {REMOVED_COMMANDS[path]}" in done.stderr


def test_options_that_never_existed_are_left_to_click() -> None:
    assert replacement(click.NoSuchOption("--never", ctx=click.Context(click.Command("report")))) is None
