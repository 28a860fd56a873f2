"""GPUs by name: every one whole and sourced, names matched to the letter, and their nodes."""

import pytest

from busfare.cost.kernels.limits import limits_of
from busfare.errors import InputError
from busfare.nodes import PcieLink, load_node
from busfare.nodes.gpus import Gpu, Recorded, _file, gpu_names, gpu_of_device_name, gpus, node_of_gpu

#: A name that a driver gives, the GPU, and the machine of the catalogue where that is described.
NAMED = [
    ("NVIDIA GeForce RTX 3060", "rtx-3060", None),
    ("GeForce RTX 3060 Ti", "rtx-3060-ti", None),
    ("NVIDIA GeForce RTX 3060 Laptop GPU", "rtx-3060-laptop", None),
    ("NVIDIA GeForce RTX 3060 Laptop ", "rtx-3060-laptop", None),  # cut after 31 characters by older exports
    ("NVIDIA GeForce GTX 1660 Ti with Max-Q Design", "gtx-1660-ti-max-q", None),
    ("GeForce GTX 1080 Ti", "gtx-1080-ti", None),
    ("NVIDIA TITAN X (Pascal)", "titan-x-pascal", None),
    ("GeForce GTX TITAN X", "gtx-titan-x", None),
    ("NVIDIA GeForce RTX 4090", "rtx-4090", "rtx-4090"),
    ("NVIDIA GeForce RTX 4090 D", "rtx-4090-d", None),
    ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb", "dgx-a100"),
    ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb", None),
    ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb", None),
    ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie", "a100-pcie"),
    ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb", "dgx-1-v100"),
    ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb", None),
    ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3", "h100-sxm"),
    ("NVIDIA H100 PCIe", "h100-pcie", "h100-pcie"),
    ("NVIDIA GH200 480GB", "gh200-480gb", "gh200"),
    ("NVIDIA RTX 4000 Ada Generation", "rtx-4000-ada", None),
    ("NVIDIA RTX 4000 SFF Ada Generation", "rtx-4000-sff-ada", None),
    ("Quadro RTX 4000", "quadro-rtx-4000", None),
    ("NVIDIA GH200 120GB", "gh200-480gb", "gh200"),
    ("NVIDIA A100-PG509-200", "a100-pg509-200", None),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090-laptop", None),
    ("AMD Instinct MI300X", "mi300x", "mi300x"),
    ("AMD Instinct MI300X VF", "mi300x", "mi300x"),
    ("AMD Radeon RX 7900 XTX", "rx-7900-xtx", "rx-7900-xtx"),
    ("gfx908", "mi100", "mi100"),
]
UNKNOWN = [
    "NVIDIA GeForce RTX 3061", "RTX", "A100", "NVIDIA H100", "Tesla P100-PCIE-32GB", "NVIDIA Graphics Device",
    "AMD Radeon Graphics", "gfx942", "NVIDIA L4 MIG 1g.3gb", "NVIDIA A100-SXM4-40GB MIG 5g.20gb", "llvmpipe", "",
]  # fmt: skip


def test_names_are_unique_and_more_than_150() -> None:
    assert len(gpus()) == sum(len(group["gpus"]) for group in _file().group)
    assert len(gpu_names()) >= 290


def test_no_source_is_unused_and_none_is_missing() -> None:
    used = {tag for gpu in gpus().values() for tag in gpu.sources.values()}
    used |= {row.source for row in (*_file().memory_share.values(), *_file().l2.values())}
    assert used | {"mig"} == set(_file().sources)


@pytest.mark.parametrize("gpu", [gpu for gpu in gpus().values() if gpu.node], ids=lambda gpu: gpu.name)
def test_the_catalogue_and_the_table_agree(gpu: Gpu) -> None:
    described, sheet = load_node(str(gpu.node)).gpu(0), gpu
    for key in ("memory_bandwidth_bytes_per_s", "multiprocessors", "copy_engines", "compute_capability"):
        listed, printed = getattr(described, key), getattr(sheet, key)
        if listed is not None and printed is not None:
            assert listed == (pytest.approx(printed, rel=0.03) if isinstance(listed, float) else printed), key


@pytest.mark.parametrize(("device", "name", "node"), NAMED)
def test_a_device_name_finds_its_gpu(device: str, name: str, node: str | None) -> None:
    gpu = gpu_of_device_name(device)
    assert (gpu.name, gpu.node) == (name, node)


@pytest.mark.parametrize("device", UNKNOWN)
def test_an_unknown_name_stays_unknown(device: str) -> None:
    assert gpu_of_device_name(device) is None


@pytest.mark.parametrize(
    ("device", "recorded", "name"),
    [
        ("NVIDIA GeForce RTX 3080", {}, "rtx-3080"),
        ("NVIDIA GeForce RTX 3080", {"multiprocessors": 70}, "rtx-3080-12gb"),
        ("NVIDIA GeForce RTX 3080", {"multiprocessors": 71}, None),
        ("NVIDIA GeForce GTX 1650", {"multiprocessors": 16}, "gtx-1650-notebook"),
        ("NVIDIA GeForce RTX 3060", {"memory_bytes": 8 << 30}, None),  # the variant of 8 GB: not in the table
        ("Orin", {"multiprocessors": 16, "memory_bytes": 65_893_089_280}, "jetson-agx-orin-64gb"),
        ("Orin", {"multiprocessors": 8, "memory_bytes": 7_990_054_912, "clock_hz": 1.02e9}, "jetson-orin-nano-super-8gb"),
        ("NVIDIA Tegra X1", {"multiprocessors": 1}, "jetson-nano"),
        ("gfx90a", {"multiprocessors": 110, "memory_bytes": 68_702_699_520}, "mi250x"),
        # MI210, or a die of an MI250
        ("gfx90a", {"multiprocessors": 104, "memory_bytes": 68_702_699_520}, None),
        ("", {"compute_capability": "9.4", "multiprocessors": 304, "memory_bytes": 206_141_652_992}, "mi300x"),
    ],
)  # fmt: skip
def test_recorded_figures_tell_gpus_apart(device: str, recorded: dict[str, float], name: str | None) -> None:
    gpu = gpu_of_device_name(device, Recorded(**recorded))  # type: ignore[arg-type]
    assert (gpu and gpu.name) == name


@pytest.mark.parametrize(
    ("gpu", "machine"), [("a100-pg509-200", "dgx-a100"), ("v100-dgxs-16gb", "dgx-1-v100")]
)
def test_of_a_gpu_without_figures_the_machine_with_its_chip_is_named(gpu: str, machine: str) -> None:
    with pytest.raises(InputError, match=f"missing; name a similar node instead, such as {machine}, or add"):
        limits_of(load_node(gpu))


def test_a_mig_slice_has_its_share() -> None:
    gpu = gpu_of_device_name("NVIDIA A30 MIG 2g.12gb")
    # As Nsight Systems records such a slice: 28 multiprocessors, 466.56 GB/s, 2 copy engines, 12 MiB of L2.
    assert (gpu.multiprocessors, gpu.copy_engines, gpu.l2_bytes) == (28, 2, 12 << 20)
    assert gpu.memory_bandwidth_bytes_per_s == pytest.approx(466.56e9, rel=0.001)
    half_more = gpu_of_device_name("NVIDIA H100 80GB HBM3 MIG 1g.20gb")
    assert half_more is not None and half_more.multiprocessors is None
    assert load_node("a30-mig-2g.12gb").gpu(0).memory_bytes == 12 << 30


def test_the_link_that_a_trace_records_replaces_that_of_the_data_sheet() -> None:
    gpu = gpus()["titan-v"]
    for recorded, generation, lanes in (((3, 8), 3, 8), ((0, 8), 3, 16), ((None, None), 3, 16)):
        link = node_of_gpu(gpu, *recorded).links[-1]
        assert isinstance(link, PcieLink)
        assert (link.generation, link.lanes) == (generation, lanes)


def test_a_gpu_that_shares_its_processors_memory_has_a_single_memory() -> None:
    orin = load_node("jetson-agx-orin-64gb")
    assert orin.gpu(0).unified_memory
    assert orin.host_path(0).bandwidth("read") == pytest.approx(204.8e9)


def test_a_name_of_several_rates_is_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match="busfare nodes orin"):
        load_node("orin")


@pytest.mark.parametrize(
    ("name", "fp16", "tf32"),
    # As the makers' documents of these boards have them, dense, with sums in fp32.
    [
        ("rtx-3090", 71e12, 35.6e12),
        ("rtx-4090", 165.2e12, 82.6e12),
        ("rtx-2080-ti", 53.8e12, None),
        ("rtx-a6000", 154.8e12, 77.4e12),
    ],
)
def test_tensor_cores_reach_what_documents_of_boards_say(name: str, fp16: float, tf32: float | None) -> None:
    peaks = gpus()[name].peaks
    assert peaks["fp16_tensor"] == pytest.approx(fp16, rel=0.02)
    assert peaks.get("tf32_tensor") == (None if tf32 is None else pytest.approx(tf32, rel=0.02))


def test_boards_without_tensor_cores_have_no_rate_of_them() -> None:
    kinds = {kind for name in ("gtx-1660-ti", "t1000", "gtx-1080") for kind in gpus()[name].peaks}
    assert not any("tensor" in kind for kind in kinds)


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("gtx-680", 24), ("gtx-titan", 3), ("gtx-780-ti", 24), ("rtx-3090", 64), ("gtx-1080-ti", 32), ("t4", 32),
        ("l40s", 64), ("p4", 32), ("quadro-gv100", 2), ("radeon-vii", 4), ("rx-vega-64", 16), ("rx-7900-xtx", 32),
    ],
)  # fmt: skip
def test_doubles_run_as_the_cuda_guide_says(name: str, times: int) -> None:
    peaks = gpus()[name].peaks
    assert peaks["fp32"] / peaks["fp64"] == pytest.approx(times, rel=0.05)
