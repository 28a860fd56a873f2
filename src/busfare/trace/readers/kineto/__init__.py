"""PyTorch's profiler: Chrome JSON."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from busfare.trace.readers.format import Format, RecordAgain, Source

if TYPE_CHECKING:
    from busfare.trace.model import Trace


def _read(source: Source) -> Trace:
    from busfare.trace.readers.kineto import read

    return read.read(source.path, source.launches)


FORMATS = (
    Format(
        name="kineto",
        title="PyTorch profiler (.json, .json.gz)",
        read=_read,
        any_json=True,
        suffixes=(".json",),
        # Execution traces: operators without times.
        companions=re.compile(rb'\s*\{\s*"schema":\s*"\d'),
        record_again=RecordAgain(gpu="`ProfilerActivity.CUDA`"),
    ),
)
