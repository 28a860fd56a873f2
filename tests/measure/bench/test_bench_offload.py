"""`bench offload` on a virtual node, whose times are played; and what its result says of its samples."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from busfare.cli import app
from busfare.measure.bench.offload import (
    ADDEND,
    MULTIPLIER,
    Network,
    beside_predictions,
    expected_sums,
    measured_of,
)
from busfare.measure.bench.results import OffloadResult, read_result
from busfare.node import load_node
from busfare.plan import machine_of


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    asked = ["bench", "offload", "--virtual", "h100-probed", "--node", "h100-probed", "--quick", "--json"]
    answered = CliRunner().invoke(app, asked, catch_exceptions=False)
    assert answered.exit_code == 0
    path = tmp_path_factory.mktemp("bench") / "offload.json"
    path.write_text(answered.stdout, "utf-8")
    return path


def test_every_schedule_is_played_beside_its_prediction(written: Path) -> None:
    found = json.loads(written.read_text("utf-8"))
    assert found["virtual"] is True
    assert len(found["cells"]) == 10
    assert {cell["memory"] for cell in found["cells"]} == {"pinned", "mapped"}
    # The node that is played is the one that is predicted for: what is left is noise of 0.3 %.
    assert max(abs(cell["error_percent"]) for cell in found["cells"]) < 2
    assert found["break_even"] is None
    assert all(pick["cost_percent"] < 1 for pick in found["picks"])
    shown = (
        CliRunner().invoke(app, ["bench", "offload", "--from", str(written)], catch_exceptions=False).stdout
    )
    assert "VIRTUAL" in shown
    assert "played" in shown
    assert "measured" not in shown.partition("played")[0].replace("nothing was measured", "")


def test_a_written_result_is_predicted_anew(written: Path) -> None:
    result = read_result(written, OffloadResult)
    again, other = (
        beside_predictions(measured_of(result), machine_of(load_node(node)))
        for node in ("h100-probed", "rtx-3090")
    )
    assert again["median_percent"] == pytest.approx(result.median_percent)
    assert other["median_percent"] > 20


def test_the_sums_of_a_layer_are_those_of_its_tokens() -> None:
    """Against what the kernel does, word by word, in 32 bits."""
    words = np.arange(16, dtype=np.uint32) * np.uint32(2654435761)
    network, tokens = Network(1, words.nbytes), 37
    values = words.astype(np.uint64)
    for _ in range(tokens):
        values = (values * MULTIPLIER + ADDEND) % (1 << 32)
    expected = int(values.sum()) % (1 << 32)
    assert expected_sums([int(words.sum(dtype=np.uint64))], network, tokens).tolist() == [expected]
