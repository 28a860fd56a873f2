"""What `busfare export` does."""

from __future__ import annotations

import sys
from pathlib import Path

from busfare.jobs.chakra import export_chakra
from busfare.printable import note
from busfare.show.progress import reading
from busfare.trace import read
from busfare.trace.write import check_export
from busfare.trace.write import export as write


def export(trace: Path, to: str, output: Path) -> None:
    if to == "chakra":
        for left_out in export_chakra(trace, output):
            print(f"busfare: {left_out}", file=sys.stderr)
    else:
        check_export(to, output)
        with reading(trace):
            recorded = read(trace, launches=to != "perfetto")
        write(recorded, to, output)
    note(f"{output} written")
