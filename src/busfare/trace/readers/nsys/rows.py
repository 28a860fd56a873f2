"""Rows of Nsight Systems exports as rows of a trace's tables: operations, calls and where they are made, events, markers."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from busfare.trace import sites, words
from busfare.trace import tables as schema
from busfare.trace.columns import Rows, first_pairs, numbered, occurs, places, plain
from busfare.trace.launches import ALLOCATIONS
from busfare.trace.omissions import Omissions
from busfare.trace.readers import cupti
from busfare.trace.readers.cupti import NO_ID, TIMES
from busfare.trace.readers.tables import SMALL, TableSource, ints, smalls, texts
from busfare.trace.tables import conform, empty
from busfare.trace.words import of_codes

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
SETS = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
CALLS_TABLE = "CUPTI_ACTIVITY_KIND_RUNTIME"
WAITS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
RECORDS = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
CALLCHAINS = "CUDA_CALLCHAINS"
OS_CALLS, SAMPLES, SAMPLED_CHAINS = "OSRT_API", "COMPOSITE_EVENTS", "SAMPLING_CALLCHAINS"
#: So many calls tell how they name their chains.
ENOUGH = 10_000
PLACE = smalls("deviceId contextId streamId") | ints("correlationId globalPid")
#: What kernels, copies and sets have in common.
OF_OPERATIONS = TIMES | PLACE | ints("graphNodeId")
COPY_COLUMNS = (
    OF_OPERATIONS | ints("bytes") | smalls("copyKind srcKind dstKind copyCount srcDeviceId dstDeviceId")
)
SET_COLUMNS = OF_OPERATIONS | ints("bytes memKind")
GRAPH_COLUMNS = TIMES | PLACE | ints("graphId")
CALL_COLUMNS = TIMES | ints("globalTid correlationId") | smalls("nameId returnValue")
RECORD_COLUMNS = PLACE | ints("eventId eventSyncId")
WAIT_COLUMNS = TIMES | RECORD_COLUMNS
#: What only allocations of a pool have, which a stream makes and frees.
OF_POOLS = ["localMemoryPoolAddress", "localMemoryPoolSize"]
ALLOCATION_COLUMNS = ints(f"start globalPid deviceId bytes memKind memoryOperationType {' '.join(OF_POOLS)}")
#: Calls of a process that begins to use CUDA: what it allocated before them is nothing.
BEGINS = ["cuModuleGetLoadingMode", "cuInit"]
#: A process and a call of it.
IDS = ["process", "correlation"]
UNNAMED = "(unnamed call)"
#: An event of NVTX that names a domain.
DOMAIN_CREATED = 75


def _bits(column: str, first: int) -> pl.Expr:
    """24 bits of a number from `first` on, also of one below 0: Polars divides towards minus infinity."""
    return ((pl.col(column) // (1 << first)) & 0xFFFFFF).cast(SMALL)


#: Process and thread within a serialised global id.
PROCESS, THREAD = _bits("globalTid", 24).alias("process"), _bits("globalTid", 0).alias("thread")


def _placed(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with the columns that say where and when an operation ran as a trace has them."""
    if "globalPid" in frame.columns:
        frame = frame.with_columns(process=_bits("globalPid", 24)).drop("globalPid")
    return cupti.record_columns(frame)


@dataclass(frozen=True)
class Texts:
    """Texts that a column of ids means: each once, and which one each row has."""

    texts: pl.Series
    number: Rows  # of each row, the place of its text
    unknown: int  # rows without a text

    @staticmethod
    def of(ids: pl.Series, strings: pl.DataFrame, otherwise: str) -> "Texts":
        number, first = numbered(plain(ids))
        rows = places(strings["id"], ids.gather(first))
        texts = strings["value"].extend_constant(otherwise, 1).gather(rows)
        lost = rows == strings.height
        return Texts(texts, number, int(np.count_nonzero(lost[number])) if lost.any() else 0)

    def of_rows(self, values: pl.Series) -> pl.Series:
        """For each row, what `values` (words, none of them null) has for its text."""
        return of_codes(values.to_physical().to_numpy()[self.number], values)


#: ENUM_CUDA_MEMCPY_OPER, beyond CUPTI's own; the table that explains it is missing from exports before 2022.4.
MIGRATION_DIRECTION_OF = {11: "h2d", 12: "d2h", 13: "d2d"}
#: ENUM_CUDA_MEM_KIND: one less than CUPTI's own numbers.
MEMORY_OF = {number - 1: kind for number, kind in cupti.MEMORY_OF.items()}


def operations(
    tables: TableSource, strings: pl.DataFrame, launches: bool, omissions: Omissions
) -> pl.DataFrame:
    """Rows of `operations`; how kernels are launched, too, if `launches`."""
    graphs = _placed(tables.read(GRAPHS, GRAPH_COLUMNS)).rename({"graphId": "graph"})
    made = (
        _kernels(tables, strings, launches),
        _copies(tables.read(COPIES, COPY_COLUMNS), omissions),
        cupti.sets(_placed(tables.read(SETS, SET_COLUMNS)), MEMORY_OF),
        cupti.graphs(graphs, omissions, "record with `nsys profile --cuda-graph-trace=node`"),
    )
    frames = [conform(frame, schema.OPERATIONS, schema.LAUNCH_SHAPE) for frame in made]
    return pl.concat(frames, how="diagonal")


def _kernels(tables: TableSource, strings: pl.DataFrame, launches: bool) -> pl.DataFrame:
    frame = tables.read(KERNELS, OF_OPERATIONS | smalls("demangledName") | (cupti.LAUNCH if launches else {}))
    named = Texts.of(frame["demangledName"], strings, "(unnamed kernel)")
    if named.unknown:  # some versions and languages fill only another column
        spellings = tables.read(KERNELS, smalls("demangledName shortName mangledName"))
        if spellings.height == frame.height:
            listed = pl.all().is_in(strings["id"].implode())
            ids = spellings.with_columns(pl.when(listed).then(pl.all())).select(pl.coalesce(pl.all()))
            named = Texts.of(ids.to_series(), strings, "(unnamed kernel)")
    name = named.of_rows(named.texts.cast(pl.Categorical))
    return _placed(frame.drop("demangledName")).with_columns(kind=pl.lit("kernel"), name=name)


def _copies(frame: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    direction_of = cupti.DIRECTION_OF | MIGRATION_DIRECTION_OF
    migration = pl.col("copy_kind").is_in(list(MIGRATION_DIRECTION_OF))
    managed = pl.when(migration).then(pl.lit("managed", pl.Enum(schema.MEMORY_KINDS)))
    return cupti.copies(_placed(frame), omissions, direction_of, MEMORY_OF).with_columns(
        kind=pl.when(migration).then(pl.lit("migration", pl.Enum(schema.KINDS))).otherwise("kind"),
        source_memory=managed.otherwise("source_memory"),
        destination_memory=managed.otherwise("destination_memory"),
    )


def allocations(tables: TableSource, calls: pl.DataFrame) -> pl.DataFrame:
    """Rows of `ALLOCATIONS`, of the processes that were recorded from where they begin to use CUDA (`calls`)."""
    frame = tables.read("CUDA_GPU_MEMORY_USAGE_EVENTS", ALLOCATION_COLUMNS)
    if frame.is_empty():
        return empty(ALLOCATIONS)
    begun = calls.filter(pl.col("name").cast(pl.String).is_in(BEGINS)).select("process").unique()
    frame = (
        _placed(frame)
        .join(begun, on="process", how="semi")
        .with_columns(
            freed=pl.col("memoryOperationType").replace_strict({0: False, 1: True}, default=None),
            in_stream=pl.any_horizontal(pl.col(OF_POOLS).fill_null(0) != 0),
        )
    )
    return cupti.allocations(frame, MEMORY_OF)


def calls_of(frame: pl.DataFrame, strings: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    """Rows of `calls`."""
    if frame.is_empty():
        return empty(schema.CALLS)
    named = Texts.of(frame["nameId"], strings, UNNAMED)
    unsuffixed = words.plain_name(pl.col("plain"))
    names = named.texts.to_frame("plain")
    names = names.select(unsuffixed.cast(pl.Categorical), waits_for=words.waits_for(unsuffixed))
    omissions.count("unnamed-calls", named.unknown)
    frame = frame.select(
        PROCESS,
        THREAD,
        start_ns="start",
        end_ns="end",
        correlation="correlationId",
        name=named.of_rows(names["plain"]),
        waits_for=named.of_rows(names["waits_for"]),
        result="returnValue",
    )
    return conform(frame, schema.CALLS, schema.CALLS_RETURNED)


def located(calls: pl.DataFrame, tables: TableSource, strings: pl.DataFrame) -> pl.DataFrame:
    """`calls` with the column `site` of `CALLS_LOCATED`, where the export holds call chains."""
    frames = tables.read(CALLCHAINS, ints("id symbol module stackDepth")).drop_nulls(["id", "stackDepth"])
    if frames.is_empty():
        return calls
    of_calls = tables.read(CALLS_TABLE, ints("globalTid correlationId callchainId")).drop_nulls("callchainId")
    if of_calls.is_empty():
        return calls
    of_calls = of_calls.select(PROCESS, correlation="correlationId", id="callchainId")
    row = pl.Series(first_pairs(of_calls, calls)).replace(-1, None)
    named = calls.select(pl.col("name").cast(pl.String), id=of_calls["id"].gather(row))
    frames = _named(frames, strings)
    of_program = _innermost_of_program(frames)
    chained = named.with_columns(pl.col("id") + _ahead(named, frames))
    return calls.with_columns(chained.join(of_program, on="id", how="left", maintain_order="left")["site"])


def _named(frames: pl.DataFrame, strings: pl.DataFrame) -> pl.DataFrame:
    """Frames of call chains with the texts of their symbols and modules."""
    for column in ("symbol", "module"):
        text = strings.rename({"id": column, "value": f"{column}_text"})
        frames = frames.join(text, on=column, how="left")
    return frames.select("id", "stackDepth", pl.col("symbol_text", "module_text").fill_null(""))


def _innermost_of_program(frames: pl.DataFrame) -> pl.DataFrame:
    """The `id` of each chain and the `site` of its innermost frame in the program; no row for chains without one."""
    kinds = frames.select("symbol_text", "module_text").unique()
    named = pl.Series([sites.of_native(*pair) for pair in kinds.rows()], dtype=pl.String)
    kinds = kinds.with_columns(site=named).drop_nulls("site")
    of_program = frames.join(kinds, on=["symbol_text", "module_text"], how="inner")
    innermost = of_program.sort("id", "stackDepth").unique("id", keep="first")
    return innermost.select("id", pl.col("site").cast(pl.Categorical))


def activity_of(tables: TableSource, strings: pl.DataFrame) -> pl.DataFrame:
    """Rows of `activity`: system calls, and samples with the innermost frame of the program, or null."""
    called = tables.read(OS_CALLS, ints("start end globalTid nameId"))
    called = called.join(strings, left_on="nameId", right_on="id", how="inner")
    called = called.with_columns(kind=pl.lit("os-call"), end_ns="end", name="value")
    chains = tables.read(SAMPLED_CHAINS, ints("id symbol module stackDepth")).drop_nulls(["id", "stackDepth"])
    sampled = tables.read(SAMPLES, ints("id start globalTid"))
    sampled = sampled.join(_innermost_of_program(_named(chains, strings)), on="id", how="left")
    sampled = sampled.with_columns(kind=pl.lit("sample"), name="site")
    frames = (frame.with_columns(PROCESS, THREAD, start_ns="start") for frame in (called, sampled))
    return pl.concat(conform(frame, schema.ACTIVITY) for frame in frames)


def _ahead(named: pl.DataFrame, frames: pl.DataFrame) -> int:
    """By how much numbers of chains are ahead of what calls say: 1 until 2022, as the functions in the chains tell."""
    some = named.drop_nulls("id").head(ENOUGH)
    symbols = frames.select("id", name="symbol_text").unique()
    chained = (some.with_columns(pl.col("id") + ahead) for ahead in (0, 1))
    same, next_ = (frame.join(symbols, on=["id", "name"], how="semi").height for frame in chained)
    return int(next_ > same)


def events_of(
    waits: pl.DataFrame, records: pl.DataFrame, calls: pl.DataFrame, omissions: Omissions
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Event records and stream waits; and what the host waits for, of their process and correlation.

    `syncType` changed its meaning between versions, so the call's own name decides. A record without its call
    that may be either kind of wait is counted as unknown.
    """
    waits, records = _of_events(waits), _of_events(records)
    ids = pl.concat([waits.select(IDS), records.select(IDS)]).drop_nulls("correlation")
    callers = calls.select(*IDS, "start_ns", "end_ns", call="name").filter(pl.Series(occurs(ids, calls)))
    name = pl.col("call").cast(pl.String)
    callers = callers.with_columns(call=pl.when(name != UNNAMED).then(name)).unique(IDS, keep="first")
    waits = waits.join(callers.select(*IDS, "call"), on=IDS, how="left", maintain_order="left")
    call = pl.col("call")
    unclear = call.is_null() & pl.all_horizontal(pl.col("event", "stream").is_not_null())
    omissions.count("unknown-wait", waits.filter(unclear).height)
    of_streams = call.str.contains(words.STREAM_WAIT_EVENT).fill_null(False)
    of_records = records.join(callers.drop("call"), on=IDS, how="left", maintain_order="left")
    events = [
        conform(frame.with_columns(kind=pl.lit(kind)), schema.EVENTS)
        for frame, kind in ((waits.filter(of_streams), "wait"), (of_records, "record"))
    ]
    omissions.count("waits-without-records", events[0].height if records.is_empty() else 0)
    return pl.concat(events), waits.filter(~of_streams)


def _of_events(frame: pl.DataFrame) -> pl.DataFrame:
    """Records of events, or waits, with ids that are null where there is none."""
    frame = _placed(frame).rename({"eventId": "event", "eventSyncId": "event_sync"})
    ids = pl.col("event", "event_sync").replace([0, *NO_ID], None)
    return frame.with_columns(pl.col("stream").replace(-1, None), ids)


def markers(tables: TableSource, strings: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    """Ranges and marks that the program named."""
    wanted = TIMES | ints("eventType textId globalTid domainId") | texts("text")
    frame = tables.read("NVTX_EVENTS", wanted)
    newer = sorted(name for name in tables.names if name.startswith("NVTX_EVENTS_"))
    if frame.is_empty() and newer:
        omissions.add("unknown-nvtx", table=newer[0])
    # 34 mark, 59 push/pop range, 60 start/end range, 75 domain; the others define categories and the like.
    frame = frame.filter(pl.col("eventType").is_in([34, 59, 60, DOMAIN_CREATED]))
    frame = frame.join(strings, left_on="textId", right_on="id", how="left", maintain_order="left")
    frame = frame.with_columns(PROCESS, THREAD, name=pl.coalesce("text", "value"))
    frame = _without_partners(frame, omissions)
    unended = frame.filter(pl.col("end").is_null() & (pl.col("eventType") != 34)).height
    omissions.count("open-ranges", unended)
    frame = frame.rename({"start": "start_ns", "end": "end_ns", "domainId": "domain"})
    return conform(frame, schema.MARKERS, schema.RANGES_OF_COLLECTIVES)


def _without_partners(frame: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    """The ranges and marks of `frame`, with `messages` where MPI's calls are among them: none, for those say no partners."""
    domain = (pl.col("eventType") == DOMAIN_CREATED) & (pl.col("name") == "MPI")
    theirs = frame.filter(domain).select("process", "domainId").unique()
    frame = frame.filter(pl.col("eventType") != DOMAIN_CREATED)
    if theirs.is_empty():
        return frame
    theirs = theirs.with_columns(messages=pl.lit(0, pl.UInt32))
    frame = frame.join(theirs, on=["process", "domainId"], how="left", maintain_order="left")
    omissions.count("mpi-without-partners", int(frame["messages"].count()))
    return frame
