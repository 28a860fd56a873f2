"""Records of NCCL Inspector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from busfare.errors import InputError
from busfare.trace import Trace, read

EPOCH_US = 1_752_867_229_235_059


def record(
    kind: str, number: int, start_us: int, end_us: int, size: int, rank: int = 0, **more: Any
) -> dict[str, Any]:
    """A collective of four ranks; its rate is what nccl-tests would say."""
    took = end_us - start_us
    total = size * (4 if kind in ("ReduceScatter", "AllGather") else 1)
    channels = [
        {"channel_id": 0, "kernel_start_ts": EPOCH_US + start_us, "kernel_stop_ts": EPOCH_US + end_us - 1},
        {"channel_id": 1, "kernel_start_ts": EPOCH_US + start_us + 1, "kernel_stop_ts": EPOCH_US + end_us},
    ]
    return {
        "header": {"id": "0x7f8c", "rank": rank, "n_ranks": 4, "nnodes": 1} | more.pop("header", {}),
        "metadata": {
            "inspector_output_format_version": "v4.0", "dump_timestamp_us": EPOCH_US, "hostname": "n1", "pid": 77 + rank,
        },
        "coll_perf": {
            "coll": kind, "coll_sn": number, "coll_msg_size_bytes": size, "coll_exec_time_us": took,
            "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": round(total / took / 1000, 6),
            "event_trace_ts": {"coll_start_ts": EPOCH_US, "coll_stop_ts": EPOCH_US, "kernel_events": channels},
        } | more,
    }  # fmt: skip


def of_rank(rank: int) -> list[dict[str, Any]]:
    late = 40 * rank
    return [
        record("AllReduce", 5, late, 300, 1 << 20, rank),
        record("ReduceScatter", 6, 400 + late, 700, 1 << 20, rank),
    ]


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


def read_records(folder: Path, *records: dict[str, Any]) -> Trace:
    return read(write(folder / "n1-pid77.log", list(records)))


def test_collectives_have_what_their_record_says(tmp_path: Path) -> None:
    trace = read_records(tmp_path, *of_rank(1))
    columns = [
        "collective_kind",
        "communicator",
        "group_size",
        "bytes",
        "place",
        "start_ns",
        "end_ns",
        "process",
    ]
    assert trace.collectives.select(columns).rows() == [
        ("all_reduce", "0x7f8c", 4, 1 << 20, 1, 0, 260_000, 78),
        ("reduce_scatter", "0x7f8c", 4, 4 << 20, 1, 400_000, 660_000, 78),
    ]
    assert trace.host == {"hostname": "n1", "rank": "1"}
    assert [omission.id for omission in trace.omissions] == ["communication-only", "no-calls"]
    assert trace.collectives["sequence"].null_count() == 2
    assert read_records(tmp_path, *of_rank(1)[:1]).collectives["sequence"].to_list() == [5]


def test_later_versions_and_messages(tmp_path: Path) -> None:
    message = record("AllReduce", 1, 0, 10, 64)
    said = message.pop("coll_perf")
    events = [{"type": "KernelCh", "event_trace_ts": one} for one in said["event_trace_ts"]["kernel_events"]]
    message["p2p_perf"] = {
        "p2p": "Send", "p2p_sn": 3, "p2p_peer": 2, "p2p_msg_size_bytes": 64, "p2p_exec_time_us": 10,
        "p2p_algobw_gbs": 0.0064, "event_trace_ts": {"p2p_start_ts": 1}, "events": [*events, {}, 7],
    }  # fmt: skip
    row = read_records(tmp_path, message).collectives.row(0, named=True)
    assert (row["collective_kind"], row["peer"], row["bytes"], row["end_ns"]) == ("send", 2, 64, 10_000)


def test_bytes_that_the_rate_does_not_confirm_are_unknown(tmp_path: Path) -> None:
    trace = read_records(tmp_path, record("AllGather", 1, 0, 10, 64, coll_algobw_gbs=7.0))
    assert trace.collectives["bytes"].to_list() == [None]
    assert "unknown-bytes" in {omission.id for omission in trace.omissions}


def test_records_without_times_are_refused_or_counted(tmp_path: Path) -> None:
    short = record("AllReduce", 1, 0, 10, 64)
    del short["coll_perf"]["event_trace_ts"]
    with pytest.raises(InputError, match="NCCL_INSPECTOR_DUMP_VERBOSE=1"):
        read_records(tmp_path, short)
    trace = read_records(tmp_path, short, record("AllReduce", 2, 20, 30, 64))
    assert trace.operations.height == 1 and trace.omissions[0].id == "untimed"


def test_several_gpus_of_a_process(tmp_path: Path) -> None:
    both = [record("AllReduce", 1, 0, 10, 64, rank) for rank in (0, 3)]
    assert sorted(read_records(tmp_path, *both).operations["device"].to_list()) == [0, 1]
    other = record("AllReduce", 1, 20, 30, 64, header={"id": "0x1"})
    with pytest.raises(InputError, match="run a process a GPU"):
        read_records(tmp_path, *both, other)


def test_what_is_damaged_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.log", of_rank(0))
    path.write_text(path.read_text().replace("\n", "\n{]\n[1]\n", 1)[:-9])
    trace = read(path)
    assert trace.operations.height == 1
    assert {"truncated", "unusable-records"} < {omission.id for omission in trace.omissions}
