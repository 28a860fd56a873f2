"""Calls of the driver, calls as the program makes them, or none: what a recording and a replay hold."""

import numpy as np
import polars as pl
import pytest

from busfare.errors import InputError
from busfare.questions import Record
from busfare.timeline import timeline
from busfare.trace.readers import recorded as reader
from busfare.trace.readers.recorded.file import Recording

from .conftest import Built, Recorded

DRIVER, RUNTIME = 1, 2


def names(recording: Recording) -> list[str]:
    return [recording.strings[number] for number in recording.table("calls")["name"].tolist()]


def every_operation_has_its_call(recording: Recording) -> bool:
    made = np.concatenate([recording.table(name)["correlation"] for name in ("kernels", "copies")])
    return len(made) > 0 and bool(np.isin(made, recording.table("calls")["correlation"]).all())


@pytest.mark.parametrize(("calls", "domain"), [("driver", DRIVER), ("both", RUNTIME)])
def test_every_call_is_a_row_and_launches_its_work(recorded: Recorded, calls: str, domain: int) -> None:
    recording = recorded("rounds", "5", calls=calls).only
    table = recording.table("calls")
    assert set(table["domain"].tolist()) == {domain}
    assert len(table) == len(np.unique(table["correlation"])) == 15
    assert every_operation_has_its_call(recording)
    assert len(recording.table("copy_addresses")) == 10


def test_the_driver_is_the_default(recorded: Recorded) -> None:
    expected = ["cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuMemcpyDtoHAsync_v2"]
    assert names(recorded("rounds", "1").only) == expected
    assert names(recorded("rounds", "1", calls="both").only)[1] == "cudaLaunchKernel_v7000"


def test_none_leaves_calls_out_and_addresses_in(recorded: Recorded) -> None:
    recording = recorded("rounds", "5", calls="none", kinds=["default", "all-calls"]).only
    assert len(recording.table("calls")) == 0 and len(recording.table("copy_addresses")) == 10


def test_wrong_words(recorded: Recorded, built: Built) -> None:
    with pytest.raises(InputError, match="`calls` 'cuda' is unknown"):
        Record.of(calls="cuda")
    run = recorded("rounds", extra={"BUSFARE_RECORD_CALLS": "cuda"})
    assert "unknown choice of calls 'cuda'" in run.error
    assert set(run.only.table("calls")["domain"].tolist()) == {DRIVER}


@pytest.mark.parametrize("calls", ["driver", "both", "none"])
def test_profiler_calls_and_managed_memory_are_seen(recorded: Recorded, calls: str) -> None:
    part = recorded("profiler-calls", "7", capture="profiler-calls", calls=calls)
    assert len(part.only.table("kernels")) == 7
    assert len(part.only.table("managed")) > 0


@pytest.mark.parametrize("calls", ["driver", "both"])
def test_addresses_of_rows(recorded: Recorded, calls: str) -> None:
    run = recorded("rows", calls=calls)
    addresses = run.only.table("copy_addresses")
    host = run.only.table("allocations")["address"].tolist()[0]
    assert addresses["source"].tolist() == [host + 256 + 3]
    assert addresses["destination"].tolist() == [0x7F0000000000]
    assert addresses["bytes"].tolist() == [500]


def test_a_cupti_without_single_calls_leaves_out_the_same(recorded: Recorded, built: Built) -> None:
    old = {"LD_LIBRARY_PATH": built.search_path("cupti12-old"), "FAKE_CUPTI_VERSION": "18"}
    new = {"LD_LIBRARY_PATH": built.search_path("cupti12"), "FAKE_CUPTI_VERSION": "26"}
    old, new = ({**variables, "FAKE_DRIVER_VERSION": "12040"} for variables in (old, new))

    def made(extra: dict[str, str], *kinds: str) -> list[str]:
        return names(recorded("everything", extra=extra, calls="both", kinds=kinds).only)

    assert made(old) == made(new)
    assert "cudaGetDevice_v3020" in made(old, "default", "all-calls")


def test_a_replay_finds_the_same_run(recorded: Recorded) -> None:
    def replayed(calls: str) -> tuple[dict[str, list[int]], list[str], pl.DataFrame]:
        run = timeline(reader.read(recorded("everything", calls=calls).files[0]))
        columns = (
            "call_wait", "call_wait_key", "call_act", "call_act_stream", "call_act_event", "call_thread",
            "operation_call", "operation_launched", "operation_stream", "operation_engine", "operation_duration",
        )  # fmt: skip
        return (
            {name: run.columns[name].tolist() for name in columns},
            [run.call_names[number] for number in run.call_name.tolist()],
            run.operations.select("kind", "direction", "bytes", "launched"),
        )

    by_driver, driver_names, driver_work = replayed("driver")
    as_made, made_names, made_work = replayed("both")
    assert by_driver == as_made
    assert driver_work.equals(made_work)
    assert driver_names != made_names
    assert any(by_driver["call_wait"]) and any(by_driver["call_act"]) and any(by_driver["operation_launched"])


@pytest.mark.parametrize("calls", ["driver", "both", "none"])
def test_waits_and_events_are_recorded_by_either_interface(recorded: Recorded, calls: str) -> None:
    recording = recorded("everything", calls=calls).only
    assert recording.facts["calls"] == calls
    waits, events = recording.table("waits"), recording.table("events")
    assert waits["type"].tolist() == [2, 3, 4] and events["stream"].tolist() == [13]
    assert waits["stream"].tolist() == [13, 13, 0xFFFFFFFF]
    assert waits["event_sync"].tolist()[0] == events["event_sync"].tolist()[0] > 0
    assert waits["event"].tolist()[0] == events["event"].tolist()[0]
    assert len(recorded("everything", calls=calls, kinds=["events"]).only.table("waits")) == 0
    assert len(recorded("everything", calls=calls, kinds=["waits"]).only.table("events")) == 0
