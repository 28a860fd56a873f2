"""Kernels that get pinned memory of the host: what their arguments reach, from stand-ins, and what a report says of it."""

from __future__ import annotations

import polars as pl
import pytest

from busfare.node import load_node
from busfare.report.mapped import NEAR, MappedKernel, mapped_kernels
from busfare.report.summary import summarise
from busfare.report.terminal import render
from busfare.report.trace_document import report_document
from busfare.trace import read
from tests.traces import omitted

from .conftest import Built, Recorded


def test_a_launch_reaches_each_pinned_buffer_once_as_far_as_it_goes(recorded: Recorded) -> None:
    run = recorded("mapped", mapped=True)
    (file,) = run.files
    trace = read(file)
    kernels = trace.operations.filter(pl.col("kind") == "kernel")
    # Nothing pinned yet; a pointer into one buffer, and both in a structure; arguments in one buffer; beside them; none;
    # freed; unregistered.
    assert kernels["mapped_bytes"].to_list() == [0, 3072 + 8192, 192, 0, 0, 1, 0]
    assert "mapped" in omitted(trace)
    assert run.only.facts["mapped"] == "arguments"
    assert run.only.table("mapped_arguments")["buffers"].tolist() == [2, 1, 1]


def test_without_the_option_nothing_is_looked_at(recorded: Recorded) -> None:
    run = recorded("mapped")
    trace = read(run.files[0])
    assert "mapped_bytes" not in trace.operations.columns
    assert mapped_kernels(trace, None) is None
    assert not len(run.only.table("mapped_arguments"))


def test_a_report_lists_them_longest_first_beside_what_the_link_takes(recorded: Recorded) -> None:
    report = summarise(read(recorded("mapped", mapped=True).files[0]), load_node("h100-sxm"))
    assert report.mapped_kernels
    (row,) = report.mapped_kernels
    assert (row.name, row.count, row.reached_bytes) == ("fake_given", 3, 3072 + 8192 + 192 + 1)
    assert row.seconds == pytest.approx(1.5e-6)
    # A PCIe 5 link.
    assert row.once_seconds is not None
    assert row.reached_bytes / 64e9 < row.once_seconds < row.reached_bytes / 30e9
    shown = "\n".join(line for line, _ in render(report_document(report), 100))
    assert "given memory of the host" in shown


def test_addresses_that_nobody_reads_are_not_shown(recorded: Recorded) -> None:
    trace = read(recorded("mapped", mapped=True).files[0])
    trace.operations = trace.operations.with_columns(pl.col("mapped_bytes") * 100_000)
    assert mapped_kernels(trace, load_node("h100-sxm")) == []
    assert len(mapped_kernels(trace, None) or []) == 1


@pytest.mark.parametrize(
    ("seconds", "once", "says"),
    [
        (1.0, 1.0, "as long as the link"),
        (NEAR, 1.0, "as long as the link"),
        (8.0, 1.0, "8 × the link"),
        (500.0, 1.0, "far longer than the link"),
        (0.25, 1.0, "takes 25% of it at most"),
        (1.0, None, "not known"),
        (0.0, 1.0, "not known"),
    ],
)
def test_what_two_times_say(seconds: float, once: float | None, says: str) -> None:
    assert MappedKernel("k", 1, seconds, 1 << 20, once).meaning == says


def test_an_older_driver_is_named(recorded: Recorded, built: Built) -> None:
    older = built.search_path().replace("/driver:", "/driver-old:")
    run = recorded("mapped", mapped=True, extra={"LD_LIBRARY_PATH": older})
    assert run.status == 0
    assert "CUDA 12.4" in run.error
    assert "no-mapped" in omitted(read(run.files[0]))
