"""A model of another package, found by its entry point."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from busfare.cost import model, model_names, price
from busfare.errors import InputError
from busfare.nodes import load_node

SOURCE = """
import numpy as np

class Flat:
    name = "flat"
    def __init__(self, latency_from=None, recorded_on=None):
        self.latency_from = latency_from
    def seconds(self, operations, node):
        return np.full(operations.height, 0.25)

def broken(**_):
    raise AssertionError("never called")

number = 3
"""
POINTS = """[busfare.cost_models]
flat = flat_fare:Flat
gone = flat_fare:nothing_there
number = flat_fare:number
datasheet = flat_fare:broken
wrong = flat_fare:broken
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "flat_fare.py").write_text(SOURCE)
    info = tmp_path / "flat_fare-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flat-fare\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("flat_fare", None)


@pytest.mark.usefixtures("plugin")
def test_a_plugin_is_listed_made_and_used() -> None:
    assert "flat" in model_names()
    titan = load_node("gtx-titan")
    flat = model("flat", latency_from=titan)
    assert flat.name == "flat"
    assert flat.latency_from is titan  # type: ignore[attr-defined]


@pytest.mark.usefixtures("plugin")
def test_a_plugin_cannot_take_a_built_in_name() -> None:
    assert model("datasheet").name == "datasheet"
    assert model_names().count("datasheet") == 1


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("name", "says"),
    [("gone", "fails to load"), ("number", "not a factory"), ("wrong", "creating its plug-in fails")],
)
def test_a_plugin_that_is_broken_is_an_input_error(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        model(name)


@pytest.mark.usefixtures("plugin")
def test_prices_leave_out_a_plugin_that_is_broken() -> None:
    names = [row["model"] for row in price(load_node("gtx-titan"), "h2d", "pinned", 100)]
    assert "flat" in names
    assert "gone" not in names


def test_without_it_there_is_none() -> None:
    assert "flat" not in model_names()
