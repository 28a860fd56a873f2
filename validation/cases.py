"""Traces and questions that once had wrong answers, and what `busfare` answers today: `python validation/cases.py`.

Every trace is built here, or ships with the project. Exit status 1 where an answer is not what it should be.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.trace.build_kineto import call as kineto_call  # noqa: E402
from tests.trace.build_kineto import kernel as kineto_kernel  # noqa: E402
from tests.trace.build_nsys import NsysExport  # noqa: E402
from tests.trace.build_nvprof import EPOCH, small_file  # noqa: E402

EXAMPLE = ROOT / "src" / "busfare" / "examples" / "smooth-out-of-core-h100.json.gz"
MS = 1_000_000
DIRECTIONS = {"h2d": 11, "d2h": 12}


@dataclass
class Asked:
    """One command, run: what it printed and its exit status."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out) if self.out.startswith("{") else {}

    def path(self, part: str) -> float:
        """The share of the critical path that is of this part."""
        steps = self.json.get("critical_path") or []
        return sum(step["share"] for step in steps if step["part"] == part)


Ask = Callable[..., Asked]


@dataclass(frozen=True)
class Case:
    """`answer`: in words, and whether it is right."""

    name: str
    command: str
    answer: Callable[[Ask, Path], tuple[str, bool]]


CASES: list[Case] = []


def case(name: str, command: str) -> Callable[[Callable[[Ask, Path], tuple[str, bool]]], None]:
    def keep(answer: Callable[[Ask, Path], tuple[str, bool]]) -> None:
        CASES.append(Case(name, command, answer))

    return keep


def migrate(export: NsysExport, direction: str, begin: float, end: float) -> None:
    """A move of managed memory of 1 MiB, as exports have it: of stream 0, launched by nobody; times in ms."""
    export.copy(DIRECTIONS[direction], (5, 5), 1 << 20, int(begin * MS), int(end * MS), None, streamId=0)


def faulting(folder: Path) -> Path:
    """A kernel of 90 ms that faults, a wait for it, and pages that come back once the host reads them."""
    export = NsysExport()
    export.call("cudaLaunchKernel_v7000", 0, 5_000, 1)
    export.kernel("faulting()", 10_000, 90 * MS, 1)
    for n in range(400):
        migrate(export, "h2d", 0.5 + 0.22 * n, 0.7 + 0.22 * n)
    export.call("cudaDeviceSynchronize_v3020", 6_000, 90 * MS + 20_000, 2)
    export.wait(4, 6_000, 90 * MS + 20_000, 2)
    for n in range(20):
        migrate(export, "d2h", 91 + 0.2 * n, 91.1 + 0.2 * n)
    export.call("cudaFree_v3020", 96 * MS, 96 * MS + 5_000, 3)
    return export.write(folder / "faulting.sqlite")


def shifted(folder: Path) -> Path:
    """Fifty kernels of 1 ms, each waited for; the GPU's clock is 30 µs ahead of the host's."""
    events = []
    for n in range(50):
        at = 1200.0 * n
        events += [
            kineto_call("cudaLaunchKernel", at, 5, 2 * n),
            kineto_kernel("work()", at + 38, 1000, 2 * n),
            kineto_call("cudaDeviceSynchronize", at + 6, 1006, 2 * n + 1),
        ]
    path = folder / "shifted.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def cut(folder: Path) -> Path:
    """A hundred kernels in one stream; the calls of the first fifty came before the trace began."""
    events = []
    for n in range(100):
        events.append(kineto_kernel("work()", 1000.0 * n + 500, 999, n))
        if n >= 50:
            events.append(kineto_call("cudaLaunchKernel", 10.0 * n, 5, n))
    events.append(kineto_call("cudaDeviceSynchronize", 1200, 99_310, 1000))
    path = folder / "cut.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


@case("a kernel that faults, and pages that move after the wait for it", "report faulting.sqlite --json")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    share = ask("report", faulting(folder), "--json").path("kernels")
    return f"kernels are {share:.0%} of the critical path", share > 0.9


@case("prefetching its pages", "what-if faulting.sqlite --prefetch --from dgx-a100 --json")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    answer = ask("what-if", faulting(folder), "--prefetch", "--from", "dgx-a100", "--json").json
    gain = answer["gain_percent"]
    return f"gains {gain:.0f} % of the run", gain > 50


@case("a GPU whose clock is 30 µs ahead", "report shifted.json --json")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    share = ask("report", shifted(folder), "--json").path("kernels")
    return f"kernels are {share:.0%} of the critical path", share > 0.8


@case("work that was queued before the trace began", "report cut.json --json")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    share = ask("report", cut(folder), "--json").path("kernels")
    return f"kernels are {share:.0%} of the critical path", share > 0.9


@case("sizes that are not known, packed and spread", "what-if unsized.sqlite --batch-below 64KiB --streams 3")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    export = NsysExport()
    for n in range(40):
        at = n * 100_000
        for k in range(3):
            export.call("cudaMemcpyAsync_v3020", at + 5_000 * k, at + 5_000 * k + 3_000, 10 * n + k)
            size = None if n == 7 and k == 1 else 4096
            export.copy(1, (1, 2), size, at + 20_000 + 3_000 * k, at + 22_000 + 3_000 * k, 10 * n + k)
        export.call("cudaLaunchKernel_v7000", at + 20_000, at + 23_000, 10 * n + 5)
        export.kernel("work()", at + 40_000, at + 80_000, 10 * n + 5)
    path = export.write(folder / "unsized.sqlite")
    done = ask("what-if", path, "--batch-below", "64KiB", "--streams", "3", "--from", "dgx-a100")
    last = done.err.strip().splitlines()[-1] if done.err.strip() else "answers"
    return f"exit {done.status}: {last[:60]}", done.status == 0


@case("nvprof rows whose start and end are 0", "report untimed.nvvp --json")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    file = small_file()
    file.kernel("never timed", -EPOCH, -EPOCH, 900)
    seconds = ask("report", file.write(folder / "untimed.nvvp"), "--json").json["makespan_seconds"]
    return f"a run of {seconds:.3g} s", seconds < 1


@case("a trace without GPU work", "report idle.sqlite --json")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    export = NsysExport()
    for n in range(40):
        export.call("cudaLaunchKernel_v7000", n * MS, n * MS + 5_000, 3 * n)
        export.call("cudaEventRecord_v3020", n * MS + 6_000, n * MS + 8_000, 3 * n + 1)
        export.record(n + 1, 7, 3 * n + 1)
        export.call("cudaEventSynchronize_v3020", n * MS + 9_000, n * MS + 950_000, 3 * n + 2)
        export.wait(1, n * MS + 9_000, n * MS + 950_000, 3 * n + 2, eventId=n + 1)
    answer = ask("report", export.write(folder / "idle.sqlite"), "--json").json
    gain = sum(f["predicted_gain_seconds"] or 0 for f in answer["findings"]) / answer["makespan_seconds"]
    return f"findings: {len(answer['findings'])}, gains {gain:.0%} of the run", not answer["findings"]


@case("a limit held against it", "report idle.sqlite --fail-if 'exposed > 20%'")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    status = ask("report", folder / "idle.sqlite", "--fail-if", "exposed > 20%").status
    return f"exit {status}", status == 2


@case("JSON of rocprof", "report results.json")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    event = {
        "ph": "X",
        "name": "hipLaunchKernel",
        "pid": 2,
        "tid": 1,
        "ts": 1.0,
        "dur": 2.0,
        "args": {"BeginNs": 1},
    }
    named = {"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "CPU HIP API"}}
    path = folder / "results.json"
    path.write_text(json.dumps({"traceEvents": [named, event], "otherData": {"DurationNs": "1"}}))
    done = ask("report", path)
    return (
        f"exit {done.status}: {(done.err or done.out).strip().splitlines()[0].rpartition(': ')[2].partition(';')[0]}",
        done.status == 2,
    )


@case("a page written over the trace", "report trace.json.gz --html trace.json.gz")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    path = folder / "trace.json.gz"
    shutil.copy(EXAMPLE, path)
    done = ask("report", path, "--html", path)
    kept = path.read_bytes() == EXAMPLE.read_bytes()
    return f"exit {done.status}, the trace is {'as it was' if kept else 'gone'}", kept and done.status == 2


@case("two GPUs that copy slowly at the same time", "report two.sqlite --json")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    export = NsysExport()
    for gpu in range(2):
        for n in range(10):
            id, at = 100 * gpu + n, n * 20 * MS
            export.call("cudaMemcpyAsync_v3020", at, at + 5_000, id, thread=5 + gpu)
            export.copy(1, (1, 2), 256 << 20, at + 10_000, at + 19 * MS, id, deviceId=gpu, contextId=gpu + 1)
    path = export.write(folder / "two.sqlite")
    answer = ask("report", path, "--node", "h100-sxm", "--json").json
    gain = max((f["predicted_gain_seconds"] or 0 for f in answer["findings"]), default=0.0)
    return f"gains up to {gain / answer['makespan_seconds']:.0%} of the run", gain < 0.8 * answer[
        "makespan_seconds"
    ]


@case("kernels of NCCL", "report nccl.json --json")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    events = [kineto_kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 100.0, 900, 1)]
    events += [kineto_call("cudaLaunchKernel", 0, 5, 1)]
    path = folder / "nccl.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    answer = ask("report", path, "--json").json
    kernels, communication = (answer.get(key, {}).get("seconds", 0.0) for key in ("kernels", "communication"))
    return f"{kernels * 1e3:.1f} ms of kernels, {communication * 1e3:.1f} ms of communication", kernels == 0


@case("the least that a plan may take", "plan --h2d 336MB --d2h 504MB --kernel 1us --node h100-probed --json")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    answer = ask(
        "plan", "--h2d", "336MB", "--d2h", "504MB", "--kernel", "1us", "--node", "h100-probed", "--json"
    ).json
    bound = answer["bounds"]["full_overlap_seconds"]
    return f"full overlap {bound * 1e3:.3g} ms", bound > 5e-3


@case("a strategy for a recorded program whose accesses nobody counted", "plan --from-trace … --json")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    answer = ask("plan", "--from-trace", EXAMPLE, "--kernel-name", "smooth", "--node", "h100-sxm", "--json")
    if not answer.json:
        return answer.err.strip()[-60:], False
    best = answer.json["ranking"][0]["strategy"]
    return f"first: {best}", best != "mapped"


@case("a link without its lanes", "price --node pcie:5 --bytes 1GB --json")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    done = ask("price", "--node", "pcie:5", "--bytes", "1GB", "--json")
    rates = [p["bytes_per_second"] for p in done.json.get("prices", []) if p["bytes_per_second"]]
    return (f"{max(rates) / 1e9:.3g} GB/s" if rates else f"exit {done.status}"), bool(rates) and max(
        rates
    ) > 50e9


@case("a laptop's GPU", "price --node rtx-3060-laptop --bytes 64MB --json")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    done = ask("price", "--node", "rtx-3060-laptop", "--bytes", "64MB", "--json")
    prices = done.json.get("prices", [])
    return (f"{len(prices)} prices" if prices else f"exit {done.status}"), bool(prices)


@case(
    "standard error of a comparison",
    "compare train-images-h100.json.gz train-images-h200.json.gz",
)
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    images = str(EXAMPLE).replace("smooth-out-of-core", "train-images")
    err = ask("compare", images, images.replace("h100", "h200")).err
    return f"{len(err.splitlines())} lines", not err


@case("an export packed with gzip", "report faulting.sqlite.gz --json")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    packed = folder / "faulting.sqlite.gz"
    packed.write_bytes(gzip.compress(faulting(folder).read_bytes()))
    done = ask("report", packed, "--json")
    count = done.json.get("kernels", {}).get("count", 0)
    return f"exit {done.status}, {count} kernel", count == 1


@case("a name that turns a terminal's text round", "report names.json --html names.html")
def _(ask: Ask, folder: Path) -> tuple[str, bool]:
    events = [
        kineto_kernel("evil\u202egpj.exe\x1b[2J", 100.0, 900, 1),
        kineto_call("cudaLaunchKernel", 0, 5, 1),
    ]
    path, page = folder / "names.json", folder / "names.html"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    said = ask("report", path, "--html", page).out + page.read_text()
    bad = sum(said.count(c) for c in "\u202e\x1b")
    return f"such characters in the tables and the page: {bad}", bad == 0


def ask(*arguments: object) -> Asked:
    done = subprocess.run(
        [sys.executable, "-m", "busfare", *map(str, arguments)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return Asked(done.returncode, done.stdout, done.stderr)


def main() -> int:
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for one in CASES:
            try:
                text, right = one.answer(ask, Path(folder))
            except (KeyError, ValueError, TypeError) as error:
                text, right = f"no answer ({type(error).__name__} {error})", False
            wrong += not right
            print(f"{'' if right else 'WRONG '}{one.name}: {text.replace(folder + '/', '')}", flush=True)
    print(f"{len(CASES) - wrong} of {len(CASES)} as they should be")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
