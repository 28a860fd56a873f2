"""The sound files that mutated ones are made from: small, with every table and column that a reader reads."""

import json
from collections.abc import Callable
from pathlib import Path

from busfare.nodes.gpus import catalogue_text
from tests.trace import build_kineto, build_nsys, build_nvprof, build_rocprof, build_xla
from tests.trace import build_rocprof_files as amd_files
from tests.trace.build_directory import export_directory

__all__ = ["CORPUS"]


def full_export(generation: str) -> build_nsys.NsysExport:
    export = build_nsys.small_export(generation)
    export.call("cudaEventRecord_v3020", 700, 705, 6)
    export.record(4, 13, 6)
    export.call("cudaStreamWaitEvent_v3020", 710, 715, 7)
    export.wait(3, 711, 714, 7, streamId=14, eventId=4)
    export.add(build_nsys.GRAPH, **export.place(800, 900, 8, 71) | {"graphId": 3})
    export.copy(11, (7, 7), 65536, 910, 920, 0)
    export.add("TARGET_INFO_CUDA_STREAM", streamId=14, processId=71, contextId=1, priority=4294967291, flag=2)
    export.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value="n1")
    export.add("DIAGNOSTIC_EVENT", timestamp=1, text="2 events were dropped.")
    export.call("cudaMemcpyAsync_v3020", 720, 725, 9, callchainId=3)
    export.copy(1, (0, 2), 1 << 20, 725, 760, 9)
    export.chain(3, ("cudaMemcpyAsync", "/lib/libcudart.so.12"), ("load(int)", "/home/me/app"))
    if generation == "2021":
        export.add("TARGET_INFO_GPU", deviceId=0, name="RTX 3080", busLocation="0000:01:00.0")
        export.add("TARGET_INFO_CUDA_GPU", deviceId=0, globalMemoryBandwidth=760080000, coreClockRate=1710000)
    else:
        facts = {"memoryBandwidth": 2039040000000, "cuDevice": 0, "computeMajor": 8}
        export.add("TARGET_INFO_GPU", id=0, name="A100", **facts)
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=0, pid=71)
    for i in range(150):  # enough for tables of several pages
        export.call("cudaLaunchKernel_v7000", 1000 + 10 * i, 1005 + 10 * i, 100 + i)
        shape = dict.fromkeys(build_nsys.LAUNCH, i)
        name = f"void kernel_{i}<float, {'x' * i}>(int)"
        export.kernel(name, 1003 + 10 * i, 1009 + 10 * i, 100 + i, **shape)
        text = f"aten::mm, op_id = {i}, sizes = [[{i}, 2], [2, 3]]"
        where = {"start": 999 + 10 * i, "end": 1006 + 10 * i, "globalTid": build_nsys.global_pid() + 5}
        export.add("NVTX_EVENTS", eventType=59, text=text, domainId=0, **where)
    return export


def nsys(folder: Path) -> list[Path]:
    return [full_export(g).write(folder / f"nsys-{g}.sqlite") for g in ("2021", "2022", "2026.2")]


def nsys_directory(folder: Path) -> list[Path]:
    file = full_export("2026.2").write(folder / "export.sqlite")
    return [export_directory(file, folder / f"tables{suffix}", suffix) for suffix in (".parquet", ".arrow")]


def kineto(folder: Path) -> list[Path]:
    sides = {"grid": [2, 3, 1], "block": [128, 1, 1]}
    waited = {"wait_on_stream": 7, "wait_on_cuda_event_id": 5, "wait_on_cuda_event_record_corr_id": 60}
    events = [
        *build_kineto.small_events(),
        build_kineto.call("cudaEventRecord", 60, 1, 60),
        build_kineto.call("cudaStreamWaitEvent", 62, 2, 61),
        build_kineto.sync("Stream Wait Event", 62.5, 0.5, 61, stream=13, **waited),
        build_kineto.on_gpu("cuda_event", "cudaEventRecord", 60.5, 0, 60, event_id=5),
        build_kineto.call("cudaGraphLaunch", 70, 1, 62),
        build_kineto.kernel('node "é🚀"', 72, 3, 62, **{"graph node id": 9}),
        build_kineto.event(
            "cpu_op", "aten::mm", 80, 9, args={"External id": 4, "Input Dims": [[2, 3], [3, 1]]}
        ),
        build_kineto.event("cpu_op", "mine::mm", 81, 7, args={"External id": 5, "Input type": ["float"]}),
        build_kineto.call("cudaLaunchKernel", 82, 2, 63),
        build_kineto.kernel("mm", 85, 3, 63, **{"External id": 5, "registers per thread": 32}, **sides),
        build_kineto.call("cudaLaunchKernel", 86, 1, 64),
        build_kineto.kernel("mm", 89, 3, 64, **{"External id": 64, "shared memory": 512}, **sides),
        build_kineto.function("train.py(60): <module>", 0, 99),
        build_kineto.function("nn.Module: Net_0", 1, 98),
        build_kineto.function('/home/é "me"/net.py(7): forward', 2, 90, **{"Python parent id": 1}),
        build_kineto.event("cpu_op", "aten::to", 81, 9, args={"Call stack": "net.py(9): f;train.py(60): g"}),
    ]
    gpu = {"id": 0, "name": "H100", "totalGlobalMem": 80 << 30}
    header = {"deviceProperties": [gpu], "cupti_version": 22}
    text = build_kineto.document(events, header).encode()
    contents = {
        "plain.json": text,
        "list.json": json.dumps(events).encode(),
        "one.json.gz": build_kineto.gzipped(text),
        "many.json.gz": build_kineto.gzipped(text[:300], text[300:301], text[301:]),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]


def nvprof(folder: Path) -> list[Path]:
    file = build_nvprof.small_file()
    file.copy(10, (3, 3), 64, 600, 700, 9, srcDeviceId=0, dstDeviceId=1)
    file.call(135, 700, 710, 6)
    file.add("CUDA_EVENT", correlationId=6, contextId=1, streamId=13, eventId=5)
    file.call(147, 720, 730, 7)
    file.wait(2, 721, 729, 7, stream=14, event=5)
    file.add("MARKER", flags=2, timestamp=build_nvprof.EPOCH + 10, id=1, name=file.text("step"), domain=0)
    file.add("MARKER", flags=4, timestamp=build_nvprof.EPOCH + 90, id=1, name=0, domain=0)
    file.add(
        "DEVICE", id=0, name=file.text("P100"), globalMemoryBandwidth=732160000, computeCapabilityMajor=6
    )
    file.add("PCIE", type=0, pcieGeneration=3, linkWidth=16)
    file.add("STREAM", contextId=1, streamId=13, priority=0, flag=2)
    times = {"start": build_nvprof.EPOCH + 800, "end": build_nvprof.EPOCH + 810}
    file.add("UNIFIED_MEMORY_COUNTER", counterKind=1, value=65536, srcId=0, dstId=0, **times)
    for i in range(100):
        file.call(211, 1000 + 10 * i, 1005 + 10 * i, 100 + i)
        shape = dict.fromkeys(build_nvprof.LAUNCH, i)
        file.kernel(f"_Z{'x' * i}", 1003 + 10 * i, 1009 + 10 * i, 100 + i, **shape)
    return [file.write(folder / "run.nvvp")]


def rocpd(folder: Path) -> list[Path]:
    files = []
    for schema in (3, 4):
        first = build_rocprof.small_process("_0001", 3131, schema)
        second = build_rocprof.small_process("_0002", 4141, schema)
        for i in range(60):
            shape = dict.fromkeys([*build_rocprof.LAUNCH, *build_rocprof.REGISTERS], i)
            second.kernel(f"kernel_{i}", 2000 + 10 * i, 2009 + 10 * i, 20 + i, build_rocprof.GPU_1, **shape)
        files.append(build_rocprof.write_rocpd(folder / f"results-{schema}.db", first, second))
    return files


def rpd(folder: Path) -> list[Path]:
    file = build_rocprof.small_rpd()
    launch = file.call("hipGraphLaunch", 1510, 1520)
    for i in range(100):
        file.operation("KernelExecution", 1600 + 10 * i, 1605 + 10 * i, launch if i % 2 else None, f"node{i}")
        key = file.call("hipLaunchKernel", 1600 + 10 * i, 1603 + 10 * i)
        file.operation("KernelExecution", 3000 + 10 * i, 3005 + 10 * i, key, "k")
        file.add("rocpd_kernelapi", **dict.fromkeys(file.columns["rocpd_kernelapi"], i) | {"api_ptr_id": key})
    return [file.write(folder / "trace.rpd")]


def xla(folder: Path) -> list[Path]:
    many = build_xla.Plane("/device:GPU:1", device_vendor="AMD", memory_size="much")
    many.line(3, "Stream #3", [
        (f"kernel {i}", 2000 + 10 * i, 5, {"correlation_id": i, "kernel_details": f" grid:{i},1,1 block:64,1,1"})
        for i in range(60)
    ])  # fmt: skip
    graph = {"correlation_id": 70, "cuda_graph_exec_id": 2}
    many.line(4, "Stream #4", [("CudaGraphExec:2", 3000, 9, graph), ("odd", 3010, 1, {"correlation_id": 71})])
    calls = build_xla.Plane("/host:CUPTI")
    calls.line(9, "Host Threads/9", [("cuGraphLaunch (CudaGraph:2)", 2990, 20, graph)])
    planes = (*build_xla.small_planes(), many, calls)
    return [
        build_xla.write_space(folder / "host.xplane.pb", *planes),
        build_xla.write_space(folder / "small.pb"),
    ]


def xla_time_line(folder: Path) -> list[Path]:
    file = folder / "host.trace.json"
    file.write_text(build_xla.time_line(*build_xla.small_planes()), encoding="utf-8")
    return [file]


def rocprof_json(folder: Path) -> list[Path]:
    run = amd_files.small_json()
    for i in range(40):
        run.kernel(f'kernel_{i} "é"', 2000 + 10 * i, 2009 + 10 * i, 20 + i)
        run.call("hipGraphLaunch" if i % 2 else "hipHostMalloc", 1999 + 10 * i, 2005 + 10 * i, 20 + i)
        what = {"agent_id": {"handle": amd_files.CPU}, "address": hex(i << 20), "allocation_size": i}
        ends = (2000 + 10 * i, 2001 + 10 * i)
        run.add("memory_allocation", amd_files.ALLOCATION, i % 3 // 2, *ends, i, **what)
        addresses = {"src_address": {"handle": i << 20}, "dst_address": str(i)}
        ends = (amd_files.CPU, amd_files.GPU_0)
        run.copy(2, *ends, i, 3000 + i, 3009 + i, 20 + i, **addresses)
    return [amd_files.write_json(folder / "run_results.json", run, amd_files.small_json(4))]


def rocprof_csv(folder: Path) -> list[Path]:
    files = amd_files.small_csv()
    for _, rows in files.values():
        rows += [list(row) for row in rows for _ in range(10)]
    whole = amd_files.write_csv(folder / "host", files)
    (folder / "results.csv").write_text(
        "Index,KernelName,gpu-id,queue-id,pid,tid,lds,arch_vgpr,accum_vgpr,BeginNs,EndNs\n"
        + "".join(f'{i},"k{i} [clone .kd]",8,0,77,78,0,16,4,{i}00,{i}90\n' for i in range(60))
    )
    return [whole, folder / "results.csv"]


def rocprof(folder: Path) -> list[Path]:
    rows = amd_files.v1_rows()
    for i in range(40):
        rows["HIP"].append(
            rows["HIP"][i % 5] | {"BeginNs": 2000 + 10 * i, "EndNs": 2009 + 10 * i, "Index": 20 + i}
        )
        rows["OPS"] += [rows["OPS"][0] | {"BeginNs": 2001 + 10 * i, "EndNs": 2008 + 10 * i, "Index": 20 + i}]
    drawn = amd_files.v1_events(rows)
    return [
        amd_files.write_v1(folder / "results.db", rows),
        amd_files.write_v1_json(folder / "results.json", drawn),
    ]


def node(folder: Path) -> list[Path]:
    files = []
    for name in ("gtx-titan", "dgx-1-v100", "gh200", "mi250x", "minsky"):
        files.append(folder / f"{name}.toml")
        files[-1].write_text(catalogue_text(name), encoding="utf-8")
    return files


READERS: tuple[Callable[[Path], list[Path]], ...] = (
    nsys, nsys_directory, kineto, nvprof, rocpd, rpd, xla, xla_time_line, rocprof_json, rocprof_csv, rocprof, node,
)  # fmt: skip
#: Reader → what builds its files in an empty folder.
CORPUS = {build.__name__.replace("_", "-"): build for build in READERS}
