"""Every page as a user opens it: drawn in headless Chromium without a complaint, offline, with hostile text kept as text."""

import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from busfare.advise.jobs import advised
from busfare.answers.job import job_report
from busfare.answers.measure import read_result
from busfare.answers.plan import answer_plan
from busfare.answers.project import project, projected
from busfare.answers.report import examine
from busfare.answers.what_if import answer_what_if
from busfare.jobs.run import run_job
from busfare.measure.cases import read_record
from busfare.measure.probe import evaluated
from busfare.nodes import load_node
from busfare.questions import Plan, Report
from busfare.questions.measuring import BenchMethods, BenchStrategies
from busfare.show.bench import methods_document, strategies_document
from busfare.show.document import Document, Table, Tiles, words
from busfare.show.job import job_document
from busfare.show.notebook import predicted_trace
from busfare.show.page import page
from busfare.show.plans import plan_document
from busfare.show.predictions import projection_document, what_if_document
from busfare.show.probe import probe_document
from busfare.show.report import report_document
from busfare.show.svg import Bar, Bars, BarSeries, Line, Lines, Scale
from busfare.show.terminal import render
from busfare.show.time_line_rows import time_line
from busfare.timeline import timeline
from busfare.timeline.changes import Setting
from busfare.timeline.changes.durations import kernel_times
from busfare.timeline.changes.overlap import pin
from busfare.trace import Trace, read
from tests.chromium import answered, opened
from tests.job.build_job import Noted, write_job, write_rank
from tests.traces import EXAMPLES, copy, kernel, trace
from validation.stored import probe_raw, unpacked

HOSTILE = "<img src=x onerror=document.title='broken-in'></script><script>document.title='broken-in'</script>"
H100 = load_node("h100-sxm")


def hostile_trace() -> Trace:
    return trace(kernel(0, 10, HOSTILE), copy(10, 20, 4096), kernel(20, 30, HOSTILE + "2"))


def reported(recorded: Trace) -> Document:
    report, run, findings = examine(recorded, H100)
    return report_document(report, time_line(recorded, run, findings))


def job(folder: Path) -> Document:
    names = HOSTILE.replace("/", "\u2215")
    write_job(folder / "job", 12)
    write_rank(folder / "job" / f"{names}.json", 13, HOSTILE)
    (folder / "job" / f"bad{names}.json").write_text("{")
    read = run_job([folder / "job"], None, Report(), Noted(), advised)
    return job_document(job_report(read))


def planned(_: Path) -> Document:
    question = Plan.of(h2d="336MB", d2h="504MB", kernel="12ms", flops="12G", node="h100-sxm", to=["gh200"])
    result = answer_plan(question)
    result.name = HOSTILE
    return plan_document(result)


def changed(_: Path) -> Document:
    recorded = read(EXAMPLES / "smooth-out-of-core-h100.json.gz")
    result, changed = answer_what_if(
        recorded, [pin(), kernel_times(0.5, f"smooth|{HOSTILE}")], Setting(H100), guessed=False
    )
    after = predicted_trace(changed), changed
    return what_if_document(result, time_line(recorded, timeline(recorded, H100), predicted=after))


def on_another_node(_: Path) -> Document:
    recorded = read(EXAMPLES / "train-images-h100.json.gz")
    result = projected([project(recorded, H100, load_node("h200-sxm"), "calibrated")])
    return projection_document(result, HOSTILE)


def probe(_: Path) -> Document:
    result = evaluated(read_record(probe_raw("h200-run1"))).result
    result.node.title = HOSTILE
    return probe_document(result)


def strategies(_: Path) -> Document:
    result = read_result(unpacked("bench") / "strategies-h100.json", BenchStrategies)
    result.cells[0].title = result.gpu = HOSTILE
    return strategies_document(result)


def methods(_: Path) -> Document:
    result = read_result(unpacked("bench") / "methods-h100.json", BenchMethods)
    result.cells[0].methods[0].method = result.gpu = HOSTILE
    return methods_document(result)


#: Each page, the figures that are on it, and flags of the browser.
PAGES: list[tuple[Callable[[Path], Document], set[str], tuple[str, ...]]] = [
    (lambda _: reported(read(EXAMPLES / "train-images-h100.json.gz")), {"path", "timeline"}, ("--force-dark-mode",)),
    (lambda _: reported(hostile_trace()), {"timeline"}, ()),
    (job, {"largest-makespan_seconds", "largest-exposed_seconds"}, ()),
    (planned, {"ranking", "roofline"}, ()),
    (changed, {"gains", "path", "timeline"}, ()),
    (on_another_node, {"projection"}, ()),
    (probe, {"bandwidth", "latency", "residuals"}, ()),
    (strategies, {"cell0"}, ()),
    (methods, {"situation1", "situation2"}, ()),
]  # fmt: skip


@pytest.mark.browser
@pytest.mark.parametrize(("made", "figures", "flags"), PAGES)
def test_a_page_is_drawn_without_a_complaint_and_keeps_text_text(
    made: Callable[[Path], Document], figures: set[str], flags: tuple[str, ...], tmp_path: Path
) -> None:
    text = page(made(tmp_path))
    assert len(text.encode()) < 1_000_000
    assert "default-src 'none'" in text and 'src="http' not in text and "<link" not in text
    document, console = opened(text, tmp_path, *flags)
    assert console == []
    assert "<img" not in document and "<title>broken-in" not in document
    drawn = set(
        re.findall(r'<figure id="([^"]+)"><div class="(?:scroll"[^>]*><svg|shares"|time-line")', document)
    )
    assert figures <= drawn
    assert ('data-drawn="yes"' in document) == ("timeline" in figures)


def three_findings() -> Document:
    recorded = read(EXAMPLES / "smooth-out-of-core-h100.json.gz")
    report, run, findings = examine(recorded, H100)
    report.trace.path = f"/scratch/users/somebody/projects/{'x' * 60}/traces/smooth.json.gz"
    report.findings.append(replace(report.findings[-1], id="synchronous-copies", what_if=["--async"]))
    return report_document(report, time_line(recorded, run, findings))


#: Of what stands on a page where: [top, bottom] of the verdict and of each action, and which neighbours overlap.
PLACES = """
    const ends = (element) => ["top", "bottom"].map((edge) => element.getBoundingClientRect()[edge] + scrollY);
    const shown = (element) => element.getClientRects().length && getComputedStyle(element).position !== "absolute";
    const over = [];
    for (const parent of document.querySelectorAll("body, main, main > *, .actions > li, .time-line")) {
      const boxes = [...parent.children].filter(shown).map((child) => [child, child.getBoundingClientRect()]);
      for (const [n, [first, a]] of boxes.entries()) for (const [second, b] of boxes.slice(n + 1))
        if (["left right", "top bottom"].map((edges) => edges.split(" ")).every(
            ([from, to]) => Math.min(a[to], b[to]) - Math.max(a[from], b[from]) > 1))
          over.push([first.outerHTML.slice(0, 80), second.outerHTML.slice(0, 80)]);
    }
    return {
      window: innerWidth, verdict: ends(document.querySelector(".verdict")), over,
      actions: [...document.querySelectorAll(".actions")].slice(0, 1).flatMap((list) => [...list.children].map(ends)),
      wide: document.documentElement.scrollWidth,
    };
"""


@pytest.mark.browser
@pytest.mark.parametrize(("wide", "high"), [(1280, 900), (390, 844)])
def test_verdict_and_three_actions_are_seen_without_scrolling(wide: int, high: int, tmp_path: Path) -> None:
    places = answered(page(three_findings()), tmp_path, PLACES, "--window-size=1300,950", size=(wide, high))
    assert places["window"] == wide
    assert places["verdict"][1] < high / 4
    assert len(places["actions"]) == 3 and max(end for _, end in places["actions"]) < high


@pytest.mark.browser
@pytest.mark.parametrize(
    "made",
    [made for made, figures, _ in PAGES if figures & {"timeline", "largest-exposed_seconds", "projection"}],
)
def test_nothing_is_wider_than_a_phone_or_overlaps(made: Callable[[Path], Document], tmp_path: Path) -> None:
    script = "document.querySelectorAll('details').forEach((part) => { part.open = true; });" + PLACES
    places = answered(page(made(tmp_path)), tmp_path, script, "--window-size=500,950", size=(390, 844))
    assert places["window"] == places["wide"] == 390
    assert places["over"] == []


def test_a_page_is_headed_by_the_name_of_its_file_and_ends_with_the_path() -> None:
    document = three_findings()
    text = page(document)
    assert "<h1>smooth.json.gz</h1>" in text and "<title>busfare: smooth.json.gz</title>" in text
    before, _, behind = text.partition("<summary>Files</summary>")
    assert document.paths[0] in behind
    # A command is copied with all of the path, of which its folders are not seen.
    folders = document.paths[0].removesuffix("smooth.json.gz")
    assert f'busfare what-if <span class="folders">{folders}</span>smooth.json.gz' in before
    assert before.count(folders) == before.count('class="folders"') == 3


def test_cards_are_few_and_none_of_them_says_nothing() -> None:
    for name in ("train-images", "smooth-out-of-core", "generate-text"):
        blocks = reported(read(EXAMPLES / f"{name}-h100.json.gz")).blocks
        [tiles] = [block for block in blocks if isinstance(block, Tiles)]
        assert 2 <= len(tiles.tiles) <= 5
        assert not [card for card in tiles.tiles if re.search(r"(?<![\d.])0(\.0+)? ", " ".join(card))]
    cards = dict(reversed(card) for card in tiles.tiles)
    assert any("CPU time" in what for what in cards) and not any("transfers" in what for what in cards)


def test_predicted_bars_are_hatched_with_their_ranges_and_recorded_ones_solid() -> None:
    bars = [Bar(1.0, "1 s"), Bar(2.0, "2 s (1–3)", 1.0, 3.0, predicted=True)]
    drawn = Bars(["recorded", "predicted"], [BarSeries("run", "#000000", bars)], "time").markup()
    plot = drawn.partition('class="end">recorded')[2]
    assert (plot.count("url(#hatch)"), plot.count('class="whisker"')) == (1, 1)
    lines = [
        Line(n, "#000000", [1, 10], [1, 2], predicted=n == "predicted") for n in ("measured", "predicted")
    ]
    assert Lines(lines, "x", "y").markup().count("stroke-dasharray") == 2  # the line and its legend


def test_a_range_that_the_edge_cuts_ends_in_an_arrow() -> None:
    arrow = "m-6 -4l6 4l-6 4"
    for high, cut in ((1.5, False), (50.0, True)):
        bars = [Bar(1.0, "1 s", 0.5, high, predicted=True)]
        assert (arrow in Bars(["run"], [BarSeries("run", "#000000", bars)], "time").markup()) == cut


@pytest.mark.parametrize(
    ("scale", "whole", "ticks"),
    [
        (Scale.over([9, 11], 0, 1, True), True, [9, 10, 11, 12]),
        (Scale.over([3, 120], 0, 1, True), True, [5, 10, 20, 50, 100]),
        (Scale.over([1, 4], 0, 1, True), True, [1, 2, 3, 4]),
        (Scale.over([1e-3, 1.1e-3], 0, 1, True), False, [1e-3, 1.1e-3, 1.2e-3]),
        (Scale(0, 2, 0, 1), True, [0, 1, 2]),
        (Scale(0, 1, 0, 1), False, [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ],
)
def test_an_axis_has_several_ticks_and_counts_integers(scale: Scale, whole: bool, ticks: list[float]) -> None:
    assert scale.ticks(whole) == pytest.approx(ticks)


def test_what_cannot_stand_on_an_axis_is_left_out() -> None:
    lines = [Line("some", "#000000", [0, 1, 2, 3], [1.0, None, float("nan"), 5.0])]
    assert Lines(lines, "x", "y").markup().count("<circle") == 1
    assert "no figures to draw" in Lines([Line("none", "#000000", [], [])], "x", "y").markup()


def test_a_page_has_all_rows_of_a_table_that_a_terminal_shows_in_part() -> None:
    table = Table(words("name"), [(f"row {number}",) for number in range(50)], most=5)
    document = Document("title", "heading", blocks=[table])
    assert "row 49" in page(document)
    shown = [line for line, _ in render(document, 80)]
    assert "row 4" in shown and "row 5" not in shown and "and 45 more (--json)" in shown


def test_a_page_allows_only_the_scripts_in_it() -> None:
    with_line, without = page(reported(hostile_trace())), page(planned(Path()))
    scripts = re.findall("<script>(.*?)</script>", with_line, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert len(hashes) == 2
    [allowed] = re.findall("script-src (.*?);", with_line)
    assert allowed.split() == [f"'sha256-{digest}'" for digest in hashes]
    assert re.findall("script-src (.*?);", without) == ["'none'"]
