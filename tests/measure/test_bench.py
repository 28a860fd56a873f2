"""The benchmarks from end to end. On a stand-in driver every result is computed and checked, and no time means anything. On
virtual nodes, which the engine of `plan` plays, probe, node file, plan and bench are one chain: the plumbing is checked.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from busfare.answers.measure import bench
from busfare.errors import NoGpuError
from busfare.measure import probe
from busfare.measure.bench import methods, strategies
from busfare.measure.bench.kernel import KERNELS, Work
from busfare.measure.bench.methods import methods_result, run_methods
from busfare.measure.bench.run import MethodsResult, Run, StrategiesResult
from busfare.measure.bench.strategies import run_cells
from busfare.measure.node_file import encode
from busfare.measure.virtual import VirtualDevice, VirtualMethods, VirtualStrategies
from busfare.nodes import load_node
from busfare.planning import Machine, machine_of
from busfare.questions import BenchMethods, BenchStrategies, Probe
from busfare.show.bench import methods_document, strategies_document
from busfare.show.terminal import show
from tests.measure.stand_in_driver import StandIn

WORKS = (Work(KERNELS["state"], 42, 1 << 16), Work(KERNELS["buoydiff"], 42, 1 << 14))

METHODS = BenchMethods(node="h100-probed", quick=True, largest=1 << 20)
STRATEGIES = BenchStrategies(node="h100-probed", quick=True)


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
    made = bench(STRATEGIES, None, silent)
    assert isinstance(made, StrategiesResult)
    result = encoded(made)
    assert result["virtual"] is False and result["gpu"] == "stand-in"
    assert result["left_out"] == []
    assert any("throttled" in sentence for sentence in result["disturbances"])
    for cell in result["cells"]:
        assert "float64" in cell["checked_against"]
        assert all(v["checked"] and v["error_share"] <= 1 for v in cell["versions"])
        assert all(v["held"] and v["measured_host_seconds"] > 0 for v in cell["versions"])
    show(strategies_document(made))
    shown = capsys.readouterr().out
    assert "DISTURBED" in shown and "VIRTUAL" not in shown


def test_methods(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(methods, "QUICK_ELEMENTS", (3000, 5000))
    made = bench(METHODS, None, silent)
    assert isinstance(made, MethodsResult)
    result = encoded(made)
    assert result["left_out"] == []
    assert {(c["elements"], c["accesses"]) for c in result["cells"]} == {
        (3000, 1), (3000, 50), (5000, 1), (5000, 50),
    }  # fmt: skip
    for cell in result["cells"]:
        assert all(m["checked"] and m["predicted_seconds"] > 0 for m in cell["methods"])
        assert len({m["method"] for m in cell["methods"]}) == len(cell["methods"])
    show(methods_document(made))
    shown = capsys.readouterr().out
    assert "zero-copy" in shown and "VIRTUAL" not in shown


def test_a_driver_without_a_device_is_no_gpu(stand_in: StandIn) -> None:
    stand_in.gpus = 0
    for question in (STRATEGIES, METHODS):
        with pytest.raises(NoGpuError, match="shows no device"):
            bench(question, None, silent)


@pytest.fixture(scope="module", params=["h100-probed", "gtx-titan"])
def node_and_machine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Machine]:
    """A virtual node's name, and what `plan` reads in the file that `probe` wrote of it."""
    name = str(request.param)
    path: Path = tmp_path_factory.mktemp("probed") / f"{name}.toml"
    record = probe.measured(VirtualDevice(load_node(name)), Probe(quick=True), seed=11, gpus=(0,))
    path.write_text(encode(probe.evaluated(record).node))
    return name, machine_of(load_node(str(path)))


def test_the_pick_costs_next_to_nothing_and_nothing_played_is_called_checked(
    node_and_machine: tuple[str, Machine],
) -> None:
    name, machine = node_and_machine
    run = Run(VirtualStrategies(load_node(name), seed=2), machine, quick=True)
    cells = run_cells(run, WORKS)
    assert len(cells) == len(WORKS) and not run.left_out
    for cell in cells:
        assert cell.best.cost_percent is not None and cell.best.cost_percent < 2
        assert cell.streams.cost_percent is not None and cell.streams.cost_percent < 2
        assert cell.checked_against is None
        assert not any(v.checked for v in cell.versions)


def test_the_methods_that_are_picked_cost_next_to_nothing(node_and_machine: tuple[str, Machine]) -> None:
    name, machine = node_and_machine
    run = Run(VirtualMethods(load_node(name), seed=4), machine, quick=True)
    result = methods_result(run, run_methods(run, 1 << 24))
    assert not run.left_out
    assert all((cell.best.cost_percent or 0) < 10 for cell in result.cells)
    assert result.normalised.situation_1["zero-copy"] == 1.0


@pytest.mark.filterwarnings("error")
def test_methods_of_an_old_gpu_are_picked_without_warnings() -> None:
    node = load_node("gt-740")
    run = Run(VirtualMethods(node, seed=4), machine_of(node), quick=True)
    cells = methods_result(run, run_methods(run, 1 << 20)).cells
    assert len(cells) > 1 and all(cell.best.picked for cell in cells)


def test_the_machine_of_s16_ranks_methods_as_published() -> None:
    node = load_node("gt-740")
    run = Run(VirtualMethods(node, seed=1), machine_of(node), quick=True)
    result = methods_result(run, run_methods(run, 1 << 24))
    first, second = result.normalised.situation_1, result.normalised.situation_2
    for method, published in methods.PUBLISHED.situation_1.items():
        assert first[method] == pytest.approx(published, abs=0.1), method
    assert second["pinned"] < second["pageable"] < second["managed"] < second["zero-copy"]
    for row in (row for cell in result.cells for row in cell.methods if row.method == "managed"):
        assert row.error_percent == pytest.approx(0.0, abs=5)
