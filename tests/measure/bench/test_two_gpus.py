"""Strategies on two GPUs of one host: the virtual bench beside `plan`."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from busfare.measure.bench import program as programs
from busfare.measure.bench.kernel import KERNELS
from busfare.measure.bench.predicting import Predicted, problem_of
from busfare.measure.bench.work import Work
from busfare.measure.virtual_bench import VirtualStrategies
from busfare.node import Node, load_node
from busfare.plan.machine import machine_of


def node_with(**gaps: float) -> Node:
    """Two H200s, with what copies both ways take a byte beside each other."""
    node = load_node("h200-x2-probed")
    key = "both_directions_beside_gpu_gap_per_byte_s"
    measured = tuple(
        msgspec.structs.replace(m, **{key: gaps.get(m.direction)}) if m.memory == "pinned" else m
        for m in node.measured
    )
    return dataclasses.replace(node, measured=measured)


# As many bytes out as in, and half as many out again: what goes out is slowed by less.
@pytest.mark.parametrize(
    ("name", "chunks", "least"), [("scale", 16, 1.2), ("buoydiff", 14, 1.15), ("state", 8, 1.02)]
)
def test_what_the_host_leaves_two_gpus_is_predicted(name: str, chunks: int, least: float) -> None:
    work = Work(KERNELS[name], 42, 1 << 19)
    shares = (range(chunks // 2), range(chunks // 2, chunks))
    two = tuple(programs.streams(work, chunks, own=own) for own in shares)
    seconds, said = {}, {}
    for which, node in (("alone", node_with()), ("beside", node_with(h2d=3e-11, d2h=2e-11))):
        device = VirtualStrategies(node, noise=0.0)
        device.load(work)
        kernels = {n: device.run((programs.kernels_alone(work, n),), 1).device_s[0] for n in (1, chunks)}
        predicted = Predicted.of(problem_of(work, kernels), machine_of(node), 256, bool(work.kernel.reaches))
        told = predicted.shared(two, work)
        (seconds[which],) = device.run(two, 1).device_s
        said[which] = told.by
        assert told.seconds == pytest.approx(seconds[which], rel=0.05)
    assert seconds["beside"] > least * seconds["alone"]
    assert "as measured" in said["beside"] and "for itself" in said["alone"]
