"""Builds profiles of XLA a plane at a time, in an encoder of its own, and the timelines made of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Stats = dict[str, int | float | str]
#: Name, start and length in nanoseconds, stats.
Event = tuple[str, int, int, Stats]


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    low, number = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(number) if number else bytes([low])


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


class Plane:
    """A plane: lines of events, and the texts that they number."""

    def __init__(self, name: str, **stats: int | str) -> None:
        self.name = name
        self.events: dict[str, int] = {}
        self.texts: dict[str, int] = {}
        self.lines: list[bytes] = []
        self.shown: list[dict[str, Any]] = []  # as the timeline has them
        self.stats = b"".join(field(6, self.stat(key, value)) for key, value in stats.items())

    def stat(self, key: str, value: int | float | str) -> bytes:
        """A stat; of texts that repeat as of XLA's tracers, a reference."""
        number = field(1, self.texts.setdefault(key, len(self.texts) + 1))
        if isinstance(value, str):
            if key.endswith("_details"):
                return number + field(7, self.texts.setdefault(value, len(self.texts) + 1))
            return number + field(5, value)
        return number + field(4, int(value))

    def line(self, number: int, name: str, events: Sequence[Event], begun_ns: int = 1000) -> Plane:
        made = field(1, number) + field(2, name) + field(3, begun_ns)
        for text, start_ns, length_ns, stats in events:
            event = field(1, self.events.setdefault(text, len(self.events) + 1))
            event += field(2, (start_ns - begun_ns) * 1000) + field(3, length_ns * 1000)
            made += field(4, event + b"".join(field(4, self.stat(*stat)) for stat in stats.items()))
        self.lines.append(made)
        place = {"pid": len(self.name), "tid": number & (1 << 63) - 1}
        self.shown.append({"ph": "M", "name": "thread_name", **place, "args": {"name": name}})
        for text, start_ns, length_ns, stats in events:
            args = {"args": {key: str(value) for key, value in stats.items()}} if stats else {}
            times = {"ts": start_ns / 1000, "dur": length_ns / 1000}
            self.shown.append({"ph": "X", **place, **times, "name": text, **args})
        return self

    def content(self) -> bytes:
        made = field(1, 7) + field(2, self.name) + b"".join(field(3, line) for line in self.lines)
        for number, texts in ((4, self.events), (5, self.texts)):
            for text, key in texts.items():
                made += field(number, field(1, key) + field(2, field(1, key) + field(2, text)))
        return made + self.stats


def space(*planes: Plane, hostname: str = "n1") -> bytes:
    return b"".join(field(1, plane.content()) for plane in planes) + field(4, hostname)


KERNEL = "regs:32 static_shared:0 dynamic_shared:16 grid:8,2,1 block:128,1,1 occ_pct:50"
COPY_IN = "kind_src:pageable kind_dst:device size:4096 dest:0 async:1"
COPY_OUT = "kind_src:device kind_dst:pinned size:8192 dest:0 async:0"
DEVICE = {"device_vendor": "Nvidia", "clock_rate": 1980000, "core_count": 132, "memory_size": 80 << 30,
          "compute_cap_major": 9, "compute_cap_minor": 0, "gpu_device_name": "NVIDIA H100 80GB HBM3"}  # fmt: skip


def small_planes() -> tuple[Plane, Plane, Plane]:
    """A copy in, a kernel, a set and a copy out with their calls, ranges, and lines derived from them."""
    metadata = Plane("/host:metadata", jax_version="0.10.2", process_id=4242)
    gpu = Plane("/device:GPU:0", **DEVICE)
    gpu.line(7, "Stream #7(MemcpyH2D,Memset)", [
        ("MemcpyH2D", 2000, 500, {"correlation_id": 1, "context_id": "$$1", "memcpy_details": COPY_IN}),
        ("Memset", 3600, 10, {"correlation_id": 3, "memset_details": "kind:device num_bytes:512 async:1"}),
        ("MemoryAlloc", 3700, 0, {"memalloc_details": "kind:device num_bytes:512"}),
    ])  # fmt: skip
    gpu.line(13, "Stream #13(Compute,MemcpyD2H)", [
        ("loop_fusion", 2600, 900, {"correlation_id": 2, "kernel_details": KERNEL, "hlo_op": "fusion.1"}),
        ("MemcpyD2H", 4000, 1000, {"correlation_id": 4, "memcpy_details": COPY_OUT}),
    ])  # fmt: skip
    gpu.line(-5, "XLA Modules", [("jit_step", 2600, 900, {"correlation_id": 2})])
    gpu.line(-6, "XLA Ops", [("fusion.1", 2600, 900, {"hlo_op": "fusion.1", "kernel_details": KERNEL})])
    host = Plane("/host:CPU")
    host.line(71, "Host Threads/71", [
        ("cuMemcpyHtoDAsync_v2", 1500, 100, {"correlation_id": 1, "device_id": 0}),
        ("cuLaunchKernel", 1700, 50, {"correlation_id": 2}),
        ("cuMemsetD32Async", 1800, 50, {"correlation_id": 3}),
        ("cuMemcpyDtoH_v2", 1900, 3200, {"correlation_id": 4}),
        ("train", 1400, 3800, {"step_num": 3}),
        ("$train.py:42 step", 1400, 3800, {}),
    ], begun_ns=1200)  # fmt: skip
    return metadata, gpu, host


def write_space(path: Path, *planes: Plane) -> Path:
    path.write_bytes(space(*(planes or small_planes())))
    return path


def time_line(*planes: Plane) -> str:
    """What the profiler makes of planes for a browser; each name of a plane has a length of its own."""
    events: list[dict[str, Any]] = []
    for plane in planes:
        process = {"ph": "M", "pid": len(plane.name), "name": "process_name", "args": {"name": plane.name}}
        events += [process, *plane.shown]
    top = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}}
    return json.dumps(top | {"traceEvents": [*events, {}]})


def write_time_line(path: Path, *planes: Plane) -> Path:
    path.write_bytes(gzip.compress(time_line(*(planes or small_planes())).encode(), mtime=0))
    return path
