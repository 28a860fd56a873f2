"""What calls tell of the operations that they launch, in traces of HIP and of several ranks; what roctracer calls work."""

from pathlib import Path
from typing import Any

import pytest

from busfare.answers.report import summarise
from busfare.errors import InputError
from busfare.show.blocks import what_to_do
from busfare.show.document import Text
from busfare.trace import Trace, read
from tests.trace.build_kineto import Event, call, copy, event, kernel, write_kineto
from tests.traces import omitted


def written(events: list[Event], folder: Path) -> Trace:
    return read(write_kineto(folder / "trace.json", events))


def hip_copy(kind: int, correlation: int, **args: Any) -> Event:
    made = call("hipMemcpyAsync", 10 * correlation, 2, correlation)
    made["args"] |= {"src": "0x1", "dst": "0x2", "kind": str(kind), **args}
    return made


@pytest.mark.parametrize("key", ["size", "bytes"])
def test_a_copy_of_hip_has_the_size_that_its_call_tells(key: str, tmp_path: Path) -> None:
    events = [
        hip_copy(1, 1, **{key: "2560"}),
        copy("Memcpy HtoD (Host -> Device)", None, 13, 5, 1),
        hip_copy(3, 2, **{key: "64"}),  # which makes two copies: of how much each is not told
        copy("Memcpy DtoD (Device -> Device)", None, 23, 1, 2),
        copy("Memcpy DtoD (Device -> Device)", None, 25, 1, 2),
        call("hipMalloc", 30, 1, 3) | {"args": {"size": 4096}},  # of no operation
        copy("Memcpy HtoD (Host -> Device)", None, 35, 1, 0),
    ]
    trace = written(events, tmp_path)
    assert trace.operations["bytes"].to_list() == [2560, None, None, None]
    assert [o.count for o in trace.omissions if o.id == "unknown-sizes"] == [3]


def test_a_copy_of_hip_between_pinned_memory_and_a_gpu_has_the_direction_of_its_call(tmp_path: Path) -> None:
    name = "Memcpy DtoD (Device -> Device)"
    copies = (copy(name, 8, 10 * kind + 13, 1, kind + 1) for kind in range(5))
    trace = written([*(hip_copy(kind, kind + 1) for kind in range(5)), *copies], tmp_path)
    columns = ["direction", "source_memory", "destination_memory"]
    between = ("d2d", "device", "device")
    assert trace.operations.select(columns).rows() == [
        between, ("h2d", None, "device"), ("d2h", "device", None), between, between,
    ]  # fmt: skip
    assert [o.count for o in trace.omissions if o.id == "unknown-memory"] == [2]


def of_rank(process: int | str, gpu: int | str, correlation: int, start_us: float) -> list[Event]:
    launch = call("cudaLaunchKernel", start_us, 2, correlation, pid=process, tid=1)
    wait = call("cudaDeviceSynchronize", start_us + 3, 9, 0, pid=process, tid=1)
    return [launch, kernel("k", start_us + 3, 5, correlation) | {"pid": gpu}, wait]


def test_operations_of_merged_ranks_are_tied_by_numbers_that_a_single_process_used(tmp_path: Path) -> None:
    trace = written([*of_rank(100, 0, 1, 0), *of_rank(200, 1, 2, 50)], tmp_path)
    assert trace.operations["process"].to_list() == [100, 200]
    assert not omitted(trace)


@pytest.mark.parametrize("text", ["[TP{rank:02}] {number}", "[TP{rank:02} {number}]"])
def test_operations_of_merged_ranks_are_tied_by_text_around_the_process(text: str, tmp_path: Path) -> None:
    ranks = []
    for rank, process in enumerate((100, 200)):
        gpu, host = (text.format(rank=rank, number=number) for number in (rank, process))
        ranks += of_rank(host, gpu, 1, 50 * rank)
        del ranks[-2]["args"]["device"]  # older traces have it as the process alone
    trace = written(ranks, tmp_path)
    assert trace.operations.select("process", "device").rows() == [(100, 0), (200, 1)]
    assert trace.calls["process"].to_list() == [100, 100, 200, 200]
    assert not omitted(trace)


@pytest.mark.parametrize(
    ("host", "gpu"), [("[TP00] 7", "[TP00] 0"), ("rank0.json", "rank0.json"), ("one", "one")]
)
def test_processes_of_equal_number_stay_as_many_as_their_texts(host: str, gpu: str, tmp_path: Path) -> None:
    peers = [text.replace("00]", "01]").replace("k0.", "k1.").replace("one", "two") for text in (host, gpu)]
    trace = written([*of_rank(host, gpu, 1, 0), *of_rank(peers[0], peers[1], 1, 50)], tmp_path)
    assert trace.operations["process"].n_unique() == trace.calls["process"].n_unique() == 2
    assert trace.operations["process"].to_list() == trace.calls["process"].to_list()[::2]
    assert trace.operations["device"].to_list() == [0, 0]


def test_copies_of_an_intel_gpu_have_directions_and_its_calls_are_an_omission(tmp_path: Path) -> None:
    events = [
        event("xpu_runtime", "urEnqueueKernelLaunch", 1, 2, args={"correlation": 1}),
        kernel("gemm", 10, 5, 1),
        copy("Memcpy M2D (MEMORY(Unknown) -> DEVICE)", 64, 20, 1, 2),
        copy("Memcpy D2M (DEVICE -> HOST)", 64, 30, 1, 3),
        copy("Memcpy D2D (DEVICE -> DEVICE)", 64, 40, 1, 4),
        copy("Memcpy S2D (SHARED -> DEVICE)", 64, 50, 1, 5),
    ]
    trace = written(events, tmp_path)
    copies = trace.operations.filter(kind="copy").select("direction", "source_memory", "destination_memory")
    assert copies.rows() == [
        ("h2d", None, "device"), ("d2h", "device", None), ("d2d", "device", "device"), (None, None, "device"),
    ]  # fmt: skip
    assert set(omitted(trace)) == {"calls-left-out", "no-calls", "unknown-direction", "unknown-memory"}


def test_a_gpu_of_an_empty_name_has_none(tmp_path: Path) -> None:
    properties = {"deviceProperties": [{"id": 0, "name": "", "numSms": 304}, {"id": 1, "name": "MI300X"}]}
    trace = read(write_kineto(tmp_path / "trace.json", [kernel("k", 3, 5, 1)], properties))
    assert trace.devices["name"].to_list() == [None, "MI300X"]


def test_advice_explains_copies_that_ran_as_kernels(tmp_path: Path) -> None:
    copying = kernel("__amd_rocclr_copyBuffer.kd", 3, 5, 1)
    trace = written([hip_copy(3, 0) | {"args": {"correlation": 1}}, copying], tmp_path)
    advice = what_to_do(summarise(trace), str, "")
    assert isinstance(advice, Text) and advice.text.startswith("Copies ran as kernels")


def test_a_trace_of_the_older_profiler_is_refused_as_such(tmp_path: Path) -> None:
    operator = event("", "aten::add", 1.5, 2, pid="CPU functions", args={})
    del operator["cat"]
    with pytest.raises(InputError, match="PyTorch's older profiler"):
        written([operator], tmp_path)


def test_a_trace_of_an_accelerator_that_is_no_gpu_is_refused(tmp_path: Path) -> None:
    mtia = event("mtia_ccp_events", "dma_request", 5, 5, args={"direction": "DEVICE_TO_HOST", "size": 16})
    with pytest.raises(InputError, match="an accelerator that is not a GPU"):
        written([event("cpu_op", "aten::add", 1, 2), mtia], tmp_path)
    launch = call("cudaLaunchKernel", 1, 2, 1)
    trace = written([mtia, launch, kernel("k", 10, 5, 1), call("cudaDeviceSynchronize", 4, 12, 2)], tmp_path)
    assert set(omitted(trace)) == {"other-accelerator"}


def launched(folder: Path, launch: str, name: str) -> Trace:
    kernels = [kernel(name, 10, 20, 1), kernel("gemm(float*)", 40, 20, 2)]
    return written([call(launch, 0, 5, 1), call(launch, 30, 5, 2), *kernels], folder)


@pytest.mark.parametrize(
    ("name", "direction", "source", "destination"),
    [
        ("CopyHostToDevice", "h2d", None, "device"),
        ("CopyDeviceToHost2D", "d2h", "device", None),
        ("CopyDeviceToDevice", "d2d", "device", "device"),
        ("hcMemcpyHostToDevice", "h2d", None, "device"),
    ],
)
def test_what_copies_is_no_kernel(
    name: str, direction: str, source: str | None, destination: str | None, tmp_path: Path
) -> None:
    trace = launched(tmp_path, "hipMemcpyWithStream", name)
    wanted = ["kind", "direction", "source_memory", "destination_memory", "name"]
    expected = [("copy", direction, source, destination, None), ("kernel", None, None, None, "gemm(float*)")]
    assert trace.operations.select(wanted).rows() == expected
    assert omitted(trace).get("unknown-memory", 0) == (direction != "d2d")
    assert omitted(trace)["unknown-sizes"] == 1


@pytest.mark.parametrize(
    ("launch", "name", "kind"),
    [
        ("hipMemsetAsync", "FillBuffer", "set"),
        ("cudaLaunchKernel", "FillBuffer", "kernel"),  # CUDA's may be called so
        ("hipMemcpyAsync", "__amd_rocclr_copyBuffer", "kernel"),
    ],
)
def test_what_fills_is_a_set_and_what_copies_may_be_a_kernel(
    launch: str, name: str, kind: str, tmp_path: Path
) -> None:
    trace = launched(tmp_path, launch, name)
    assert trace.operations["kind"].to_list() == [kind, "kernel"]
    assert omitted(trace).get("copying-kernels", 0) == ("copyBuffer" in name)


GRIDS = {"hipLaunchKernel": 512, "hipModuleLaunchKernel": 512}
GRIDS |= {"hipExtModuleLaunchKernel": 2, "hipHccModuleLaunchKernel": 2}


@pytest.mark.parametrize(("launch", "grid"), GRIDS.items())
def test_grids_of_work_items_are_counted_in_groups(launch: str, grid: int, tmp_path: Path) -> None:
    shape = {"grid": [512, 3, 1], "block": [256, 1, 1]}
    events = [call(launch, 0, 5, 1), kernel("gemm", 10, 20, 1, **shape), kernel("copied", 40, 20, 2, **shape)]
    trace = read(write_kineto(tmp_path / "trace.json", events), launches=True)
    launches = trace.launches[trace.operations["launch"].to_list()]
    assert launches.select("grid_x", "grid_y", "block_x").rows() == [(grid, 3, 256), (512, 3, 256)]
