"""Formats that busfare knows and does not read: their marks, and what to record or give in their place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["refusal"]


class Refused(NamedTuple):
    """A format: what stands in the first bytes of its files (with `suffix`: which must also end so), and what to say."""

    mark: re.Pattern[bytes]
    what: str
    suffix: str | None = None


JSON = rb"\A(?:\xef\xbb\xbf)?\s*[{\[](?s:.*?)"
NOT_JSON = rb"\A(?!(?:\xef\xbb\xbf)?\s*[{\[])"
COMPUTE = "an Nsight Compute report: kernels one by one, without copies; record with `nsys profile`"
#: Of several that match a file the first one counts.
REFUSED = (
    Refused(
        re.compile(rb"\AQDSTRM"),
        "an unfinished Nsight Systems capture (.qdstrm); import it with the Nsight Systems that made it",
    ),
    Refused(
        re.compile(rb"\A<\?xml"), "XML: a .nvvp that holds only a session; give the file that nvprof wrote"
    ),
    Refused(re.compile(rb"\APK\x03\x04"), "a zip archive; unpack it and give the trace inside"),
    Refused(re.compile(rb"\A(?s:.{257})ustar"), "a tar archive; unpack it and give the trace inside"),
    Refused(
        re.compile(rb"\AARROW1"),
        "a single Arrow file; give the directory that holds all tables of the export",
    ),
    Refused(
        re.compile(rb"\APAR1"),
        "a single Parquet file; give the directory that holds all tables of the export",
    ),
    Refused(re.compile(rb"\ANVR\0"), COMPUTE),
    Refused(re.compile(NOT_JSON), COMPUTE, ".ncu-rep"),
    Refused(
        re.compile(NOT_JSON),
        "OTF2 of rocprofv3; record with `--output-format rocpd`, and give its .db",
        ".otf2",
    ),
    # A packet, its length, and one of the fields that the first packet has.
    Refused(
        re.compile(rb"\A\n[\x80-\xff]{0,3}[\0-\x7f][\x18\x32\x40\x50\x6a]"),
        "a Perfetto trace, as rocprofv3 and ROCm Systems Profiler write; record with "
        "`rocprofv3 --runtime-trace --output-format rocpd -- ./app`",
    ),
    # Lines that nvprof prints about itself, or the head of a table.
    Refused(
        re.compile(
            NOT_JSON
            + rb'(?s:.*?)(?m:^)(?:==(?:\d+|====)== (?:NVPROF|Profiling (?:application|result))|"Start","Duration",)'
        ),
        "text that nvprof printed; record with `nvprof -o run.nvprof ./app`",
    ),
    Refused(
        re.compile(rb"\AStart \(ns\),"),
        "a table of `nsys stats`; give the .nsys-rep or .sqlite that it was made of",
    ),
    Refused(
        re.compile(JSON + rb'"writer":\s*"busfare export"'),
        "a time line that `busfare export` made for ui.perfetto.dev; give the trace that it was made of",
    ),
    Refused(
        re.compile(JSON + rb'"pid":\s*"(?:CPU|CUDA) functions"'),
        "of PyTorch's older profiler, which tells neither copies nor calls; record with `torch.profiler`",
    ),
    Refused(
        re.compile(JSON + rb'"cat": ?"(?:gpu_op|(?:CL_)?Flow_(?:H2D|D2H)_\d)'),
        "a time line of Intel's unitrace; record with `torch.profiler` and `ProfilerActivity.XPU`",
    ),
    Refused(
        re.compile(JSON + rb'"inspector_output_format_version"'),
        "records of NCCL Inspector; record each rank with `busfare record -- ./app`",
    ),
)


def refusal(head: bytes, path: Path) -> str | None:
    """What a file of a refused format is and what to do, by its first bytes `head` and its name; None for other files."""
    for mark, what, suffix in REFUSED:
        if (suffix is None or suffix in path.suffixes) and mark.search(head):
            return what
    return None
