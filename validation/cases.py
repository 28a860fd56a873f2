"""Inputs that once got a wrong answer, and what they get now: `python validation/cases.py [--write FILE]`.

For each case: what the program answered before (`results/cases-before.json`, commit f68c9f5c), what it answers now, and
what is right, with how that is known. The inputs are the shared ones (`BUSFARE_SHARED`), read in place.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claims import goal, judge, table
from published import SHARED
from stored import RESULTS

CASES = SHARED / "cases"
DATA = SHARED / "data"
BEFORE = RESULTS / "cases-before.json"

Value = float | str | None


@dataclass(frozen=True)
class Case:
    """A question. `ask` gives the figure or the words judged; `right` decides; `truth` says what is right and why."""

    item: str
    what: str
    ask: Callable[[], Value]
    right: Callable[[Any], bool]
    truth: str


def run(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "busfare", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, errors="replace", env=os.environ | environment
    )


def answer(*words: str | Path) -> Any:
    """The JSON of a command; what it said instead where it failed."""
    done = run(*words, "--json")
    return json.loads(done.stdout) if done.stdout.strip() else {"error": done.stderr.strip()}


def printed(*words: str | Path) -> str:
    """What a command prints, on one line."""
    done = run(*words, COLUMNS="200")
    return " ".join((done.stdout + done.stderr).split())


def gain(trace: Path, *ids: str) -> float:
    """The largest gain of the findings named (all without names) of a report, seconds; 0 where there is none."""
    findings = answer("report", trace).get("findings", [])
    return max((f["predicted_gain_seconds"] for f in findings if not ids or f["id"] in ids), default=0.0)


def what_if(trace: Path, *words: str) -> float | None:
    """What a change gains, seconds."""
    result = answer("what-if", trace, *words)
    after = result.get("predicted_seconds")
    return None if after is None else result["baseline"]["replayed_seconds"] - after


def above_removal(trace: Path, *ids: str) -> float:
    """The largest gain of findings about copies over what removing all copies gains."""
    return gain(trace, *ids) / (what_if(trace, "--remove", "copy") or float("inf"))


def yes(text: str, *parts: str) -> str:
    """Which of some words a text has."""
    return ", ".join(part for part in parts if part.lower() in text.lower()) or "none of the words"


def bytes_of(trace: Path, direction: str) -> float:
    rows = answer("report", trace)["by_path"]
    return sum(row["bytes"] or 0 for row in rows if row["direction"] == direction) / 1e9


def device(trace: Path, key: str) -> Value:
    devices = answer("report", trace)["trace"]["devices"] or [{}]
    return devices[0].get(key)


NSYS = DATA / "traces/nsys"
BEFORE_WINDOW, AFTER_WINDOW = NSYS / "nsys-ai-2xh100-before.sqlite", NSYS / "nsys-ai-2xh100-after.sqlite"
DLRM = DATA / "ranks/dlrm-8xv100"


def per_unit() -> float | None:
    """By how much the unit of work grows, percent."""
    return (answer("diff", BEFORE_WINDOW, AFTER_WINDOW).get("unit") or {}).get("change_percent")


def gate() -> float:
    """The status of a gate on iterations, where the later run is the slower one: 1 is a failed check."""
    with tempfile.TemporaryDirectory() as folder:
        baseline = Path(folder, "before.json")
        baseline.write_text(run("report", BEFORE_WINDOW, "--json").stdout)
        return run("report", AFTER_WINDOW, "--baseline", baseline, "--fail-if", "iteration > +5%").returncode


def first_line(folder: Path) -> str:
    """Which rank a job's report names first."""
    findings = answer("report", folder).get("findings", [])
    return next((f["title"] for f in findings if f["id"] == "straggling-rank"), "none named")


def plan_seconds(node: str, kind: str, flops: str) -> float | None:
    options = ["--h2d", "100MB", "--flops", flops, "--node", node, "--type", kind]
    ranking = answer("plan", *options).get("ranking", [])
    return next((r["predicted_seconds"] for r in ranking if r["strategy"] == "explicit"), None)


def doubles() -> float | None:
    """How much longer the explicit strategy takes for doubles than for singles where its kernel takes most of it."""
    double, single = plan_seconds("gtx-680", "fp64", "50T"), plan_seconds("gtx-680", "fp32", "50T")
    return double / single if double and single else None


def offload(*options: str) -> float | None:
    return answer("plan", "offload", *options).get("predicted_seconds")


def kernels_scaled(trace: Path) -> float | None:
    """The most that kernels are predicted to take on an H200, over what they were recorded to take."""
    kernels = answer("project", trace, "--to", "h200-sxm").get("kernels") or {}
    most = [row["high_seconds"] for row in kernels.get("by_class", [])]
    return sum(most) / kernels["recorded_seconds"] if most and None not in most else None


def with_call() -> float | None:
    """Microseconds of a short copy as its caller sees it."""
    price = answer("price", "--node", "mi300x", "--direction", "h2d", "--memory", "pinned", "--bytes", "4KiB")
    return price["with_call"]["seconds"] * 1e6 if price.get("with_call") else None


def exported_chakra() -> float:
    with tempfile.TemporaryDirectory() as folder:
        trace = CASES / "chakra-without-calls.db"
        return run("export", trace, "--to", "chakra", "-o", f"{folder}/run.et").returncode


def twice_written() -> float:
    """The status of the second of two equal runs that write a Perfetto file."""
    with tempfile.TemporaryDirectory() as folder:
        words = ("what-if", NSYS / "easycuda.sqlite", "--pin", "--perfetto", f"{folder}/out.json")
        run(*words)
        return run(*words).returncode


def undecodable() -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, os.fsdecode(b"run-\xff.sqlite"))
        path.write_bytes((NSYS / "easycuda.sqlite").read_bytes())
        return run("report", path).returncode


LIST = [
    Case(
        "A1",
        "rocprof .db: largest gain, s",
        lambda: gain(CASES / "first-call-initialises-rocprof.db"),
        lambda v: v < 0.01,
        "a few ms: 338 ms are HIP's initialisation",
    ),
    Case(
        "A1",
        "the same run as .json, s",
        lambda: gain(CASES / "first-call-initialises-rocprof.json"),
        lambda v: v < 0.01,
        "as the .db",
    ),
    Case(
        "A1",
        ".db: kernels",
        lambda: answer("report", CASES / "first-call-initialises-rocprof.db")["kernels"]["count"],
        lambda v: v == 8,
        "8: six rows of 0 ns are no kernels",
    ),
    Case(
        "A1",
        ".json: kernels",
        lambda: answer("report", CASES / "first-call-initialises-rocprof.json")["kernels"]["count"],
        lambda v: v == 8,
        "8",
    ),
    Case(
        "A2",
        "streams beside frees: gain over removal",
        lambda: above_removal(CASES / "streams-beside-frees.sqlite", "pageable-copies", "exposed-copies"),
        lambda v: v <= 1.0,
        "≤ 1: no overlap gains more than no copies",
    ),
    Case(
        "A5",
        "prefetch to the host: synchronisations, s",
        lambda: gain(CASES / "managed-prefetch-to-host.sqlite", "synchronisations"),
        lambda v: v < 0.001,
        "0: the host reads the result",
    ),
    Case(
        "A5",
        "cuDNN's autotuning: synchronisations, s",
        lambda: gain(CASES / "cudnn-autotune-waits.pt.trace.json.gz", "synchronisations"),
        lambda v: v < 0.02,
        "357 of 369 waits are cuDNN's own",
    ),
    Case(
        "A6",
        "GH200: --pin gains, s",
        lambda: what_if(CASES / "gh200-pageable.json", "--pin"),
        lambda v: v is not None and v < 0.008,
        "about 4 %: 99.8 against 104.6 GB/s published",
    ),
    Case(
        "A8",
        "copies of a graph listed twice: d2d GB",
        lambda: bytes_of(CASES / "graph-copies-twice.json", "d2d"),
        lambda v: 10 < v < 11,
        "10.7",
    ),
    Case(
        "A9",
        "4 KiB on MI300X with its call, µs",
        with_call,
        lambda v: v is not None and 24 <= v <= 50,
        "36–40 seen by the caller",
    ),
    Case(
        "B10",
        "one long kernel: --kernels 0.5x gains, s",
        lambda: what_if(CASES / "one-long-kernel-rocprof.db", "--kernels", "0.5x"),
        lambda v: v is not None and 160 < v < 167,
        "166",
    ),
    Case(
        "B11",
        "launches fail: the report says",
        lambda: yes(
            printed("report", CASES / "launches-fail-222.sqlite"),
            "cudaErrorUnsupportedPtxVersion",
            "record them, too",
        ),
        lambda v: v == "cudaErrorUnsupportedPtxVersion",
        "cudaErrorUnsupportedPtxVersion (222)",
    ),
    Case(
        "B11",
        "calls but no GPU records: the report says",
        lambda: yes(printed("report", CASES / "calls-but-no-gpu.sqlite"), "--trace=cuda", "no GPU activity"),
        lambda v: v == "no GPU activity",
        "GPU activity was not recorded",
    ),
    Case(
        "B12",
        "GPU named in TARGET_INFO_CUDA_GPU",
        lambda: device(CASES / "gpu-named-in-cuda-table.sqlite", "name"),
        lambda v: "V100" in str(v),
        "Tesla V100-PCIE-32GB",
    ),
    Case(
        "B12",
        "memory in MiB, GB",
        lambda: (device(CASES / "memory-in-mib.sqlite", "memory_bytes") or 0) / 1e9,
        lambda v: 50 < v < 52,
        "50.9",
    ),
    Case(
        "B12",
        "RTX 3050 Laptop → h200-sxm, kernels ×",
        lambda: kernels_scaled(CASES / "bandwidth-in-file.sqlite"),
        lambda v: v is not None and v < 0.5,
        "far faster: 176 GB/s in the file, 4,800 on an H200",
    ),
    Case("B13", "export to Chakra without calls: status", exported_chakra, lambda v: v == 0, "0"),
    Case(
        "B13",
        "price p2p without a peer: status",
        lambda: run("price", "--node", "gtx-680", "--direction", "p2p", "--bytes", "1MB").returncode,
        lambda v: v == 2,
        "2 with the reason",
    ),
    Case(
        "C15",
        "diff of two windows: change of a unit, %",
        per_unit,
        lambda v: v is not None and 9 < v < 16,
        "slower: means of 10.8 on GPU 0 and 12.5 on GPU 1",
    ),
    Case("C15", "gate on iterations: status", gate, lambda v: v == 1, "1"),
    Case(
        "C16",
        "eight ranks: the straggling rank",
        lambda: first_line(DLRM),
        lambda v: "7" not in str(v),
        "not rank 7: its recording began last",
    ),
    Case(
        "C16",
        "a rank of a job: --overlap-collectives, s",
        lambda: what_if(CASES / "one-rank-of-a-job.json", "--overlap-collectives"),
        lambda v: v is not None and v > 0,
        "17.7 % of the path is communication",
    ),
    Case("D17", "doubles on a GTX 680 ×", doubles, lambda v: v is not None and 20 < v < 26, "24"),
    Case(
        "F24", "a path that is not UTF-8: status", undecodable, lambda v: v in (0, 2), "0, or 2 in one line"
    ),
    Case("F25", "the same Perfetto file again: status", twice_written, lambda v: v == 0, "0"),
    Case(
        "F26",
        "COLUMNS=0: characters printed",
        lambda: float(len(run("report", NSYS / "easycuda.sqlite", COLUMNS="0").stdout)),
        lambda v: v > 200,
        "the report",
    ),
]


def shown(value: Value) -> str:
    return "–" if value is None else value if isinstance(value, str) else f"{value:.4g}"


def main() -> None:
    before = json.loads(BEFORE.read_text())["answers"] if BEFORE.is_file() else {}
    now = {case.what: case.ask() for case in LIST}
    if "--write" in sys.argv[1:]:
        Path(sys.argv[-1]).write_text(json.dumps({"answers": now}, indent=1, ensure_ascii=False) + "\n")
    table(
        "item|case|before|now|right|",
        [
            (
                c.item,
                c.what,
                shown(before.get(c.what)),
                shown(now[c.what]),
                c.truth,
                "" if c.right(now[c.what]) else "WRONG",
            )
            for c in LIST
        ],
    )
    wrong = sum(not case.right(now[case.what]) for case in LIST)
    goal(f"wrong answers of {len(LIST)}", wrong, most=0, form=".0f")


if __name__ == "__main__":
    judge(main)
