"""What NVML and the system say of the machine, for the record: JSON types only, None where it is not told."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from busfare.measure.cuda.driver import checked, driver

__all__ = ["of_machine", "roomy_bytes", "state"]

#: A single buffer takes at most this share of the memory that is free: two of each kind are made.
_SHARE = 8


def roomy_bytes() -> int:
    """The largest buffer that leaves host memory to others."""
    free = _meminfo("MemAvailable")
    # A virtual machine may show little memory at first and grow; its whole is then the better guide.
    most = max(free or 0, _cgroup_bytes() or 0)
    return max(most // _SHARE, 1 << 16) if most else 1 << 62


def _meminfo(key: str) -> int | None:
    for line in _text("/proc/meminfo").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_bytes() -> int | None:
    text = _text("/sys/fs/cgroup/memory.max")
    return int(text) if text.isdigit() else None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def of_machine(gpus: int) -> dict[str, Any]:
    """Driver, processor, memory, NUMA, IOMMU and every GPU."""
    groups = Path("/sys/kernel/iommu_groups")
    processor = next(
        (line for line in _text("/proc/cpuinfo").splitlines() if line.startswith("model name")), ""
    )
    return {
        "kernel": platform.release().partition("-")[0],
        "cpu": processor.partition(":")[2].strip() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": _meminfo("MemTotal"),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None,
        "iommu_groups": len(list(groups.iterdir())) if groups.is_dir() else 0,
        "iommu_command_line": [w for w in _text("/proc/cmdline").split() if "iommu" in w],
        "hypervisor": "hypervisor" in _text("/proc/cpuinfo"),
        "locked_bytes_limit": _locked_limit(),
        "cuda_driver": checked(driver.cuDriverGetVersion(), "cuDriverGetVersion"),
        "driver": _nvml(lambda n: n.nvmlSystemGetDriverVersion()),
        "connections": os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS"),
        "peer_access": _peer_access(gpus),
        "gpus": [_gpu(ordinal) for ordinal in range(gpus)],
    }


def _peer_access(gpus: int) -> list[list[int]]:
    """Ordered pairs of GPUs of which the first can reach the second's memory."""
    handles = [checked(driver.cuDeviceGet(ordinal), "cuDeviceGet") for ordinal in range(gpus)]
    return [
        [a, b]
        for a in range(gpus)
        for b in range(gpus)
        if a != b and checked(driver.cuDeviceCanAccessPeer(handles[a], handles[b]), "cuDeviceCanAccessPeer")
    ]


def _locked_limit() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def _bus_id(ordinal: int) -> str:
    handle = checked(driver.cuDeviceGet(ordinal), "cuDeviceGet")
    raw = checked(driver.cuDeviceGetPCIBusId(32, handle), "cuDeviceGetPCIBusId")
    return bytes(raw).split(b"\0")[0].decode().lower()


def _gpu(ordinal: int) -> dict[str, Any]:
    handle = checked(driver.cuDeviceGet(ordinal), "cuDeviceGet")
    attribute = driver.CUdevice_attribute

    def of(which: Any) -> int:
        return int(checked(driver.cuDeviceGetAttribute(which, handle), "cuDeviceGetAttribute"))

    raw = checked(driver.cuDeviceGetName(128, handle), "cuDeviceGetName")
    bus = _bus_id(ordinal)
    folder = f"/sys/bus/pci/devices/{bus}"
    return {
        "name": bytes(raw).split(b"\0")[0].decode(),
        "bus_id": bus,
        "compute_capability": [
            of(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            of(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        ],
        "multiprocessors": of(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        "copy_engines": of(attribute.CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT),
        "memory_bytes": checked(driver.cuDeviceTotalMem(handle), "cuDeviceTotalMem"),
        "memory_clock_hz": 1000 * of(attribute.CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
        "memory_bus_bits": of(attribute.CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
        "clock_hz": 1000 * of(attribute.CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        "coherent": bool(of(attribute.CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES)),
        "integrated": bool(of(attribute.CU_DEVICE_ATTRIBUTE_INTEGRATED)),
        "concurrent_managed": bool(of(attribute.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)),
        "numa_node": _number(_text(f"{folder}/numa_node")),
        "local_cpus": _text(f"{folder}/local_cpulist") or None,
        "link_width": _number(_text(f"{folder}/current_link_width")),
        "link_width_most": _number(_text(f"{folder}/max_link_width")),
        "link_speed": _text(f"{folder}/current_link_speed") or None,
        "link_speed_most": _text(f"{folder}/max_link_speed") or None,
        "nvlinks": _nvlinks(ordinal),
    }


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _nvlinks(ordinal: int) -> list[dict[str, Any]]:
    """The NVLinks of a GPU that are up, with generation and what is at their other end."""
    links = []
    for link in range(18):
        up = _nvml(lambda n, h, link=link: n.nvmlDeviceGetNvLinkState(h, link), ordinal)
        if up == 1:
            version = _nvml(lambda n, h, link=link: n.nvmlDeviceGetNvLinkVersion(h, link), ordinal)
            far = _nvml(lambda n, h, link=link: n.nvmlDeviceGetNvLinkRemotePciInfo(h, link).busId, ordinal)
            kind = _nvml(lambda n, h, link=link: n.nvmlDeviceGetNvLinkRemoteDeviceType(h, link), ordinal)
            links.append({"link": link, "version": version, "remote": far, "remote_type": kind})
    return links


def state(gpu: int) -> dict[str, Any]:
    """What NVML says now: clocks, why they are held down, the link's generation and width, replays, load."""
    return {
        name: _nvml(ask, gpu)
        for name, ask in {
            "sm_clock_hz": lambda n, h: 10**6 * n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM),
            "sm_clock_most_hz": lambda n, h: 10**6 * n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM),
            "memory_clock_hz": lambda n, h: 10**6 * n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM),
            "throttle_reasons": lambda n, h: n.nvmlDeviceGetCurrentClocksEventReasons(h),
            "temperature_c": lambda n, h: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU),
            "power_w": lambda n, h: n.nvmlDeviceGetPowerUsage(h) / 1000,
            "link_generation": lambda n, h: n.nvmlDeviceGetCurrPcieLinkGeneration(h),
            "link_generation_most": lambda n, h: n.nvmlDeviceGetMaxPcieLinkGeneration(h),
            "link_width": lambda n, h: n.nvmlDeviceGetCurrPcieLinkWidth(h),
            "link_width_most": lambda n, h: n.nvmlDeviceGetMaxPcieLinkWidth(h),
            "link_replays": lambda n, h: n.nvmlDeviceGetPcieReplayCounter(h),
            "memory_used_bytes": lambda n, h: n.nvmlDeviceGetMemoryInfo(h).used,
            "memory_free_bytes": lambda n, h: n.nvmlDeviceGetMemoryInfo(h).free,
            "busy_percent": lambda n, h: n.nvmlDeviceGetUtilizationRates(h).gpu,
            "other_processes": _others,
        }.items()
    }


def _others(nvml: Any, handle: Any) -> int:
    """Programs on the GPU besides this one."""
    found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return sum(process.pid != os.getpid() for process in found)


def _nvml(ask: Callable[..., Any], ordinal: int | None = None) -> Any:
    """What NVML answers; None where it is not installed or does not tell."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        if ordinal is None:
            answer = ask(pynvml)
        else:
            answer = ask(pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(_bus_id(ordinal).encode()))
    except (pynvml.NVMLError, AttributeError):
        return None
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer
