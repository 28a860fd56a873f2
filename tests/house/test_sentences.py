"""Sentences of omissions stand in `show/words.toml` or, of a single reader, beside its `Format`; elsewhere are only keys."""

import ast
import re
from pathlib import Path

from busfare.show.words import templates
from busfare.trace.readers import formats

SOURCE = Path(__file__).parents[2] / "src" / "busfare"
NOTING = (
    "answers/job.py", "jobs/communication.py", "jobs/timeline.py", "timeline/build/__init__.py", "trace/model.py",
    "trace/omissions.py", "trace/sound.py", "trace/window.py",
)  # fmt: skip
ERRORS = ("InputError", "_nothing")
#: Keys that are put together.
COMPOSED = {"copies-not-recorded", "kernels-not-recorded"}


def sentences(module: Path) -> list[str]:
    """The texts of four words and more that are neither docstrings nor of errors."""
    tree = ast.parse(module.read_text("utf-8"))
    errors = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) in ERRORS]
    aside = [*errors, *(node for node in ast.walk(tree) if isinstance(node, ast.Expr))]
    skipped = {id(part) for node in aside for part in ast.walk(node)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in skipped]
    return [str(node.value) for node in texts if str(node.value).count(" ") >= 3]


def test_modules_that_note_omissions_hold_no_sentence() -> None:
    assert {module: stated for module in NOTING if (stated := sentences(SOURCE / module))} == {}


def test_every_omission_has_a_sentence_and_every_sentence_an_omission() -> None:
    of_readers = [key for format in formats() for key in format.sentences]
    keys = {id.removeprefix("omission.") for id in templates() if id.startswith("omission.")}
    assert len(of_readers) == len({*of_readers} - keys)
    sources = [module.read_text("utf-8") for module in SOURCE.rglob("*.py")]
    noted = r'\b(?:omission|omissions\.add|omissions\.count|of_job)\(\s*"([\w/-]+)"'
    assert {key for text in sources for key in re.findall(noted, text)} - keys - {*of_readers} == set()
    literals = {key for text in sources for key in re.findall(r'"([\w/-]+)"(?!: ")', text)}
    assert (keys | {*of_readers}) - literals - COMPOSED == set()
