"""No text for users holds a phrase that the style guide replaces: `phrases.toml` has them. Answers consist of these texts:
their sentences and ids are strings of the source.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from busfare.cli import app
from busfare.cli.about import every_command
from tests.docs.examples import ROOT

TABLE = tomllib.loads(Path(__file__).with_name("phrases.toml").read_text("utf-8"))["phrase"]
PHRASES = {
    re.compile(phrase.replace(" ", r"\s+"), re.IGNORECASE): row["but"]
    for row in TABLE
    for phrase in row["not"]
}
#: Modules whose docstrings users read.
PACKAGE = ROOT / "src" / "busfare"
PUBLIC = {PACKAGE / name for name in ("__init__.py", "api.py", "show/notebook.py")} | {
    *PACKAGE.glob("questions/*.py")
}
#: Texts that are checked as they are.
WHOLE = (
    "README.md", "CHANGELOG.md", "mkdocs.yml", "docs/**/*.md", "docs/**/*.ipynb", "*/README.md", "src/**/*.toml",
)  # fmt: skip


def stated(module: Path) -> Iterator[str]:
    """The texts of a module: its strings, and its docstrings where users read them."""
    tree = ast.parse(module.read_text("utf-8"))
    documents = [
        n.value for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)
    ]
    hidden = set() if module in PUBLIC else {id(text) for text in documents}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in hidden:
            yield node.value


def texts() -> Iterator[tuple[str, str]]:
    """What users read, with its place."""
    for pattern in WHOLE:
        for path in sorted(ROOT.glob(pattern)):
            if not {".venv", "build"} & {*path.parts}:
                yield str(path.relative_to(ROOT)), path.read_text("utf-8")
    for module in sorted(PACKAGE.rglob("*.py")):
        yield from ((str(module.relative_to(ROOT)), text) for text in stated(module))
    for context in (click.Context(app, info_name="busfare"), *every_command(app)):
        yield f"{context.command_path} --help", context.get_help()


def used(text: str) -> list[str]:
    """The phrases in `text`, each with what to write instead."""
    matches = ((phrase.search(text), but) for phrase, but in PHRASES.items())
    return [f"{' '.join(match[0].split())!r}: write {but!r}" for match, but in matches if match]


def test_no_text_for_users_holds_a_phrase_of_the_style_guide() -> None:
    checked = list(texts())
    assert len(checked) > 1000
    assert [f"{place}: {problem}" for place, text in checked for problem in used(text)] == []


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("Copies keep their time\nat the recorded pace.", True),
        ("How to mend it", True),
        ("# Words", True),
        ("In other words, recommended", False),
        ("Waits for something that this trace does not tell", True),
        ("Skipped 8 files that are not traces", False),
    ],
)
def test_phrases_are_seen_over_lines_and_not_inside_words(text: str, seen: bool) -> None:
    assert bool(used(text)) is seen
