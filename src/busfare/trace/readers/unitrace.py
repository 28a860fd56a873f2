"""Time lines of Intel's unitrace (PTI): `--chrome-kernel-logging`, Chrome JSON.

Names and fields as it writes them [intel/pti-gpu: tools/unitrace/src/chromelogger.h, levelzero/ze_collector.h].
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from busfare.errors import InputError
from busfare.trace.model import Omissions, Trace
from busfare.trace.readers.chrome_json import events_of, times_of
from busfare.trace.readers.tables import INT, meant
from busfare.trace.tables import DEVICES, DIRECTIONS, LAUNCH_SHAPE, MEMORY_KINDS, OPERATIONS, conform

#: A copy or fill: what memory it is from and to, and its bytes: zeCommandListAppendMemoryCopy(M2D)[4096].
COPY = r"^zeCommandListAppend(?:Memory|Image)Copy\w*\(([HDMS])2([HDMS])\)(?:\[(\d+)\])?"
FILL = r"^zeCommandListAppendMemoryFill\w*(?:\([HDMS]\))?(?:\[(\d+)\])?"
#: Commands that move and compute nothing: barriers, signals, queries.
COMMAND = r"^(ze|cl)[A-Z]"
#: Groups and threads of a group behind a kernel's name: gemm[SIMD32 {24; 1; 1} {128; 4; 1}].
SHAPE = r"\{(\d+); (\d+); (\d+)\} \{(\d+); (\d+); (\d+)\}\]$"
SHAPE_BEHIND = r"\[?(?:SIMD\w+)? \{[\d; ]+\} \{[\d; ]+\}\]$"
TILE = r"^Tile #\d+: "
#: Memory of the program's own, of Level Zero's on the host and the device, and shared.
MEMORY_OF = {"M": "pageable", "H": "pinned", "D": "device", "S": "managed"}
DIRECTION_OF = {"MD": "h2d", "HD": "h2d", "DM": "d2h", "DH": "d2h", "DD": "d2d"} | dict.fromkeys(
    ("MM", "MH", "HM", "HH"), "h2h"
)
RECORD = "record with `unitrace --chrome-kernel-logging ./app`"


def read(path: Path, launches: bool = False) -> Trace:
    """Reads a time line of unitrace. Raises InputError if it holds nothing that ran on a GPU.

    Its calls are left out: what they launch and wait for it does not tell as a replay needs it.
    """
    omissions = Omissions()
    rows, calls, whole, unusable = [], 0, True, 0
    for event in events_of(path, omissions):
        if event.ph != "X" or event.cat != "gpu_op":
            calls += event.ph == "X"
            continue
        times = times_of(event)
        if times is None:
            unusable += 1
            continue
        whole = whole and isinstance(event.ts, int)
        rows.append((event.pid, event.tid, event.name, *times))
    omissions.add_if(unusable, "unusable-events", "entries of the event list without usable times: left out")
    if not rows:
        raise InputError(
            f"{path}: a time line of Intel's unitrace without anything that ran on a GPU; {RECORD}"
        )
    omissions.add_if(
        calls, "calls-left-out", "calls of the host: what they launch and wait for is not told; left out"
    )
    if whole:
        omissions.add("coarse-times", "times of whole microseconds only", len(rows))
    schema = {"process": INT, "stream": INT, "name": pl.String(), "start_ns": INT, "end_ns": INT}
    frame = pl.DataFrame(rows, schema=schema, orient="row", strict=False)
    # A GPU, or a part of one, is a process of its own, numbered downwards from 2 ** 32.
    frame = frame.with_columns(device=pl.col("process").rank("dense", descending=True) - 1)
    trace = Trace(path, "unitrace", "Intel unitrace", _operations(frame, omissions))
    trace.devices = conform(frame.select("device").unique(maintain_order=True), DEVICES)
    trace.omissions = omissions.list()
    return trace


def _operations(frame: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    name = pl.col("name")
    omissions.add_if(
        int(frame["name"].str.contains(TILE).sum()),
        "tiles",
        "parts of kernels by tile of the GPU: each counted",
    )
    frame = frame.with_columns(name.str.replace(TILE, ""))
    copied = name.str.extract_groups(COPY)
    frame = frame.with_columns(
        source=copied.struct.field("1"),
        destination=copied.struct.field("2"),
        bytes=pl.coalesce(copied.struct.field("3"), name.str.extract(FILL)).cast(INT, strict=False),
        kind=pl.when(name.str.contains(COPY))
        .then(pl.lit("copy"))
        .when(name.str.contains(FILL))
        .then(pl.lit("set"))
        .when(~name.str.contains(COMMAND))
        .then(pl.lit("kernel")),
    )
    commands = frame["kind"].null_count()
    omissions.add_if(commands, "commands", "barriers, signals and the like: left out")
    frame = frame.drop_nulls("kind").with_columns(ends=pl.concat_str("source", "destination"))
    sides = [f"{what}_{side}" for what in ("grid", "block") for side in "xyz"]
    frame = frame.with_columns(
        *(
            name.str.extract(SHAPE, at + 1).cast(INT, strict=False).alias(side)
            for at, side in enumerate(sides)
        ),
        direction=meant("ends", DIRECTION_OF, DIRECTIONS),
        source_memory=meant("source", MEMORY_OF, MEMORY_KINDS),
        destination_memory=meant("destination", MEMORY_OF, MEMORY_KINDS),
        copy_count=pl.when(pl.col("kind") == "copy").then(1),
        name=pl.when(pl.col("kind") == "kernel")
        .then(name.str.replace(SHAPE_BEHIND, ""))
        .when(pl.col("kind") == "set")
        .then(pl.lit("memset")),
        process=pl.lit(None, INT),
    )
    copies = frame.filter(pl.col("kind") == "copy")
    omissions.add_if(
        copies["direction"].null_count(),
        "unknown-direction",
        "copies from or to shared memory: counted, with no direction",
    )
    return conform(frame, OPERATIONS, LAUNCH_SHAPE)
