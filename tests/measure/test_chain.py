"""Probe, node file, plan, bench, without a break, on virtual nodes. They are played by the engine that `plan` uses, so this
checks the plumbing, not the prediction.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from busfare.measure import probe
from busfare.measure.bench.kernel import KERNELS
from busfare.measure.bench.methods import methods_result, run_methods
from busfare.measure.bench.program import Work
from busfare.measure.bench.run import Run
from busfare.measure.bench.strategies import run_cells
from busfare.measure.bench.virtual import VirtualMethods, VirtualStrategies
from busfare.measure.node_file import encode
from busfare.nodes import load_node
from busfare.planning import Machine, machine_of

WORKS = (Work(KERNELS["state"], 42, 1 << 16), Work(KERNELS["buoydiff"], 42, 1 << 14))


@pytest.fixture(scope="module", params=["h100-probed", "gtx-titan"])
def node_and_machine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Machine]:
    """A virtual node's name, and what `plan` reads in the file that `probe` wrote of it."""
    name = str(request.param)
    path: Path = tmp_path_factory.mktemp("probed") / f"{name}.toml"
    record, knees = probe.measured(probe.open_device(name), fast=True, seed=11, gpus=(0,))
    path.write_text(encode(probe.evaluated(record, knees).node))
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


def test_methods_are_ranked_and_the_crossover_is_found(node_and_machine: tuple[str, Machine]) -> None:
    name, machine = node_and_machine
    run = Run(VirtualMethods(load_node(name), seed=4), machine, quick=True)
    result = methods_result(run, run_methods(run, 1 << 24))
    assert not run.left_out
    assert result.crossover is not None and (result.crossover.factor or 9) < 1.5
    assert all((cell.best.cost_percent or 0) < 10 for cell in result.cells)
    assert result.normalised.situation_1["zero-copy"] == 1.0
