"""Both commands from end to end on a stand-in driver: every result is computed and checked, no time means anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from busfare.errors import InputError, NoGpuError
from busfare.measure.bench import methods, strategies
from busfare.measure.bench.kernel import KERNELS
from busfare.measure.bench.program import Work
from busfare.measure.bench.results import MethodsResult, StrategiesResult
from busfare.measure.bench.run import bench
from busfare.show.bench import methods_document, strategies_document
from busfare.show.terminal import show
from tests.measure.stand_in_driver import StandIn


def silent(line: str) -> None: ...


def encoded(result: msgspec.Struct) -> dict[str, Any]:
    """As it comes out of `--json`."""
    return dict(msgspec.json.decode(msgspec.json.encode(result)))


def test_strategies(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = (
        Work(KERNELS["state"], 6, 96),
        Work(KERNELS["buoydiff"], 8, 64),
        Work(KERNELS["scale"], 8, 1 << 16),
    )
    monkeypatch.setattr(strategies, "QUICK_CELLS", small)
    made = bench("strategies", "h100-probed", True, None, None, silent)
    assert isinstance(made, StrategiesResult)
    result = encoded(made)
    assert result["virtual"] is False and result["gpu"] == "stand-in"
    assert result["left_out"] == []
    assert any("throttled" in sentence for sentence in result["disturbances"])
    for cell in result["cells"]:
        assert "float64" in cell["checked_against"]
        assert all(v["checked"] and v["error_share"] <= 1 for v in cell["versions"])
        assert all(v["held"] and v["measured_host_seconds"] > 0 for v in cell["versions"])
    shared = [v for cell in result["cells"] for v in cell["versions"] if v["strategy"] == "streams-2gpu"]
    assert shared and all(v["gpus"] == 2 and v["predicted_seconds"] for v in shared)
    show(strategies_document(made))
    shown = capsys.readouterr().out
    assert "DISTURBED" in shown and "VIRTUAL" not in shown


def test_methods(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(methods, "QUICK_ELEMENTS", (3000, 5000))
    monkeypatch.setattr(methods, "SWEPT", 5000)
    made = bench("methods", "h100-probed", True, None, None, silent, largest="1048576")
    assert isinstance(made, MethodsResult)
    result = encoded(made)
    assert result["left_out"] == []
    assert {(c["elements"], c["accesses"]) for c in result["cells"]} == {
        (3000, 1), (3000, 50), (5000, 1), (5000, 50), (5000, 2), (5000, 4), (5000, 8),
    }  # fmt: skip
    for cell in result["cells"]:
        assert all(m["checked"] and m["predicted_seconds"] > 0 for m in cell["methods"])
        # At and up to 50 accesses both methods of the sweep are there once.
        assert len({m["method"] for m in cell["methods"]}) == len(cell["methods"])
    assert result["crossover"]["accesses"] == [1, 2, 4, 8, 50]
    show(methods_document(made))
    shown = capsys.readouterr().out
    assert "zero-copy" in shown and "VIRTUAL" not in shown


def test_a_kernel_that_does_not_compile_gives_one_line_and_gives_all_back(
    stand_in: StandIn, tmp_path: Path
) -> None:
    path = tmp_path / "mine.cu"
    path.write_text('extern "C" __global__ void mine(const double* a, double* b) { b[0] = missing; }')
    with pytest.raises(InputError, match=r"mine.*NVRTC refused it.*missing.*undefined"):
        bench("strategies", "h100-probed", True, None, None, silent, kernel=path, levels=4, level=64)


def test_a_driver_without_a_device_is_no_gpu(stand_in: StandIn) -> None:
    stand_in.gpus = 0
    for command in (
        lambda: bench("strategies", "h100-probed", True, None, None, silent),
        lambda: bench("methods", "h100-probed", True, None, None, silent, largest="1048576"),
    ):
        with pytest.raises(NoGpuError, match="shows no device"):
            command()
