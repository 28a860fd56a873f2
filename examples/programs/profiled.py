"""Run a function under PyTorch's profiler and keep the trace small enough to ship."""

from __future__ import annotations

import argparse
import gzip
import json
import pathlib
import tempfile
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, _ExperimentalConfig, profile

# What busfare never reads, and what names the machine that recorded.
DROPPED_CATEGORIES = {"ac2g", "python_function", "cpu_instant_event", "fwdbwd", "Trace"}
KEPT_ARGUMENTS = {
    "External id", "bytes", "context", "correlation", "cuda_sync_kind", "device", "stream", "cbid",
    "wait_on_cuda_event_id", "wait_on_cuda_event_record_corr_id", "wait_on_stream", "grid", "block",
    "graph node id", "graph id",
}  # fmt: skip


def arguments(what: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="trace to write (.json.gz)")
    return parser


def profile_to(out: pathlib.Path, run: Callable[[], None]) -> None:
    """Run `run` once under the profiler, with synchronisation events, and write its trace to `out`."""
    torch.cuda.synchronize()
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True),
    ) as profiler:
        run()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        whole = pathlib.Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(whole))
        trace = json.loads(whole.read_text())
    events = [event for event in trace["traceEvents"] if event.get("cat") not in DROPPED_CATEGORIES]
    for event in events:
        if event["ph"] == "X":
            event["args"] = {k: v for k, v in event.get("args", {}).items() if k in KEPT_ARGUMENTS}
    trace["traceEvents"] = events
    trace["traceName"] = out.name
    out.write_bytes(gzip.compress(json.dumps(trace, separators=(",", ":")).encode(), mtime=0))
    print(f"{out}: {len(trace['traceEvents'])} events, {out.stat().st_size} bytes")
