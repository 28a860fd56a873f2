"""Findings say where in the program the calls are that they are about."""

from pathlib import Path
from typing import Any

import pytest

from busfare.advise import findings
from busfare.trace import read
from tests.conftest import run
from tests.trace.build_kineto import Event, call, copy, event, function, kernel, write_kineto

MIB = 1 << 20


def steps(functions: bool = True, ranges: bool = True, name: str = "load_batch") -> list[Event]:
    """Six steps that copy 32 MiB from one place, and one copy of 8 MiB from another; each copy takes 10 and 3 ms."""
    events = [function("train.py(60): <module>", 0, 200_000)] if functions else []
    for step in range(6):
        at = 20_000 * step
        if ranges:
            events.append(event("user_annotation", f"step {step}", at, 15_000))
        if functions:
            events.append(function(f"train.py(42): {name}", at + 10, 10_900))
        events.append(call("cudaMemcpyAsync", at + 20, 10_100, 2 * step + 1))
        events.append(copy("Memcpy HtoD (Pageable -> Device)", 32 * MIB, at + 100, 10_000, 2 * step + 1))
        events.append(call("cudaLaunchKernel", at + 11_000, 5, 2 * step + 2))
        events.append(kernel("work", at + 11_010, 500, 2 * step + 2))
    events.append(call("cudaMemcpyAsync", 150_000, 3_100, 99))
    return [*events, copy("Memcpy HtoD (Pageable -> Device)", 8 * MIB, 150_050, 3_000, 99)]


def sites_of(events: list[Event], folder: Path) -> dict[str, list[Any]]:
    trace = read(write_kineto(folder / "trace.json", events))
    return {finding.id: list(finding.call_sites) for finding in findings(trace, None)}


def test_calls_are_grouped_by_site_and_range_largest_first(tmp_path: Path) -> None:
    load, rest = sites_of(steps(), tmp_path)["pageable-copies"]
    assert (load.site, load.module, load.ranges) == ("train.py:42 load_batch", None, ["step *"])
    assert (load.count, load.bytes, load.seconds) == (6, 6 * 32 * MIB, pytest.approx(60e-3))
    assert (rest.site, rest.ranges, rest.count, rest.bytes) == ("train.py:60 <module>", [], 1, 8 * MIB)
    assert str(load) == "At train.py:42 load_batch, in step *: 6 copies, 201 MB, 60 ms"


def test_ranges_alone_say_where_it_is(tmp_path: Path) -> None:
    (load,) = sites_of(steps(functions=False), tmp_path)["pageable-copies"]
    assert (load.site, load.ranges, load.count) == (None, ["step *"], 6)
    assert str(load).startswith("In step *: 6 copies")


def test_a_trace_that_says_nothing_of_it_has_no_sites(tmp_path: Path) -> None:
    sites = sites_of(steps(functions=False, ranges=False), tmp_path)
    assert sites["pageable-copies"] == []


def test_waits_have_the_site_of_their_call(tmp_path: Path) -> None:
    events = [function("train.py(60): <module>", 0, 100_000)]
    for step in range(20):
        at = 1000 * step
        events += [
            call("cudaLaunchKernel", at, 5, 2 * step + 1),
            kernel("work", at + 10, 500, 2 * step + 1),
            function("train.py(7): log", at + 20, 600),
            call("cudaDeviceSynchronize", at + 30, 500, 2 * step + 2),
        ]
    (site,) = sites_of(events, tmp_path)["synchronisations"]
    assert (site.site, site.count, site.bytes) == ("train.py:7 log", 20, None)
    assert str(site) == "At train.py:7 log: 20 calls, 10 ms"


def test_at_most_five_are_named(tmp_path: Path) -> None:
    events = []
    for number in range(9):
        at = 20_000 * number
        events += [
            function(f"train.py({number}): load", at, 12_000),
            call("cudaMemcpyAsync", at + 20, 10_100, number + 1),
            copy("Memcpy HtoD (Pageable -> Device)", 32 * MIB, at + 100, 1000 * (number + 1), number + 1),
        ]
    sites = sites_of([*events, kernel("work", 200_000, 10, 1)], tmp_path)["pageable-copies"]
    assert [site.site for site in sites] == [f"train.py:{number} load" for number in (8, 7, 6, 5, 4)]


def test_reports_show_them_and_nothing_in_them_is_obeyed(tmp_path: Path) -> None:
    file = write_kineto(tmp_path / "trace.json", steps(name="<b>load</b>\u202e\x1b[31m"))
    shown = run("report", str(file), "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text("utf-8")
    for text in (shown.stdout, page):
        assert "train.py:42" in text and "\u202e" not in text and "\x1b[31m" not in text
    assert "<b>load" not in page and "&lt;b&gt;load" in page
