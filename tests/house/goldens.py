"""Ids and figures of every command's JSON, kept so that a change of structure changes no answer.

`python -m tests.house.goldens compare` prints what differs from the stored ones and exits 1 where anything does; `… write`
prints the same and stores the new ones. Both take starts of cases' names. Cases on the published
traces need those (tests/published.py). Sentences are not kept: a text with a space in it is one.
"""

import gzip
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any

from tests.published import DATA, SHARED, TRACES, published

STORED = Path(__file__).parent / "goldens.json.gz"
EXAMPLES = Path(str(files("busfare.examples")))
#: Keys whose values differ between two runs or two checkouts.
UNSTABLE = {"schema", "version", "path", "trace", "from_path", "to_path"}
#: Figures agree to so many parts of one: sums are added in another order on another number of threads.
TOLERANCE = 2e-6

Figures = dict[str, float | str | None]


def cases() -> dict[str, list[str]]:
    """The arguments of every case, by its name."""
    made: dict[str, list[str]] = {}
    for trace in sorted(EXAMPLES.glob("*.json.gz")):
        _of_trace(made, f"shipped/{trace.name}", trace)
    h100, h200 = (str(EXAMPLES / f"train-images-{gpu}.json.gz") for gpu in ("h100", "h200"))
    pinned = str(EXAMPLES / "train-images-pinned-h100.json.gz")
    made["shipped/compare"] = ["compare", h100, h200]
    made["shipped/diff"] = ["diff", h100, pinned]
    made["plan/streams"] = [
        "plan", "--h2d", "336MB", "--d2h", "504MB", "--kernel", "12ms", "--node", "h100-sxm",
    ]  # fmt: skip
    made["plan/titan"] = ["plan", "--h2d", "100MB", "--d2h", "300MB", "--kernel", "20ms", "--node", "titan"]
    made["plan/from-trace"] = ["plan", "--from-trace", str(EXAMPLES / "smooth-out-of-core-h100.json.gz")]
    made["plan/offload"] = [
        "plan", "offload", "--layers", "40", "--bytes-per-layer", "400MB", "--seconds-per-layer", "3ms",
        "--node", "h100-sxm",
    ]  # fmt: skip
    made["plan/kv"] = ["plan", "kv", "--network", "llama-3-8b", "--node", "h100-sxm"]
    for direction in ("h2d", "d2h"):
        for memory in ("pinned", "pageable"):
            made[f"price/{direction}-{memory}"] = [
                "price", "--node", "h100-sxm", "--direction", direction, "--memory", memory, "--bytes", "1MB",
            ]  # fmt: skip
    made["price/all-reduce"] = [
        "price", "--node", "dgx-a100", "--collective", "all_reduce", "--ranks", "8", "--bytes", "64MB",
    ]  # fmt: skip
    made["price/kernel"] = [
        "price", "--node", "h200-sxm", "--from", "h100-sxm", "--kernel", "gemm", "--type", "fp16", "--seconds", "1ms",
    ]  # fmt: skip
    made["nodes"] = ["nodes"]
    made |= {f"nodes/{node}": ["nodes", "show", node] for node in ("titan", "h100-sxm", "gh200", "mi300x")}
    if DATA.is_dir():
        for trace in published():
            _of_trace(made, f"shared/{trace.relative_to(TRACES)}", trace)
        before, after = (str(TRACES / f"nsys/nsys-ai-2xh100-{when}.sqlite") for when in ("before", "after"))
        made["shared/diff"] = ["diff", before, after]
        job = str(DATA / "ranks/dlrm-8xv100")
        made["job/report"] = ["report", job]
        made["job/what-if"] = ["what-if", job, "--no-stragglers"]
        made["job/what-if-collectives"] = ["what-if", job, "--overlap-collectives"]
        for case in sorted(
            path for path in (SHARED / "cases").iterdir() if path.suffix not in (".md", ".csv")
        ):
            made[f"case/{case.name}"] = ["report", str(case)]
    return made


def _of_trace(made: dict[str, list[str]], name: str, trace: Path) -> None:
    made[f"{name}/report"] = ["report", str(trace)]
    made[f"{name}/project"] = ["project", str(trace), "--to", "h200-sxm", "--to", "gh200", "--to", "dgx-a100"]
    for change in ("--pin=", "--async=", "--dedupe", "--prefetch", "--drop-synchronisations="):
        made[f"{name}/what-if {change.strip('-=')}"] = ["what-if", str(trace), change]
    made[f"{name}/what-if remove"] = ["what-if", str(trace), "--remove", "copy"]
    made[f"{name}/what-if batch"] = ["what-if", str(trace), "--batch-below", "64KB"]


def answer(arguments: list[str]) -> Figures:
    """What a command answers, flat; of one that refuses, its status alone."""
    command = [sys.executable, "-m", "busfare", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 2):
        raise RuntimeError(f"{' '.join(arguments)}: status {done.returncode}: {done.stderr}")
    if done.returncode == 2:
        return {"status": 2}
    return dict(_flat(json.loads(done.stdout), ""))


def _flat(value: Any, at: str) -> Iterator[tuple[str, float | str | None]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in UNSTABLE:
                yield from _flat(inner, f"{at}.{key}" if at else key)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            name = inner.get("id") if isinstance(inner, dict) else None
            yield from _flat(inner, f"{at}[{name or place}]")
    elif isinstance(value, str):
        if " " not in value and "/" not in value:
            yield at, value
    else:
        yield at, value if value is None or isinstance(value, bool) else float(f"{value:.7g}")


def differences(stored: Figures, now: Figures) -> list[str]:
    """One line for each figure that went, came or changed."""
    lines = [f"- {key} {stored[key]}" for key in stored if key not in now]
    lines += [f"+ {key} {now[key]}" for key in now if key not in stored]
    for key in stored.keys() & now.keys():
        old, new = stored[key], now[key]
        numbers = isinstance(old, float) and isinstance(new, float)
        if not (math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=1e-12) if numbers else old == new):
            lines.append(f"  {key} {old} -> {new}")
    return sorted(lines, key=lambda line: line[2:])


def stored_goldens() -> dict[str, Figures]:
    """The stored figures of each case."""
    loaded: dict[str, Figures] = json.loads(gzip.decompress(STORED.read_bytes()))
    return loaded


def main() -> int:
    """Compares, or writes; 1 where a comparison finds a difference."""
    verb, *starts = sys.argv[1:]
    chosen = {n: a for n, a in cases().items() if not starts or n.startswith(tuple(starts))}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        now = dict(zip(chosen, pool.map(answer, chosen.values()), strict=True))
    stored = stored_goldens() if STORED.is_file() else {}
    changed = {name: differences(stored.get(name, {}), figures) for name, figures in now.items()}
    for line in (f"{name}: {line}" for name, lines in changed.items() for line in lines):
        print(line)
    count = sum(map(bool, changed.values()))
    print(f"{count} of {len(now)} cases differ", file=sys.stderr)
    if verb == "write":
        text = json.dumps(stored | now, sort_keys=True, separators=(",", ":")).encode()
        STORED.write_bytes(gzip.compress(text, 9, mtime=0))
        return 0
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
