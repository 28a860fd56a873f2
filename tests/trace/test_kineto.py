"""PyTorch profiler traces: what their events mean, and the traps that real files set."""

import gzip
import json
from pathlib import Path

import pytest

from busfare.answers.report import summarise
from busfare.errors import InputError
from busfare.show.words import text
from busfare.trace import Trace, read
from busfare.trace.readers import compressed
from busfare.trace.write import perfetto
from tests import traces
from tests.trace import build_kineto
from tests.trace.build_kineto import Event, call, copy, document, event, gzipped, kernel, small_events, sync
from tests.traces import omitted


def written(events: list[Event], folder: Path, header: dict[str, object] | None = None) -> Trace:
    return read(build_kineto.write_kineto(folder / "trace.json", events, header))


def of_bytes(content: bytes, folder: Path) -> Trace:
    path = folder / "trace.json"
    path.write_bytes(content)
    return read(path)


def check_small(trace: Trace) -> None:
    wanted = [
        "kind", "direction", "start_ns", "end_ns", "bytes", "source_memory", "destination_memory",
        "correlation",
    ]  # fmt: skip
    assert trace.operations.select(wanted).rows() == [
        ("copy", "h2d", 8000, 12500, 4096, "pageable", "device", 1),
        ("kernel", None, 13000, 23125, None, None, None, 2),
        ("set", None, 24000, 25000, 512, None, None, 3),
        ("copy", "d2h", 28000, 48000, 8192, "device", "pinned", 4),
    ]
    assert trace.operations.select("device", "stream", "process").unique().rows() == [(0, 7, 4242)]
    assert trace.calls.select("name", "start_ns", "end_ns", "waits_for").rows() == [
        ("cudaMemcpyAsync", 0, 5000, "none"),
        ("cudaLaunchKernel", 6000, 8000, "none"),
        ("cudaMemsetAsync", 9000, 10000, "none"),
        ("cudaMemcpyAsync", 11000, 51000, "none"),
        ("cudaDeviceSynchronize", 52000, 58000, "device"),
    ]
    assert trace.markers.select("name", "start_ns", "end_ns").rows() == [("step", -1500, 88750)]
    assert trace.format == "kineto"
    assert trace.omissions == []


TEXT = document(small_events()).encode()


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        gzipped(TEXT),
        gzipped(*(TEXT[i : i + 100] for i in range(0, len(TEXT), 100))),  # of many members
        json.dumps(small_events()).encode(),  # a bare list
        b"\xef\xbb\xbf" + TEXT,  # a byte order mark
    ],
)
def test_a_file_however_it_is_wrapped(content: bytes, tmp_path: Path) -> None:
    check_small(of_bytes(content, tmp_path))


@pytest.mark.parametrize("beyond", range(-3, 12))
def test_gzip_members_may_end_anywhere_in_a_piece_that_is_read(
    beyond: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = gzipped(TEXT[:500], TEXT[500:])
    first_member = len(gzipped(TEXT[:500]))
    monkeypatch.setattr(compressed, "PIECE", 4 * (first_member + beyond))  # a quarter is read at a time
    check_small(of_bytes(content, tmp_path))


def test_padding_after_gzip_is_ignored_and_data_after_it_is_an_omission(tmp_path: Path) -> None:
    check_small(of_bytes(gzipped(TEXT) + bytes(512), tmp_path))
    assert omitted(of_bytes(gzipped(TEXT) + b"and more", tmp_path)) == {"after-compressed": 0}


def test_header_fields_after_the_events_are_read(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": small_events(), "deviceProperties": [{"id": 0, "name": "H100"}]})
    assert of_bytes(text.encode(), tmp_path).devices["name"].to_list() == ["H100"]


def test_fractions_of_microseconds_are_exact_whatever_the_epoch(tmp_path: Path) -> None:
    first = '{"ph":"X","cat":"kernel","name":"a","ts":1727000000000000.125,"dur":0.001}'
    second = '{"ph":"X","cat":"kernel","name":"b","ts":1727000000000001.1269,"dur":2.5e1}'
    trace = of_bytes(f'{{"traceEvents":[{first},{second}]}}'.encode(), tmp_path)
    assert trace.operations.select("start_ns", "end_ns").rows() == [(0, 1), (1002, 26002)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Memcpy HtoD (Pageable -> Device)", ("h2d", "pageable", "device")),
        ("Memcpy HtoD (Pinned -> Device)", ("h2d", "pinned", "device")),
        ("Memcpy DtoH (Device -> Pageable)", ("d2h", "device", "pageable")),
        ("Memcpy DtoD (Device -> Device)", ("d2d", "device", "device")),
        ("Memcpy PtoP (Device -> Device)", ("p2p", "device", "device")),
        ("Memcpy HtoA (Pinned -> Array)", ("h2d", "pinned", "array")),
        ("Memcpy HtoH (Pageable -> Pinned)", ("h2h", "pageable", "pinned")),
        ("Memcpy HtoD (Host -> Device)", ("h2d", None, "device")),
        ("Memcpy DtoH", ("d2h", None, None)),
        ("Memcpy HtoD (Unknown -> Device)", ("h2d", None, "device")),
        ("Memcpy XtoY (Pinned -> Device)", (None, "pinned", "device")),
    ],
)
def test_direction_and_kinds_stand_only_in_the_name(
    name: str, expected: tuple[str | None, ...], tmp_path: Path
) -> None:
    trace = written([copy(name, 64, 0, 1, 1)], tmp_path)
    assert trace.operations.select("direction", "source_memory", "destination_memory").row(0) == expected
    assert omitted(trace).get("unknown-direction", 0) == (expected[0] is None)
    # AMD says neither pinned nor pageable.
    assert omitted(trace).get("unknown-memory", 0) == ("Host " in name)


def test_copies_without_bytes_are_counted_as_of_unknown_size(tmp_path: Path) -> None:
    name = "Memcpy HtoD (Pinned -> Device)"
    trace = written([copy(name, None, 0, 1, 1), copy(name, 64, 2, 1, 2)], tmp_path)
    assert trace.operations["bytes"].to_list() == [None, 64]
    assert omitted(trace)["unknown-sizes"] == 1


def test_categories_of_2021_in_capitals(tmp_path: Path) -> None:
    events = [
        event("Kernel", "k", 0, 1, pid=2, tid=7, args={"correlation": 1}),
        event("Memcpy", "Memcpy DtoH (Device -> Pageable)", 2, 1, pid=2, tid=7, args={"correlation": 2}),
        event("Memset", "Memset (Device)", 4, 1, pid=2, tid=7),
        event("Runtime", "cudaMemcpy", 1, 3, args={"correlation": 2}),
    ]
    trace = written(events, tmp_path)
    expected = [("kernel", 2, 7), ("copy", 2, 7), ("set", 2, 7)]
    assert trace.operations.select("kind", "device", "stream").rows() == expected
    assert trace.calls["waits_for"].to_list() == ["operation"]


@pytest.mark.parametrize("process", ["4242", "python", "", None, {"a": 1}])
def test_a_process_that_is_text(process: object, tmp_path: Path) -> None:
    trace = written([call("cudaMemcpy", 0, 10, 1, pid=process), kernel("k", 1, 2, 3)], tmp_path)
    assert trace.calls["process"].to_list() == [4242 if process == "4242" else None]


def test_nan_and_infinity_are_no_times(tmp_path: Path) -> None:
    events = [
        kernel("good", 10, 1, 1),
        kernel("nan", float("nan"), 1, 2),
        kernel("endless", 20, float("inf"), 3),
        event("kernel", "without duration", 10),
        call("cudaFree", float("-inf"), 1, 4),
    ]
    trace = written(events, tmp_path)
    assert trace.operations["name"].to_list() == ["good"]
    assert omitted(trace) == {"unusable-events": 2, "untimed": 2, "kernels-untimed": 2, "no-calls": 0}


def test_only_complete_events_are_operations(tmp_path: Path) -> None:
    events: list[Event] = [{**kernel("k", 10, 1, 1), "ph": phase} for phase in "XBEMfsi"]
    trace = written(events, tmp_path)
    assert trace.operations.height == 1
    assert omitted(trace)["unusable-events"] == 1  # the B, which claims to be a range


def test_entries_that_are_no_events_are_counted(tmp_path: Path) -> None:
    text = json.dumps([1, "two", None, [3], kernel("k", 0, 1, 1)])
    trace = of_bytes(text.encode(), tmp_path)
    assert trace.operations.height == 1
    assert omitted(trace)["unusable-events"] == 4


def test_huge_numbers_are_unknown_and_not_wrapped(tmp_path: Path) -> None:
    huge = 10**40
    events = [
        kernel("k", 0, 1, 1),
        copy("Memcpy HtoD (Pinned -> Device)", huge, 10, 1, huge, device=huge, stream=huge),
        kernel("far", 1e300, 1, 2),
        kernel("long", 20, 1e300, 3),
    ]
    trace = written(events, tmp_path)
    expected = [("k", None, 1, 0), (None, None, None, 0)]
    assert trace.operations.select("name", "bytes", "correlation", "device").rows() == expected
    assert omitted(trace)["unusable-events"] == 1
    assert omitted(trace)["untimed"] == 1


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        (r"a\"b\\c\/d", 'a"b\\c/d'),
        (r"line\nbreak\ttab", "line\\nbreak\\ttab"),
        (r"\u00e9\u4e2d", "é中"),
        (r"\ud83d\ude80", "🚀"),
        (r"\ud83d alone", "\ufffd alone"),
        (r"\ude80\ud83d", "\ufffd\ufffd"),
        (r"\ud83d\u0041", "\ufffdA"),
        (r"\uZZZZ", "\ufffdZZZZ"),
        ("é中🚀", "é中🚀"),
        (b"a\xff\xfeb", "a\ufffd\ufffdb"),  # no UTF-8
        ("", "(unnamed)"),
    ],
)
def test_escapes_in_names(spelled: str | bytes, name: str, tmp_path: Path) -> None:
    text = spelled if isinstance(spelled, bytes) else spelled.encode()
    events = b'[{"ph":"X","cat":"kernel","name":"%s","ts":0,"dur":1}]' % text
    assert of_bytes(events, tmp_path).operations["name"].to_list() == [name]
    events = events.replace(b'"name":"%s",' % text, b"")
    assert of_bytes(events, tmp_path).operations["name"].to_list() == ["(unnamed)"]


def test_stream_and_event_syncs_say_what_a_call_waits_for(tmp_path: Path) -> None:
    events = [
        kernel("k", 0, 1, 9),
        call("cudaStreamSynchronize", 10, 5, 1),
        sync("Stream Sync", 11, 3, 1, stream=13),
        call("cudaEventSynchronize", 20, 5, 2),
        sync("Event Sync", 21, 3, 2, stream=4294967295, wait_on_cuda_event_id=5, wait_on_stream=13),
        call("cudaEventSynchronize", 30, 5, 3),
        sync("Event Sync", 31, 3, 3, wait_on_cuda_event_id=-1, wait_on_stream=-1),
        call("cudaDeviceSynchronize", 40, 5, 4),
        sync("Context Sync", 41, 3, 4, stream=4294967295, tid=-1),
    ]
    trace = written(events, tmp_path)
    assert trace.calls.select("waits_for", "context", "stream", "event").rows() == [
        ("stream", 1, 13, None),
        ("event", 1, None, 5),
        ("event", 1, None, None),
        ("device", 1, None, None),
    ]


RECORD = call("cudaEventRecord", 0, 2, 1)
RECORD_ROW = build_kineto.on_gpu("cuda_event", "cudaEventRecord", 1, 0, 1, cuda_event_id=5)
RECORDED, AWAITED = ("record", 0, 7, 5, 1, None, 4242), ("wait", 11000, 13, 5, 2, 1, 4242)


@pytest.mark.parametrize(
    ("records", "of_record", "expected"),
    [
        # The wait names the record; one that has a row is not implied again; and one before the window is no record.
        ([RECORD], (7, 5, 1), [RECORDED, AWAITED]),
        ([RECORD, RECORD_ROW], (7, 5, 1), [("record", 1000, 7, 5, 1, None, 4242), AWAITED]),
        ([call("cudaMalloc", 0, 2, 1)], (-1, -1, -1), [("wait", 11000, 13, None, 2, None, 4242)]),
    ],
)
def test_the_record_that_a_stream_wait_waits_for(
    records: list[Event], of_record: tuple[int, int, int], expected: list[tuple[object, ...]], tmp_path: Path
) -> None:
    keys = ("wait_on_stream", "wait_on_cuda_event_id", "wait_on_cuda_event_record_corr_id")
    waited = sync("Stream Wait Event", 11, 0.5, 2, stream=13, **dict(zip(keys, of_record, strict=True)))
    trace = written([*records, call("cudaStreamWaitEvent", 10, 2, 2), waited], tmp_path)
    wanted = ["kind", "start_ns", "stream", "event", "correlation", "record_correlation", "process"]
    assert trace.events.select(wanted).rows() == expected


def test_graph_nodes_share_the_correlation_of_their_launch(tmp_path: Path) -> None:
    events = [call("cudaGraphLaunch", 0, 5, 1)]
    events += [kernel(f"node {n}", 10 * n, 5, 1, **{"graph node id": n}) for n in (0, 1, 2)]  # 0 is no number
    trace = written(events, tmp_path)
    assert trace.operations.select("correlation", "graph_node").rows() == [(1, -1), (1, 1), (1, 2)]
    assert omitted(trace) == {"graph-nodes": 3}


@pytest.mark.parametrize("launch", ["cudaGraphLaunch", "hipGraphLaunch", "cuGraphLaunch"])
def test_graph_nodes_without_numbers_are_recognised_by_their_launch(launch: str, tmp_path: Path) -> None:
    events = [call(launch, 0, 5, 1), call("cudaLaunchKernel", 6, 1, 2), kernel("alone", 90, 5, 2)]
    events += [kernel(f"node {n}", 10 + 10 * n, 5, 1) for n in range(3)]
    trace = written(events, tmp_path)
    assert trace.operations["graph_node"].to_list() == [-1, -2, -3, None]
    assert omitted(trace) == {"graph-nodes": 3}


@pytest.mark.parametrize("events", [[], [call("cudaMemcpy", 0, 1, 1), event("cpu_op", "aten::mm", 0, 1)]])
def test_no_gpu_activity_is_an_omission(events: list[Event], tmp_path: Path) -> None:
    trace = written(events, tmp_path)
    assert trace.operations.is_empty()
    assert list(omitted(trace)) == ["no-gpu-records"]


def test_devices_and_versions_of_the_header(tmp_path: Path) -> None:
    gpu = {
        "id": 1, "name": "H100", "totalGlobalMem": 80 << 30, "computeMajor": 9, "computeMinor": 0,
        "numSms": 132,
    }  # fmt: skip
    header = {"deviceProperties": [gpu, {"name": "no id"}], "cupti_version": 22, "cuda_driver_version": 12040}
    trace = written(small_events(), tmp_path, header)
    wanted = ["device", "name", "memory_bytes", "compute_capability", "multiprocessors"]
    assert trace.devices.select(wanted).rows() == [(1, "H100", 80 << 30, "9.0", 132)]
    assert trace.producer == "PyTorch profiler (Kineto, CUPTI 22)"
    assert trace.host == {"cuda": "12040"}


@pytest.mark.parametrize(
    ("info", "rank"),
    [({"backend": "nccl", "rank": 12, "world_size": 128}, "12"), ({"rank": None}, None), ({}, None), (5, None)],
)  # fmt: skip
def test_the_rank_of_the_header(info: object, rank: str | None, tmp_path: Path) -> None:
    trace = written(small_events(), tmp_path, {"distributedInfo": info, "hostname": "b12"})
    assert trace.host == {"hostname": "b12"} | ({} if rank is None else {"rank": rank, "world_size": "128"})


@pytest.mark.parametrize(
    "properties",
    ["text", 5, None, {}, [5], [{"id": "x"}], [{"id": 10**30}], [{"id": 0, "totalGlobalMem": 10**30}]],
)
def test_a_header_that_says_something_else_is_no_device(properties: object, tmp_path: Path) -> None:
    trace = written(small_events(), tmp_path, {"deviceProperties": properties})
    assert trace.devices["memory_bytes"].drop_nulls().is_empty()
    assert trace.operations.height == 4


def test_a_file_truncated_at_any_byte_gives_what_it_held(tmp_path: Path) -> None:
    copied = event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1, 7, args={"bytes": 64})
    events = [copied, event("kernel", "k", 20, 5)]
    text = json.dumps({"schemaVersion": 1, "traceEvents": events, "traceName": "t"}).encode()
    heights = []
    for length in range(1, len(text)):
        try:
            trace = of_bytes(text[:length], tmp_path)
        except InputError:
            assert b'"traceEvents": [' not in text[:length]
            continue
        assert next(iter(omitted(trace))) == "truncated"
        heights.append(trace.operations.height)
    assert heights == sorted(heights)
    assert set(heights) == {0, 1, 2}


def test_a_gzip_file_truncated_at_any_byte_is_reported_as_truncated(tmp_path: Path) -> None:
    content = gzipped(TEXT)
    for length in range(2, len(content) - 1, 7):
        try:
            trace = of_bytes(content[:length], tmp_path)
        except InputError as error:
            assert any(what in str(error) for what in ("traceEvents", "cannot unpack"))
        else:
            assert "truncated-compression" in omitted(trace)
            absent = [text(omission.what) for omission in trace.omissions if omission.id == "no-gpu-records"]
            assert all("may be in the missing part" in what for what in absent)
            assert bool(absent) == trace.operations.is_empty()


def test_damage_in_the_middle_keeps_what_came_before_and_says_where(tmp_path: Path) -> None:
    content = document(small_events())
    at = content.index(': "Memset (Device)"')
    trace = of_bytes((content[:at] + "\x00" + content[at + 1 :]).encode(), tmp_path)
    assert trace.operations["kind"].to_list() == ["copy", "kernel"]
    (what,) = [text(omission.what) for omission in trace.omissions if omission.id == "damaged"]
    assert what.startswith("damaged JSON at byte ")


def test_a_lost_quote_swallows_the_rest_and_is_an_omission(tmp_path: Path) -> None:
    trace = of_bytes(TEXT.replace(b'"Memset (Device)"', b'"Memset (Device)'), tmp_path)
    assert trace.operations["kind"].to_list() == ["copy", "kernel"]
    assert {"damaged", "truncated"} & set(omitted(trace))


def test_damaged_compression_keeps_what_came_before(tmp_path: Path) -> None:
    events = [kernel(f"k{n}", 10 * n, 5, n + 1) for n in range(20000)]
    content = bytearray(gzip.compress(document(events).encode(), 6, mtime=0))
    content[len(content) // 2] ^= 0xFF
    trace = of_bytes(bytes(content), tmp_path)
    assert {"damaged-compression", "truncated"} & set(omitted(trace)) or "damaged" in omitted(trace)
    assert 0 < trace.operations.height < 20000


def test_text_after_the_end_is_an_omission(tmp_path: Path) -> None:
    assert omitted(of_bytes(TEXT + b" \n\t", tmp_path)) == {}
    trace = of_bytes(TEXT + TEXT, tmp_path)
    assert trace.operations.height == 4
    assert omitted(trace) == {"damaged": 0}


@pytest.mark.parametrize(
    "content",
    [b"{}", b"[]", b"[node]\nname = 'not JSON at all'\n", b"[1, 2, 3]", b'{"traceEvents": 5}', b'{"traceEvents": {}}',
     b'{"nodes": [{"ph": "X"}]}', b"{", b"[", b'{"a" 1}'],
)  # fmt: skip
def test_what_is_no_trace_is_refused_in_a_line(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a PyTorch profiler trace") as refused:
        of_bytes(content, tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("cut", [1.0, 0.7])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (perfetto(traces.trace(traces.copy(10, 20, 4096), traces.kernel(30, 40, "work"))), "give the original trace"),
        (b'{"traceEvents": [{"name": "frame", "ph": "X", "cat": "blink", "ts": 1, "dur": 2}]}', "another program"),
        (b'{"traceEvents": []}', "it has no events"),
    ],
)  # fmt: skip
def test_a_chrome_trace_of_another_program_is_refused_by_its_name(
    content: bytes, message: str, packed: bool, cut: float, tmp_path: Path
) -> None:
    content = content[: int(cut * len(content))]
    if cut < 1 and "original" not in message:
        message = "is truncated before"
    with pytest.raises(InputError, match=message):
        of_bytes(gzipped(content) if packed else content, tmp_path)


@pytest.mark.parametrize("category", ["cpu_op", "Operator", "user_annotation"])
def test_a_trace_of_the_processor_alone_is_a_trace_of_pytorch(category: str, tmp_path: Path) -> None:
    events = [event(category, "aten::mm", 0, 1)]
    for content in (json.dumps(events), json.dumps({"traceEvents": events})):
        assert of_bytes(content.encode(), tmp_path).operations.is_empty()


def test_a_file_cut_in_half_says_so(tmp_path: Path) -> None:
    whole = document(small_events() * 50, {"deviceProperties": [{"id": 0, "name": "H100"}]}).encode()
    half = tmp_path / "half.json"
    for content in (whole[: len(whole) // 2], gzipped(whole)[: len(gzipped(whole)) // 2]):
        half.write_bytes(content)
        assert "is truncated" in text(summarise(read(half)).trace.incomplete or "")
    half.write_bytes(whole)
    assert summarise(read(half)).trace.incomplete is None
    half.write_bytes(whole[:60])
    with pytest.raises(InputError, match="is truncated before"):
        read(half)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_deep_nesting_is_no_matter(opening: bytes, tmp_path: Path) -> None:
    deep = opening * 200_000
    events = json.dumps(small_events()).encode()
    with pytest.raises(InputError):
        of_bytes(b'{"deep": ' + deep, tmp_path)
    trace = of_bytes(b'{"traceEvents": ' + events[:-1] + b"," + b'{"args":' + deep, tmp_path)
    assert trace.operations.height == 4
    assert omitted(trace) == {"truncated": 0}


def test_deep_nesting_in_a_header_field_that_is_decoded(tmp_path: Path) -> None:
    text = b'{"deviceProperties": ' + b"[" * 20_000 + b"]" * 20_000 + b', "traceEvents": []}'
    assert of_bytes(text, tmp_path).devices.is_empty()
