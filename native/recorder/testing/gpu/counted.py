"""Hardware counters beside what is known of the kernels: `python counted.py DIR [OPTIONS OF RECORD]`. Needs a GPU.

DIR holds libbusfare_recorder.so and `counted`. Prints what was counted over what is known, a line a kernel, and what CUPTI
said step by step.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

from busfare.trace import read


def main() -> None:
    build = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "busfare",
            "record",
            "--counters",
            "-o",
            f"{folder}/run",
            *sys.argv[2:],
        ]
        library = build / "libbusfare_recorder.so"
        variables = os.environ | {
            "BUSFARE_RECORDER_LIBRARY": str(library),
            "BUSFARE_RECORD_COUNTERS_TALK": "1",
        }
        # Standard error is not kept back: it tells where a program hangs.
        done = subprocess.run(
            [*command, "--", str(build / "counted")], env=variables, stdout=subprocess.PIPE, text=True
        )
        print(f"status {done.returncode}")
        trace = read(Path(folder) / "run")
    for omission in trace.omissions:
        print(f"omission {omission.id} {omission.count}: {omission.what}")
    for line in done.stdout.splitlines():
        known = json.loads(line)
        print(known["name"], known.pop("error"))
        kernel = pl.col("name").str.contains(known.pop("name"), literal=True)
        timed = trace.operations.filter(pl.col("kind") == "kernel").with_columns(
            pl.col("name").cast(pl.String)
        )
        timed = timed.filter(kernel)
        print("  recorded seconds", ((timed["end_ns"] - timed["start_ns"]) * 1e-9).to_list())
        for counted in trace.counters.filter(kernel).iter_rows(named=True):
            for name, value in counted.items():
                of = f" / {known[name]:.6g} known" if known.get(name) else ""
                print(f"  {name} {value:.6g}{of}" if isinstance(value, float) else f"  {name} {value}")
    held = trace.calls["recorder_ns"].sum() if "recorder_ns" in trace.calls.columns else 0
    print(f"held up for {held * 1e-6:.1f} ms in all")


if __name__ == "__main__":
    main()
