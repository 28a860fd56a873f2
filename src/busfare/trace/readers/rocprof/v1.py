"""Traces of rocprof before rocprofv3: its results.json (Chrome's, with times in ns) and results.db, which hold the same.

Calls stand with their arguments as text, from which copies get their sizes and addresses. The database numbers what a call
started as the call itself; the JSON only draws arrows, in order of the calls. Kernels of programs without HIP are those that
rocprof itself measured, in a table of their own [rocprofiler: bin/tblextr.py, bin/sqlitedb.py].
"""

import re
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from busfare.errors import InputError
from busfare.trace.columns import first_pairs
from busfare.trace.model import Trace
from busfare.trace.omissions import Omissions
from busfare.trace.readers.compressed import pieces
from busfare.trace.readers.rocprof.records import ALLOCATIONS, COPIES, KERNELS, REGIONS, Records
from busfare.trace.readers.tables import INT, SqliteTables, TableSource, ints, texts, typed
from busfare.trace.tables import conform

#: rocprof's tables of calls and operations, and what they hold.
TABLES = {"HIP": "HIP", "HSA": "HSA", "rocTX": "MARKER", "COPY": "COPY", "OPS": "GPU"}
#: Kernels that rocprof measured, as newer versions name their table and as older ones do; OPS has the same where it has any.
MEASURED = ("KERN", "A")
#: What rocprof records, as the JSON names it and as the database does; GPU0 and on are kernels.
SECTIONS = {"Markers and Ranges": "MARKER", "COPY": "COPY", "CPU HIP API": "HIP", "CPU HSA API": "HSA"}
APIS = ("HIP", "HSA", "MARKER")
ROWS = ints("start_ns end_ns process thread device queue stream correlation grid_x block_x")
ROWS |= texts("section name args")
#: Packets that wait in a queue, among the kernels: by their name, or where a kernel's stands there, by where they are drawn:
#: so much behind their GPU [rocprof's own script, which labels these processes `GPU Barriers`]. Commands that are no kernel,
#: copy or fill, such as a marker in a stream, have no name of their own [rocclr: platform/activity.cpp].
BARRIER = "<barrier packet>|^Unknown command type$"
DRAWN_BARRIERS = 512
FILL = "FillBuffer"
COPYING = r"^hip(Drv)?(Memcpy|Memset)"
LAUNCHING = r"^hip\w*Launch\w*Kernel"
ALLOCATING = r"^hip(Ext)?(Host)?(Malloc|Alloc)|^hipMemAllocHost|^hipMemAllocPitch"
FREEING = r"^hip(Host)?Free(Host|Async)?$"
ADDRESS = r"\(0x([0-9a-f]+)\)"
#: hipMemcpyKind, as it stands in the arguments, and the operation that it makes.
KIND_OF = {"1": "CopyHostToDevice", "2": "CopyDeviceToHost", "3": "CopyDeviceToDevice"}


#: Numbers, as rocprof calls them in tables and in the arguments of events, and as columns here.
NUMBERS = {
    "BeginNs": "start_ns", "EndNs": "end_ns", "proc-id": "process", "pid": "pid", "tid": "thread", "dev-id": "device",
    "gpu-id": "measured_on", "queue-id": "queue", "stream-id": "stream", "grd": "grid_x", "wgr": "block_x",
}  # fmt: skip
#: What rocprof says of an event; which pid is the process depends on the version.
Arguments: Any = msgspec.defstruct(
    "Arguments",
    [(ours, int | None, msgspec.field(default=None, name=theirs)) for theirs, ours in NUMBERS.items()]
    + [("name", str | None, None), ("args", str | None, None)],
)


class _Event(msgspec.Struct):
    ph: str = ""
    name: str = ""
    pid: int | None = None
    tid: int | None = None
    ts: int | None = None
    id: int | None = None
    args: Arguments | None = None


class _File(msgspec.Struct):
    events: list[_Event] = msgspec.field(name="traceEvents")


def has_rocprof_tables(file: SqliteTables) -> bool:
    """Whether it has HIP's calls or operations, with times, and no table of texts."""
    present = {*TABLES, *MEASURED} & file.names
    return "STR_TABLE" not in file.names and any("BeginNs" in file.columns(table) for table in present)


def read(source: TableSource | Path, launches: bool = False) -> Trace:
    """Reads either. Raises InputError if the JSON is damaged or cut, or a table cannot be read."""
    omissions = Omissions()
    if isinstance(source, TableSource):
        return _trace(source.path, _of_tables(source), omissions, launches)
    return _trace(source, _of_json(source, omissions), omissions, launches)


def _of_tables(tables: TableSource) -> pl.DataFrame:
    """The rows of `ROWS`."""
    columns = NUMBERS | {"Index": "correlation", "Name": "name"}
    wanted = ints(" ".join(columns)) | ints("__section") | texts("Name args")
    parts = []
    for table, section in TABLES.items():
        frame = tables.read(table, wanted).rename(columns).with_columns(section=pl.lit(section))
        frame = frame.with_columns(pl.col("name").str.strip_chars('"'))  # as the JSON has it
        if section == "GPU":
            barrier = pl.col("name").str.contains(BARRIER)
            barrier |= pl.col("__section") >= DRAWN_BARRIERS
            frame = frame.with_columns(section=pl.when(barrier).then(pl.lit("BARRIER")).otherwise("section"))
        if "proc-id" not in tables.columns("OPS") and "proc-id" not in tables.columns("COPY"):
            frame = frame.with_columns(process="pid")
        parts.append(conform(frame, ROWS))
    if parts[-1].is_empty():
        parts += [_measured(tables, name) for name in MEASURED if "BeginNs" in tables.columns(name)]
    return pl.concat(parts)


def _measured(tables: TableSource, name: str) -> pl.DataFrame:
    """Kernels that rocprof measured; their names stand in quotes."""
    frame = tables.read(name, ints(" ".join(NUMBERS)) | texts("KernelName")).rename(NUMBERS)
    named = pl.col("KernelName").str.strip_chars('"')
    frame = frame.with_columns(name=named, device="measured_on", process="pid", section=pl.lit("GPU"))
    return conform(frame, ROWS)


def _of_json(path: Path, omissions: Omissions) -> pl.DataFrame:
    """The rows of `ROWS`; correlations are numbers of ours."""
    text = b"".join(pieces(path, omissions)).removeprefix(b"\xef\xbb\xbf")  # of an editor
    try:
        events = msgspec.json.decode(text, type=_File, strict=False).events
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{path}: damaged or cut JSON of rocprof ({error}); give the results.db beside it, or record again"
        ) from None
    named = {e.pid: e.args.name for e in events if e.ph == "M" and e.args is not None}
    old = any(e.args.process is not None for e in events if e.args is not None)
    rows = [
        _row(event, number, old, named.get(event.pid))
        for number, event in enumerate(events)
        if event.ph == "X" and event.args is not None
    ]
    drawn = ints("drawn_pid drawn_tid drawn_ts")
    frame = typed(rows, {**ROWS, **drawn})
    arrows = [(e.pid, e.tid, e.ts, e.id) for e in events if e.ph == "t" and e.id is not None]
    to = typed(arrows, {**drawn, "arrow": INT}).unique([*drawn], keep="none")
    frame = frame.join(to, on=[*drawn], how="left", maintain_order="left")
    doubled = pl.len().over([*drawn]) > 1
    frame = frame.with_columns(arrow=pl.when(~doubled).then("arrow"))
    return conform(_linked(frame), ROWS)


def _row(event: _Event, number: int, old: bool, drawn: str | None) -> tuple[object, ...]:
    """The columns of `ROWS`, and where the event is drawn: in the process that is called `drawn`."""
    a = event.args or Arguments()
    # Versions that are not `old` may write the number of the section as the process.
    process = a.process if old else None if a.pid == event.pid else a.pid
    device = a.measured_on if a.device is None else a.device
    section = SECTIONS.get(drawn or "")
    if gpu := re.fullmatch(r"GPU( Barriers)?\d+", drawn or ""):
        section = "BARRIER" if gpu[1] or re.search(BARRIER, event.name) else "GPU"
    called = (a.start_ns, a.end_ns, process, a.thread, device, a.queue, a.stream, number, a.grid_x, a.block_x)
    return *called, section, event.name, a.args, event.pid, event.tid, event.ts


def _linked(frame: pl.DataFrame) -> pl.DataFrame:
    """Operations get the correlation of their call, where the arrows to those of a kind are as many as its calls. Both are
    in order of the calls then; any two that cannot belong together make all of the kind unknown.
    """
    called = frame.filter(section="HIP").with_columns(number="correlation")
    links = [pl.DataFrame(schema={"correlation": INT, "call": INT})]
    for section, pattern in (("COPY", COPYING), ("GPU", LAUNCHING)):
        some = called.filter(pl.col("name").str.contains(pattern))
        some = some.sort("start_ns", pl.col("end_ns"), descending=[False, True], maintain_order=True)
        # A call that makes another of the kind has its operation from that one.
        inner = pl.col("start_ns").shift(-1).over("thread") < pl.col("end_ns")
        some = some.filter(~inner.fill_null(False))
        operations = frame.filter(section=section)
        arrowless = operations.filter(pl.col("arrow").is_null() & ~pl.col("name").str.starts_with(FILL))
        operations = operations.drop_nulls("arrow").sort("arrow")
        # An arrow leads to the last operation of a call only.
        if arrowless.height or operations["drawn_pid"].n_unique() != 1 or operations.height != some.height:
            continue
        pair = some.select(pl.col("args").fill_null(""), call="name", operation=operations["name"])
        if not pair.select(_belong(section).all()).item():
            continue
        links.append(pl.DataFrame({"correlation": operations["correlation"], "call": some["correlation"]}))
    frame = frame.join(pl.concat(links), on="correlation", how="left", maintain_order="left")
    # A call that fills in parts has its arrow to the last of them.
    frame = frame.sort("section", "start_ns", maintain_order=True)
    last = pl.col("call").backward_fill().over(pl.struct("section", "name").rle_id())
    fills = (pl.col("section") == "COPY") & pl.col("name").str.starts_with(FILL)
    frame = frame.with_columns(call=pl.when(fills.fill_null(False)).then(last).otherwise("call"))
    of_calls = pl.col("section").is_in(APIS)
    return frame.with_columns(correlation=pl.when(of_calls).then("correlation").otherwise("call"))


def _belong(section: str) -> pl.Expr:
    """Whether operation, call and args may be of one another."""
    operation, arguments = pl.col("operation"), pl.col("args")
    if section == "GPU":
        kernel = arguments.str.extract(r"\( ?kernel\((.*)\) function_address")
        return kernel.is_null() | (kernel == operation)
    kind = arguments.str.extract(r" kind\((\d+)\)").replace_strict(KIND_OF, default=None)
    return (operation.str.starts_with(FILL) == pl.col("call").str.contains("Memset")) & (
        kind.is_null() | (kind == operation.str.strip_suffix("2D"))
    )


def _trace(path: Path, rows: pl.DataFrame, omissions: Omissions, launches: bool) -> Trace:
    pids = rows["process"].drop_nulls().unique()
    if len(pids) == 1:  # older versions name the process of operations alone
        rows = rows.with_columns(process=pl.lit(pids[0], INT))
    called = rows.filter(pl.col("section").is_in(APIS)).with_columns(category="section")
    worked = rows.filter(pl.col("section").is_in(["COPY", "GPU"]))
    barriers, untyped = rows.filter(section="BARRIER").height, rows["section"].null_count()
    omissions.count("barriers", barriers)
    omissions.count("unknown-events", untyped)
    args = _arguments(worked, called)
    for what in ("grid", "block"):  # of all sides together, as rocprof itself measured them
        whole = worked[f"{what}_x"]
        args[f"{what}_x"] = args[f"{what}_x"].fill_null(whole)
        args |= {side: args[side].fill_null(whole.clip(1, 1)) for side in (f"{what}_y", f"{what}_z")}
    worked = worked.with_columns(stream=pl.coalesce("stream", "queue"), **args)
    copied = (pl.col("section") == "COPY").fill_null(False)
    fills = pl.col("name").str.starts_with(FILL).fill_null(False)
    copies = worked.filter(copied & ~fills).with_columns(source="device", destination="device")
    kernels = worked.filter(~copied | fills).with_columns(kind=pl.when(copied).then(pl.lit("set")))
    records = Records(
        conform(kernels, KERNELS), conform(copies, COPIES), conform(called, REGIONS), _allocations(called)
    )
    return records.trace(path, "rocprof", "rocprof", omissions, launches)


def _arguments(worked: pl.DataFrame, called: pl.DataFrame) -> dict[str, pl.Series]:
    """What the call of each operation says of it: grid, addresses, and size, which of several operations is not known."""
    calls = called.filter(section="HIP")
    rows = pl.Series(first_pairs(calls, worked)).replace(-1, None).cast(pl.UInt32)
    text = calls["args"].gather(rows)
    alone = worked.select(pl.len().over("process", "correlation") == 1).to_series()
    size = text.str.extract(r" sizeBytes\((\d+)\)").cast(INT, strict=False)
    columns = {"size": pl.select(pl.when(alone).then(size)).to_series()}
    for side in "xyz":
        blocks, threads = (
            text.str.extract(rf"\b{word}Blocks\(\{{[^}}]*\b{side}\((\d+)").cast(INT, strict=False)
            for word in ("num", "dim")
        )
        columns |= {f"grid_{side}": blocks * threads, f"block_{side}": threads}
    for name, word in (("source_address", "src"), ("destination_address", "dst")):
        columns[name] = text.str.extract(rf"\b{word}{ADDRESS}").str.to_integer(base=16, strict=False)
    return columns


def _allocations(called: pl.DataFrame) -> pl.DataFrame:
    """Memory that HIP's calls took and gave back, by their arguments."""
    name, args = pl.col("name"), pl.col("args")
    some = called.filter((pl.col("section") == "HIP") & name.str.contains(f"{ALLOCATING}|{FREEING}"))
    on_host = name.str.contains("Host")
    return conform(
        some.with_columns(
            address=args.str.extract(ADDRESS).str.to_integer(base=16, strict=False),
            size=pl.when(~name.str.contains(FREEING)).then(args.str.extract(r" size(?:Bytes)?\((\d+)\)")),
            agent_type=pl.when(on_host).then(pl.lit("CPU")).otherwise(pl.lit("GPU")),
        ),
        ALLOCATIONS,
    )
