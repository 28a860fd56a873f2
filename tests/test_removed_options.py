"""Options and commands of earlier versions exit 2 and name what to use."""

import click
import pytest

from busfare.cli import REMOVED, replacement
from tests.conftest import run

NEGATED = [
    f"record --no-{name}" for name in ("counters", "mapped", "arguments", "first-use", "storage", "threads")
]


@pytest.mark.parametrize("words", [*REMOVED, *NEGATED])
def test_what_was_removed_names_what_to_use(words: str) -> None:
    done = run(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{words} was removed; {REMOVED.get(words, 'leave it out')}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", ["no/such/file --to otf2", "--to=otf2 trace.json -o traces.otf2"])
def test_a_removed_format_is_named_before_what_is_missing(words: str) -> None:
    done = run("export", *words.split())
    assert done.returncode == 2
    assert done.stderr.startswith("busfare: export --to otf2 was removed; use --to perfetto, or parquet.")


def test_options_that_never_existed_are_left_to_click() -> None:
    assert replacement(click.NoSuchOption("--never", ctx=click.Context(click.Command("report")))) is None
