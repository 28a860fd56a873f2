"""A recording of one process: where in the program its calls are made, and what its MPI and NCCL calls transfer."""

from collections import defaultdict
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace import collectives, sites
from busfare.trace.collectives import CALL, KIND, MESSAGES, OF_COMMUNICATOR
from busfare.trace.columns import Rows, first_rows, numbered
from busfare.trace.readers.recorded.file import Recording, Table
from busfare.trace.tables import DESCRIBED, MARKERS, empty

#: The ends of groups of NCCL.
GROUP_END = "ncclGroupEnd"
#: Function, file and line, the innermost that was inlined first, of places: module and address.
Lines = dict[tuple[int, int], list[tuple[str, str, int]]]


class RecordedProcess:
    """One file's share of the trace's tables. `zero_ns` is when the trace begins, on the wall clock."""

    def __init__(self, recording: Recording, process: int) -> None:
        self.recording = recording
        self.process = process
        self.zero_ns = 0
        self._offset = recording.wall_clock_ns - recording.trace_clock_ns

    @property
    def shift_ns(self) -> int:
        """Takes the recording's clock to the trace's."""
        return self._offset - self.zero_ns

    def first_ns(self) -> int | None:
        """The earliest time in the file, on the wall clock."""
        times = [self.recording.table(name)["start"] for name in ("kernels", "copies", "sets", "calls")]
        managed = self.recording.table("managed")["start"]
        times += [managed[self.inside_window(managed)], self.recording.table("markers")["time"]]
        firsts = [int(time[time > 0].min()) + self._offset for time in times if (time > 0).any()]
        messages = self.recording.table("messages")["start"]
        return min([*firsts, *([int(messages.min())] if len(messages) else [])], default=None)

    def inside_window(self, start: NDArray[Any]) -> NDArray[np.bool_]:
        """Which times (trace clock) lie in the window: managed memory and messages are recorded outside of it, too."""
        if not self.recording.facts.keys() & {"capture", "delay", "duration"}:
            return np.ones(len(start), np.bool_)
        # On and off take turns.
        turns = np.sort(self.recording.table("windows")["time"])
        return np.asarray(np.searchsorted(turns, start, side="right") % 2 == 1)

    def frame(self, table: Table, *columns: str, wall: bool = False) -> pl.DataFrame:
        """Columns of `table`, with the process; `start_ns` and `end_ns` where it has times, by the wall clock if `wall`."""
        shift = -self.zero_ns if wall else self.shift_ns
        made = {name: pl.Series(table.signed(name)) for name in columns}
        time = next((name for name in ("start", "time") if name in table.columns), None)
        if time is not None:
            start = table.signed(time)
            end = start + table.signed("duration") if "duration" in table.columns else start
            # CUPTI says 0 when it could not take the time; such rows keep their place but have no times.
            timed = pl.Series(start > 0)
            for name, times in (("start_ns", start), ("end_ns", end)):
                made[name] = pl.select(pl.when(timed).then(pl.Series(times + shift))).to_series()
        return pl.DataFrame(made).with_columns(process=pl.lit(self.process, pl.Int32))

    def texts(self, numbers: NDArray[np.uint64]) -> tuple[pl.Series, Rows]:
        """The strings that occur, and the place of each number's string among them; null for 0."""
        strings = self.recording.strings
        places, firsts = numbered([numbers])
        texts = [strings.get(number) for number in numbers[firsts].tolist()]
        return pl.Series("name", texts, dtype=pl.String), places

    def names(self, numbers: NDArray[np.uint64]) -> pl.Series:
        """The strings of these numbers, as categories."""
        texts, places = self.texts(numbers)
        return texts.cast(pl.Categorical).gather(places)

    def device_of_context(self) -> pl.DataFrame:
        """`context` and `of_context`, the device that it is on."""
        table = self.recording.table("contexts")
        frame = pl.DataFrame({"context": table.signed("context"), "of_context": table.signed("device")})
        return frame.unique("context", keep="last")


def readable_names(process: RecordedProcess, numbers: NDArray[np.uint64]) -> pl.Series:
    """The names of kernels, demangled where they can be."""
    demangled = process.recording.table("demangled")
    readable = dict(zip(demangled["mangled"].tolist(), demangled["readable"].tolist(), strict=True))
    places, firsts = numbered([numbers])
    shown = np.array([readable.get(number, number) for number in numbers[firsts].tolist()], np.uint64)
    return process.names(shown[places])


def at(values: NDArray[np.uint64], rows: NDArray[np.int32]) -> NDArray[np.uint64]:
    """The values of these rows; 0 for row -1."""
    return np.append(values, np.uint64(0))[rows]


def located(calls: pl.DataFrame, process: RecordedProcess) -> pl.DataFrame:
    """`calls` with the column `site` of `CALLS_LOCATED`, where stacks were recorded."""
    table = process.recording.table("call_stacks")
    if not len(table) or calls.is_empty():
        return calls
    site_of = _sites(process)
    numbers = np.array(sorted(site_of), np.uint64)
    texts = pl.Series([site_of[number] for number in numbers.tolist()], dtype=pl.Categorical)
    wanted = calls["correlation"].fill_null(0).to_numpy().view(np.uint64)
    stack = at(table["stack"], first_rows(table["correlation"], wanted))
    row = pl.Series(first_rows(numbers, stack)).replace(-1, None)
    return calls.with_columns(texts.gather(row).alias("site"))


def _sites(process: RecordedProcess) -> dict[int, str]:
    """The site of each stack that has one."""
    strings, lines = process.recording.strings, _lines(process)
    table = process.recording.table("stacks")
    order = np.lexsort((table["depth"], table["stack"]))
    columns = (table[name][order].tolist() for name in ("stack", "module", "address", "symbol"))
    site_of: dict[int, str] = {}
    for stack, module, address, symbol in zip(*columns, strict=True):
        name = strings.get(module, "")
        if stack in site_of or sites.is_library_module(name):
            continue
        frames = lines.get((module, address)) or [(strings.get(symbol, f"+{address:#x}"), "", 0)]
        named = (sites.of_native(function, name, file, line) for function, file, line in frames)
        if (site := next(filter(None, named), None)) is not None:
            site_of[stack] = site
    return site_of


def _lines(process: RecordedProcess) -> Lines:
    strings, table = process.recording.strings, process.recording.table("lines")
    order = np.lexsort((table["depth"], table["address"]))
    columns = (table[name][order].tolist() for name in ("module", "address", "function", "file", "line"))
    lines: Lines = defaultdict(list)
    for module, address, function, file, line in zip(*columns, strict=True):
        lines[module, address].append((strings.get(function, ""), strings.get(file, ""), line))
    return lines


def messages(process: RecordedProcess) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows of `MARKERS`, and of `DESCRIBED` those that they number."""
    noted = _noted(process)
    if noted.is_empty():
        return empty(MARKERS), empty(DESCRIBED)
    rows = pl.concat([collectives.of_mpi(noted), _of_nccl(noted)])
    if (process.recording.table("losses")["loss"] == 3).any():  # numbers behind those lost would be wrong
        rows = rows.with_columns(sequence=pl.lit(None, pl.Int64))
    calls, described = collectives.as_ranges(noted, rows)
    inside = process.inside_window(calls["start_ns"].to_numpy() - process.shift_ns)
    return calls.filter(pl.Series(inside)), described


def _noted(process: RecordedProcess) -> pl.DataFrame:
    """The rows of the file in their order, numbered (`row`), with their communicators; `call` numbers the calls."""
    columns = ("thread", "communicator", "bytes", "peer", "tag", "request")
    table, made = (process.recording.table(name) for name in ("messages", "communicators"))
    called = process.names(table["name"]).cast(pl.String)
    noted = process.frame(table, *columns, wall=True).with_columns(name=called)
    noted = noted.filter(pl.col("name").str.contains("^(MPI_|nccl)"))
    names, members = (process.names(made[column]).cast(pl.String) for column in ("name", "members"))
    communicators = process.frame(made, "number", "place", "size").with_columns(called=names, members=members)
    communicators = communicators.select(*OF_COMMUNICATOR, communicator="number")
    communicators = communicators.unique("communicator", keep="last")
    return (
        noted.sort("start_ns", "thread", maintain_order=True)
        .join(communicators, on="communicator", how="left", maintain_order="left")
        .with_columns(call=pl.struct(CALL).rle_id())
        .with_row_index("row")
        .with_columns(posted="row", kind=collectives.kinds_of(noted["name"]), ended=False)
    )


def _of_nccl(noted: pl.DataFrame) -> pl.DataFrame:
    """What NCCL's calls do, those of a group together, at its end."""
    calls = noted.filter(pl.col("name").str.starts_with("nccl"))
    rows = collectives.in_sequence(calls.with_columns(tag=pl.lit(None, pl.Int64)))
    ends = rows.filter(pl.col("name") == GROUP_END)
    grouped = rows.filter((pl.col("request") > 0) & (pl.col("name") != GROUP_END))
    alone = rows.filter(pl.col("request") == 0)
    message = pl.col("kind").is_in(MESSAGES)
    alone = alone.with_columns(sequence=pl.when(~message).then("sequence"))
    groups = grouped.group_by("request", "communicator").agg(
        pl.col("called", "members", "place", "size").first(),
        kinds=pl.col("kind").unique(),
        only=pl.col("kind").first(),
        bytes=pl.col("bytes").sum(),
        sent=pl.col("bytes").filter(pl.col("kind") == "send").sum(),
        sends=pl.col("peer").filter(pl.col("kind") == "send").n_unique(),
        receives=pl.col("peer").filter(pl.col("kind") == "receive").n_unique(),
        peer=pl.col("peer").first(),
        sequence=pl.col("sequence").min(),
        count=pl.len(),
    )
    pure = pl.col("kinds").list.len() == 1
    messages = pl.col("kinds").list.eval(pl.element().is_in(MESSAGES)).list.all()
    everybody = (pl.col("sends") == pl.col("size")) & (pl.col("receives") == pl.col("size"))
    several = pl.when(everybody).then(pl.lit("all_to_all")).otherwise(pl.lit("send_receive"))
    single = messages & (pl.col("count") == 1)
    groups = groups.with_columns(
        kind=pl.when(single | (pure & ~messages)).then("only").when(messages).then(several.cast(KIND)),
        bytes=pl.when(messages & ~single).then("sent").when(pure).then("bytes"),
        peer=pl.when(single).then("peer"),
        sequence=pl.when(~messages).then("sequence"),
    )
    # Of several GPUs of one process it says what is true of all.
    fields = [*OF_COMMUNICATOR, "kind", "bytes", "peer", "sequence"]
    alike = pl.when(pl.col(fields).n_unique() == 1).then(pl.col(fields).first())
    groups = groups.group_by("request").agg(alike.first())
    ends = ends.drop(fields).join(groups, on="request", maintain_order="left")
    return pl.concat([alone, ends.select(rows.columns)])
