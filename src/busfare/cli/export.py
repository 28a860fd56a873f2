"""What `busfare export` does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from busfare.errors import InputError
from busfare.jobs.chakra import export_chakra
from busfare.printable import note
from busfare.questions import Part
from busfare.show.progress import reading
from busfare.show.words import text, worded
from busfare.trace import read
from busfare.trace.window import part_of
from busfare.trace.write import check_export
from busfare.trace.write import export as write


def export(trace: Path, to: str, output: Path, **given: Any) -> None:
    part = Part.of(**given).part()
    if to == "chakra":
        if part:
            raise InputError(f"`{next(iter(part))}`: chakra takes whole traces; leave it out")
        for left_out in export_chakra(trace, output):
            print(f"busfare: {left_out.count} {text(left_out.what)}", file=sys.stderr)
    else:
        check_export(to, output)
        with reading(trace):
            recorded = part_of(read(trace, launches=to != "perfetto"), **part)
        recorded.omissions = worded(recorded.omissions)
        write(recorded, to, output)
    note(f"{output} written")
