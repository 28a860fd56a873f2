"""Fingerprints of another recording, and bytes that Nsight Compute counted."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from busfare.cli import app
from busfare.errors import InputError
from busfare.questions import WhatIf
from busfare.timeline import timeline
from busfare.timeline.changes import Setting, apply_all, changes_of
from busfare.timeline.changes.fewer_copies import repeated_copies, returned_copies
from busfare.trace import Trace, read
from busfare.trace.attach import METRICS, _bare, counted_kernels, printed_counters, with_fingerprints_of
from busfare.trace.tables import COUNTERS
from busfare.trace.words import function_name
from tests.conftest import Ask
from tests.trace.build_nsys import LAUNCH, NsysExport
from tests.traces import copy, kernel, trace

MIB = 1 << 20


def sent(at: float, size: int = MIB, direction: str = "h2d", **more: Any) -> dict[str, Any]:
    return copy(at, at + 5, size, direction, **more)


def hashed(*prints: int | None) -> Trace:
    """As many copies in, an hour later."""
    hour = 3_600_000_000
    return trace(*[sent(hour + 20 * at, fingerprint=fingerprint) for at, fingerprint in enumerate(prints)])


def test_a_copy_gets_the_fingerprint_of_the_copy_of_its_size_direction_and_rank() -> None:
    # The other recording has the same copies in another order of sizes, and kernels elsewhere.
    rerun = trace(
        sent(0, fingerprint=11, process=7), sent(10, 2 * MIB, fingerprint=33, process=7), kernel(15, 60),
        sent(70, fingerprint=22, process=7), sent(80, direction="d2h", fingerprint=22, process=7),
    )  # fmt: skip
    marked = with_fingerprints_of(
        trace(sent(0), kernel(6, 9), sent(10), sent(20, direction="d2h"), sent(30, 2 * MIB)), rerun
    )
    assert marked.operations["fingerprint"].to_list() == [11, None, 22, 22, 33]


def test_changes_by_what_copies_carry_find_them_then() -> None:
    plain = trace(sent(0), sent(20), sent(40))
    assert repeated_copies(plain.operations) is None
    repeated = repeated_copies(with_fingerprints_of(plain, hashed(5, 6, 5)).operations)
    assert repeated is not None and repeated.again.tolist() == [False, False, True]
    back = trace(sent(0, direction="d2h"), sent(400_000))  # the host had time to write it anew
    rerun = trace(sent(0, direction="d2h", fingerprint=9), sent(400_000, fingerprint=9))
    assert not returned_copies(back.operations, None)[0].any()
    assert returned_copies(with_fingerprints_of(back, rerun).operations, None)[0].all()


def test_returned_copies_are_detected_before_copies_go_for_another_reason() -> None:
    """The copy back goes by --remove, too; the one that takes its bytes in again goes only where both are there."""
    moved = trace(sent(0, direction="d2h", fingerprint=9), sent(400, fingerprint=9), sent(800, fingerprint=4))
    changes = changes_of(WhatIf(remove=("d2h",), keep_on_gpu=True), None)
    assert apply_all(timeline(moved), changes, Setting()).timeline.operations["fingerprint"].to_list() == [4]


def test_fingerprints_of_the_rerun_replace_those_of_the_trace() -> None:
    marked = with_fingerprints_of(hashed(1, 2), hashed(3, None))
    assert marked.operations["fingerprint"].to_list() == [3, None]


@pytest.mark.parametrize(
    ("rerun", "why"),
    [
        (hashed(None, None), "has no fingerprints"),
        (hashed(1, 2, 3), r"2 copies h2d of 1048576 bytes, and 3 in .*the recordings differ"),
        (trace(sent(0, direction="d2h", fingerprint=1)), "0 copies d2h of 1048576 bytes, and 1 in"),
    ],
    ids=["none", "more", "elsewhere"],
)
def test_what_is_no_recording_of_the_same_work_is_refused(rerun: Trace, why: str) -> None:
    with pytest.raises(InputError, match=why):
        with_fingerprints_of(trace(sent(0), sent(20)), rerun)


COLUMNS = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device",
    "CC",
)  # fmt: skip
SCALE = "void scale<float>(T1 *, int)"
ADD = "(anonymous namespace)::add(float const*, float*)"
FLOAT = "void scale<float>(float*, int)"
#: Rows of a kernel that differ by more than a tenth.
DIFFER = [(ADD, 1000, 0, 2000), (ADD, 1300, 0, 2000)]


def printed(
    *rows: tuple[Any, ...], metrics: tuple[str, ...] = tuple(METRICS), unit: str = "byte", grid: int = 1056
) -> str:
    """What ncu prints of kernels: their name and the numbers of `metrics`, grid (`grid`, 1, 1), block (256, 1, 1)."""
    lines = [[*COLUMNS, *metrics], [*[""] * len(COLUMNS), *[unit] * len(metrics)]]
    for number, (name, *values) in enumerate(rows):
        place = [str(number), "77", "app", "host", name, "1", "7", "(256, 1, 1)", f"({grid}, 1, 1)", "0", "9.0"]  # fmt: skip
        lines.append([*place, *(value if isinstance(value, str) else f"{value:,}" for value in values)])
    return "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines) + "\n"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A trace of two kernels that scale, one of double, and one that adds."""
    export = NsysExport()
    launch = dict(zip(LAUNCH, (1056, 1, 1, 256, 1, 1, 16, 0, 0), strict=True))
    names = [FLOAT, "void scale<double>(double*, int)", ADD]
    for number, name in enumerate([names[0], *names]):
        export.kernel(name, 1_000_000 * number, 1_000_000 * number + 900_000, number + 1, **launch)
        export.call("cudaLaunchKernel", 1_000_000 * number - 5000, 1_000_000 * number - 1000, number + 1)
    return export.write(tmp_path / "run.sqlite")


@pytest.fixture
def counters(tmp_path: Path) -> Path:
    return tmp_path / "counters.csv"


def counted(file: Path, recording: Path, text: str) -> dict[str, tuple[float, ...]]:
    file.write_text(text)
    rows = counted_kernels(file, read(recording, launches=True))
    assert rows.schema == COUNTERS
    assert rows.filter(pl.col("l2_bytes").is_null() == pl.col("uncounted").is_null()).is_empty()
    rows = rows.filter(pl.col("uncounted").is_null())
    return {row["name"]: tuple(row[name] for name in METRICS.values()) for row in rows.iter_rows(named=True)}


def test_units_separators_and_lines_around_the_table_are_read(counters: Path) -> None:
    before = '==PROF== Connected to process 77\nKernel Name "of the program\'s\n==PROF== Profiling "scale" - 0: 100%\n'
    table = printed((SCALE, 1234567, 0, "2,048"), (ADD, "n/a", 1, 2))
    counters.write_text(before + table + "done\n==PROF== Disconnected")
    rows = printed_counters(counters)
    assert rows.rows() == [
        (SCALE, 1056, 1, 1, 256, 1, 1, 1234567.0, 0.0, 2048.0),
        (ADD, 1056, 1, 1, 256, 1, 1, None, 1.0, 2.0),
    ]


def test_further_metrics_may_stand_between_them_in_any_order(counters: Path) -> None:
    metrics = ("gpu__time_duration.sum", *reversed(METRICS), "sm__throughput.avg")
    counters.write_text(printed((SCALE, 5, 3, 2, 1, "n/a"), metrics=metrics))
    assert printed_counters(counters).rows() == [(SCALE, 1056, 1, 1, 256, 1, 1, 1.0, 2.0, 3.0)]


@pytest.mark.parametrize(
    "name",
    ["void scale<float>(T1 *, int)", "scale<float>", "void scale<float>(float*,int)", "ns::scale<(float)1>(T1)", "scale"],
)  # fmt: skip
def test_a_kernel_matches_without_parameters_and_return(name: str, counters: Path, tmp_path: Path) -> None:
    export = NsysExport()
    launch = dict(zip(LAUNCH, (1056, 1, 1, 256, 1, 1, 16, 0, 0), strict=True))
    export.kernel(FLOAT, 0, 900, 1, **launch)
    matched = counted(counters, export.write(tmp_path / "one.sqlite"), printed((name, 8, 4, 16)))
    assert matched == {FLOAT: (8, 4, 16)}


def test_printed_template_arguments_tell_kernels_apart(counters: Path, recording: Path) -> None:
    text = printed((SCALE, 100, 50, 300), ("void scale<double>(T1 *, int)", 200, 100, 600), ("add", 7, 7, 7))
    assert counted(counters, recording, text) == {
        FLOAT: (100, 50, 300),
        "void scale<double>(double*, int)": (200, 100, 600),
        ADD: (7, 7, 7),
    }


def test_lambdas_have_a_single_spelling() -> None:
    # As Nsight Compute 2025.3 and CUPTI print the same kernel (H200, driver 580.159.04).
    ncu = function_name("void apply<main::[lambda(float) (instance 1)]>(float *, unsigned long, T1)")
    cupti = "void apply<main::{lambda(float)#1}>(float*, unsigned long, main::{lambda(float)#1})"
    assert ncu == function_name(cupti)


def test_a_bare_name_of_several_kernels_counts_for_none(counters: Path, recording: Path) -> None:
    bare = printed(("scale", 100, 50, 300), ("<unnamed>::add", 7, 7, 7))
    assert counted(counters, recording, bare) == {ADD: (7, 7, 7)}
    # Nor does it stand for the one of them that was not counted.
    assert [*counted(counters, recording, printed((SCALE, 100, 50, 300)))] == [FLOAT]


def test_rows_of_a_kernel_that_differ_count_for_none(counters: Path, recording: Path) -> None:
    alike = [(SCALE, 1000, 0, 2000), (SCALE, 1100, 64, 2000), (SCALE, 1020, 32, 2010)]
    assert counted(counters, recording, printed(*alike, *DIFFER)) == {FLOAT: (1020, 32, 2000)}


def test_every_kernel_without_counted_bytes_has_a_reason(counters: Path, recording: Path) -> None:
    def reasons(*rows: tuple[Any, ...]) -> dict[str, str | None]:
        counters.write_text(printed(*rows))
        frame = counted_kernels(counters, read(recording, launches=True))
        assert dict(frame.select("name", "launches").iter_rows())[FLOAT] == 2
        return {function_name(name): why for name, why in frame.select("name", "uncounted").iter_rows()}

    scale, double, add = "scale<float>", "scale<double>", "(anonymousnamespace)::add"
    expected = {scale: "no-number", double: "no-row", add: "rows-differ"}
    assert reasons((SCALE, "n/a", 4, 16), *DIFFER) == expected
    assert reasons(*DIFFER) == {scale: "no-row", double: "no-row", add: "rows-differ"}
    expected = {scale: "shared-name", double: "shared-name", add: None}
    assert reasons(("scale", 1, 2, 3), ("add", "nan", 1, 1), ("add", 7, 7, 7)) == expected


WRONG = ("1.000", "1.000.000", "1,00", "-5")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read .*check the path"),
        ("", "not a kernel table of Nsight Compute; create one with: ncu --csv --page raw"),
        (printed((SCALE, 1, 2), metrics=tuple(METRICS)[:2]), "lacks lts__t_bytes.sum; create one with: ncu --csv"),
        (printed((SCALE, 1, 2, 3), unit="Mbyte"), "in Mbyte, not in byte; add --print-units base"),
        (printed(), "has no kernel"),
        (printed((SCALE, 1, 2, 3), grid=7), "none of its kernels matches .*run.sqlite in name, grid and block"),
        (printed(("another", 1, 2, 3)), "none of its kernels matches"),
        (printed((SCALE, 1, 2, 3), unit=""), "its metrics are in no unit, not in byte"),
        (printed((SCALE, 1, 2, 3)).replace(printed().splitlines()[1] + "\n", ""), "no row of units"),
        *((printed((SCALE, cell, 2, 3)), f"line 3, dram__bytes_read.sum: '{shown}' is not a whole number of bytes")
          for cell, shown in [("1\u202f000", "1.*000"), ("1\u2019000", "1.*000"), *zip(WRONG, WRONG, strict=True)]),
        (printed((SCALE, 1, 2, 3000), (SCALE, 1, 2, 3000))[:-3], "line 4 is cut in the middle of a row"),
        (printed((SCALE, 1, 2, 3000), (SCALE, 1, 2, 3000))[:-9], "line 4 is cut in the middle of a row"),
        (printed(("", 1, 2, 3)), "none of its kernels matches"),
    ],
)  # fmt: skip
def test_errors_name_what_to_do(text: str | None, says: str, counters: Path, recording: Path) -> None:
    if text is not None:
        counters.write_text(text)
    with pytest.raises(InputError, match=says) as error:
        counted_kernels(counters, read(recording, launches=True))
    assert str(error.value).startswith(f"{counters}: ") and "\n" not in str(error.value)


@given(st.text(alphabet="ab*,<>()[]{} :_", max_size=60))
def test_no_name_is_too_odd(text: str) -> None:
    assert "::" not in _bare(function_name(text))


def test_project_and_compare_say_how_many_were_counted(ask: Ask, counters: Path, recording: Path) -> None:
    counters.write_text(printed((SCALE, 0, 0, 4096), ("add", 1 << 31, 1 << 20, 1 << 31)))
    option = ("--from", "h100-sxm", "--to", "h200-sxm")
    assert "counted" not in ask("project", recording, *option)["kernels"]
    kernels = ask("project", recording, *option, "--counters", counters)["kernels"]
    assert (kernels["count"], kernels["counted"], kernels["uncounted"]) == (4, 3, {"no-row": 1})
    bounds = {row["bound"]: row for row in kernels["by_class"]}
    assert bounds["counted"]["count"] == 3 and bounds["counted"]["rung"] == "counters"
    compared = ask("compare", recording, recording, *option, "--counters", counters)["kernels"]
    assert (compared["counted"], compared["uncounted"]) == (3, {"no-row": 1})
    counters.write_text(printed((SCALE, 1000, 0, 2000), (SCALE, 1300, 0, 2000)))
    answer = CliRunner().invoke(app, ["project", str(recording), *option, "--counters", str(counters)])
    shown = " ".join(answer.output.split())
    assert "Predicted from counters: 0 kernels." in shown
    assert "Not predicted from counters: 2, whose rows in --counters differ by more than 10 %." in shown
    assert "Not predicted from counters: 2, without a row for their name, grid and block." in shown
    assert "counted" not in ask("compare", recording, recording, *option)["kernels"]


def test_a_recording_is_no_file_of_counters(ask: Ask, recording: Path) -> None:
    refused = ask("project", recording, "--to", "h200-sxm", "--from", "h100-sxm", "--counters", recording)
    assert "not a kernel table of Nsight Compute" in refused
