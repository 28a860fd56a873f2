"""Records programs that know what they do (programs.cu), and compares: `python exact.py DIR`. Needs a GPU.

DIR holds libbusfare_recorder.so and `programs`. Prints a line a program; status 1 where a recording differs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from busfare.measure.record import environment
from busfare.trace import read

PROGRAMS = ("runtime-calls", "driver-calls", "graphs", "streams", "threads", "managed", "batched")
ENDING = ("late", "reset", "fork", "quick-exit", "abort")


def recorded(build: Path, name: str) -> tuple[dict[str, object], dict[str, object]]:
    """What the program says that it did, and what its recordings hold: number and bytes by direction."""
    with tempfile.TemporaryDirectory() as folder:
        library = build / "libbusfare_recorder.so"
        variables = os.environ | environment(f"{folder}/", library=library, flush_every=0.25)
        command = [str(build / "programs"), name, "5000"]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300)
        operations = read(Path(folder)).operations
        held: dict[str, object] = {"kernels": len(operations.filter(kind="kernel"))}
        held["sets"] = [len(sets := operations.filter(kind="set")), int(sets["bytes"].sum())]
        for direction in ("h2d", "d2h", "d2d"):
            copies = operations.filter(kind="copy", direction=direction)
            held[direction] = [int(copies["copy_count"].fill_null(1).sum()), int(copies["bytes"].sum())]
    return json.loads(done.stdout.splitlines()[-1]), held


def main() -> int:
    differ = 0
    for name in PROGRAMS + ENDING:
        expected, held = recorded(Path(sys.argv[1]).absolute(), name)
        wrong = {what: (value, held[what]) for what, value in expected.items() if held[what] != value}
        differ += bool(wrong)
        print(f"{name:14} " + (f"DIFFERS {wrong}" if wrong else f"equal {expected}"))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
