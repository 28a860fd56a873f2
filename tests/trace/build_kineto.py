"""Builds PyTorch profiler traces an event at a time, and the files that hold them."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def event(category: str, name: str, start_us: float, duration_us: float | None = None, **more: Any) -> Event:
    """A complete event; microseconds, as in the files."""
    made: Event = {"ph": "X", "cat": category, "name": name, "pid": 4242, "tid": 4242, "ts": start_us}
    return made | ({} if duration_us is None else {"dur": duration_us}) | more


def on_gpu(
    category: str, name: str, start_us: float, duration_us: float, correlation: int, **args: Any
) -> Event:
    args = {"device": 0, "context": 1, "stream": 7, "correlation": correlation} | args
    return event(category, name, start_us, duration_us, pid=0, tid=args["stream"], args=args)


def kernel(name: str, start_us: float, duration_us: float, correlation: int, **args: Any) -> Event:
    return on_gpu("kernel", name, start_us, duration_us, correlation, **args)


def copy(
    name: str, size: int | None, start_us: float, duration_us: float, correlation: int, **args: Any
) -> Event:
    """A copy; `name` is all that says its direction and kinds: Memcpy HtoD (Pageable -> Device)."""
    sized = {} if size is None else {"bytes": size}
    return on_gpu("gpu_memcpy", name, start_us, duration_us, correlation, **sized, **args)


def call(name: str, start_us: float, duration_us: float, correlation: int, **more: Any) -> Event:
    return event("cuda_runtime", name, start_us, duration_us, args={"correlation": correlation}, **more)


def function(name: str, start_us: float, duration_us: float, **args: Any) -> Event:
    """A call of a Python function, or of a module: `train.py(42): load`, `nn.Module: Linear_0`."""
    return event("python_function", name, start_us, duration_us, args={"Python id": 1, **args})


def sync(kind: str, start_us: float, duration_us: float, correlation: int, **args: Any) -> Event:
    args = {"cuda_sync_kind": kind, "stream": 7, "correlation": correlation, "device": 0, "context": 1} | args
    return event("cuda_sync", kind, start_us, duration_us, pid=0, tid=args["stream"], args=args)


def small_events() -> list[Event]:
    """A copy in, a kernel, a set, a copy out, their calls, an annotation, and what is to be passed over."""
    return [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "python"}},
        event("user_annotation", "step", 0.5, 90.25),
        event("cpu_op", "aten::copy_", 1, 20),
        call("cudaMemcpyAsync", 2, 5, 1),
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 4242, "tid": 4242, "ts": 2},
        copy("Memcpy HtoD (Pageable -> Device)", 4096, 10, 4.5, 1),
        {"ph": "f", "bp": "e", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 0, "tid": 7, "ts": 10},
        call("cudaLaunchKernel", 8, 2, 2),
        kernel("void axpy<float>(int)", 15, 10.125, 2),
        call("cudaMemsetAsync", 11, 1, 3),
        on_gpu("gpu_memset", "Memset (Device)", 26, 1, 3, bytes=512),
        event("gpu_user_annotation", "step", 10, 40, pid=0, tid=7),
        call("cudaMemcpyAsync", 13, 40, 4),
        copy("Memcpy DtoH (Device -> Pinned)", 8192, 30, 20, 4),
        call("cudaDeviceSynchronize", 54, 6, 5),
    ]


def document(events: Sequence[Event], header: Mapping[str, Any] | None = None) -> str:
    top: dict[str, Any] = {"schemaVersion": 1} | dict(header or {})
    return json.dumps(top | {"traceEvents": list(events), "traceName": "trace.json"}, indent=1)


def write_kineto(path: Path, events: Sequence[Event], header: Mapping[str, Any] | None = None) -> Path:
    path.write_text(document(events, header))
    return path


def gzipped(*members: bytes) -> bytes:
    return b"".join(gzip.compress(member, 6, mtime=0) for member in members)
