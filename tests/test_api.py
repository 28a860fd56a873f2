"""busfare from Python: the same answers as the commands', and what shows them. All on the traces that ship."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import msgspec
import polars as pl
import pytest

import busfare
from busfare import questions
from busfare.cli.options import measuring, planning, traces
from busfare.nodes import load_node
from busfare.show.notebook import JobReport
from tests.conftest import run
from tests.job.kineto_job import write_ranks
from tests.traces import EXAMPLES

NEEDED: dict[type, dict[str, Any]] = {
    questions.WhatIf: {"pin": True},
    questions.Project: {"to": "gh200"},
    questions.Plan: {"h2d": 1},
    questions.Offload: {"model": "llama-2-7b"},
    questions.KvCache: {"model": "llama-2-7b"},
    questions.Price: {"bytes": 1},
}
IMAGES, PINNED = EXAMPLES / "train-images-h100.json.gz", EXAMPLES / "train-images-pinned-h100.json.gz"


@pytest.fixture(scope="module")
def images() -> busfare.Run:
    return busfare.read(IMAGES)


def command(*words: str | Path) -> Any:
    done = run(*map(str, words), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def alike(value: Any, expected: Any) -> bool:
    """Sums of many numbers differ in their last digits from one time to the next."""
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(alike(value[key], expected[key]) for key in value)
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(alike, value, expected))
    if isinstance(value, float) and isinstance(expected, float):
        return value == pytest.approx(expected, rel=1e-9)
    return bool(value == expected)


def test_importing_it_imports_nothing_heavy_and_every_name_is_there() -> None:
    code = (
        "import sys, busfare; assert not {'polars', 'numpy', 'click'} & set(sys.modules); import busfare.answers.report\n"
        "assert all(callable(getattr(busfare, n)) for n in busfare.__all__ if n != '__version__'), busfare.report\n"
        "from busfare import *; print(report.__module__, set(busfare.__all__) == set(dir(busfare)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["busfare.api", "True"]


def test_a_run_has_its_tables(images: busfare.Run) -> None:
    assert images.copies.height == 18 and images.copies["bytes"].sum() == 6 * (38_535_168 + 512 + 4)
    assert images.kernels.height == 2310 and images.kernels["kind"].unique().to_list() == ["kernel"]
    assert images.kernels.filter(pl.col("operator") == "aten::cudnn_convolution")["grid_x"].min() >= 1
    assert {"name", "waits_for"} <= set(images.calls.columns)
    assert "2,310 kernels, 18 copies" in repr(images)
    assert images.kernels.filter(pl.col("name").str.contains("gemm")).height > 0
    assert images.calls.filter(pl.col("name").str.starts_with("cudaMemcpy")).height > 0
    assert images.operations["direction"].drop_nulls().str.len_chars().max() == 3
    assert images.trace.calls["name"].dtype == pl.Categorical  # what answers read
    assert {"kernels", "markers", "omissions"} <= {*dir(images)} and not hasattr(images, "_repr_html_")
    assert images.copies.to_arrow().num_rows == 18


def test_answers_are_those_of_the_commands(images: busfare.Run) -> None:
    for answer, words in (
        (images.report(), ("report", IMAGES)),
        (images.what_if(pin=True, async_=True), ("what-if", IMAGES, "--pin", "--async")),
        (images.what_if(to="gh200", kernels=["0.5x"]), ("what-if", IMAGES, "--to", "gh200", "--kernels", "0.5x")),
        (images.project("h200-sxm"), ("project", IMAGES, "--to", "h200-sxm")),
        (busfare.compare(IMAGES, PINNED, to="h100"), ("compare", IMAGES, PINNED, "--to", "h100")),
        (busfare.diff(images, PINNED), ("diff", IMAGES, PINNED)),
        (
            busfare.plan(h2d=336_000_000, d2h="504MB", kernel=0.012, node=busfare.node("h100")),
            ("plan", "--h2d", "336MB", "--d2h", "504MB", "--kernel", "12ms", "--node", "h100"),
        ),
        (
            busfare.plan_offload(
                node="h100", layers=32, bytes_per_layer="436MB", seconds_per_layer={1: "0.2ms", 2048: 0.004},
                tokens=1,
            ),
            (
                "plan", "offload", "--node", "h100", "--layers", "32", "--bytes-per-layer", "436MB",
                "--seconds-per-layer", "1=0.2ms,2048=4ms", "--tokens", "1",
            ),
        ),
        (
            busfare.plan_kv(node="h100", bytes_per_token="128KiB"),
            ("plan", "kv", "--node", "h100", "--bytes-per-token", "128KiB"),
        ),
    ):  # fmt: skip
        assert alike(json.loads(answer.to_json()), command(*words))


def test_a_job_and_the_run_without_its_recorder_answer(images: busfare.Run, tmp_path: Path) -> None:
    job = busfare.report([IMAGES, PINNED])
    assert isinstance(job, JobReport) and job.traces.read == 2 and "2 kineto" in repr(job)
    write_ranks(tmp_path / "job", [[900.0] * 6, [1400.0] * 6], 300.0)
    changed = busfare.what_if(tmp_path / "job", no_stragglers=True)
    assert changed.ranks and changed.runs is None and changed.gain_seconds > 0
    assert busfare.what_if(tmp_path / "job", rank=1, drop_synchronisations=True).ranks
    since = images.report(baseline=busfare.report(PINNED)).baseline
    assert not isinstance(since, msgspec.UnsetType) and since.before == str(PINNED)
    bare = images.report(unrecorded=0.15)
    assert bare.recording_cost.replayed_seconds == pytest.approx(0.15, rel=0.01)
    assert images.what_if(pin=True, unrecorded="150ms").baseline.recording_cost is not None
    with pytest.raises(busfare.BusfareError, match="nope"):
        busfare.report(tmp_path / "nope")


def test_answers_show_themselves(images: busfare.Run, tmp_path: Path) -> None:
    answer = images.what_if(pin=True)
    assert answer.runs is not None and answer.runs[0] is images.trace
    assert "Whole run, predicted by replay" in repr(answer)
    shown = answer._repr_html_()
    # In a frame of its own that may run its script and nothing else, every mark of the page escaped.
    assert shown.startswith('<iframe sandbox="allow-scripts"') and "<script" not in shown
    answer.save(tmp_path / "page.html")
    answer.save(tmp_path / "answer.json")
    assert "<canvas" in (tmp_path / "page.html").read_text()
    assert json.loads((tmp_path / "answer.json").read_text())["schema"] == "busfare.what-if/1"
    with pytest.raises(busfare.BusfareError, match=r"\.html or \.json"):
        answer.save(tmp_path / "page.pdf")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda run: run.what_if(pinn=True), "pinn: is not an option; did you mean 'pin'"),
        (lambda run: run.what_if(streams=True), "`streams` True is not a number"),
        (lambda run: run.what_if(), "no change given"),
        (lambda run: run.what_if(pin=False), "no change given"),
        (lambda run: run.project("h900"), "not a catalogue name"),
        (lambda run: busfare.plan(h2dd=1), "h2dd: is not an option; did you mean 'h2d'"),
        (lambda run: busfare.node("h900"), "not a catalogue name"),
        (lambda run: busfare.read("nope.sqlite"), "nope.sqlite: cannot be read"),
        (lambda run: busfare.read(5), "5 is not a trace; give its path"),
        (lambda run: busfare.read(""), "'' is not a trace"),
        (lambda run: busfare.report([IMAGES, 5]), "5 is not a trace"),
        (lambda run: busfare.what_if(None, pin=True), "None is not a trace"),
        (lambda run: busfare.node(4), "4 is not a node; give its name"),
        (lambda run: run.project(4), "4 is not a node"),
        (lambda run: run.report(recorded_on=4), "4 is not a node"),
        (lambda run: run.report(unrecorded=[1]), r"`unrecorded` \[1\] is not a time"),
        (lambda run: run.what_if(streams="x"), "`streams` 'x' is not a number"),
        (lambda run: run.what_if(streams=2.5), "`streams` 2.5 is not a whole number"),
        (lambda run: run.what_if(rank=[0, "x"]), "`rank` 'x' is not a number"),
        (lambda run: run.what_if(pin=3), "`pin` 3: give True for all, or a regular expression"),
        (lambda run: run.what_if(dedupe=3), "`dedupe` 3: give True"),
        (lambda run: questions.BenchMethods.of(largest=17), "`largest` 17 is not a whole number from 1048576 to"),
        (lambda run: questions.Record.of(delay=1, nvtx="x"), "`delay`: the program itself starts the recording"),
        (lambda run: questions.Report.of(jobs=100_000), "from 1 to"),
        (lambda run: questions.Report.of(scheduler="tcp://x:1", jobs=2), "leave out `jobs`"),
        (lambda run: questions.Plan.of(h2d=1, kernel=1e-3, type="fp64"), "`type` fp64: the number type of `flops`"),
        (lambda run: questions.Price.of(node="t4", bytes=1, type="fp64"), "`type`: describes a `kernel`"),
        (lambda run: questions.Price.of(node="t4", bytes=1, flops="1G"), "`flops`: describes a `kernel`"),
        (lambda run: questions.KvCache.of(node="t4", bytes_per_token=1024, type="fp8"), "`type` fp8: needs `model`"),
        (lambda run: questions.Record.of(flush_every=0), "`flush_every` 0.0: give 0.01 seconds or more"),
        (lambda run: busfare.report([IMAGES, PINNED], baseline=run.report()), "`baseline` is of one run"),
        (lambda run: run.what_if(to="gh200", node="h200-sxm"), "`node`: given twice, under both of its names"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_says_why(images: busfare.Run, ask: Any, message: str) -> None:
    with pytest.raises(busfare.BusfareError, match=message):
        ask(images)


@pytest.mark.parametrize(
    ("question", "command", "inputs"),
    [
        (questions.Report, traces.report, {"traces", "fingerprints", "fail_if", "baseline"}),
        (questions.WhatIf, traces.what_if, {"trace", "fingerprints", "perfetto"}),
        (questions.Project, traces.project, {"trace", "counters"}),
        (questions.Compare, traces.compare, {"predicted", "actual", "counters"}),
        (questions.Plan, planning.strategies, set()),
        (questions.Offload, planning.offload, set()),
        (questions.KvCache, planning.kv, set()),
        (questions.Price, planning.price, set()),
        (questions.Probe, measuring.probe, {"output", "raw", "from_"}),
        (questions.Record, measuring.record, {"command", "output"}),
        (questions.BenchMethods, measuring.methods, {"from_"}),
        (questions.BenchStrategies, measuring.strategies, {"from_"}),
    ],
)
def test_every_option_is_a_field_of_its_question_with_the_same_default(
    question: type[questions.Question], command: click.Command, inputs: set[str]
) -> None:
    shown_only = {"details", "help_all", "json", "html", "wide"}
    options = {p.name: p.default for p in command.params if p.name not in inputs | shown_only}
    assert options.keys() == question.names()
    given = {name: value for name, value in options.items() if isinstance(value, str)}
    assert question.of(**NEEDED.get(question, {}), **given) == question.of(**NEEDED.get(question, {}))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pin": True, "async_": "grad"}, ("--pin", "--async", "grad")),
        ({"batch_below": "64KiB", "unrecorded": 0.15}, ("--batch-below", "64KiB", "--unrecorded", "0.15s")),
        ({"bucket": 25e6, "overlap_collectives": True}, ("--overlap-collectives", "--bucket", "25MB")),
        (
            {"window": "0.25..2.5", "range": "a step", "recorded_on": "t4", "remove": "h2d"},
            ("--window", "0.25s..2.5s", "--range", "a step", "--remove", "h2d", "--from", "t4"),
        ),
        ({"window": "1..", "pin": True}, ("--window", "1.0s..", "--pin")),
        ({"remove": ["h2d", "d2h"], "rank": 1}, ("--remove", "h2d", "--remove", "d2h", "--rank", "1")),
    ],
)
def test_a_question_is_spelt_as_options(options: dict[str, Any], words: tuple[str, ...]) -> None:
    assert questions.WhatIf.of(**options).option_words() == words


def test_a_node_on_another_link_keeps_what_its_link_did_not_measure() -> None:
    probed = busfare.node("h100-probed")
    moved = load_node("h100-probed", "pcie:4x4")
    assert probed.copies_measured("pinned") and not moved.copies_measured("pinned")
    assert moved.curve("d2d", "device") == probed.curve("d2d", "device")
    assert moved.call_cost("launch") == probed.call_cost("launch")
    assert moved.contention().rung != "probed" == probed.contention().rung
    assert moved.host_path(0).bandwidth("read") == load_node("pcie:4x4").host_path(0).bandwidth("read")
    # Peers of this node are joined by NVLink, those of a probed pair by PCIe.
    assert load_node("h100-sxm", "pcie:4x4").peer_path(0, 1) == busfare.node("h100-sxm").peer_path(0, 1)


def test_plans_take_the_link_of_a_slot() -> None:
    wide, narrow = (
        busfare.plan(h2d="336MB", kernel="12ms", node="h100-probed", link=link) for link in (None, "pcie:4x4")
    )
    first = narrow.ranking[0]
    expected = ("h100-probed on pcie:4x4", "probed", "datasheet")
    assert (narrow.node, wide.ranking[0].rung, first.rung) == expected
    assert first.predicted_seconds > 3 * wide.ranking[0].predicted_seconds
    assert first.high_seconds / first.low_seconds > wide.ranking[0].high_seconds / wide.ranking[0].low_seconds
    model = {"model": "llama-3.1-8b", "node": "rtx-4090", "link": "pcie:4x4"}
    for plan in (busfare.plan_kv(**model), busfare.plan_offload(tokens=1, **model)):
        assert "pcie:4x4" in repr(plan)
    priced = command("price", "--node", "4090", "--link", "pcie:4x4", "--bytes", "1MB")
    assert priced["node"] == "rtx-4090 on pcie:4x4"
    recorded = EXAMPLES / "smooth-out-of-core-h100.json.gz"
    there, slot = (
        busfare.plan(from_trace=recorded, kernel_name="smooth", link=link) for link in (None, "pcie:3x4")
    )
    assert slot.bounds.no_overlap > 2 * there.bounds.no_overlap
    for node, link, why in (("mi300a", "pcie:4x4", "one memory"), ("4090", "x4", "not a link")):
        with pytest.raises(busfare.BusfareError, match=why):
            busfare.plan(h2d=1, kernel=1e-3, node=node, link=link)
