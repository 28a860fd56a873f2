"""What AMD's profilers write: databases, JSON and CSV files of rocprofv3, of rocprof before it, and RPD.

Of CSV files, rocprofv3 writes a kind of record each, and rocprof before it a single one, which has kernels alone. Columns
come and go with ROCm's versions, and their case changes: they are known by their names, and a file by them. Copies have no
sizes in any of these versions [rocprofiler-sdk: generateCSV.cpp, ROCm 6.2 to 7].
"""

import re
from functools import partial
from pathlib import Path

import polars as pl

from busfare.errors import InputError
from busfare.trace.model import Trace
from busfare.trace.omissions import Omissions
from busfare.trace.readers import Format, RecordAgain
from busfare.trace.readers.compressed import head_of, pieces
from busfare.trace.readers.rocprof import databases, results_json, v1
from busfare.trace.readers.rocprof.records import ALLOCATIONS, COPIES, KERNELS, REGIONS, Records, of_agents
from busfare.trace.readers.tables import INT, TEXT, TableSource, ints, texts
from busfare.trace.tables import Schema, conform

RPD_TABLES = {"rocpd_op", "rocpd_api", "rocpd_string"}

NOT_JSON = rb"(?![\xef\xbb\xbf \t\r\n]*[{\[])"
#: First lines of CSV files; by the second, of kernels, which stand for all files of a process.
CSV = re.compile(
    rb"(?i)" + NOT_JSON + rb"(?=[^\n]*,)"
    rb"[^\n]*\b(?:start_timestamp|beginns|kernelname|counter_name|totaldurationns|agent_type)\b"
)
CSV_KERNELS = re.compile(rb"(?i)[^\n]*\b(?:kernel_name\b[^\n]*start_timestamp|kernelname\b[^\n]*beginns)\b")
#: Ours and, in order of preference, theirs, in lower case.
COLUMNS: dict[str, tuple[str, ...]] = {
    "start_ns": ("start_timestamp", "beginns"), "end_ns": ("end_timestamp", "endns"),
    "correlation": ("correlation_id",), "process": ("process_id", "pid"), "thread": ("thread_id", "tid"),
    "name": ("kernel_name", "kernelname", "function", "direction", "product_name"),
    "category": ("domain", "kind"), "stream": ("stream_id", "queue_id", "queue-id"),
    "agent": ("agent_id", "gpu_id", "gpu-id"), "source_agent": ("source_agent_id",),
    "destination_agent": ("destination_agent_id",), "vgprs": ("vgpr_count", "arch_vgpr_count", "arch_vgpr"),
    "accumulating": ("accum_vgpr_count", "accum_vgpr"),
    "shared_bytes": ("lds_block_size", "group_segment_size", "lds"),
    **{f"grid_{side}": (f"grid_size_{side}",) for side in "xyz"},
    **{f"block_{side}": (f"workgroup_size_{side}",) for side in "xyz"}, "size": ("allocation_size",),
    "address": ("address",), "operation": ("operation",), "type": ("agent_type",), "node": ("node_id",),
    "place": ("logical_node_id",), "copy_engines": ("num_sdma_engines",), "multiprocessors": ("cu_count",),
    "guid": ("guid",),
}  # fmt: skip
#: What a file holds, by columns that it has; the first that fits.
KINDS: tuple[tuple[str, set[str]], ...] = (
    ("counters", {"counter_name"}),
    ("statistics", {"name", "calls", "totaldurationns"}),
    ("kernels", {"kernel_name", "start_timestamp", "end_timestamp"}),
    ("kernels", {"kernelname", "beginns", "endns"}),
    ("counters", {"kernelname"}),
    ("copies", {"direction", "start_timestamp", "end_timestamp"}),
    ("allocations", {"allocation_size", "address", "start_timestamp"}),
    ("regions", {"function", "start_timestamp", "end_timestamp"}),
    ("agents", {"agent_type", "node_id"}),
)
#: Without one of these there is no trace.
WORK = {"kernels", "copies", "regions"}
NO_TRACES = {
    "counters": "counters of kernels",
    "statistics": "statistics without the times of single records",
    "agents": "a list of the machine's agents",
    "allocations": "allocations alone",
}
#: rocprofv3's names of files, behind what it puts before each of a process; `rocpd convert` writes all calls in one.
NAME = re.compile(
    r"(?P<process>.*?)_?(?:(?:kernel|memory_copy|memory_allocation|regions|(?:hip|hsa|marker|rccl)[a-z_]*)_trace"
    r"|agent_info)\.csv"
)
#: Agents, CPUs and GPUs, by the names that the files give them, as `--agent-index` asked for: the place among all agents
#: ("Agent 4") or among those of its type ("GPU 0"); before ROCm 6.4 a bare number, the node.
AGENT = r"^(?:(?P<label>Agent|CPU|GPU)[ -])?(?P<number>\d+)$"
#: What a file may say of each: its node, its place among the agents that the process sees, its type and what it has.
OF_AGENTS = ints("node place copy_engines multiprocessors") | texts("type name")


class CsvFiles(TableSource):
    """The files of a process: those of the directory `path`, or the file `path` and those beside it with it."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if they cannot be listed."""
        self.path, self.omissions = path, Omissions()
        folder = path if path.is_dir() else path.parent
        name_parts = NAME.fullmatch(path.name)
        groups: dict[str, list[Path]] = {}
        for file in sorted(folder.iterdir()) if path.is_dir() or name_parts else []:
            if (parts := NAME.fullmatch(file.name)) and file.is_file():
                groups.setdefault(parts["process"], []).append(file)
        if not path.is_dir():
            groups = {"": groups[name_parts["process"]] if name_parts else [path]}
        self._files: dict[str, dict[str, list[Path]]] = {}
        for process, files in groups.items():
            kinds: dict[str, list[Path]] = {}
            for file in files:
                if kind := _kind(file):
                    kinds.setdefault(kind, []).append(file)
            if not path.is_dir() or WORK & kinds.keys():
                self._files[process] = kinds
        self.processes = sorted(self._files)
        self.names = set(self._files[self.processes[0]]) if len(self.processes) == 1 else set()

    def columns(self, table: str) -> list[str]:
        return [*COLUMNS] if table in self.names else []

    def _read(self, table: str, present: dict[str, pl.DataType]) -> pl.DataFrame:
        files = self._files[self.processes[0]][table]
        return pl.concat([conform(self._columns(file, present), present) for file in files])

    def _columns(self, file: Path, present: Schema) -> pl.DataFrame:
        text = b"".join(pieces(file, self.omissions))
        end = text.rfind(b"\n") + 1
        if end < len(text):  # its last number may be half of one
            self.omissions.add("truncated")
        try:
            read = partial(pl.read_csv, infer_schema=False, truncate_ragged_lines=True)
            frame = read(text[:end], encoding="utf8-lossy")
        except pl.exceptions.PolarsError as error:
            reason = str(error).partition("\n")[0].replace("`", "")[:60]  # it quotes the file
            raise InputError(f"{file}: damaged CSV of rocprof ({reason}); record again") from None
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))  # rocprofv2 leaves a line empty
        named = {_plain(column): column for column in reversed(frame.columns)}
        made = {
            name: pl.coalesce(pl.col(named[theirs]) for theirs in COLUMNS[name] if theirs in named)
            for name in present
            if not named.keys().isdisjoint(COLUMNS[name])
        }
        return frame.select(**made) if made else pl.DataFrame(schema=dict(present))


def _kind(file: Path) -> str | None:
    """What a file holds, by the columns that its first line names; None if rocprof did not write it."""
    head = head_of(file)[0].removeprefix(b"\xef\xbb\xbf")
    line = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    columns = {*map(_plain, line.split(","))}
    return next((kind for kind, marks in KINDS if marks <= columns), None)


def _plain(column: str) -> str:
    return column.strip(' "\r').lower()


def _read_csv(tables: CsvFiles, launches: bool) -> Trace:
    """Reads the files of a process. Raises InputError if they hold no trace, or those of several."""
    path, omissions = tables.path, tables.omissions
    if not WORK & tables.names:
        what = " and ".join(NO_TRACES[kind] for kind in sorted(tables.names) if kind in NO_TRACES)
        raise InputError(
            f"{path}: not a trace but {what or 'nothing'}; record with `rocprofv3 --runtime-trace`, and give the "
            ".db that it writes, or the directory of its CSV files"
        )
    for table in sorted(WORK & tables.names):
        if (runs := tables.read(table, texts("guid"))["guid"].n_unique()) > 1:
            raise InputError(f"{path}: CSV of {runs} processes in one file; give the .db behind it")
    kernels = tables.read("kernels", _texts_of(KERNELS, "agent"))
    copies = tables.read("copies", _texts_of(COPIES, "source_agent destination_agent"))
    regions = conform(tables.read("regions", _texts_of(REGIONS)), REGIONS)
    allocations = tables.read("allocations", _texts_of(ALLOCATIONS, "operation agent"))
    agents = _numbered(tables.read("agents", OF_AGENTS))
    if agents.is_empty():
        agents = _seen(kernels, copies, omissions)
    kernels = _on_agents(kernels, "agent", agents).with_columns(device="agent_number")
    for end in ("source", "destination"):
        names = {f"{end}_agent_number": end, f"{end}_agent_type": f"{end}_type"}
        copies = _on_agents(copies, f"{end}_agent", agents).rename(names)
    freed = pl.col("operation").str.contains("FREE").fill_null(False)
    address = pl.col("address").str.strip_prefix("0x").str.to_integer(base=16, strict=False)
    allocations = allocations.with_columns(address=address, size=pl.when(~freed).then("size"))
    allocations = _on_agents(allocations, "agent", agents)
    pids = regions["process"].drop_nulls().unique()
    process = pl.lit(pids[0] if len(pids) == 1 else None, INT)
    pairs = (kernels, KERNELS), (copies, COPIES), (regions, REGIONS), (allocations, ALLOCATIONS)
    timed = (conform(*pair).with_columns(pl.col("process").fill_null(process)) for pair in pairs)
    records = Records(*timed)
    records.devices = agents.filter(type="GPU")
    return records.trace(path, "rocprof-csv", "rocprof (CSV)", omissions, launches)


def _texts_of(schema: Schema, more: str = "") -> dict[str, pl.DataType]:
    """Columns of `schema` that a CSV file may have, and `more`: all as text, which `conform` makes numbers of."""
    return {name: TEXT for name in schema if name in COLUMNS} | texts(more)


def _numbered(agents: pl.DataFrame) -> pl.DataFrame:
    """`agents` (columns of `OF_AGENTS`) with `device`: the number among those of their type, in order of their nodes."""
    agents = agents.with_columns(pl.col("type").str.to_uppercase(), place=pl.coalesce("place", "node"))
    return agents.sort("node").with_columns(device=pl.int_range(pl.len()).over("type"))


def _seen(kernels: pl.DataFrame, copies: pl.DataFrame, omissions: Omissions) -> pl.DataFrame:
    """The GPUs of a file that lists no agents: those that kernels ran on, and that the directions of copies tell."""
    to, of = (pl.col("name").str.contains(words).fill_null(False) for words in ("TO_DEVICE", "DEVICE_TO"))
    ends = copies.filter(to)["destination_agent"], copies.filter(of)["source_agent"]
    number = (
        pl.concat(names.alias("agent") for names in (kernels["agent"], *ends))
        .str.extract(AGENT, 2)
        .cast(INT, strict=False)
        .drop_nulls()
        .unique()
    )
    gpus = pl.DataFrame({"node": number}).with_columns(type=pl.lit("GPU"))
    omissions.count("unknown-agents", gpus.height)
    return _numbered(conform(gpus, OF_AGENTS))


def _on_agents(frame: pl.DataFrame, column: str, agents: pl.DataFrame) -> pl.DataFrame:
    """`frame` with number, null of a CPU, and type of the agents that `column` names, as `column`_number and …_type."""
    agent = pl.col(column).str
    number = agent.extract(AGENT, 2).cast(INT, strict=False)
    keyed = frame.with_columns(label=agent.extract(AGENT, 1), number=number)
    for key in ("node", "place"):
        keyed = of_agents(keyed, f"by_{key}", agents, {key: "number"})
    made = keyed
    for ours, value, suffix in (
        ("number", pl.when(label="GPU").then("number"), ""),
        ("type", "label", "_type"),
    ):
        node, place = f"by_node{suffix}", f"by_place{suffix}"
        by_type = pl.when(pl.col("label").is_in(["CPU", "GPU"])).then(value)
        bare = by_type.when(pl.col("label").is_null()).then(pl.coalesce(node, place))
        made = made.with_columns(bare.otherwise(pl.coalesce(place, node)).alias(f"{column}_{ours}"))
    return made.drop("label", "number", "by_node", "by_place", "by_node_type", "by_place_type")


def _holds_csv(path: Path) -> bool:
    """Whether a directory holds CSV files of a process. Raises InputError if it holds those of several."""
    files = CsvFiles(path)
    if len(files.processes) > 1:
        raise InputError(
            f"{path}: CSV files of {len(files.processes)} processes ({', '.join(files.processes[:3])} …); give one "
            "file of the process that you want; busfare also reads the files next to it"
        )
    return bool(files.names)


AGAIN = RecordAgain(gpu="`rocprofv3 --kernel-trace --memory-copy-trace --hip-trace`")
#: Sentences of omissions that only this reader notes, by key.
SENTENCES = {
    "barriers": "barrier packets in queues: skipped, because they do no work",
    "driver-events": "driver events (page faults, page migrations, queues): skipped",
    "opaque-graphs/amd": "operations inside graph launches: the trace records when they ran but not what they copied "
    "({copied} of them are copies); they count as GPU work of kind `graph`, not as kernels or copies",
    "repeated-kernels": "kernels that the profiler replayed to collect counters: skipped",
    "tracer-calls": "calls made by the tracer itself: skipped",
    "unknown-agents": "agents that the trace does not list: agents that ran kernels are treated as GPUs, numbered in order",
    "unknown-events": "events of unrecorded type: skipped",
    "unknown-gpus": "copies without a recorded GPU: counted, but assigned to no GPU",
    "unknown-memory/allocations": "copies whose host memory cannot be classified as pinned or pageable from the recorded "
    "allocations",
    "unknown-operations": "operations other than kernels, copies and fills: their time is counted as kernel time",
}
FORMATS = (
    Format(
        name="rocpd",
        title="rocprofv3 (rocpd, JSON, CSV)",
        read=lambda source: databases.read(source.tables, source.launches),
        database=lambda file: databases.is_rocpd(file.names),
        sentences=SENTENCES,
        suffixes=(".db",),
        record_again=AGAIN,
    ),
    Format(
        name="rpd",
        title="RPD",
        read=lambda source: databases.read(source.tables, source.launches),
        database=lambda file: file.names >= RPD_TABLES,
        suffixes=(".rpd",),
        record_again=RecordAgain(gpu="`runTracer.sh`"),
    ),
    Format(
        name="rocprofv3-json",
        read=lambda source: results_json.read(source.path, source.launches),
        json=re.compile(rb'"rocprofiler-sdk-tool"'),
        suffixes=(".json",),
        record_again=AGAIN,
    ),
    Format(
        name="rocprof-csv",
        read=lambda source: _read_csv(CsvFiles(source.path), source.launches),
        begins=CSV,
        directory=_holds_csv,
        leads=CSV_KERNELS,
        record_again=AGAIN,
    ),
    Format(
        name="rocprof",
        title="rocprof",
        read=lambda source: v1.read(source.database or source.path, source.launches),
        json=re.compile(rb'"BeginNs"|"CPU (?:HIP|HSA) API"'),
        database=v1.has_rocprof_tables,
        suffixes=(".db", ".json"),
        record_again=AGAIN,
    ),
)
