"""Traces and questions that were answered wrongly once, arguments through the command line."""

import gzip
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from busfare.answers.limits import parse_limit
from busfare.errors import InputError
from tests.conftest import BUSFARE, Ask, Run
from tests.trace.build_kineto import call, kernel, write_kineto
from tests.trace.build_nsys import NsysExport
from tests.traces import EXAMPLES

EXAMPLE = EXAMPLES / "smooth-out-of-core-h100.json.gz"
MS = 1_000_000
DIRECTIONS = {"h2d": 11, "d2h": 12}


def share_of_kernels(report: Any) -> float:
    return sum(part["share"] for part in report["critical_path"] if part["part"] == "kernels")


@pytest.mark.parametrize("schema", ["report/1", "bench-methods/1", "project/1"])
def test_an_answer_is_refused_with_commands_that_read_it(run_here: Run, tmp_path: Path, schema: str) -> None:
    answer = tmp_path / "old.json"
    answer.write_text(json.dumps({"schema": f"busfare.{schema}", "trace": {}}))
    done = run_here("report", str(answer))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "the --json of a busfare command, not a trace" in done.stderr
    assert "`busfare report TRACE --baseline FILE`" in done.stderr and "--from FILE" in done.stderr


@pytest.mark.parametrize(
    ("node", "warned"),
    [("mi300x", True), ("h200", True), ("a100", True), ("h100-probed", False), ("pcie:5", False)],
)
def test_a_node_without_the_gpu_of_the_trace_is_warned_of(run_here: Run, node: str, warned: bool) -> None:
    done = run_here("project", str(EXAMPLE), "--from", node, "--to", "l40s")
    assert done.returncode == 0
    assert ("the trace names the GPU H100" in done.stderr) is warned and bool(done.stderr) is warned


def test_a_folder_that_a_page_needs_is_created_and_named(run_here: Run, tmp_path: Path) -> None:
    for message in (f"busfare: created the folder {tmp_path}/new/pages\n", ""):
        done = run_here("report", str(EXAMPLE), "--html", str(tmp_path / "new" / "pages" / "report.html"))
        assert (done.returncode, done.stderr) == (0, message)
    assert (tmp_path / "new" / "pages" / "report.html").stat().st_size > 10_000


def test_a_truncated_trace_and_a_foreign_pair_say_so_first(
    run_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    whole = gzip.decompress(EXAMPLE.read_bytes())
    cut = tmp_path / "cut.json"
    cut.write_bytes(whole[: len(whole) // 2])
    done = run_here("report", str(cut))
    assert done.returncode == 0
    assert "truncated" in done.stdout.splitlines()[2] and "Incomplete" in done.stdout.splitlines()[2]
    pair = run_here("diff", str(EXAMPLE), str(EXAMPLES / "train-images-h100.json.gz")).stdout.splitlines()
    assert pair[1].startswith("These may be two different programs")
    alike = run_here("diff", str(EXAMPLE), str(EXAMPLE)).stdout
    assert "different programs" not in alike
    assert " ".join(alike.split()).count("recorded times of one run") == 1


def test_overlapping_intervals_leave_the_order_of_schedules_open(run_here: Run) -> None:
    arguments = "plan offload --layers 80 --bytes-per-layer 481MB --seconds-per-layer 1ms --node rtx-4090"
    done = run_here(*arguments.split())
    assert "uncertain which memory is the fastest" in " ".join(done.stdout.split())
    assert "uncertain" not in run_here(*arguments.split(), "--resident", "80", "--budget", "60GB").stdout


@pytest.mark.parametrize("percent", ["nan", "inf", "1e999", "+nan", "much"])
def test_a_limit_that_nothing_can_pass_is_refused(percent: str) -> None:
    with pytest.raises(InputError, match="not a percentage"):
        parse_limit(f"exposed > {percent}%" if percent[0] != "+" else f"makespan > {percent}%")


def test_a_process_may_be_slower_without_the_recorder(ask: Ask) -> None:
    """Processes of one program differ by more than a recorder costs."""
    seconds = 1.05 * ask("report", EXAMPLE)["makespan_seconds"]
    cost = ask("report", EXAMPLE, "--unrecorded", f"{seconds}s")["recording_cost"]
    assert cost["unrecorded_seconds"] == pytest.approx(seconds)


def test_gains_of_a_run_slowed_by_its_recorder_name_their_run(run_here: Run) -> None:
    done = run_here("report", str(EXAMPLE), "--unrecorded", "1ms")
    assert "gains refer to" in " ".join(done.stdout.split())


def test_nodes_share_how_they_were_predicted_where_it_is_the_same(run_here: Run) -> None:
    alike = run_here("project", str(EXAMPLE), "--to", "gh200", "--to", "h200-sxm").stdout
    assert " ".join(alike.split()).count("kernels as predicted for each.") == 1
    apart = " ".join(run_here("project", str(EXAMPLE), "--to", "gh200", "--to", "pcie:3x16").stdout.split())
    assert "Whole run on gh200: " in apart and "Whole run on pcie:3x16: " in apart


def test_a_node_that_is_named_twice_has_a_single_row(ask: Ask) -> None:
    assert len(ask("project", EXAMPLE, "--to", "h200", "--to", "h200-sxm")["projections"]) == 1


def test_a_pipe_that_knows_ascii_alone_gets_the_report() -> None:
    command = [*BUSFARE, "report", str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"PyTorch profiler (Kineto, CUPTI 130001) ? NVIDIA" in done.stdout


def faulting(folder: Path) -> Path:
    """A kernel of 90 ms that faults, a wait for it, and pages that come back once the host reads them."""
    export = NsysExport()

    def migrate(direction: str, begin: float, end: float) -> None:
        """1 MiB of managed memory, as exports have it: of stream 0, launched by nobody; times in ms."""
        times = int(begin * MS), int(end * MS)
        export.copy(DIRECTIONS[direction], (5, 5), 1 << 20, *times, None, streamId=0)

    export.call("cudaLaunchKernel_v7000", 0, 5_000, 1)
    export.kernel("faulting()", 10_000, 90 * MS, 1)
    for n in range(400):
        migrate("h2d", 0.5 + 0.22 * n, 0.7 + 0.22 * n)
    export.call("cudaDeviceSynchronize_v3020", 6_000, 90 * MS + 20_000, 2)
    export.wait(4, 6_000, 90 * MS + 20_000, 2)
    for n in range(20):
        migrate("d2h", 91 + 0.2 * n, 91.1 + 0.2 * n)
    export.call("cudaFree_v3020", 96 * MS, 96 * MS + 5_000, 3)
    return export.write(folder / "faulting.sqlite")


def shifted(folder: Path) -> Path:
    """Fifty kernels of 1 ms, each waited for; the GPU's clock is 30 µs ahead of the host's."""
    events = []
    for n in range(50):
        at = 1200.0 * n
        events += [call("cudaLaunchKernel", at, 5, 2 * n), kernel("work()", at + 38, 1000, 2 * n)]
        events.append(call("cudaDeviceSynchronize", at + 6, 1006, 2 * n + 1))
    return write_kineto(folder / "shifted.json", events)


def cut(folder: Path) -> Path:
    """A hundred kernels in one stream; the calls of the first fifty came before the trace began."""
    events = [kernel("work()", 1000.0 * n + 500, 999, n) for n in range(100)]
    events += [call("cudaLaunchKernel", 10.0 * n, 5, n) for n in range(50, 100)]
    events.append(call("cudaDeviceSynchronize", 1200, 99_310, 1000))
    return write_kineto(folder / "cut.json", events)


@pytest.mark.parametrize(("build", "least"), [(faulting, 0.9), (shifted, 0.8), (cut, 0.9)])
def test_kernels_are_critical(ask: Ask, tmp_path: Path, build: Callable[[Path], Path], least: float) -> None:
    assert share_of_kernels(ask("report", build(tmp_path))) > least


def test_prefetching_the_pages_of_a_kernel_that_faults_gains(ask: Ask, tmp_path: Path) -> None:
    assert ask("what-if", faulting(tmp_path), "--prefetch", "--from", "dgx-a100")["speedup"] > 2


@pytest.mark.parametrize(("node", "least"), [("pcie:5", 50e9), ("rtx-3060-laptop", 1e9)])
def test_a_link_without_its_lanes_and_a_laptops_gpu_have_prices(ask: Ask, node: str, least: float) -> None:
    prices = ask("price", "--node", node, "--bytes", "1GB")["prices"]
    assert max(price["bytes_per_second"] or 0 for price in prices) > least
