"""What recording the launch of a CUDA graph costs, by its nodes (PyTorch).

    python native/recorder/testing/gpu/graph_launches.py [--out FILE]

Runs itself bare, recorded, and recorded without calls; prints µs of the host a launch, and of a launch with the wait for
it: the second fastest of seven rounds of 20 and of 100 launches.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

NODES = (1, 2, 6, 12, 24, 96)
WAYS: dict[str, list[str] | None] = {
    "bare": None,
    "recorded": [],
    "recorded, --calls none": ["--calls", "none"],
}


def measure() -> dict[str, dict[str, float]]:
    import torch

    values = torch.zeros(1024, device="cuda")
    found = {}
    for nodes in NODES:
        values.add_(1)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(nodes):
                values.add_(1)
        for _ in range(50):
            graph.replay()
        launches, waited = [], []
        for _ in range(7):
            torch.cuda.synchronize()
            launches.append(_each(graph.replay, 20))
            torch.cuda.synchronize()
            waited.append(_each(graph.replay, 100, torch.cuda.synchronize))
        fastest = {"launch_us": sorted(launches)[1], "launch_and_wait_us": sorted(waited)[1]}
        found[str(nodes)] = {name: round(1e6 * seconds, 2) for name, seconds in fastest.items()}
    return found


def _each(work: Callable[[], object], times: int, wait: Callable[[], object] = lambda: None) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        work()
        wait()
    return (time.perf_counter() - begin) / times


def main() -> int:
    parser = argparse.ArgumentParser(description="What recording the launch of a graph costs, by its nodes.")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--here", action="store_true", help="measure in this process and print JSON")
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measure()))
        return 0
    itself = [sys.executable, str(Path(__file__).resolve()), "--here"]
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (way, more) in enumerate(WAYS.items()):
            record = [sys.executable, "-m", "busfare", "record", "-o", f"{folder}/{number}.bf"]
            command = itself if more is None else [*record, *more, "--", *itself]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(done.stderr, file=sys.stderr)
                return 1
            results[way] = json.loads(done.stdout.splitlines()[-1])
            for nodes, said in results[way].items():
                launch, waited = said["launch_us"], said["launch_and_wait_us"]
                print(f"{way}: {nodes} nodes, a launch {launch:.2f} µs, with its wait {waited:.2f} µs")
    if options.out:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        gpu, driver = (
            subprocess.run(query, capture_output=True, text=True, check=True)
            .stdout.splitlines()[0]
            .split(", ")
        )
        facts = {"gpu": gpu, "driver": driver, "date": datetime.now(UTC).isoformat(timespec="seconds")}
        options.out.write_text(
            json.dumps(facts | {"command": " ".join(sys.argv), "nodes": results}, indent=1) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
