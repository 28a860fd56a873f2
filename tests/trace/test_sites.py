"""Where calls are made: frames of the program told from those of libraries, in what each profiler says of them."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from busfare.trace import read, sites
from busfare.trace.sites import MOST_NAMED, innermost, stacks
from tests.trace.build_kineto import call, copy, event, function, kernel, write_kineto
from tests.trace.build_nsys import NsysExport, small_export


@pytest.mark.parametrize(
    ("frames", "site"),
    [
        ("train.py(42): load_batch", "train.py:42 load_batch"),
        ("torch/nn/modules/module.py(1736): _call_impl;/home/me/a(1)/net.py(7): forward", "/home/me/a(1)/net.py:7 forward"),
        ("/usr/lib/python3/dist-packages/x/y.py(3): z;<frozen runpy>(88): _run_code", None),
        ("threading.py(1012): run; my_threading.py(9): run", "my_threading.py:9 run"),
        ("/opt/env/lib/python3.11/site-packages/torch/_tensor.py(1): to", None),
        ("no frame; train.py(x): y", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_site_is_the_innermost_function_of_the_program(frames: str, site: str | None) -> None:
    assert sites.of_python(frames) == site


@pytest.mark.parametrize(
    ("frames", "site"),
    [
        ([("0x7f00", "/x/libcupti.so.12"), ("cudaMemcpy", "/x/libcudart.so.12"), ("main", "/home/me/app")], "main (app)"),
        ([("cudaError cudaMalloc<double>(double**, int)", "/a/app"), ("Net::step()", "/a/app")], "Net::step() (app)"),
        ([("cudaMemcpy", "/a/app"), ("__device_stub__Z1kv", "/a/app"), ("run()", "/a/libnet.so")], "run() (libnet.so)"),
        ([("_PyEval_EvalFrameDefault", "/usr/bin/python3.11"), ("__libc_start_main", "/lib64/libc-2.31.so")], None),
        ([("f", "/env/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"), ("g", "")], None),
    ],
)  # fmt: skip
def test_of_native_frames_those_of_cuda_and_its_wrappers_are_passed_over(
    frames: list[tuple[str, str]], site: str | None
) -> None:
    assert next(filter(None, (sites.of_native(*frame) for frame in frames)), None) == site


def test_innermost_spans_and_stacks_are_those_of_a_search() -> None:
    spans = [(0, 100), (0, 40), (0, 20), (5, 19), (20, 30), (30, 30), (50, 60), (60, 70), (60, 65), (65, 70)]
    frame = pl.DataFrame(
        [(1, thread, start + thread, end + thread) for thread in (1, 2) for start, end in spans],
        schema=["process", "thread", "start_ns", "end_ns"],
        orient="row",
    ).sample(fraction=1.0, shuffle=True, seed=5)
    points = pl.DataFrame({"process": [1] * 120, "thread": [1, 2, 3] * 40, "start_ns": range(120)})
    named, number = stacks(frame, points, np.arange(frame.height))
    rows = [*enumerate(frame.rows())]
    around = [
        sorted((s - e, row) for row, (_, of_thread, s, e) in rows if of_thread == thread and s <= at < e)
        for _, thread, at in points.rows()
    ]
    assert [named[n] for n in number] == [tuple(row for _, row in stack) for stack in around]
    assert {len(stack) for stack in around} == {0, 1, 2, 3, 4}
    assert innermost(frame, points).to_list() == [stack[-1][1] if stack else None for stack in around]
    assert innermost(frame.clear(), points).to_list() == [None] * 120


def test_of_deep_stacks_the_innermost_are_named() -> None:
    ends = {"start_ns": range(40), "end_ns": range(200, 160, -1)}
    point = pl.DataFrame({"process": [1], "thread": [1], "start_ns": [50]})
    named, number = stacks(
        pl.DataFrame({"process": [1] * 40, "thread": [1] * 40, **ends}), point, np.arange(40)
    )
    assert [named[n] for n in number] == [tuple(range(40 - MOST_NAMED, 40))]


def test_spans_that_cross_give_what_is_certain() -> None:
    crossing = pl.DataFrame({"process": [1, 1], "thread": [1, 1], "start_ns": [0, 5], "end_ns": [10, 20]})
    points = pl.DataFrame({"process": [1] * 3, "thread": [1] * 3, "start_ns": [2, 7, 30]})
    named, number = stacks(crossing, points, np.arange(2))
    assert [named[n] for n in number] == [(0,), (0, 1), ()]


def test_python_functions_of_kineto_say_where_calls_are(tmp_path: Path) -> None:
    events = [
        function("train.py(60): <module>", 0, 1000),
        function("train.py(42): load_batch", 10, 100),
        function("<built-in method to of Tensor object at 0x7f>", 11, 98),
        function("torch/_tensor.py(9): to", 12, 90),
        function("nn.Module: Net_0", 200, 200, **{"Python module id": 0, "Python parent id": 99}),
        function("nn.Module: Linear_12", 210, 50),
        call("cudaMemcpyAsync", 20, 5, 1),
        copy("Memcpy HtoD (Pageable -> Device)", 4096, 30, 5, 1),
        call("cudaLaunchKernel", 220, 5, 2),
        kernel("gemm", 230, 5, 2),
        call("cudaDeviceSynchronize", 2000, 5, 3),
        call("cudaLaunchKernel", 20, 5, 4, tid=7),
    ]
    calls = read(write_kineto(tmp_path / "trace.json", events)).calls.sort("correlation")
    assert calls.select("site", "module").rows() == [
        ("train.py:42 load_batch", None),
        ("train.py:60 <module>", "Linear"),
        (None, None),
        (None, None),
    ]


def test_operators_of_older_traces_name_the_functions_around_them(tmp_path: Path) -> None:
    stack = "torch/_tensor.py(9): to;train.py(42): load_batch;train.py(60): <module>"
    events = [
        event("cpu_op", "aten::to", 0, 50, args={"Input Dims": [[1]], "Call stack": stack}),
        event("cpu_op", "aten::copy_", 5, 40, args={"Call stack": ""}),
        call("cudaMemcpyAsync", 20, 5, 1),
        copy("Memcpy HtoD (Pageable -> Device)", 4096, 30, 5, 1),
    ]
    file = write_kineto(tmp_path / "trace.json", events)
    for launches in (False, True):
        assert read(file, launches=launches).calls["site"].to_list() == ["train.py:42 load_batch"]


def test_a_trace_without_stacks_has_no_sites(tmp_path: Path) -> None:
    events = [event("cpu_op", "aten::to", 0, 50, args={"Call stack": ""}), call("cudaLaunchKernel", 20, 5, 1)]
    trace = read(write_kineto(tmp_path / "trace.json", [*events, kernel("gemm", 30, 5, 1)]))
    assert "site" not in trace.calls.columns


@pytest.mark.parametrize("ahead", [0, 1])
def test_call_chains_of_nsys_say_where_calls_are(ahead: int, tmp_path: Path) -> None:
    """Until 2022 numbers of chains are one ahead of what calls say."""
    export: NsysExport = small_export("2022" if ahead else "2026.2")
    for number, (name, caller) in enumerate([("cudaMemcpy", "load(int)"), ("cudaLaunchKernel", "step()")], 1):
        export.call(f"{name}_v3020", 100 * number, 100 * number + 9, 10 + number, callchainId=number - ahead)
        app = "/home/me/app"
        export.chain(number, (name, "/cuda/libcudart.so.12"), (caller, app), ("main", app), ("_start", app))
    calls = read(export.write(tmp_path / "export.sqlite")).calls
    expected = {11: "load(int) (app)", 12: "step() (app)"}
    assert dict(calls.filter(pl.col("correlation") > 10).select("correlation", "site").rows()) == expected
    assert calls.filter(pl.col("correlation") <= 10)["site"].null_count() == 5


def test_call_chains_that_hang_together_with_nothing_name_nothing(tmp_path: Path) -> None:
    export = small_export()
    export.call("cudaMemcpy_v3020", 1000, 1010, 11, callchainId=77)
    export.add("CUDA_CALLCHAINS", id=1, symbol=12345, module=None, stackDepth=0)
    export.add("CUDA_CALLCHAINS", id=None, symbol=None, module=None, stackDepth=None)
    assert read(export.write(tmp_path / "export.sqlite")).calls["site"].null_count() == 6
