"""Findings of a job: what the whole job gains, its ranks replayed together."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from busfare.advise.jobs import advised, job_findings
from busfare.answers.job import job_report, of_whole_job
from busfare.jobs.matching import MEMBERS
from busfare.jobs.run import run_job
from busfare.jobs.timeline import _relieved, job_timeline
from busfare.nodes import load_node
from busfare.questions import Report
from busfare.show.job_pictures import BINS, SHADES, heat_map
from busfare.show.time_line_rows import KINDS, job_time_line
from busfare.trace import read
from busfare.trace.tables import conform
from tests.conftest import answer
from tests.job.build_job import Noted
from tests.job.kineto_job import write_ranks


def reported(folder: Path) -> dict[str, Any]:
    result = answer("report", folder)
    assert result["gains_of_whole_job"]
    return {finding["id"]: finding for finding in result["findings"]}


def test_a_late_rank_is_named_with_what_the_job_gains(tmp_path: Path) -> None:
    write_ranks(tmp_path, [[1000.0] * 8, [1600.0] * 8])
    finding = reported(tmp_path)["straggling-rank"]
    assert finding["largest"]["rank"] == 1
    assert finding["predicted_gain_seconds"] == pytest.approx(8 * 600e-6, rel=0.02)
    evidence = "Rank 1 arrived last because of its own work at 8 of 8 collectives"
    assert finding["largest"]["evidence"].startswith(evidence)
    assert finding["largest"]["what_if"] == ["--no-stragglers"]


def test_copies_of_a_single_rank_gain_what_all_wait_for(tmp_path: Path) -> None:
    """800 µs of copies on rank 0 in every step, for which rank 1 waits; and the same where rank 1 is later still."""
    slow = write_ranks(tmp_path / "waited", [[1000.0] * 8] * 2, copy_us=800.0)
    finding = reported(tmp_path / "waited")["pageable-copies"]
    assert {"--pin", "--rank"} <= set(finding["largest"]["what_if"])
    assert 0.2 * slow * 1e-6 < finding["predicted_gain_seconds"] < 8 * 850e-6
    write_ranks(tmp_path / "spare", [[1000.0] * 8, [2500.0] * 8], copy_us=800.0)
    assert "pageable-copies" not in reported(tmp_path / "spare")


def test_balanced_ranks_have_nothing_to_do(tmp_path: Path) -> None:
    write_ranks(tmp_path, [[1000.0] * 8] * 2, transfer_us=5.0)
    assert reported(tmp_path) == {}


def test_a_send_that_its_receiver_does_not_hold_up_waits_for_room() -> None:
    """Of three sends the second is buffered; the third ends when the receiver of the second has come."""
    sends = [(0, 10, 0), (20, 30, 1), (40, 205, 2)]
    receives = [(5, 12, 0), (200, 210, 1), (400, 410, 2)]
    columns = ["rank", "peer", "collective_kind", "start_ns", "end_ns", "joint"]
    rows = [(0, 1, "send", *times) for times in sends] + [(1, 0, "receive", *times) for times in receives]
    frame = pl.DataFrame(rows, schema=columns, orient="row").with_columns(communicator=pl.lit("0"))
    members = conform(frame, MEMBERS).with_columns(frame["joint"])
    relieved = _relieved(members)
    assert relieved["relieved_by"].to_list() == [0, None, 1, None, None, None]
    assert relieved["relieved_ns"].to_list()[2] == 200


def test_the_page_joins_the_ranks_where_they_meet(tmp_path: Path) -> None:
    write_ranks(tmp_path, [[1000.0] * 4, [1500.0] * 4])
    paths = sorted(tmp_path.iterdir())
    drawn = job_time_line(job_timeline([read(path) for path in paths], None, paths))

    def seconds(kind: str) -> dict[str, float]:
        spent = {row.label: row.items.filter(pl.col("kind") == KINDS.index(kind)) for row in drawn.rows}
        return {
            label: (items["end_ns"] - items["start_ns"]).sum() * 1e-9
            for label, items in spent.items()
            if items.height
        }

    assert seconds("waits") == {"rank 0": pytest.approx(4 * 500e-6, rel=0.01)}
    assert seconds("communication")["rank 1"] == pytest.approx(4 * 100e-6, rel=0.01)
    # As the last rank comes: behind the launch and 1500 µs of its own.
    assert len(drawn.joints) == 4
    first, last = drawn.joints[0][1:]
    assert (drawn.rows[first].label, drawn.rows[last].label) == ("rank 0", "rank 1")


def test_the_heat_map_shows_when_ranks_wait(tmp_path: Path) -> None:
    write_ranks(tmp_path, [[1000.0] * 4, [1500.0] * 4])
    paths = sorted(tmp_path.iterdir())
    ranks = run_job(paths, None, Report(), Noted()).communication().ranks
    drawn = heat_map(job_timeline([read(path) for path in paths], None, paths), ranks)
    waited = drawn.waits.sum(axis=1) * drawn.seconds / BINS
    assert list(drawn.labels) == ["rank 0", "rank 1"]
    assert waited.tolist() == pytest.approx([rank.waiting_seconds for rank in ranks], abs=2e-6)
    # Four times, behind 1,000 of 1,600 µs each: rank 0 waits in four stretches.
    assert (np.diff((drawn.waits[0] > 0.5).astype(int)) == 1).sum() == 4
    markup = drawn.markup()
    assert "rank 0: waits 2 ms for others; they wait 0 s for it" in markup
    assert markup.count("<path fill") <= 2 * SHADES


def test_findings_about_meetings_light_up_what_they_are_about(tmp_path: Path) -> None:
    write_ranks(tmp_path, [[1000.0] * 8, [1500.0] * 8])
    paths = sorted(tmp_path.iterdir())
    job = job_timeline([read(path) for path in paths], None, paths)
    together = run_job(paths, None, Report(), Noted()).communication()
    findings = job_findings(job, together.ranks, together.straggler, [], load_node("h100-sxm"))
    drawn = job_time_line(job, findings)
    assert "straggling-rank" in drawn.marks
    bit = 1 << list(drawn.marks).index("straggling-rank")
    lit = {row.label: sum(mark & bit > 0 for mark in row.items["marks"].fill_null(0)) for row in drawn.rows}
    assert {label: many for label, many in lit.items() if many} == {"rank 0": 8}


def test_findings_of_a_rank_light_up_its_operations_and_calls(tmp_path: Path) -> None:
    write_ranks(tmp_path, [[1000.0] * 12] * 2, copy_us=800.0)
    result, job = of_whole_job(job_report(run_job([tmp_path], None, Report(), Noted(), advised)), None)
    by_id = {finding.id: finding for finding in result.findings}
    waits = replace(by_id["pageable-copies"], id="synchronisations", traces=2)
    none = replace(waits, id="ping-pong")
    drawn = job_time_line(job, [*result.findings, waits, none])

    def lit(id: str) -> dict[str, int]:
        bit = 1 << list(drawn.marks).index(id)
        many = {row.label: sum(m & bit > 0 for m in row.items["marks"].fill_null(0)) for row in drawn.rows}
        return {label: number for label, number in many.items() if number}

    assert lit("pageable-copies") == {"rank 0": 12}
    assert lit("synchronisations") == {"rank 0 host calls": 12, "rank 1 host calls": 12}
    assert "ping-pong" not in drawn.marks  # nothing here is: its entry gets no button
