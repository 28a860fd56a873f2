"""What each command's document says on every face, and that the keys documented are those of the results."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from busfare import questions
from busfare.advise import amounts
from busfare.advise.jobs import advised
from busfare.answers.compare import Compared, compared
from busfare.answers.doctor import Doctor
from busfare.answers.job import JobReport, job_report
from busfare.answers.plan import PlanResult
from busfare.answers.project import Projected, project, projected
from busfare.answers.report import Diff, Report, examine, summarise
from busfare.answers.trial import Try
from busfare.answers.what_if import WhatIf
from busfare.errors import InputError
from busfare.jobs.run import run_job
from busfare.measure.bench.run import MethodsResult, StrategiesResult
from busfare.measure.probe import ProbeResult
from busfare.nodes import load_node
from busfare.show.document import Document
from busfare.show.job import job_document
from busfare.show.nodes import Nodes, Prices
from busfare.show.page import page
from busfare.show.predictions import comparison_document, projection_document
from busfare.show.report import report_document
from busfare.show.terminal import render
from busfare.show.time_line_rows import time_line
from busfare.statements import Statement
from busfare.trace import Omission, Trace, read
from tests.advise.test_call_sites import steps
from tests.job.build_job import Noted, write_job, write_rank
from tests.trace.build_kineto import write_kineto
from tests.traces import EXAMPLES, as_json, copy, kernel, trace
from validation.stored import probed_node, unpacked

HOSTILE = "evil<script>alert(1)</script>[bold]&\u202e\x1b[31mred</title>"


def lines(document: Document, width: int = 160) -> list[str]:
    return [line for line, _ in render(document, width, details=True)]


def shown(document: Document) -> str:
    return "\n".join(lines(document))


def reported(recorded: Trace, *more: Any) -> Document:
    report, run, findings = examine(recorded, *more)
    return report_document(report, time_line(recorded, run, findings))


def test_paths_and_sizes_add_up_to_the_total() -> None:
    result = as_json(summarise(read(EXAMPLES / "generate-text-h100.json.gz")))
    for rows in (result["by_path"], result["size_histogram"]):
        for key in ("count", "seconds"):
            assert sum(row[key] for row in rows) == pytest.approx(result["transfers"][key])


def test_a_guessed_node_is_marked_as_a_guess() -> None:
    recorded = trace(copy(0, 1, 1), gpu="NVIDIA H100 80GB HBM3")
    for name, node in (("h100-sxm", None), ("gh200", load_node("gh200"))):
        expected = {"name": name, "guessed_from_gpu_name": node is None, "measured": False}
        assert as_json(summarise(recorded, node).node) == expected
    assert summarise(trace(copy(0, 1, 1))).node is None


def test_gains_say_which_figures_they_rest_on() -> None:
    """A real recording. Bounds that nothing replayed are the data sheet's, whatever was measured."""
    recorded = read(EXAMPLES / "train-images-h100.json.gz")
    measured, published = "measurements on h100-probed", "the data sheet of h100-sxm"
    for node, basis in (("h100-probed", measured), ("h100-sxm", published)):
        document = reported(recorded, load_node(node))
        text = " ".join(lines(document))
        assert f"(predicted gains, based on {basis}; likely: 80 % prediction interval)" in text
        assert basis in page(document)
    copies = trace(copy(0, 16_000, 1 << 26, memory="pageable"), kernel(16_000, 17_000))
    assert "based on the data sheet of h100-probed" in shown(reported(copies, load_node("h100-probed")))


def test_gains_are_of_the_run_without_its_recorder() -> None:
    """Recorded on an H100: pinning saved more of the unrecorded run than packing; the recording, in which every call takes
    longer, shows packing first.
    """
    folder = unpacked("pairs/h100")
    recorded, node = read(folder / "matched_filter-before.bf"), probed_node("h100-eighth-run1")
    times = json.loads((folder / "times.json").read_text(encoding="utf-8"))
    variants = times["programs"]["matched_filter"]["variants"]
    medians = {name: row["median_seconds"] for name, row in variants.items()}
    unrecorded = medians["before"]
    assert medians["pin"] < medians["batch"] < unrecorded
    corrected, plain = summarise(recorded, node, unrecorded), summarise(recorded, node)
    assert plain.recording_cost is None
    assert [f.id for f in corrected.findings][:2] == ["pageable-copies", "small-copies"]
    assert corrected.makespan_seconds == plain.makespan_seconds > 1.05 * unrecorded
    cost = corrected.recording_cost
    assert cost and corrected.critical_path
    assert cost.replayed_seconds == pytest.approx(unrecorded, rel=0.01) and cost.call_seconds > 0
    path = sum(part.seconds for part in corrected.critical_path)
    assert path == pytest.approx(cost.replayed_seconds, rel=0.01)
    first = corrected.findings[0]
    assert first.what_if == ["--pin", "--unrecorded", f"{unrecorded:g}s"]
    # Of the unrecorded run, not of the recorded one.
    document = report_document(corrected)
    gain = first.predicted_gain_seconds
    share = f"about {amounts.time(gain)} ({amounts.percent(gain / cost.replayed_seconds)})"
    for text in (" ".join(lines(document)), page(document)):
        assert share in text and "per call subtracted" in text


def test_a_run_that_cannot_be_replayed_has_no_recorder_taken_out() -> None:
    with pytest.raises(InputError, match="`unrecorded` needs a run that can be replayed"):
        summarise(trace(copy(0, 1, 1)), None, 1.0)


def test_a_report_fits_100_columns() -> None:
    recorded = trace(
        copy(0, 16_000, 1 << 26, memory="pageable"),
        kernel(16_000, 17_000, "a_very_long_kernel_name<" * 20),
        omissions=[Omission("cut-window", 3, "words " * 40)],
    )
    text = lines(reported(recorded), 100)
    assert max(len(line) for line in text) <= 100
    assert any("cut-window (3×): words" in line for line in text)
    assert any("up to" in line or "gain not known" in line for line in text)


def test_a_trace_without_gpu_work_is_not_called_fine() -> None:
    for recorded, well in ((trace(), False), (trace(kernel(0, 10)), True)):
        document = reported(recorded)
        for face in (shown(document), page(document)):
            assert ("No worthwhile change" in face) is well
            assert ("The trace has no kernels and no transfers" in face) is not well


def test_kernels_alone_do_not_tell_whether_anything_was_copied() -> None:
    alone = Omission("no-calls", 0, "the trace has no API calls")
    document = reported(trace(kernel(0, 10), omissions=[alone]))
    for face in (shown(document), page(document)):
        assert "copies may be missing" in face and "No worthwhile change" not in face


def test_a_hostile_name_is_text_on_every_face() -> None:
    recorded = trace(kernel(0, 10, HOSTILE), copy(10, 20, 1), omissions=[Omission("x", 1, HOSTILE)])
    document = reported(recorded)
    text, made = shown(document), page(document)
    assert "\x1b" not in text and "\u202e" not in text and "[bold]" in text
    assert "alert(1)</script>" not in made and "evil&lt;script&gt;" in made
    assert "\x1b" not in made and "\u202e" not in made
    assert made.partition("<script")[0].count("</title>") - made.count("</title></rect>") <= 2


def test_every_node_is_projected_onto_and_differs_from_the_recorded() -> None:
    recorded = read(EXAMPLES / "smooth-out-of-core-h100.json.gz")
    nodes = [load_node(name) for name in ("gh200", "pcie:3x16")]
    result = projected([project(recorded, load_node("h100-sxm"), n, "calibrated") for n in nodes])
    assert list(as_json(result))[:4] == ["schema", "from", "to", "model"]
    assert [p.to for p in result.projections] == ["gh200", "pcie:3x16"]
    assert result.to == "gh200" and result.makespan == result.projections[0].makespan
    document = projection_document(result, "x")
    for face in (shown(document), page(document)):
        assert "h100-sxm (recorded)" in face and "pcie:3x16 (predicted)" in face


def test_every_model_that_applies_is_compared_best_first() -> None:
    first, second = (read(EXAMPLES / f"smooth-out-of-core-streams-{gpu}.json.gz") for gpu in ("h100", "h200"))
    result = compared(first, second, load_node("h100-sxm"), load_node("h200-sxm"))
    errors = [m.wmape_percent for m in result.models]
    assert {m.model for m in result.models} >= {"datasheet", "ahead", "peak", "envelope", "calibrated"}
    assert errors == sorted(errors) and result.wmape_percent == errors[0]
    assert f"{errors[0]:.2f} %" in shown(comparison_document(result))


def test_the_terminal_names_what_is_wrong_in_a_job(tmp_path: Path) -> None:
    write_job(tmp_path, 12)
    (tmp_path / "bad.json").write_text("[")
    document = job_document(job_of(tmp_path))
    text = lines(document, 100)
    assert max(len(line) for line in text) <= 100
    joined = "\n".join(text)
    assert "12 traces of a job" in joined and "1 file could not be read" in joined and "bad.json" in joined
    assert "The longest run is rank 5 on node1: 15 ms." in " ".join(joined.split())
    assert re.search(r"GPU 0 of rank 2 on node0, h2d: 25 GB/s, 50 % of the median", joined)
    brief = "\n".join(line for line, _ in render(document, 100))
    assert "Link health" in joined and "Link health" not in brief and brief.count("\n") < 40


def test_findings_of_a_job_name_lines_of_the_program(tmp_path: Path) -> None:
    for rank in range(2):
        write_kineto(tmp_path / f"{rank}.json", steps(), {"distributedInfo": {"rank": rank}})
    text = shown(job_document(job_report(run_job([tmp_path], None, questions.Report(), Noted(), advised))))
    assert "At train.py:42 load_batch, in step *: 6 copies, 201 MB, 60 ms" in text


def test_unknown_ranks_and_hosts_are_not_made_up(tmp_path: Path) -> None:
    for name in ("a.json", "\x1b]0;owned\x07.json"):
        write_rank(tmp_path / name, None, None)
    result = job_of(tmp_path)
    assert (result.slowest.rank, result.slowest.host) == (None, None)
    assert result.ranks_seen == 0
    assert {omission.id: omission.count for omission in result.omissions}["unknown-rank"] == 2
    text = shown(job_document(result))
    assert "ranks not named" in text and "\x1b" not in text


def test_traces_are_called_by_what_tells_their_paths_apart(tmp_path: Path) -> None:
    for run in ("before", "after"):
        folder = tmp_path / ("long name of a folder" * 3) / run / "profile"
        folder.mkdir(parents=True)
        write_rank(folder / "trace.json", None, None)
    drawn = page(job_document(job_of(tmp_path)))
    assert 'class="end">before</text>' in drawn and 'class="end">after</text>' in drawn
    (folder / "trace.json").unlink()
    assert 'class="end">trace.json</text>' in page(job_document(job_of(tmp_path)))


def job_of(folder: Path) -> JobReport:
    return job_report(run_job([folder], None, questions.Report(), Noted(), advised))


#: Each command's result, and its section of docs/json.md.
RESULT_TYPES: dict[str, type[msgspec.Struct]] = {
    "report": Report,
    "report-job": JobReport,
    "project": Projected,
    "what-if": WhatIf,
    "compare": Compared,
    "diff": Diff,
    "try": Try,
    "price": Prices,
    "plan": PlanResult,
    "nodes": Nodes,
    "probe": ProbeResult,
    "doctor": Doctor,
    "bench-strategies": StrategiesResult,
    "bench-methods": MethodsResult,
}


def keys_of(kind: msgspec.inspect.Type) -> set[str]:
    """The keys that JSON of a type has, at any depth."""
    match kind:
        case msgspec.inspect.StructType() | msgspec.inspect.DataclassType():
            of_node_file = kind.cls.__module__.startswith("busfare.nodes.") and kind.cls.__name__ != "Gpu"
            if of_node_file or kind.cls is Statement:  # which JSON has in words
                return set()
            return {f.encode_name for f in kind.fields}.union(*(keys_of(f.type) for f in kind.fields))
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType():
            return keys_of(kind.item_type)
        case msgspec.inspect.UnionType():
            return {key for member in kind.types for key in keys_of(member)}
    return set()


@pytest.mark.parametrize("schema", RESULT_TYPES)
def test_the_documented_keys_are_those_of_the_result(schema: str) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    ranges = docs[docs.index("## Ranges") : docs.index("## `report`")]
    section = docs[docs.index(f"busfare.{schema}/1`") :].partition("\n## ")[0]
    described_with = "bench-strategies" if "bench" in schema else "diff" if schema == "report" else schema
    shared = docs[docs.index(f"busfare.{described_with}/1`") :].partition("\n## ")[0]
    result_keys = keys_of(msgspec.inspect.type_info(RESULT_TYPES[schema]))
    explained = set(re.findall(r"[a-z][a-z0-9_]*", section + ranges + shared))
    assert result_keys - explained == set()
    # What stands before the colon or the full stop of an entry is a key.
    first = re.findall(r"^- (`(?!-).+?`)(?=[:.]|$)", section, re.MULTILINE)
    named = {key for entry in first for key in re.findall(r"[a-z][a-z0-9_]*", entry)}
    assert len(named) > 3
    assert named - result_keys == set()
