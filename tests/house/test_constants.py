"""Every fitted constant stands in one list, with its source, and there are no more of them than before."""

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIST = tomllib.loads(Path(__file__).with_name("constants.toml").read_text("utf-8"))
CONSTANTS = LIST["constant"]
GIVEN = LIST["given"]
#: What predicts and advises; how measurements are made and answers shown decides no prediction.
PACKAGES = ("cost", "nodes", "timeline", "planning", "jobs", "advise")
#: Names of times and shares.
AMOUNT = re.compile(r".*(_N?S|_SECONDS|_TIMES|SHARE)")
COMMAND = re.compile(r"python (validation/\w+\.py)( --\w+)?")


@pytest.mark.parametrize("row", CONSTANTS, ids=[f"{row['module']}.{row['name']}" for row in CONSTANTS])
def test_a_listed_constant_is_in_its_module_and_holds_as_many_numbers(row: dict[str, str]) -> None:
    value = getattr(import_module(row["module"]), row["name"])
    numbers = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value]
    assert all(isinstance(number, int | float) for number in numbers)
    assert len(set(numbers)) == row["numbers"]


def test_every_constant_has_a_source() -> None:
    for row in CONSTANTS:
        assert row["source"]
        if row["source"].startswith("python "):
            command = COMMAND.fullmatch(row["source"])
            assert command and (ROOT / command[1]).is_file(), row


def test_no_constant_is_listed_twice() -> None:
    names = [(row["module"], row["name"]) for row in (*CONSTANTS, *GIVEN)]
    assert len(set(names)) == len(names)
    assert all(
        row["why"].startswith(("published: ", "specification: ", "definition: ", "limit: ")) for row in GIVEN
    )


def _amounts(source: str) -> Iterator[str]:
    """Names that a module gives numbers alone which are no integers, or which are times or shares."""
    for statement in ast.parse(source).body:
        if not isinstance(statement, ast.Assign):
            continue
        target, value = statement.targets[0], statement.value
        several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        for name, of in zip(target.elts, value.elts, strict=True) if several else [(target, value)]:
            try:
                given = eval(ast.unparse(of), {"__builtins__": {"float": float}})
            except NameError:  # made of other things
                continue
            numbers = [*given.values()] if isinstance(given, dict) else [given]
            amounts = any(isinstance(n, float) for n in numbers) or AMOUNT.fullmatch(name.id)
            if amounts and numbers and all(type(n) in (int, float) for n in numbers):
                yield name.id


def test_what_looks_like_a_fitted_constant_is_in_a_list() -> None:
    assert [*_amounts("A, B = 0.5, 7\nC_NS = 3\nD = {'x': 1 / 3}\nE = f(0.5)\nF = 'g'")] == ["A", "C_NS", "D"]
    listed = {(row["module"], row["name"]) for row in (*CONSTANTS, *GIVEN)}
    files = [file for package in PACKAGES for file in (ROOT / "src/busfare" / package).rglob("*.py")]
    modules = {
        file: ".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for file in files
    }
    named = ((module, name) for file, module in modules.items() for name in _amounts(file.read_text("utf-8")))
    amounts = {(module, name) for module, name in named if name != "NS"}  # the unit of traces
    assert amounts <= listed
    assert all(hasattr(import_module(row["module"]), row["name"]) for row in GIVEN)
