"""Which node a trace is taken to be recorded on."""

import polars as pl
import pytest

from busfare.advise import findings, guess_node
from busfare.cost.kernels.limits import limits_of
from busfare.trace import tables
from tests.traces import copy, trace


@pytest.mark.parametrize(
    ("gpu", "node"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA A100-SXM4-40GB", "dgx-a100"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),  # not the DGX A100 of 40 GB
        ("Tesla P100-PCIE-16GB", "p100-pcie-16gb"),  # not the DGX-1 of SXM2
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "rtx-3060-laptop"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),  # not the card of 80 GB
        ("NVIDIA H100", None),
        ("A GPU of next year", None),
        (None, None),
    ],
)
def test_the_node_is_of_the_gpu_that_the_trace_names(gpu: str | None, node: str | None) -> None:
    guessed = guess_node(trace(copy(0, 10, 1000), gpu=gpu))
    assert (guessed and guessed.name) == node


def test_the_lanes_of_a_notebook_are_no_promise_that_its_link_breaks() -> None:
    slow = copy(0, 20_000, 1 << 27)  # 6.7 GB/s: what 4 lanes of PCIe 4 carry
    for gpu, promised in (("NVIDIA GeForce RTX 3060 Laptop GPU", False), ("NVIDIA GeForce RTX 3060", True)):
        recorded = trace(slow, gpu=gpu)
        ids = [finding.id for finding in findings(recorded, guess_node(recorded))]
        assert ("slow-link" in ids) is promised


def test_of_unlike_gpus_the_gpu_that_ran_counts() -> None:
    recorded = trace(copy(0, 10, 1000, device=1), copy(20, 30, 1000, device=1))
    two = pl.DataFrame({"device": [0, 1], "name": ["NVIDIA A40", "NVIDIA GeForce RTX 3060"]})
    recorded.devices = tables.conform(two, tables.DEVICES)
    guessed = guess_node(recorded)
    assert guessed is not None and guessed.name == "rtx-3060"


def test_what_a_data_sheet_leaves_out_is_taken_from_the_trace() -> None:
    recorded = trace(copy(0, 10, 1000), gpu="NVIDIA GeForce RTX 3050 Laptop GPU")
    figures = {"memory_bandwidth_bytes_per_s": 176.032e9, "clock_hz": 1.057e9, "multiprocessors": 16}
    recorded.devices = recorded.devices.with_columns(**{n: pl.lit(value) for n, value in figures.items()})
    node = guess_node(recorded)
    assert node is not None and node.name == "rtx-3050-laptop"
    assert node.gpu(0).memory_bandwidth_bytes_per_s == 176.032e9
    assert limits_of(node).memory_peak == 176.032e9
    assert node.provenance(node.gpu(0), "memory_bandwidth_bytes_per_s").kind == "measured"
    listed = trace(copy(0, 10, 1000), gpu="Tesla T4")
    listed.devices = listed.devices.with_columns(memory_bandwidth_bytes_per_s=pl.lit(1e9))
    t4 = guess_node(listed)
    assert t4 is not None and t4.gpu(0).memory_bandwidth_bytes_per_s == 320e9  # the data sheet comes first
