"""Every fitted constant stands in one list, with its source, and there are no more of them than before."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIST = tomllib.loads(Path(__file__).with_name("constants.toml").read_text("utf-8"))
CONSTANTS = LIST["constant"]
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
    names = [(row["module"], row["name"]) for row in CONSTANTS]
    assert len(set(names)) == len(names)


def test_fitted_constants_only_become_fewer() -> None:
    assert LIST["target"] <= LIST["ceiling"]
    assert sum(row["numbers"] for row in CONSTANTS) <= LIST["ceiling"]
