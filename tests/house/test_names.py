"""What names may be: a name stands for a module or for something else, and names no vague word of the style guide."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from pkgutil import walk_packages

import pytest

import busfare

ROOT = Path(__file__).parents[2]
#: Where names are checked.
FOLDERS = ("src", "tests", "validation", "benchmarks", "scripts", "hybrid", "examples")
VAGUE = frozenset(
    ("one", "each", "own", "other", "others", "found", "told", "said", "known", "asked", "beside", "way", "turn", "pace",
     "errand", "mend", "reached", "both")
)  # fmt: skip
#: Parts of names that stay, and why.
ALLOWED = {
    "one_way": "the plain meaning: copies in a single direction at a time",
    "one_sided": "MPI's term for its puts and gets",
    "both_read": "a key of node files: both directions at once",
    "both_write": "likewise",
    "mapped_both": "likewise",
    "copy_beside_mapped": "a key of node files: the share of a copy's rate that is left beside mapped accesses of kernels",
    "mapped_beside_copy": "likewise, the opposite",
    "^both$": "likewise",
}


def test_no_function_shadows_a_module() -> None:
    names = [module.name for module in walk_packages(busfare.__path__, "busfare.")]
    # Not libraries for other programs, nor what runs when it is imported.
    names = [name for name in names if not name.rpartition(".")[2].startswith(("lib", "__main__"))]
    modules = {name: import_module(name) for name in names}
    assert [n for n in names if attrgetter(n.removeprefix("busfare."))(busfare) is not modules[n]] == []


def bound(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that the code binds, with its line: functions, classes, arguments, variables, attributes and imports."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name, node.lineno
            case (
                ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name))
            ):
                yield name, node.lineno


def words_of(name: str) -> set[str]:
    """'firstCall_found' has first, call and found; parts in ALLOWED are left out."""
    for phrase in ALLOWED:
        name = re.sub(phrase, "", name, flags=re.IGNORECASE)
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_say_what_things_are(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    vague = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in files
        for name, line in bound(ast.parse(file.read_text("utf-8")))
        if words_of(name) & VAGUE
    ]
    assert vague == []


def test_vague_words_are_seen_in_every_kind_of_name() -> None:
    code = "def give_each(own, *, wayPoint): pass\nclass Beside: pass\nself.known = one = 1\nimport a as said"
    names = [name for name, _ in bound(ast.parse(code)) if words_of(name) & VAGUE]
    assert sorted(names) == ["Beside", "give_each", "known", "one", "own", "said", "wayPoint"]
    assert not words_of("ownership_of_everyone_ONE_WAY") & VAGUE
