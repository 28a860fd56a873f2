"""Time lines of Intel's unitrace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from busfare.errors import InputError
from busfare.trace import Trace, read

FIRST_GPU = (1 << 32) - 1


def on_gpu(name: str, start_us: float, duration_us: float, gpu: int = 0, queue: int = 5) -> dict[str, Any]:
    place = {"tid": queue, "pid": FIRST_GPU - gpu}
    return {
        "ph": "X",
        **place,
        "name": name,
        "cat": "gpu_op",
        "ts": start_us,
        "dur": duration_us,
        "args": {"id": "1"},
    }


EVENTS = [
    {"ph": "M", "name": "process_name", "pid": FIRST_GPU, "ts": 1, "args": {"name": "DEVICE 0"}},
    {"ph": "X", "tid": 7, "pid": 7, "name": "zeEventHostSynchronize", "cat": "cpu_op", "ts": 90, "dur": 5, "id": 0},
    {"ph": "s", "tid": 7, "pid": 7, "name": "dep", "cat": "Flow_H2D_1_0", "ts": 90, "id": 1},
    on_gpu("zeCommandListAppendMemoryCopy(M2D)[4096]", 100, 10),
    on_gpu("gemm<float>[SIMD32 {24; 2; 1} {128; 4; 1}]", 120, 30),
    on_gpu("zeCommandListAppendBarrier", 150, 1),
    on_gpu("zeCommandListAppendMemoryFill(D)[512]", 155, 2),
    on_gpu("zeCommandListAppendMemoryCopy(D2H)[8192]", 160, 10, gpu=1),
    on_gpu("zeCommandListAppendMemoryCopyRegion(S2D)", 180, 10),
]  # fmt: skip


def read_events(folder: Path, events: list[dict[str, Any]]) -> Trace:
    text = ",\n".join(json.dumps(event) for event in events)
    (folder / "app.1.json").write_text('{ "traceEvents":[\n' + text + "\n]\n}\n")
    return read(folder / "app.1.json")


def test_operations_have_what_their_names_say(tmp_path: Path) -> None:
    trace = read_events(tmp_path, EVENTS)
    columns = [
        "kind",
        "direction",
        "start_ns",
        "end_ns",
        "bytes",
        "source_memory",
        "destination_memory",
        "device",
    ]
    assert trace.operations.select(columns).rows() == [
        ("copy", "h2d", 0, 10000, 4096, "pageable", "device", 0),
        ("kernel", None, 20000, 50000, None, None, None, 0),
        ("set", None, 55000, 57000, 512, None, None, 0),
        ("copy", "d2h", 60000, 70000, 8192, "device", "pinned", 1),
        ("copy", None, 80000, 90000, None, "managed", "device", 0),
    ]
    assert trace.operations["name"].to_list() == [None, "gemm<float>", "memset", None, None]
    assert trace.format == "unitrace" and trace.calls.is_empty()
    assert [omission.id for omission in trace.omissions] == [
        "calls-left-out", "coarse-times", "commands", "unknown-direction", "no-calls", "unknown-sizes",
    ]  # fmt: skip


def test_launches_and_tiles_are_told(tmp_path: Path) -> None:
    kernels = [on_gpu(f"Tile #{tile}: k[SIMD16 {{8; 1; 1}} {{64; 1; 1}}]", 10.5, 2) for tile in (0, 1)]
    trace = read_events(tmp_path, [*kernels, on_gpu("plain", 20, 1)])
    assert trace.operations["name"].to_list() == ["k", "k", "plain"]
    assert {omission.id for omission in trace.omissions} == {"tiles", "no-calls"}
    launches = read(tmp_path / "app.1.json", launches=True).launches
    assert launches.select("grid_x", "block_x").rows() == [(8, 64)]


def test_a_time_line_of_the_host_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--chrome-kernel-logging"):
        read_events(tmp_path, EVENTS[:3])
