"""The page's timeline: that its columns come back as they went in, and what one can do with it in a browser."""

import json
import re
import zlib
from base64 import b64decode
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from busfare.answers.report import examine
from busfare.answers.what_if import answer_what_if
from busfare.nodes import load_node
from busfare.show import time_line as packing
from busfare.show.document import Document, Figure
from busfare.show.notebook import predicted_trace
from busfare.show.page import page
from busfare.show.report import report_document
from busfare.show.svg import COLOUR, drawn_as
from busfare.show.time_line import TimeLine
from busfare.show.time_line_rows import KINDS, time_line
from busfare.timeline import PART_NAMES, timeline
from busfare.timeline.changes import Setting
from busfare.timeline.changes.overlap import pin
from busfare.trace import Trace, read, tables
from busfare.trace.tables import conform
from tests.chromium import answered
from tests.traces import EXAMPLES, call, copy, kernel, made, run, trace

H100 = load_node("h100-sxm")


def unpacked(drawn: TimeLine) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """The header and the columns of a timeline's markup, read as its script reads them."""
    packed = drawn.markup().partition('<script type="text/plain">')[2].partition("</script>")[0]
    whole = zlib.decompress(b64decode(packed))
    length = int.from_bytes(whole[:4], "little")
    header, at, columns = json.loads(whole[4 : 4 + length]), 4 + length, {}
    for name, planes in header["columns"]:
        value, columns[name] = 0, []
        for item in range(header["count"]):
            coded = sum(whole[at + plane * header["count"] + item] << 8 * plane for plane in range(planes))
            value += coded >> 1 if coded % 2 == 0 else -((coded + 1) >> 1)
            columns[name].append(value)
        at += planes * header["count"]
    assert at == len(whole)
    return header, columns


HOSTILE = "<img src=x onerror=document.title='broken-in'></script>"


def drawn_of(recorded: Trace) -> TimeLine:
    _, run, findings = examine(recorded, H100)
    return time_line(recorded, run, findings)


def launched() -> Trace:
    """Two launches, a copy that its call waits for, and a wait for the device."""
    return run(
        made(kernel(12, 40, "first"), 0, 5),
        made(kernel(45, 60, HOSTILE, stream=8), 6, 8),
        made(copy(62, 90, 1 << 20), 10, 95, "cudaMemcpy", "operation"),
        call(96, 97, "cudaDeviceSynchronize", "device"),
    )


def test_every_operation_and_call_is_in_the_page_with_its_times_and_bytes() -> None:
    header, columns = unpacked(drawn_of(launched()))
    rows = {label: count for label, _, count, _ in header["rows"]}
    assert rows["host calls"] == 4 and rows["kernels"] == 2 and rows["h2d"] == 1
    at = header["count"] - 1  # the copy, in the last row
    assert (columns["start"][at], columns["length"][at], columns["bytes"][at]) == (62_000, 28_000, 1 << 20)
    assert header["span"] == 97_000
    assert "first" in header["names"] and "h2d copy, pinned to device" in header["names"]


def test_memory_sets_have_a_row_a_colour_and_a_name_apart_from_copies() -> None:
    cleared = copy(20, 30, 1 << 20) | {"kind": "set", "direction": None, "source_memory": None}
    drawn = drawn_of(trace(kernel(0, 10), cleared, copy(40, 50, 1 << 20, direction="d2d")))
    header, _ = unpacked(drawn)
    assert {"kernels", "other copies", "memory sets"} <= {label for label, *_ in header["rows"]}
    assert "set of device memory" in header["names"]
    legend = re.findall(r'background:(#\w+)"></i>([^<]+)', drawn.markup())
    colours = {name: colour for colour, name in legend}
    assert colours.keys() >= {"kernels", "other copies", "memory sets"}
    assert len(set(colours.values())) == len(colours)


def test_an_operation_names_its_launch_and_a_call_what_it_waited_for() -> None:
    header, columns = unpacked(drawn_of(launched()))
    first = {label: sum(row[2] for row in header["rows"][:n]) for n, (label, *_) in enumerate(header["rows"])}
    calls, kernels, copies = first["host calls"], first["kernels"], first["h2d"]

    def cause(item: int) -> int:
        return item + columns["cause"][item]

    assert [cause(kernels), cause(kernels + 1), cause(copies)] == [calls, calls + 1, calls + 2]
    assert cause(calls + 2) == copies
    assert columns["cause"][calls] == 0  # a launch waits for nothing


def test_the_critical_path_fills_the_run_and_names_the_origin_of_every_step() -> None:
    path = next(row for row in drawn_of(launched()).rows if row.group == "path").items
    assert path["start_ns"].min() == 0 and path["end_ns"].max() == 97_000
    assert (path["end_ns"] - path["start_ns"]).sum() == 97_000
    assert path["cause"].null_count() == 0


def path_steps(recorded: Trace) -> list[tuple[str, str, int]]:
    """Name, kind and ns of each step of the drawn critical path."""
    path = next(row for row in drawn_of(recorded).rows if row.group == "path").items
    columns = path.select("name", "kind", ns=pl.col("end_ns") - pl.col("start_ns"))
    return [(name, KINDS[kind], ns) for name, kind, ns in columns.iter_rows()]


def test_a_step_of_the_critical_path_says_what_its_time_is() -> None:
    """175 ms of host time are not the 0.39 ms of `cudaMalloc` that follow."""
    steps = path_steps(
        run(
            call(0, 10, "cudaSetDevice"),
            call(175_010, 175_400, "cudaMalloc"),
            made(kernel(175_420, 176_000, "gemm"), 175_405, 175_410),
            call(175_411, 176_010, "cudaDeviceSynchronize", "device"),
        )
    )
    host = ("CPU time between cudaSetDevice and cudaMalloc", "CPU time between API calls", 175_000_000)
    assert host in steps
    assert ("CPU time in cudaMalloc", "calls", 390_000) in steps
    assert ("launch overhead of gemm", "launches") in [step[:2] for step in steps]
    assert ("gemm", "kernels", 580_000) in steps
    assert ("CPU wake-up after cudaDeviceSynchronize", "CPU wake-up", 10_000) in steps


def test_host_time_is_named_by_the_innermost_range_around_it() -> None:
    recorded = run(call(0, 10, "cudaSetDevice"), made(kernel(905, 950, "gemm"), 900, 904))
    thread = recorded.calls.row(0, named=True)
    spans = [(5_000, 899_000, "load"), (20_000, 890_000, "decode")]
    spans += [(0, 960_000, "ProfilerStep#3"), (10_000, 30_000, "open")]
    frame = pl.DataFrame(spans, schema=["start_ns", "end_ns", "name"], orient="row")
    frame = frame.with_columns(process=thread["process"], thread=thread["thread"])
    recorded = replace(recorded, markers=conform(frame, tables.MARKERS))
    assert path_steps(recorded)[1][0] == "CPU time in the range decode"
    ranges = next(row for row in drawn_of(recorded).rows if row.label == "ranges")
    assert ranges.items["name"].cast(pl.String).to_list() == [name for _, _, name in spans]


def test_parts_of_a_run_differ_in_colour_for_those_who_see_no_red_or_green_too() -> None:
    """Distances in Oklab, with the matrices of Machado et al. (2009) for deuteranopia and protanopia."""
    large = ["kernels", "communication", "copies", "waits", "calls", "start-up", "CPU time between API calls"]
    assert {drawn_as(part) for part in PART_NAMES} <= COLOUR.keys()
    for seen in (np.eye(3), DEUTERANOPIA, PROTANOPIA):
        places = {name: oklab(seen @ linear(COLOUR[name])) for name in large}
        for first, second in combinations(large, 2):
            assert np.linalg.norm(places[first] - places[second]) > 0.09, (first, second)


def linear(colour: str) -> NDArray[np.float64]:
    part = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def oklab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    cones = np.cbrt(np.clip(LMS @ rgb, 0, None))
    return np.asarray(LAB @ cones)


LMS = np.array([[0.41222, 0.53633, 0.05145], [0.2119, 0.6807, 0.1074], [0.0883, 0.28172, 0.62998]])
LAB = np.array([[0.21045, 0.79362, -0.00407], [1.978, -2.42859, 0.45059], [0.0259, 0.78277, -0.80868]])
DEUTERANOPIA = np.array(
    [[0.36732, 0.86065, -0.22797], [0.28009, 0.6725, 0.04741], [-0.01182, 0.04294, 0.96888]]
)
PROTANOPIA = np.array([[0.15229, 1.05258, -0.20487], [0.1145, 0.78628, 0.09922], [-0.00388, -0.04812, 1.052]])


def test_findings_mark_the_operations_that_they_touch() -> None:
    recorded = read(EXAMPLES / "smooth-out-of-core-h100.json.gz")
    drawn = drawn_of(recorded)
    bit = 1 << list(drawn.marks).index("pageable-copies")
    marked = {row.label: (row.items["marks"] & bit != 0).sum() for row in drawn.rows if row.group == "work"}
    assert marked == {"kernels": 0, "h2d": 24, "d2h": 24}


def test_a_what_if_is_drawn_below_the_recording_and_called_predicted() -> None:
    recorded = read(EXAMPLES / "smooth-out-of-core-h100.json.gz")
    _, changed = answer_what_if(recorded, [pin()], Setting(H100), guessed=False)
    after = predicted_trace(changed), changed
    rows = time_line(recorded, timeline(recorded, H100), predicted=after).rows
    assert [row.predicted for row in rows] == sorted(row.predicted for row in rows)
    assert all(row.label.startswith("predicted" if row.predicted else "recorded") for row in rows)
    copies = {row.label: row.items["end_ns"].max() for row in rows if row.label.endswith("d2h")}
    assert copies["predicted d2h"] < copies["recorded d2h"] / 2


def test_numbers_of_any_size_and_sign_come_back() -> None:
    values = np.array([0, -1, 5, 1 << 40, -(1 << 40), 7, 7, 7])
    planes, packed = packing._planes(values)
    coded = np.zeros(len(values), np.uint64)
    for plane in range(planes):
        plane_bytes = np.frombuffer(packed[plane * len(values) : (plane + 1) * len(values)], np.uint8)
        coded |= plane_bytes.astype(np.uint64) << np.uint64(8 * plane)
    steps = (coded >> np.uint64(1)).astype(np.int64) ^ -(coded & np.uint64(1)).astype(np.int64)
    assert np.cumsum(steps).tolist() == values.tolist()


def test_large_runs_keep_long_operations_and_merge_short_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MOST_ITEMS", 10_000)
    copies = [copy(n * 3, n * 3 + 1 + n % 2, 4096) for n in range(20_000)]
    drawn = time_line(trace(*copies, *(kernel(n * 600, n * 600 + 500) for n in range(100))))
    header, columns = unpacked(drawn)
    assert header["count"] <= packing.MERGED_BARS + 101
    assert any(re.fullmatch("3[12] in one bar, busy 5[12] %", name) for name in header["names"])
    assert sum(columns["bytes"]) == 20_000 * 4096 - 100
    kernels = next(row for row in drawn.rows if row.label == "kernels").items
    assert columns["length"].count(500_000) == kernels.height == 100
    assert "Of 20,100 operations and calls, the longest 100 are drawn alone" in drawn.markup()


def test_a_page_of_a_million_operations_is_no_larger_than_400_kb() -> None:
    chance = np.random.default_rng(1)
    count, kinds = 1_000_000, [KINDS.index(name) for name in ("kernels", "h2d", "d2h", "memory sets")]
    lengths = chance.lognormal(9, 1.5, count).astype(np.int64) + 1
    starts = np.cumsum(lengths + chance.integers(1, 5_000, count)) - lengths
    columns = {"start_ns": starts, "end_ns": starts + lengths, "kind": chance.choice(kinds, count)}
    names = pl.format("kernel{}", pl.Series(chance.integers(0, 300, count))).cast(pl.Categorical)
    frame = pl.DataFrame(columns).with_columns(name=names)
    of_kinds = [packing.items_of(frame.filter(pl.col("kind") == kind)) for kind in kinds]
    rows = [packing.Row(str(kind), "work", items) for kind, items in zip(kinds, of_kinds, strict=True)]
    assert len(page(Document("large", "large", blocks=[Figure("timeline", TimeLine(rows))]))) < 400_000


SHOWN = """
    const canvas = document.querySelector("canvas"), line = document.querySelector(".time-line").timeLine;
    const press = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    const said = () => document.querySelector(".selected").textContent;
    const row = (label) => line.rows.find((one) => one.label === label);
    const pointer = (type, i, more) => {
      const box = canvas.getBoundingClientRect(), [left, right, top] = line.box(i);
      const place = { clientX: box.left + (left + right) / 2, clientY: box.top + top + 5, pointerId: 1, bubbles: true };
      canvas.dispatchEvent(new PointerEvent(type, { ...place, ...more }));
    };
"""


def browser_result(recorded: Trace, folder: Path, script: str, *flags: str) -> Any:
    report, run, findings = examine(recorded, H100)
    text = page(report_document(report, time_line(recorded, run, findings)))
    return answered(text, folder, SHOWN + script, *flags)


@pytest.mark.browser
def test_keys_wheel_and_drags_show_another_part_of_the_run(tmp_path: Path) -> None:
    spans = browser_result(
        launched(),
        tmp_path,
        """
        const spans = { whole: [...line.span] };
        press("w"); spans.nearer = [...line.span];
        press("d"); spans.later = [...line.span];
        press("0"); spans.again = [...line.span];
        const right = canvas.getBoundingClientRect().right, wheel = (more) => canvas.dispatchEvent(
          new WheelEvent("wheel", { deltaY: -200, cancelable: true, clientX: right, ...more }));
        spans.past = wheel({ deltaY: 200 });  // nothing to zoom out of: the page scrolls
        spans.zooms = wheel({}); spans.wheeled = [...line.span];
        wheel({ ctrlKey: true }); spans.pinched = [...line.span];
        wheel({ shiftKey: true, deltaY: -300 }); spans.moved = [...line.span];
        press("0"); dispatchEvent(new Event("scroll"));
        await new Promise((done) => setTimeout(done, 500)); dispatchEvent(new Event("scroll"));
        spans.scrolls = wheel({}); spans.scrolled = [...line.span];  // what began on the page goes on there
        press("w");
        pointer("pointerdown", row("kernels").from, { clientX: 500 });
        pointer("pointermove", row("kernels").from, { clientX: 600 });
        pointer("pointerup", row("kernels").from, { clientX: 600 }); spans.dragged = [...line.span];
        return spans;
        """,
    )
    assert spans["whole"] == spans["again"] == spans["scrolled"] == [0, 97_000]
    assert spans["nearer"] == [24_250, 72_750]
    assert spans["later"][0] > spans["nearer"][0]
    assert (spans["past"], spans["zooms"], spans["scrolls"]) == (True, False, True)
    assert spans["wheeled"][1] == pytest.approx(97_000, rel=0.01) and 30_000 < spans["wheeled"][0] < 45_000
    assert spans["pinched"][0] > spans["wheeled"][0] and spans["moved"][0] < spans["pinched"][0]
    assert spans["dragged"][0] < 24_250 and spans["dragged"][1] - spans["dragged"][0] == pytest.approx(48_500)


@pytest.mark.browser
def test_a_search_lights_up_what_it_finds_and_steps_through_it(tmp_path: Path) -> None:
    seen = browser_result(
        trace(*(kernel(n * 30, n * 30 + 20, ("GEMM", "softmax", "<i>x</i>")[n % 3]) for n in range(300))),
        tmp_path,
        """
        const field = document.querySelector("input[type=search]");
        const count = () => document.querySelector("output").textContent;
        const type = (text) => { field.value = text; field.dispatchEvent(new Event("input")); };
        const enter = (more) => field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", ...more }));
        const selected = () => [count(), line.header.names[line.items.name[line.selected]], line.items.start[line.selected]];
        const seen = { before: count() };
        type("gem"); seen.typed = [count(), line.lit.reduce((sum, one) => sum + one, 0)];
        enter(); seen.first = selected(); enter(); press("n"); seen.third = selected();
        enter({ shiftKey: true }); press("N"); press("N"); seen.last = selected();
        seen.shown = line.items.start[line.selected] >= line.span[0] && line.end[line.selected] <= line.span[1];
        type("<i>"); seen.markup = [count(), document.querySelectorAll("main i:not([style]):not([class])").length];
        type("nothing of that name"); seen.nothing = count(); enter();
        press("0"); seen.reset = [count(), field.value, line.lit];
        press("/"); seen.focused = document.activeElement === field;
        return seen;
        """,
    )
    assert seen["before"] == "" and seen["typed"] == ["100", 100]
    assert seen["first"] == ["1 of 100", "GEMM", 0] and seen["third"] == ["3 of 100", "GEMM", 180_000]
    assert seen["last"] == ["100 of 100", "GEMM", 297 * 30_000] and seen["shown"]
    assert seen["markup"] == ["100", 0] and seen["nothing"] == "0"
    assert seen["reset"] == ["", "", None] and seen["focused"]


@pytest.mark.browser
def test_calls_within_a_call_share_its_row(tmp_path: Path) -> None:
    outer = [call(n * 100, n * 100 + 80, "cudaGraphLaunch") for n in range(4)]
    inner = [call(n * 100 + 10, n * 100 + 40, "cuLaunchKernel") for n in range(4)]
    seen = browser_result(
        trace(kernel(0, 400, "work"), calls=[*outer, *inner]),
        tmp_path,
        """
        const calls = row("host calls"), [first, second] = [calls.from, calls.from + 1].map((i) => line.box(i));
        pointer("pointermove", calls.from + 1, { clientY: canvas.getBoundingClientRect().top + second[2] + 2 });
        const inside = document.querySelector(".hover").textContent;
        pointer("pointermove", calls.from + 1, { clientY: canvas.getBoundingClientRect().top + first[2] + 2 });
        const outside = document.querySelector(".hover").textContent;
        return { high: calls.high, lanes: calls.lanes.length, first, second, inside, outside };
        """,
    )
    assert seen["lanes"] == 2 and seen["high"] == 20
    (_, _, top, high), (_, _, inner_top, inner_high) = seen["first"], seen["second"]
    assert top < inner_top and inner_top + inner_high <= top + high
    assert "cuLaunchKernel" in seen["inside"] and "cudaGraphLaunch" in seen["outside"]


@pytest.mark.browser
def test_a_clicked_operation_is_described_with_what_it_waited_for(tmp_path: Path) -> None:
    texts = browser_result(
        launched(),
        tmp_path,
        """
        pointer("pointermove", row("h2d").from);
        const hover = document.querySelector(".hover").textContent;
        pointer("pointerdown", row("h2d").from); pointer("pointerup", row("h2d").from);
        const clicked = said();
        pointer("pointerdown", row("host calls").from + 2); pointer("pointerup", row("host calls").from + 2);
        line.draw();
        const wait = said(), links = line.chosen, hostile = row("kernels").from + 1;
        pointer("pointermove", hostile); pointer("pointerdown", hostile); pointer("pointerup", hostile);
        return { hover, clicked, wait, links, hostile: said(), title: document.title, images: document.images.length };
        """,
    )
    for part in ("h2d copy, pinned to device", "28 µs", "1.05 MB, 37.4 GB/s", "GPU 0, stream 7"):
        assert part in texts["hover"]
    assert "after: cudaMemcpy" in texts["clicked"]
    assert "after: h2d copy" in texts["wait"] and "then: h2d copy" in texts["wait"]
    assert len(texts["links"]) == 2
    assert HOSTILE in texts["hostile"]
    assert texts["title"].startswith("busfare") and texts["images"] == 0


@pytest.mark.browser
def test_the_critical_path_and_a_finding_are_lit_by_their_buttons(tmp_path: Path) -> None:
    lit = browser_result(
        read(EXAMPLES / "smooth-out-of-core-h100.json.gz"),
        tmp_path,
        """
        const bright = () => line.lit ? line.lit.reduce((sum, one) => sum + one, 0) : null;
        const button = document.querySelector("[data-do=path]");
        const show = document.querySelector("[data-shows=pageable-copies]");
        button.click(); const path = [bright(), button.getAttribute("aria-pressed")];
        button.click(); const off = [bright(), button.getAttribute("aria-pressed")];
        show.click(); line.draw();
        const focused = document.activeElement === canvas;
        return { path, off, hidden: show.hidden, finding: bright(), said: said(), focused };
        """,
    )
    assert lit["path"][0] > 48 and lit["path"][1] == "true"
    assert lit["off"] == [None, "false"]
    assert (lit["hidden"], lit["finding"], lit["focused"]) == (False, 48, True)
    assert "Large copies from or to pageable memory: 48" in lit["said"]


@pytest.mark.browser
def test_neighbours_share_a_pixel_until_they_are_zoomed_apart(tmp_path: Path) -> None:
    rows = [kernel(n * 3, n * 3 + 2, f"k{n}") for n in range(20_000)]
    hovers = browser_result(
        trace(*rows),
        tmp_path,
        """
        const middle = row("kernels").from + 10000, words = () => document.querySelector(".hover").textContent;
        pointer("pointermove", middle); const far = words();
        line.show(line.items.start[middle] - 5000, line.end[middle] + 5000); line.draw();
        pointer("pointermove", middle);
        return { far, near: words() };
        """,
    )
    assert "more here" in hovers["far"]
    assert "k10000 (kernels)" in hovers["near"] and "more here" not in hovers["near"]


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
def test_what_is_predicted_alone_is_hatched(dark: bool, tmp_path: Path) -> None:
    recorded = launched()
    after = recorded, timeline(recorded, H100)
    report, run, findings = examine(recorded, H100)
    text = page(report_document(report, time_line(recorded, run, findings, after)))
    script = """
        const image = line.pen.getImageData(0, 0, canvas.width, canvas.height);
        const colours = (i) => {
          const [left, right, top] = line.box(i), dense = window.devicePixelRatio, found = new Set();
          for (let y = Math.ceil((top + 1) * dense); y < (top + 12) * dense; y++)
            for (let x = Math.ceil((right - 3) * dense); x < (right - 1) * dense; x++)
              found.add(image.data.slice(4 * (y * canvas.width + x), 4 * (y * canvas.width + x) + 3).join());
          return found.size;
        };
        return [colours(row("recorded h2d").from), colours(row("predicted h2d").from)];
    """
    solid, hatched = answered(text, tmp_path, SHOWN + script, *(["--force-dark-mode"] if dark else []))
    assert solid == 1 and hatched > 1


def test_rows_that_are_not_drawn_are_named() -> None:
    rows = [call(n, n + 1, "cudaLaunchKernel", thread=n) for n in range(12)]
    drawn = time_line(trace(kernel(0, 1), calls=rows))
    assert len([row for row in drawn.rows if row.group == "calls"]) == 8
    assert "4 less busy threads" in drawn.note


def test_items_lack_nothing_that_the_script_reads() -> None:
    assert packing.items_of(pl.DataFrame({"start_ns": [1], "end_ns": [2]})).columns == list(packing.ITEMS)
