"""Ten million operations from the stand-in for CUPTI: memory held, bytes written. Needs no GPU.

python ten_million.py BUILD > result.json     (BUILD: configured with -DBUSFARE_RECORDER_TESTS=ON)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from busfare.measure.record import environment
from busfare.trace.readers.recorded.file import read_recording

ROUNDS = 3_400_000  # of two copies and a kernel


def peak_resident_bytes(process: int) -> int:
    """The most memory that a running process has held; 0 once it is gone."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def main() -> None:
    build = Path(sys.argv[1]).absolute()
    folder = tempfile.mkdtemp()
    testing = build / "testing"
    variables = os.environ | {"LD_LIBRARY_PATH": f"{testing / 'driver'}:{testing / 'cupti13'}"}
    variables |= environment(f"{folder}/", library=build / "libbusfare_recorder.so")
    start = time.perf_counter()
    process = subprocess.Popen([testing / "fake_program", "rounds", str(ROUNDS)], env=variables)
    peak = 0
    while process.poll() is None:
        peak = max(peak, peak_resident_bytes(process.pid))
        time.sleep(0.02)
    seconds = time.perf_counter() - start
    (file,) = Path(folder).iterdir()
    recording = read_recording(file)
    losses = recording.table("losses")
    result = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": recording.facts["cpu"],
        "cores": os.cpu_count(),
        "seconds": seconds,
        "peak_resident_bytes": peak,
        "operations": len(recording.table("kernels")) + len(recording.table("copies")),
        "calls": len(recording.table("calls")),
        "copies_with_addresses": len(recording.table("copy_addresses")),
        "addresses_lost": int(losses["count"][losses["loss"] == 3].sum()),
        "records_lost": int(losses["count"][losses["loss"] != 3].sum()),
        "file_bytes": file.stat().st_size,
    }
    file.unlink()
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
