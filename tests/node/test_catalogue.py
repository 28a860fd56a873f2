"""The catalogue: complete, sourced to the last figure, and whole as graphs."""

import msgspec
import polars as pl
import pytest

from busfare.cost import price, trusted
from busfare.nodes import Node, NvlinkLink, catalogue_names, load_node
from busfare.nodes.gpus import gpu_names, gpu_of_device_name, gpus
from busfare.show.nodes import node_document
from busfare.show.terminal import render
from tests.published import DATA

#: What a user is promised by name.
PROMISED = """
    titan summit gtx-680 gtx-titan k20 c2050 gt-740 dgx-1-p100 dgx-1-v100 dgx-a100 a100-pcie h100-sxm h100-pcie h200-sxm
    gh200 dgx-b200 gb200 gb300 l40s rtx-3090 rtx-4090 rtx-5090 mi250x mi300a mi300x
"""
NODES = [load_node(name) for name in catalogue_names()]
OF_GPUS = [load_node(name) for name in gpu_names() if gpus()[name].node is None]
by_name = pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)


def test_every_promised_node_is_there() -> None:
    assert set(catalogue_names()) >= set(PROMISED.split())
    assert [node.name for node in NODES] == list(catalogue_names())


@pytest.mark.parametrize("node", [*NODES, *OF_GPUS], ids=lambda node: node.name)
def test_every_figure_has_a_source(node: Node) -> None:
    for table in (*node.components, *node.links, *node.curves, *node.costs):
        fields = {field.name: field.default for field in msgspec.structs.fields(table)}
        for key, default in fields.items():
            value = getattr(table, key)
            figure = isinstance(value, (bool, int, float)) and value != default
            if figure and key not in ("gpu", "coherent", "unified_memory"):
                assert node.provenance(table, key) is not None, (node.name, table, key)


@by_name
def test_every_source_is_cited_and_used(node: Node) -> None:
    tables = (*node.components, *node.links, *node.curves, *node.costs)
    used = {table.source for table in tables} | {tag for table in tables for tag in table.source_of.values()}
    assert set(node.sources) <= used
    for source in node.sources.values():
        assert len(source.cite) > 8


@by_name
def test_measured_figures_come_from_measurements(node: Node) -> None:
    for measured in node.curves:
        source = node.provenance(measured, "gap_per_byte_s")
        assert source.kind == "measured"


@by_name
def test_every_gpu_says_what_plans_need(node: Node) -> None:
    for gpu in node.gpus():
        assert gpu.memory_bandwidth_bytes_per_s
        assert gpu.multiprocessors
        assert gpu.clock_hz
        assert gpu.compute_capability
        assert gpu.copy_engines or gpu.compute_capability.startswith("gfx")


@pytest.mark.parametrize("node", [*NODES, *OF_GPUS], ids=lambda node: node.name)
def test_every_gpu_reaches_the_host_and_is_shown(node: Node) -> None:
    for ordinal in range(len(node.gpus())):
        path = node.host_path(ordinal)
        assert 0 < path.bandwidth("read") <= path.peak() < 1e13
        assert 0 < path.bandwidth("write") <= path.peak()
    shown = "\n".join(line for line, _ in render(node_document(node), 80))
    for component in node.components:
        assert component.name in shown


def test_dgx_1_has_the_links_that_the_chips_have() -> None:
    for name, links in (("dgx-1-p100", 4), ("dgx-1-v100", 6)):
        node = load_node(name)
        for gpu in node.gpus():
            ends = [link for link in node.links if isinstance(link, NvlinkLink) and gpu.name in link.between]
            assert sum(link.links for link in ends) == links


def test_w14_parameters_stand_as_published() -> None:
    titan = load_node("gtx-titan")
    published = {"h2d": (9.420e-6, 8.318392e-11, 2.503e-6), "d2h": (9.023e-6, 7.924734e-11, 2.674e-6)}
    for direction, (start, gap, interval) in published.items():
        curve = titan.curve(direction, "pinned")
        assert curve.seconds([0, 1e9]) == pytest.approx([start, start + 1e9 * gap])
        assert curve.issue_interval(1) == pytest.approx(interval)


#: Rows of other paths than the node's: the far socket, another kind of host memory, kernels in place of copy engines, and
#: single copies from a cold cache.
FOREIGN_PATHS = "remote|other Grace|write-combined|shader|SM \\(|single copy|GFX executor"


@pytest.mark.conformance
def test_large_copies_lie_in_their_range_on_the_nodes_of_the_catalogue() -> None:
    columns = [pl.col("size_bytes", "rate").cast(pl.Float64, strict=False), "gpu", "direction", "memory"]
    columns += [pl.concat_str("source", pl.col("notes").fill_null("")).alias("notes"), "link"]
    measured, shared = (
        pl.read_csv(DATA / f"{name}.csv", infer_schema_length=0) for name in ("measurements", "contention")
    )
    alone = pl.when(metric="bidir_ce").then("baseline_value").when(metric="copy_rate").then("value")
    rows = pl.concat(
        [
            measured.with_columns(rate="bandwidth_GBps").select(columns),
            shared.with_columns(rate=alone).select(columns),
        ]
    ).filter(
        pl.col("direction").is_in(["h2d", "d2h"]) & (pl.col("memory") == "pinned") & (pl.col("rate") > 0),
        pl.col("size_bytes").fill_null(1 << 29) >= 64 << 20,
        ~pl.col("notes").str.contains(FOREIGN_PATHS),
    )
    inside: dict[str, list[bool]] = {}
    for row in rows.iter_rows(named=True):
        gpu = gpu_of_device_name(row["gpu"].partition("(")[0])
        node = load_node(gpu.node) if gpu is not None and gpu.node else None
        if node is None or node.host_path(0).is_c2c != row["link"].endswith(("c2c", "C2C")):
            continue
        if row["link"].startswith("nvlink") and not row["link"].endswith("c2c"):
            continue
        size = int(row["size_bytes"] or 1 << 29)
        prices = price(node, row["direction"], "pinned", size)
        best = trusted(node, row["direction"], "pinned", prices)
        predicted = next(p for p in prices if best is not None and p["model"] == best[0])
        taken = size / row["rate"] / 1e9
        within = 0.98 * predicted["low_seconds"] <= taken <= 1.02 * predicted["high_seconds"]
        inside.setdefault(node.name, []).append(within)
    assert len(inside) >= 10
    assert {"gb300", "gb200", "gh200"} <= inside.keys()
    every = [within for predicted in inside.values() for within in predicted]
    assert sum(every) >= 0.75 * len(every), inside
    assert all(sum(predicted) * 2 >= len(predicted) for predicted in inside.values()), inside


def test_a_gb300_has_half_of_the_link_of_its_processor() -> None:
    node = load_node("GB300")
    assert node.name == "gb300"
    # OCI GB300 notes: 211 GB/s in, 194 out.
    assert node.host_path(0).bandwidth("read") == pytest.approx(200e9, rel=0.06)
