"""Fingerprints of copies whose bytes are known (hashes.cu): `python hashes.py DIR`. Needs a GPU.

DIR holds libbusfare_recorder.so and `hashes`. Prints a line a scenario and choice of calls; status 1 where one fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

from busfare.measure.record import environment
from busfare.trace import Trace, read

SCENARIOS = ("pinned", "registered", "null-stream", "pageable", "captured", "managed")
#: Calls of the recorder's that no program here makes itself.
RECORDER_CALLS = ("cuStreamIsCapturing", "cuThreadExchangeStreamCaptureMode")


def recorded(build: Path, name: str, calls: str) -> tuple[list[str], Trace]:
    """What the program says of itself, and its recording. Raises CalledProcessError where it fails."""
    kinds = ("default", "all-calls") if calls == "both" else ()
    with tempfile.TemporaryDirectory() as folder:
        library = build / "libbusfare_recorder.so"
        variables = environment(f"{folder}/", library=library, fingerprint=True, calls=calls, kinds=kinds)
        command = [str(build / "hashes"), name]
        printed = subprocess.check_output(command, env=os.environ | variables, text=True, timeout=300)
        return printed.splitlines(), read(Path(folder))


def faults(lines: list[str], trace: Trace) -> list[str]:
    """What the recording says otherwise than the program."""
    expected = list(map(json.loads, lines))
    complaints = []
    copies = trace.operations.filter(pl.col("kind") == "copy").sort("correlation", "start_ns")
    rows = copies.iter_rows(named=True)
    if copies.height != len(expected):
        complaints.append(f"{copies.height} copies, not {len(expected)}")
    prints: dict[tuple[int, int], int] = {}
    for number, (copy, row) in enumerate(zip(expected, rows, strict=False)):
        # CUPTI does not say on which side managed memory is.
        direction = copy["direction"] if row["direction"] in ("h2d", "d2h") else row["direction"]
        if (direction, copy["bytes"]) != (row["direction"], row["bytes"]):
            complaints.append(f"copy {number} is another one: {row['direction']} of {row['bytes']} bytes")
            continue
        how = "not" if row["fingerprint"] is None else "by-thread"
        if how != copy["hashed"]:
            complaints.append(f"copy {number} was hashed {how}, not {copy['hashed']}")
        if row["fingerprint"] is not None:
            same = prints.setdefault((row["bytes"], copy["content"]), row["fingerprint"])
            if same != row["fingerprint"]:
                complaints.append(f"copy {number} has another hash than the same bytes before")
    if len(set(prints.values())) != len(prints):
        complaints.append("different bytes have one hash")
    names = trace.calls["name"].cast(pl.String)
    complaints += [
        f"the recorder's own {name} is among the calls" for name in RECORDER_CALLS if (names == name).any()
    ]
    lost = (omission for omission in trace.omissions if omission.id in ("cut", "calls-lost", "dropped"))
    complaints += [f"{omission.id}: {omission.what}" for omission in lost]
    return complaints


def main() -> int:
    failed = 0
    for name in SCENARIOS:
        for calls in ("driver", "both"):
            lines, trace = recorded(Path(sys.argv[1]).absolute(), name, calls)
            wrong = faults(lines, trace)
            failed += bool(wrong)
            print(f"{name:12} {calls:7} " + (f"FAIL {wrong[:5]}" if wrong else "pass"), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
