"""A machine with NVIDIA GPUs: a board a GPU, and what NVML and the system tell, as JSON types; None where they do not."""

import os
import platform
import resource
import time
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

from busfare.measure.cuda.board import MOST_BYTES, Board
from busfare.measure.cuda.driver import checked, driver
from busfare.measure.run import UnavailableError

#: A single buffer takes at most this share of the memory that is free: two of each kind are made.
_SHARE = 8
#: What the driver says of a GPU, and what to multiply it with.
_ATTRIBUTES = {
    "multiprocessors": ("MULTIPROCESSOR_COUNT", 1),
    "copy_engines": ("ASYNC_ENGINE_COUNT", 1),
    "memory_clock_hz": ("MEMORY_CLOCK_RATE", 1000),
    "memory_bus_bits": ("GLOBAL_MEMORY_BUS_WIDTH", 1),
    "clock_hz": ("CLOCK_RATE", 1000),
    "l2_bytes": ("L2_CACHE_SIZE", 1),
}
_ABILITIES = {
    "coherent": "PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES",
    "integrated": "INTEGRATED",
    "concurrent_managed": "CONCURRENT_MANAGED_ACCESS",
}
_MOST_NVLINKS = 18
#: Of the host's and the GPU's free memory a benchmark takes at most these shares.
_OF_HOST, _OF_GPU = 0.4, 0.8


class CudaHost:
    """What all that measures real GPUs has: the machine's facts, and a board a GPU, made when first used."""

    virtual = False
    #: The largest buffer of a board.
    most_bytes = MOST_BYTES

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.boards: dict[int, Board] = {}

    def facts(self) -> dict[str, Any]:
        """Driver, processor, memory, NUMA, IOMMU and every GPU."""
        pairs = permutations(range(self.gpus), 2)
        groups, cpus = Path("/sys/kernel/iommu_groups"), _text("/proc/cpuinfo")
        model = next((line for line in cpus.splitlines() if line.startswith("model name")), "")
        locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        return {
            "kernel": platform.release().partition("-")[0],
            "cpu": model.partition(":")[2].strip() or platform.machine(),
            "cores": os.cpu_count(),
            "memory_bytes": _meminfo("MemTotal"),
            "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None,
            "iommu_groups": len(list(groups.iterdir())) if groups.is_dir() else 0,
            "iommu_command_line": [w for w in _text("/proc/cmdline").split() if "iommu" in w],
            "hypervisor": "hypervisor" in cpus,
            "locked_bytes_limit": None if locked == resource.RLIM_INFINITY else locked,
            "cuda_driver": checked(driver.cuDriverGetVersion(), "cuDriverGetVersion"),
            "driver": _nvml(lambda n: n.nvmlSystemGetDriverVersion()),
            "connections": os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS"),
            "peer_access": [
                [a, b]
                for a, b in pairs
                if checked(driver.cuDeviceCanAccessPeer(_handle(a), _handle(b)), "cuDeviceCanAccessPeer")
            ],
            "gpus": [_gpu(ordinal) for ordinal in range(self.gpus)],
        }

    def state(self, gpu: int) -> dict[str, Any]:
        """What NVML says now: clocks, why they are held down, the link's generation and width, replays, load."""
        return {name: _nvml(ask, gpu) for name, ask in _STATE.items()}

    def clock(self) -> float:
        return time.monotonic()

    def board_of(self, ordinal: int) -> Board:
        """The GPU of a number; its context is current where this is its first use."""
        if ordinal not in self.boards:
            self.boards[ordinal] = Board(ordinal, self.most_bytes)
        return self.boards[ordinal]

    def close(self) -> None:
        for board in self.boards.values():
            board.close()
        self.boards.clear()


def require_room(on_host: float, on_gpu: float) -> None:
    """Raises UnavailableError where so many bytes are too much of what the host or the current GPU has free."""
    free, _ = checked(driver.cuMemGetInfo(), "cuMemGetInfo")
    # `roomy_bytes` is a part of the memory that there is.
    rooms = {"host": (on_host, _OF_HOST * _SHARE * roomy_bytes()), "GPU": (on_gpu, _OF_GPU * free)}
    for what, (bytes_, most) in rooms.items():
        if bytes_ > most:
            room = f"the {most:.0f} of the {what}'s available memory"
            raise UnavailableError(f"{bytes_:.0f} bytes are more than {room}")


def roomy_bytes() -> int:
    """The largest buffer that leaves host memory to others."""
    limit = _text("/sys/fs/cgroup/memory.max")
    # A virtual machine may show little memory at first and grow; its whole is then the better guide.
    most = max(_meminfo("MemAvailable") or 0, int(limit) if limit.isdigit() else 0)
    return max(most // _SHARE, 1 << 16) if most else 1 << 62


def _meminfo(key: str) -> int | None:
    for line in _text("/proc/meminfo").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _handle(ordinal: int) -> Any:
    return checked(driver.cuDeviceGet(ordinal), "cuDeviceGet")


def _bus_id(ordinal: int) -> str:
    raw = checked(driver.cuDeviceGetPCIBusId(32, _handle(ordinal)), "cuDeviceGetPCIBusId")
    return bytes(raw).split(b"\0")[0].decode().lower()


def _gpu(ordinal: int) -> dict[str, Any]:
    handle, bus = _handle(ordinal), _bus_id(ordinal)

    def of(name: str) -> int:
        which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(checked(driver.cuDeviceGetAttribute(which, handle), "cuDeviceGetAttribute"))

    def attribute(file: str) -> str | None:
        return _text(f"/sys/bus/pci/devices/{bus}/{file}") or None

    def number(file: str) -> int | None:
        text = attribute(file) or ""
        return int(text) if text.lstrip("-").isdigit() else None

    raw = checked(driver.cuDeviceGetName(128, handle), "cuDeviceGetName")
    return {
        "name": bytes(raw).split(b"\0")[0].decode(),
        "bus_id": bus,
        "compute_capability": [of("COMPUTE_CAPABILITY_MAJOR"), of("COMPUTE_CAPABILITY_MINOR")],
        "memory_bytes": checked(driver.cuDeviceTotalMem(handle), "cuDeviceTotalMem"),
        **{key: times * of(name) for key, (name, times) in _ATTRIBUTES.items()},
        **{key: bool(of(name)) for key, name in _ABILITIES.items()},
        "numa_node": number("numa_node"),
        "local_cpus": attribute("local_cpulist"),
        "link_width": number("current_link_width"),
        "link_width_most": number("max_link_width"),
        "link_speed": attribute("current_link_speed"),
        "link_speed_most": attribute("max_link_speed"),
        "nvlinks": [nvlink for link in range(_MOST_NVLINKS) if (nvlink := _nvlink(ordinal, link))],
    }


def _nvlink(ordinal: int, link: int) -> dict[str, Any] | None:
    """Generation and far end of one NVLink of a GPU; None where it is not up."""
    if _nvml(lambda n, h: n.nvmlDeviceGetNvLinkState(h, link), ordinal) != 1:
        return None
    return {
        "link": link,
        "version": _nvml(lambda n, h: n.nvmlDeviceGetNvLinkVersion(h, link), ordinal),
        "remote": _nvml(lambda n, h: n.nvmlDeviceGetNvLinkRemotePciInfo(h, link).busId, ordinal),
        "remote_type": _nvml(lambda n, h: n.nvmlDeviceGetNvLinkRemoteDeviceType(h, link), ordinal),
    }


_STATE: dict[str, Callable[[Any, Any], Any]] = {
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
    # Programs on the GPU besides this one.
    "other_processes": lambda n, h: sum(
        process.pid != os.getpid() for process in n.nvmlDeviceGetComputeRunningProcesses(h)
    ),
}


def _nvml(ask: Callable[..., Any], ordinal: int | None = None) -> Any:
    """What NVML answers; None where it is not installed or does not tell."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        gpu = () if ordinal is None else (pynvml.nvmlDeviceGetHandleByPciBusId(_bus_id(ordinal).encode()),)
        answer = ask(pynvml, *gpu)
    except (pynvml.NVMLError, AttributeError):
        return None
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer
