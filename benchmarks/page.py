"""The page: how long its timeline takes to zoom and to move, with a million operations, in headless Chromium.

    python -m benchmarks.page [--operations N] [--runs N] [--json FILE]

The trace is made up: a thread that launches kernels and copies into four streams and waits for every 64th, a million
operations and as many calls, with their critical path; it is lit in a second round. Each draw is timed in the page from the
frame's start until its pixels are there (reading one of them back waits for that), at spans from the whole run to a
ten-thousandth of it; the goal is 100 ms. Also told: how long the page takes to be written and, from its script's start, to
be unpacked and drawn, and how large it is.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.runs import options_of, write
from busfare.show import time_line as packing
from busfare.show.document import Document, Figure
from busfare.show.page import page
from busfare.show.time_line_rows import time_line
from busfare.timeline import timeline
from busfare.trace import Trace, tables
from busfare.trace.tables import conform

GOAL_MS, WAIT_EVERY, STREAMS = 100.0, 64, 4
SPANS = (1.0, 0.3, 0.1, 0.01, 0.001, 0.0001)
LONGEST_SECONDS = 300
SCRIPT = """<script>(async () => {
  while (!document.body.dataset.drawn) await new Promise((done) => setTimeout(done, 20));
  const line = document.querySelector(".time-line").timeLine, result = { ready: performance.now(), draws: {}, lit: {} };
  const frame = (todo) => new Promise((done) => {
    let begun;
    requestAnimationFrame(() => { begun = performance.now(); });
    todo();
    requestAnimationFrame(() => { line.pen.getImageData(0, 0, 1, 1); done(performance.now() - begun); });
  });
  for (const round of [result.draws, result.lit]) {
    if (round === result.lit) document.querySelector("[data-do=path]").click();
    for (const span of SPANS) {
      const length = span * line.whole, took = [];
      for (let run = 0; run <= RUNS; run++) {
        const from = (line.whole - length) * run / (RUNS + 1);
        took.push(await frame(() => line.show(from, from + length)));
      }
      round[span] = took.slice(1);
    }
  }
  console.log("RESULT" + JSON.stringify(result) + "END");
})();</script></body>"""


def main(arguments: list[str] | None = None) -> int:
    parser = options_of(__doc__, 9)
    parser.add_argument("--operations", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    trace = _trace(options.operations)
    begun = time.perf_counter()
    packing.MOST_ITEMS = 10 * options.operations  # else a page merges most of so many
    drawn = time_line(trace, timeline(trace))
    text = page(Document("benchmark", "benchmark", blocks=[Figure("timeline", drawn)]))
    written = time.perf_counter() - begun
    script = SCRIPT.replace("SPANS", str(list(SPANS))).replace("RUNS", str(options.runs))
    # A page allows no scripts but its own.
    result = _shown(text.replace("Content-Security-Policy", "").replace("</body>", script))
    print(
        f"{drawn.items:,} operations, calls and steps: a page of {len(text) / 1e6:.1f} MB, made in {written:.1f} s"
    )
    print(f"unpacked and drawn {result['ready'] / 1e3:.1f} s after the page began to load")
    print(f"{'of the run shown':>18}{'median':>12}{'most':>10}{'goal':>9}")
    for what, round in (("", result["draws"]), (", path lit", result["lit"])):
        for span, took in round.items():
            median, most = statistics.median(took), max(took)
            print(f"{f'{float(span):.2%}{what}':>18}{median:>9.1f} ms{most:>7.1f} ms{GOAL_MS:>6.0f} ms")
    write(options, "page", {"bytes": len(text), "written_seconds": written, **result})
    return 0


def _trace(count: int) -> Trace:
    chance = np.random.default_rng(1)
    gaps, durations = chance.integers(1_000, 4_000, count), chance.integers(1_000, 12_000, count)
    called = np.cumsum(gaps)
    kind = np.arange(count) % 16
    start = called + 4_000
    operations = pl.DataFrame(
        {
            "start_ns": start,
            "end_ns": start + durations,
            "bytes": np.where(kind < 2, durations * 20, -1),
            "device": np.zeros(count, np.int32),
            "process": np.ones(count, np.int64),
            "stream": np.arange(count) % STREAMS,
            "correlation": np.arange(count),
            "name": [f"kernel_{n % 97}" for n in range(count)],
        }
    ).with_columns(
        kind=pl.when(pl.Series(kind < 2)).then(pl.lit("copy")).otherwise(pl.lit("kernel")),
        direction=pl.when(pl.Series(kind == 0)).then(pl.lit("h2d")).otherwise(pl.lit("d2h")),
    )
    waits = np.arange(count) % WAIT_EVERY == 0
    calls = pl.DataFrame(
        {
            "start_ns": called,
            "end_ns": called + gaps // 2,
            "process": np.ones(count, np.int64),
            "thread": np.ones(count, np.int64),
            "correlation": np.arange(count),
            "name": np.where(waits, "cudaMemcpy", "cudaLaunchKernel"),
            "waits_for": np.where(waits, "operation", "none"),
        }
    )
    return Trace(
        Path("benchmark"),
        "kineto",
        "benchmark",
        conform(operations, tables.OPERATIONS),
        conform(calls, tables.CALLS),
    )


def _shown(text: str) -> dict[str, Any]:
    """What the page's script says at its end, in a browser that draws as fast as it can."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("Chromium is missing: apt-get install chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "page.html"
        file.write_text(text, encoding="utf-8")
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--window-size=1200,900",
        ]
        command = [
            chromium,
            *flags,
            "--remote-debugging-port=0",
            f"--user-data-dir={folder}/profile",
            file.as_uri(),
        ]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as browser:
            assert browser.stderr is not None
            end = time.monotonic() + LONGEST_SECONDS
            for line in browser.stderr:
                match = re.search(r"RESULT(.*)END", line)
                if match or time.monotonic() > end:
                    browser.terminate()
                    break
    if not match:
        raise SystemExit("the page did not come to its end")
    return json.loads(match[1])


if __name__ == "__main__":
    sys.exit(main())
