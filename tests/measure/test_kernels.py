"""What a probe measures of kernels: on virtual nodes, on samples made up here, and as sources for GPUs that are not here."""

import dataclasses
from pathlib import Path

import pytest
from msgspec import structs

from busfare.errors import InputError
from busfare.measure import probe as probing
from busfare.measure.cases import Case, Measurement, Samples, read_record, write_record
from busfare.measure.kernels import (
    GEMMS,
    KERNELS_S,
    LARGEST,
    LOOPS,
    PASS_BYTES,
    PASSES,
    QUICK_KERNELS_S,
    ROW_BYTES,
    SOFTMAX_ROW_BYTES,
    TILE_BYTES,
    gemm_of,
    kernel_cases,
    kernels_of,
    played,
)
from busfare.measure.node_file import encode
from busfare.measure.virtual import VirtualDevice
from busfare.nodes import Gemm, Kernels, Node, load_node
from busfare.nodes.component import Pass
from busfare.nodes.file import decode
from busfare.questions import Probe
from busfare.show.document import Table
from busfare.show.probe import probe_document

TRUE = Kernels(
    launch_s=1.2e-6,
    launch_interval_s=2.1e-6,
    memory_bytes_per_s={"read": 3.1e12, "write": 3.05e12, "copy": 3e12, "triad": 3.02e12},
    l2_bytes_per_s=5.6e12,
    flops_per_s={name: 1e13 * (n + 1) for n, name in enumerate(LOOPS)},
    # All of them slower than the pipelines above.
    gemm=tuple(
        Gemm(type_, m, n, k, 2 * batch * m * n * k / 9e12, batch)
        for type_, shapes in GEMMS.items()
        if type_ in ("fp16", "fp32")
        for batch, m, n, k in shapes
    ),
    passes=tuple(
        Pass(kind, arrays * size, 2e-6 + arrays * size / (2e12 + 1e11 * n))
        for n, (kind, arrays) in enumerate(PASSES.items())
        for size in PASS_BYTES
    ),
)


def playing(kernels: Kernels = TRUE) -> Node:
    return dataclasses.replace(load_node("h100-probed"), kernels=(kernels,))


def probed(fast: bool) -> probing.Probed:
    device = VirtualDevice(playing(), seed=3)
    record = probing.measured(device, Probe(quick=fast, only="kernels"), seed=5)
    return probing.evaluated(record)


@pytest.mark.parametrize(("fast", "limit_s"), [(True, QUICK_KERNELS_S), (False, KERNELS_S)])
def test_a_node_that_is_played_comes_back(fast: bool, limit_s: float, tmp_path: Path) -> None:
    run = probed(fast)
    (kernels,) = run.node.kernels
    assert kernels.launch_s == pytest.approx(TRUE.launch_s, rel=0.01)
    assert kernels.launch_interval_s == pytest.approx(TRUE.launch_interval_s, rel=0.01)
    assert kernels.l2_bytes_per_s == pytest.approx(TRUE.l2_bytes_per_s, rel=0.02)
    assert kernels.memory_bytes_per_s == pytest.approx(TRUE.memory_bytes_per_s, rel=0.02)
    assert kernels.flops_per_s == pytest.approx(TRUE.flops_per_s, rel=0.01)
    for name, figures in (("gemm", kernels.gemm), ("passes", kernels.passes)):
        truths = [structs.astuple(row) for row in getattr(TRUE, name)]
        came = sorted(map(structs.astuple, figures))
        assert [row[:-2] for row in came] == [row[:-2] for row in sorted(truths)]
    seconds = {(row.kind, row.bytes): row.seconds for row in kernels.passes}
    assert seconds == {(row.kind, row.bytes): pytest.approx(row.seconds, rel=0.05) for row in TRUE.passes}
    took = {structs.replace(row, seconds=1.0): row.seconds for row in kernels.gemm}
    assert took == {structs.replace(g, seconds=1.0): pytest.approx(g.seconds, rel=0.05) for g in TRUE.gemm}
    # The design allows 60 numbers a GPU, passes among them.
    several = (kernels.memory_bytes_per_s, kernels.flops_per_s, kernels.gemm, kernels.passes)
    assert 3 + sum(map(len, several)) <= 60
    assert run.record.seconds < limit_s + 0.5
    assert not run.node.curves
    again = decode(encode(run.node), "probed.toml").probed_kernels()
    assert again.flops_per_s == pytest.approx(kernels.flops_per_s, rel=1e-3)
    assert [(row.batch, row.m) for row in again.gemm] == [(row.batch, row.m) for row in kernels.gemm]
    assert [(p.kind, p.bytes) for p in again.passes] == [(p.kind, p.bytes) for p in kernels.passes]
    write_record(run.record, tmp_path / "raw.json.gz")
    assert read_record(tmp_path / "raw.json.gz") == run.record
    assert probing.evaluated(read_record(tmp_path / "raw.json.gz")).node == run.node


def test_copies_alone_and_a_node_that_says_nothing_of_kernels() -> None:
    complete, alone = (VirtualDevice(playing()) for _ in range(2))
    assert probing.evaluated(probing.measured(complete, Probe(quick=True))).node.kernels
    assert not probing.evaluated(probing.measured(alone, Probe(quick=True, only="copies"))).node.kernels
    bare = VirtualDevice(load_node("h100-sxm"))
    with pytest.raises(InputError, match="no kernel rates"):
        probing.measured(bare, Probe(quick=True, only="kernels"))


def measurements(seconds: dict[str, tuple[int, int, float]]) -> dict[Case, Measurement]:
    """One sample each of cases by mode: bytes, count and seconds."""
    made = {}
    for mode, (bytes_, count, s) in seconds.items():
        measurement = Measurement.of(Case("none", "device", mode, bytes_, count))
        measurement.add(Samples((s,), (s,)))
        made[measurement.case] = measurement
    return made


def test_a_batch_of_products_takes_what_a_product_of_a_train_takes() -> None:
    products = {"gemm-fp16-64x512x512x512": (0, 23, 23 * 40e-6), "gemm-tf32-8192x8192x8192": (0, 1, 2e-3)}
    (kernels,) = kernels_of(measurements(products), {})
    (product,) = kernels.gemm  # those of types with one product are in the pipelines' rates
    assert (product.batch, product.m, product.seconds) == (64, 512, pytest.approx(40e-6))
    assert product.flops == 2 * 64 * 512**3


def test_the_fastest_gemm_of_a_type_counts_and_a_gemm_measured_alone_is_not_kept() -> None:
    operations, loops = LOOPS["fp32"]
    by_case = measurements(
        {
            "pipeline-fp16_tensor": (0, LOOPS["fp16_tensor"][1], 1.0),
            "pipeline-fp32": (0, loops, 1e-3),
            "gemm-fp32-8192x8192x8192": (0, 1, 1e-6),
            "gemm-fp16-8192x8192x8192": (0, 1, 2 * 8192**3 / 700e12),
            "gemm-fp16-64x512x512x512": (0, 4, 4 * 64 * 2 * 512**3 / 800e12),
            "pipeline-bf16_tensor": (0, LOOPS["bf16_tensor"][1], 1.0),
            "gemm-bf16-8192x8192x8192": (0, 1, 2 * 8192**3 / 650e12),
        }
    )
    (kernels,) = kernels_of(by_case, {"multiprocessors": 1})
    assert kernels.flops_per_s["fp16_tensor"] == pytest.approx(800e12, rel=1e-4)
    assert kernels.flops_per_s["bf16_tensor"] == pytest.approx(650e12, rel=1e-4)
    # GEMMs of fp32 have no tensor pipeline.
    assert kernels.flops_per_s["fp32"] == pytest.approx(operations * loops / 1e-3)
    assert (kernels.launch_s, kernels.l2_bytes_per_s) == (None, None)
    assert {(g.type, g.batch, g.m, g.n, g.k): g.seconds for g in kernels.gemm} == pytest.approx(
        {
            ("fp16", 1, 8192, 8192, 8192): 2 * 8192**3 / 700e12,
            ("fp16", 64, 512, 512, 512): 64 * 2 * 512**3 / 800e12,
            ("fp32", 1, 8192, 8192, 8192): 1e-6,
        },
        rel=1e-4,
    )


def test_the_products_of_a_mode_and_its_batch() -> None:
    single, many = gemm_of("gemm-fp16-16x4096x8192"), gemm_of("gemm-fp32-64x1024x512x128", 3e-3)
    assert (single.batch, single.m, single.n, single.k) == (1, 16, 4096, 8192)
    assert many == Gemm("fp32", 1024, 512, 128, 3e-3, batch=64)
    assert many.flops == 64 * 2 * 1024 * 512 * 128
    cases = [c for c in kernel_cases({}, 0, fast=True) if c.mode.startswith("gemm-")]
    products = [(g.type, (g.batch, g.m, g.n, g.k)) for g in (gemm_of(c.mode) for c in cases)]
    assert products == [(kind, sides) for kind, batches in GEMMS.items() for sides in batches]
    assert [products.count((kind, LARGEST)) for kind in GEMMS] == [1] * len(GEMMS)
    # No sample of products takes much longer than the largest alone.
    assert max(c.count * gemm_of(c.mode).flops for c in cases) <= 1.5 * 2 * 8192**3


def test_passes_are_the_mean_of_their_graph_and_sorted_by_size() -> None:
    by_case = measurements({"chain-stream": (0, 16, 2e-6 + 16 * 3e-6)})
    by_case |= measurements({"chain-stream": (0, 272, 2e-6 + 272 * 3e-6)})
    for bytes_ in (8 << 20, 512 << 10):
        by_case |= measurements({"pass-norm": (bytes_, 8, 2e-6 + 8 * bytes_ / 2e12)})
    by_case |= measurements({"pass-gather": (8 << 20, 4, 2e-6 + 4 * 5e-6)})
    (kernels,) = kernels_of(by_case, {})
    assert [(row.kind, row.bytes) for row in kernels.passes] == [
        ("norm", 512 << 10), ("norm", 8 << 20), ("gather", 8 << 20),
    ]  # fmt: skip
    expected = [(512 << 10) / 2e12, (8 << 20) / 2e12, 5e-6]
    assert [row.seconds for row in kernels.passes] == pytest.approx(expected, rel=0.01)


def test_a_pass_and_a_batch_take_what_a_node_says_of_the_same_alone() -> None:
    kernels = Kernels(
        gemm=(Gemm("fp16", 512, 512, 512, 1e-5), Gemm("fp16", 512, 512, 512, 4e-4, batch=64)),
        passes=(Pass("norm", 1 << 19, 2e-6), Pass("norm", 1 << 23, 9e-6), Pass("softmax", 1 << 19, 3e-6)),
    )

    def takes(mode: str, bytes_: int, count: int) -> float | None:
        return played(kernels, Case("none", "device", mode, bytes_, count), 132)

    assert takes("pass-norm", 1 << 23, 8) == pytest.approx(8 * 9e-6)
    assert takes("pass-softmax", 1 << 19, 32) == pytest.approx(32 * 3e-6)
    assert takes("pass-softmax", 1 << 23, 8) is None
    assert takes("pass-gather", 1 << 19, 32) is None
    assert takes("gemm-fp16-512x512x512", 0, 10) == pytest.approx(10 * 1e-5)
    assert takes("gemm-fp16-64x512x512x512", 0, 10) == pytest.approx(10 * 4e-4)
    assert takes("gemm-fp16-32x512x512x512", 0, 10) is None


def test_every_pass_is_of_whole_rows_from_what_l2_holds_to_what_it_does_not() -> None:
    cases = [c for c in kernel_cases({"l2_bytes": 50 << 20}, 0, fast=True) if c.mode.startswith("pass-")]
    for kind, arrays in PASSES.items():
        sizes = [c.bytes // arrays for c in cases if c.mode == f"pass-{kind}"]
        assert min(sizes) < 1 << 20 and max(sizes) * arrays > 4 * (50 << 20)
        assert len(sizes) == len(set(sizes)) == len(PASS_BYTES)
    assert not any(size % unit for size in PASS_BYTES for unit in (TILE_BYTES, ROW_BYTES, SOFTMAX_ROW_BYTES))


def test_a_probe_is_shown_with_its_batches_and_passes() -> None:
    run = probed(fast=True)
    shown = Kernels(
        gemm=(Gemm("fp16", 512, 512, 512, 2.5e-5, batch=64), Gemm("fp32", 16, 4096, 4096, 1e-5)),
        passes=(Pass("norm", 1 << 19, 2e-6), Pass("activation", 403 * 10**6, 1.3e-4)),
        gpu=1,
    )
    run.result.node = structs.replace(run.result.node, kernels=(shown,))
    tables = [block for block in probe_document(run.result).blocks if isinstance(block, Table)]
    (table,) = (table for table in tables if "kernels" in [column.name for column in table.columns])
    assert table.rows == [
        ("1", "GEMM fp16 64 × (512 × 512 × 512)", "25 µs, 687.2 TFLOP/s"),
        ("1", "GEMM fp32 16 × 4096 × 4096", "10 µs, 53.69 TFLOP/s"),
        ("1", "pass: norm, 524 kB", "2 µs, 262 GB/s"),
        ("1", "pass: activation, 403 MB", "130 µs, 3.1 TB/s"),
    ]


def test_what_is_outside_of_kernels_is_in_no_rate() -> None:
    """Two microseconds go before the first kernel, of a chain as of a stream, whose largest size counts."""
    chains = {f"chain-{how}": interval for how, interval in (("graph", 1e-6), ("stream", 3e-6))}
    by_case: dict[Case, Measurement] = {}
    for mode, interval in chains.items():
        for count in (16, 272):
            by_case |= measurements({mode: (0, count, 2e-6 + count * interval)})
    for bytes_ in (48 << 20, 768 << 20):
        rate = 1e12 if bytes_ < 1e8 else 2e12
        by_case |= measurements({"stream-copy": (bytes_, 1, 2e-6 + bytes_ / rate)})
    (kernels,) = kernels_of(by_case, {})
    assert kernels.launch_s == pytest.approx(1e-6, rel=0.01)
    assert kernels.launch_interval_s == pytest.approx(3e-6, rel=0.01)
    assert kernels.memory_bytes_per_s == {"copy": pytest.approx(2e12, rel=1e-3)}


def test_l2_is_read_in_a_quarter_of_it_and_every_stream_is_larger() -> None:
    cases = kernel_cases({"l2_bytes": 50 << 20}, 0, fast=False)
    (l2,) = (c for c in cases if c.mode == "l2-read")
    assert 12 << 20 < l2.bytes <= (50 << 20) // 4
    assert max(c.bytes for c in cases if c.mode == "stream-triad") > 8 * (50 << 20)
    assert len(set(cases)) == len(cases)
