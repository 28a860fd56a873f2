"""Which program wrote a Chrome trace (JSON), by how it begins: many do, and only PyTorch's profiler says what is needed."""

from __future__ import annotations

import re
from collections.abc import Container

__all__ = ["HEAD", "ROCPD", "by_another", "by_pytorch"]

#: So many bytes tell.
HEAD = 1 << 16
ROCPD = "record with `rocprofv3 --runtime-trace --output-format rocpd` and give its .db"
#: What stands in files of other programs; the program, and what to do.
OTHERS: tuple[tuple[re.Pattern[bytes], str, str], ...] = (
    (re.compile(rb'"BeginNs"|"CPU (?:HIP|HSA) API"'), "the JSON of rocprof", ROCPD),
    (re.compile(rb'"rocprofiler-sdk-tool"'), "the JSON of rocprofv3", ROCPD),
    (
        re.compile(rb'"/(?:device:[A-Z]+:\d|host:CPU|job:\w)'),
        "the time line of JAX or TensorFlow (XLA)",
        "record with `nsys profile --trace=cuda`, export with `nsys export --type sqlite` and give that",
    ),
    (
        re.compile(rb'"writer":\s*"busfare export"'),
        "a time line that `busfare export` made for ui.perfetto.dev",
        "give the trace that it was made of",
    ),
)
#: Keys beside `traceEvents`, and categories of events that busfare has no use for, in files of PyTorch.
KEYS = frozenset(
    {b"schemaVersion", b"deviceProperties", b"computeProperties", b"distributedInfo", b"baseTimeNanoseconds"}
)
CATEGORIES = re.compile(rb'"cat":\s*"(?:cpu_op|Operator|python_function|cpu_instant_event|fwdbwd)"')


def by_another(head: bytes) -> str:
    """What a file that begins so is and what to do about it, if another program is known to have written it; or ''."""
    return next((f"this is {what}; {remedy}" for mark, what, remedy in OTHERS if mark.search(head)), "")


def by_pytorch(head: bytes, keys: Container[bytes]) -> bool:
    """Whether a file that begins so, and has such `keys` beside its events, is of PyTorch's profiler."""
    return any(key in keys for key in KEYS) or CATEGORIES.search(head) is not None
