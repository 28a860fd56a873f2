"""Makes the pictures of docs/screens anew: the terminal at 80 and 120 columns, and pages light, dark and on a phone.

    make screens

Needs Chromium. The traces are those that come with busfare.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from busfare import api
from busfare.answers.plan import answer_plan
from busfare.answers.report import examine
from busfare.answers.what_if import answer_what_if
from busfare.nodes import load_node
from busfare.questions import Plan, WhatIf
from busfare.show.document import Document
from busfare.show.notebook import predicted_trace
from busfare.show.page import page
from busfare.show.plans import plan_document
from busfare.show.predictions import what_if_document
from busfare.show.report import report_document
from busfare.show.terminal import render
from busfare.show.time_line_rows import time_line
from busfare.timeline import timeline
from busfare.timeline.changes import Setting, changes_of
from busfare.trace import Trace, read
from tests.chromium import sized
from tests.job.kineto_job import write_ranks

OUT = Path("docs/screens")
EXAMPLES = Path("src/busfare/examples")
LINES = 48
#: A page allows no scripts but its own.
POLICY = "Content-Security-Policy"
#: What is done in the page before its picture is taken: a part of the run, its critical path, and a wait that is clicked.
NEARER = """<script>(async () => {
  while (!document.body.dataset.drawn) await new Promise((done) => setTimeout(done, 20));
  const line = document.querySelector(".time-line").timeLine;
  document.querySelector("[data-do=path]").click();
  const calls = line.rows.find(({ group }) => group === "calls");
  for (let i = calls.from; line.selected < 0 && i < calls.to; i++)
    if (line.items.length[i] > 0.01 * line.whole && line.header.kinds[line.items.kind[i]][0] === "waits") line.select(i);
  const [start, end] = [line.items.start[line.selected], line.end[line.selected]];
  line.show(start - 0.08 * line.whole, end + 0.04 * line.whole);
  for (const block of document.querySelectorAll("header, footer, main > :not(#timeline)")) block.remove();
})();</script></body>"""


def main() -> int:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None or shutil.which("pngquant") is None:
        print("Chromium or pngquant is missing: apt-get install chromium pngquant", file=sys.stderr)
        return 2
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    node = load_node("h100-sxm")
    trained, copied = (
        read(EXAMPLES / f"{name}-h100.json.gz") for name in ("train-images", "smooth-out-of-core")
    )
    result, run, findings = examine(trained, node)
    report = report_document(result, time_line(trained, run, findings))
    for columns in (80, 120):
        (OUT / f"report-{columns}.svg").write_text(_terminal(report, columns), encoding="utf-8")
    plan = answer_plan(Plan.of(h2d="336MB", d2h="504MB", kernel="12ms", flops="12G", node="h100-sxm"))
    pages = {
        "report-light": (page(report), 1280, 1260, False),
        "report-dark": (page(report), 1280, 900, True),
        "report-phone": (sized(page(report), 390, 844), 500, 844, False),
        "time-line": (page(report).replace(POLICY, "").replace("</body>", NEARER), 1280, 400, False),
        "what-if": (page(_what_if(copied)), 1280, 1560, False),
        "plan": (page(plan_document(plan)), 1280, 900, True),
        "job": (page(_job()), 1280, 900, False),
    }
    for name, (text, wide, high, dark) in pages.items():
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "page.html"
            file.write_text(text, encoding="utf-8")
            flags = [
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--virtual-time-budget=8000",
            ]
            flags += [f"--user-data-dir={folder}/profile", f"--window-size={wide},{high}"]
            flags += ["--force-dark-mode"] if dark else []
            picture = (OUT / f"{name}.png").absolute()
            subprocess.run(
                [chromium, *flags, f"--screenshot={picture}", file.as_uri()], check=True, capture_output=True
            )
            # A third of the bytes, and nothing that anyone sees.
            subprocess.run(
                ["pngquant", "--force", "--speed=1", "--quality=80-98", "--ext=.png", picture], check=True
            )
    for picture in sorted(OUT.iterdir()):
        print(f"{picture}: {picture.stat().st_size / 1e3:.0f} kB")
    return 0


def _terminal(document: Document, columns: int) -> str:
    """The first lines of a document in a terminal as SVG, which asks for no font from elsewhere."""
    with Path("/dev/null").open("w") as nowhere:
        console = Console(
            record=True, width=columns, file=nowhere, markup=False, emoji=False, highlight=False
        )
        for line, style in list(render(document, columns))[:LINES]:
            console.print(Text(line, style=style), no_wrap=True)
        return re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="busfare report"), flags=re.DOTALL)


def _what_if(recorded: Trace) -> Document:
    setting = Setting(load_node("h100-sxm"))
    changes = changes_of(WhatIf(pin="", streams=3), setting.recorded_on)
    result, played = answer_what_if(recorded, changes, setting, guessed=False)
    after = predicted_trace(played), played
    return what_if_document(
        result, time_line(recorded, timeline(recorded, setting.recorded_on), predicted=after)
    )


def _job() -> Document:
    """Eight ranks, of which the sixth computes longest in most steps, and each begins late or computes long once."""
    compute = [
        [900.0 + 70 * ((3 * rank + 5 * step) % 8) + 400 * (rank == 5) for step in range(10)]
        for rank in range(8)
    ]
    with tempfile.TemporaryDirectory() as folder:
        ranks = Path(folder) / "train-8-ranks"
        write_ranks(ranks, compute, transfer_us=150.0)
        return api.report(ranks).document(page=True)


if __name__ == "__main__":
    sys.exit(main())
