"""GPUs, streams and the host, as Nsight Systems exports of different years tell them."""

from __future__ import annotations

from pathlib import Path

import pytest

from busfare.trace import Trace, read
from tests.trace.build_nsys import NsysExport, small_export


def written(export: NsysExport, folder: Path) -> Trace:
    return read(export.write(folder / "export.sqlite"))


def gpu(number: int, cuda: int | None, engines: int = 5) -> dict[str, int | str | None]:
    return {
        "vmId": 0,
        "id": number,
        "name": f"GPU {number}",
        "busLocation": f"0000:0{number}:00.0",
        "totalMemory": 80 << 30,
        "memoryBandwidth": 2039040000000,
        "clockRate": 1410000000,
        "smCount": 108,
        "uuid": f"uuid-{number}",
        "isDiscrete": 1,
        "cuDevice": cuda,
        "asyncEngines": engines,
        "computeMajor": 8,
        "computeMinor": 0,
    }


def test_gpus_of_2022_and_later_count_in_bytes_and_hertz(tmp_path: Path) -> None:
    export = small_export("2022")
    export.add("TARGET_INFO_GPU", **gpu(0, 0))
    assert written(export, tmp_path).devices.rows(named=True) == [
        {
            "device": 0,
            "process": None,
            "name": "GPU 0",
            "integrated": False,
            "uuid": "uuid-0",
            "bus_id": "0000:00:00.0",
            "memory_bytes": 80 << 30,
            "memory_bandwidth_bytes_per_s": 2039040000000.0,
            "clock_hz": 1410000000.0,
            "multiprocessors": 108,
            "compute_capability": "8.0",
            "copy_engines": 5,
            "pcie_generation": None,
            "pcie_lanes": None,
        }
    ]


def test_gpus_of_2021_count_in_kilobytes_and_kilohertz(tmp_path: Path) -> None:
    export = small_export("2021")
    export.add(
        "TARGET_INFO_GPU", vmId=0, deviceId=0, name="RTX 3080", busLocation="0000:01:00.0", isDiscrete=1
    )
    export.add(
        "TARGET_INFO_CUDA_GPU",
        deviceId=0,
        globalMemoryBandwidth=760080000,
        coreClockRate=1710000,
        numMemcpyEngines=2,
        numMultiprocessors=68,
        computeCapabilityMajor=8,
        computeCapabilityMinor=6,
    )
    (device,) = written(export, tmp_path).devices.rows(named=True)
    assert device["memory_bandwidth_bytes_per_s"] == 760080000000
    assert device["clock_hz"] == 1710000000
    assert (device["copy_engines"], device["multiprocessors"], device["compute_capability"]) == (2, 68, "8.6")
    assert (device["name"], device["bus_id"]) == ("RTX 3080", "0000:01:00.0")


def test_gpus_of_2021_without_their_cuda_facts(tmp_path: Path) -> None:
    export = small_export("2021")
    export.add("TARGET_INFO_GPU", deviceId=1, name="RTX 3080")
    assert written(export, tmp_path).devices.select("device", "name", "clock_hz").rows() == [
        (1, "RTX 3080", None)
    ]


def test_the_cuda_ordinal_names_a_gpu_and_not_nsyss_number(tmp_path: Path) -> None:
    export = small_export("2024.5")
    for number, cuda in enumerate((3, 2, 1, 0)):
        export.add("TARGET_INFO_GPU", **gpu(number, cuda))
    devices = written(export, tmp_path).devices.sort("device")
    assert devices.select("device", "uuid").rows() == [
        (0, "uuid-3"),
        (1, "uuid-2"),
        (2, "uuid-1"),
        (3, "uuid-0"),
    ]


def test_the_map_of_each_process_wins_over_the_ordinal(tmp_path: Path) -> None:
    export = small_export("2025.6")
    for number in (0, 1):
        export.add("TARGET_INFO_GPU", **gpu(number, number))
    for process, seen in ((71, 1), (72, 0)):  # each process was shown one GPU, which it calls 0
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=seen, cudaId=0, pid=process)
    assert written(export, tmp_path).devices.select("process", "device", "uuid").sort("process").rows() == [
        (71, 0, "uuid-1"),
        (72, 0, "uuid-0"),
    ]


@pytest.mark.parametrize("unknown", [-1, None])
def test_gpus_that_cuda_does_not_see_are_left_out_where_some_are_seen(
    unknown: int | None, tmp_path: Path
) -> None:
    export = small_export("2024.5")
    export.add("TARGET_INFO_GPU", **gpu(0, unknown))
    export.add("TARGET_INFO_GPU", **gpu(1, 0))
    assert written(export, tmp_path).devices.select("device", "uuid").rows() == [(0, "uuid-1")]


def test_nsyss_number_stands_in_where_no_ordinal_is_told(tmp_path: Path) -> None:
    export = small_export("2024.5")
    export.add("TARGET_INFO_GPU", **gpu(1, None))
    assert written(export, tmp_path).devices["device"].to_list() == [1]


def test_a_stream_priority_is_signed_although_stored_unsigned(tmp_path: Path) -> None:
    export = small_export()
    for stream, priority in ((13, 4294967291), (14, 0), (15, 5)):
        export.add(
            "TARGET_INFO_CUDA_STREAM", streamId=stream, processId=71, contextId=1, priority=priority, flag=2
        )
    assert written(export, tmp_path).streams["priority"].to_list() == [-5, 0, 5]


def test_stream_flags_are_named(tmp_path: Path) -> None:
    export = small_export()
    for flag in range(5):
        export.add("TARGET_INFO_CUDA_STREAM", streamId=flag, processId=71, contextId=1, priority=0, flag=flag)
    assert written(export, tmp_path).streams["kind"].to_list() == [
        None, "blocking", "non-blocking", "null", None,
    ]  # fmt: skip


def test_the_host_is_named(tmp_path: Path) -> None:
    export = small_export()
    for name, value in (
        ("CpuDescription", "EPYC"),
        ("Hostname", "n1"),
        ("CpuCores", "64"),
        ("NvDriverVersion", ""),
    ):
        export.add("TARGET_INFO_SYSTEM_ENV", globalVid=0, name=name, value=value)
    assert written(export, tmp_path).host == {"cpu": "EPYC", "hostname": "n1"}


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        (
            "HOME=/root;OMPI_COMM_WORLD_RANK=7;SLURM_PROCID=0;",
            "7",
        ),  # mpirun in a batch script, whose rank is 0
        ("SLURM_NODEID=0 SLURM_PROCID=12 PATH=/bin", "12"),
        ("SLURM_PROCID=3", "3"),
        ("SLURM_PROCID=1;LOCAL_RANK=2;RANK=10;WORLD_SIZE=16", "10"),  # torchrun, once a node
        ("RANK=4;SLURM_PROCID=1", "1"),  # anybody's variable
        ("MY_SLURM_PROCID=3 PMI_RANK= SLURM_PROCID=x1", None),
        ("", None),
    ],
)
def test_the_rank_is_what_the_nearest_launcher_said(
    tmp_path: Path, environment: str, rank: str | None
) -> None:
    export = small_export()
    export.add("TARGET_INFO_SYSTEM_ENV", globalVid=0, name="DeviceEnvironment", value=environment)
    assert written(export, tmp_path).host.get("rank") == rank
