"""Pages as axe-core sees them in a browser, light and dark: nothing that it calls serious or critical."""

from importlib import resources
from pathlib import Path

import pytest

from busfare.advise.jobs import advised
from busfare.answers.job import job_report
from busfare.jobs.run import run_job
from busfare.jobs.timeline import job_timeline
from busfare.questions import Report
from busfare.show.document import Document
from busfare.show.job import job_document
from busfare.show.page import page
from busfare.trace import read
from tests.chromium import answered
from tests.job.build_job import Noted
from tests.job.kineto_job import write_ranks
from tests.report.test_pages import changed, on_another_node, planned, probe, reported
from tests.traces import EXAMPLES

CHECKED = """
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    document.querySelectorAll("details").forEach((part) => { part.open = true; });
    // The dark page differs in its colours alone.
    const { violations } = await axe.run(document, dark ? { runOnly: ["color-contrast"] } : {});
    const told = ({ id, impact, nodes: [first] }) => [impact, id, first.html.slice(0, 200), first.failureSummary];
    const found = violations.map(told);
    return [dark, found];
"""


def job(folder: Path) -> Document:
    ranks = folder / "ranks"
    ranks.mkdir()
    write_ranks(ranks, [[1000.0] * 4, [1500.0] * 4])
    paths = sorted(ranks.iterdir())
    together = job_timeline([read(path) for path in paths], None, paths)
    return job_document(job_report(run_job([ranks], None, Report(), Noted(), advised)), together)


@pytest.mark.browser
@pytest.mark.parametrize("flags", [(), ("--force-dark-mode",)], ids=["light", "dark"])
def test_axe_finds_nothing_serious(flags: tuple[str, ...], tmp_path: Path) -> None:
    axe = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    documents = [make(tmp_path) for make in (changed, on_another_node, planned, probe, job)]
    documents.append(reported(read(EXAMPLES / "smooth-out-of-core-h100.json.gz")))
    # In one page, for a browser is slow to start; a figure is named once in each.
    blocks = [block for document in documents for block in document.blocks]
    dark, problems = answered(
        page(Document("all", "all", "facts", blocks)), tmp_path, CHECKED, *flags, libraries=axe
    )
    assert dark == bool(flags)
    assert [problem for problem in problems if problem[0] in ("serious", "critical")] == []
