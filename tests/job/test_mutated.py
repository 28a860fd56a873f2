"""Damaged traces of every format: each gives a partial or one line, and no partial spoils the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from busfare.advise.jobs import advised
from busfare.answers.job import job_report
from busfare.jobs.parts import Part
from busfare.jobs.reduce import Job
from busfare.jobs.run import decoded, do_part
from busfare.show.job import job_document
from busfare.show.terminal import show
from tests.fuzz.corpus import CORPUS
from tests.fuzz.run import input_number
from tests.job.build_job import encoded

SEED = 11


@pytest.mark.parametrize("reader", [reader for reader in CORPUS if reader != "node"])
def test_mutated_traces_are_reduced_or_reported(
    reader: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "corpus").mkdir()
    corpus = CORPUS[reader](tmp_path / "corpus")
    job = Job()
    surprises = []
    for number in range(40):
        path = input_number(number, SEED, corpus, tmp_path)
        outcome = decoded(do_part(Part(str(path), True), None, advised))
        assert (outcome.partial is None) != (outcome.failure is None)
        if outcome.partial is not None:
            job.add(f"{number}", outcome.partial)
        elif "could not be reported" in (outcome.failure or ""):
            surprises.append(outcome.failure)
        else:
            job.failures.append((f"{number}", outcome.failure or ""))
    assert surprises == []
    assert job.traces and len(job.failures)
    assert encoded(job)
    show(job_document(job_report(job)))
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) <= 160
