"""A recording of one process and its place among the processes of a trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace.columns import distinct
from busfare.trace.readers.recorded.file import Recording, Table


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
        times.append(managed[self.inside_window(managed)])
        times.append(self.recording.table("markers")["time"])
        firsts = [int(time[time > 0].min()) for time in times if (time > 0).any()]
        firsts = [first + self._offset for first in firsts]
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
        return pl.DataFrame(made).with_columns(process=pl.lit(self.process, pl.Int64))

    def texts(self, numbers: NDArray[np.uint64]) -> tuple[pl.Series, NDArray[np.int64]]:
        """The strings that occur, and the place of each number's string among them; null for 0."""
        strings = self.recording.strings
        used, places = distinct(numbers, max(strings, default=0))
        return pl.Series("name", [strings.get(number) for number in used.tolist()], dtype=pl.String), places

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
    used, places = distinct(numbers, max(process.recording.strings, default=0))
    shown = np.array([readable.get(number, number) for number in used.tolist()], np.uint64)
    return process.names(shown[places])


def at(values: NDArray[np.uint64], rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The values of these rows; 0 for row -1."""
    if not len(values):
        return np.zeros(len(rows), np.uint64)
    return np.where(rows >= 0, values[rows], np.uint64(0))
