"""Numbers by which tables of an Nsight Systems export name texts, processes and threads."""

from __future__ import annotations

import polars as pl

from busfare.trace.write.nsys_tables import PROCESS_BITS, THREAD_BITS

__all__ = ["Numbers"]


class Numbers:
    """Given out as they are asked for, the same one each time."""

    def __init__(self) -> None:
        self.strings: dict[str, int] = {}
        self._processes: dict[int, int] = {}
        self._threads: dict[tuple[int, int], int] = {}

    def texts(self, texts: pl.Series) -> pl.Series:
        """StringIds of each text."""
        for text in texts.cast(pl.String).unique(maintain_order=True).drop_nulls().to_list():
            self.strings.setdefault(text, len(self.strings) + 1)
        known = pl.Series(list(self.strings), dtype=pl.String)
        wanted = pl.Series(list(self.strings.values()), dtype=pl.Int64)
        return texts.cast(pl.String).replace_strict(known, wanted, default=None, return_dtype=pl.Int64)

    def process(self, processes: pl.Series) -> pl.Series:
        """Process numbers in bits 24 to 47; those that do not fit, or would share a number, get a free one."""
        for process in processes.unique(maintain_order=True).drop_nulls().to_list():
            if process not in self._processes:
                number = process % (1 << PROCESS_BITS)
                taken = set(self._processes.values())
                while number in taken:
                    number = (number + 1) % (1 << PROCESS_BITS)
                self._processes[process] = number
        table = {process: number << THREAD_BITS for process, number in self._processes.items()}
        return processes.replace_strict(table, default=None, return_dtype=pl.Int64)

    def thread(self, frame: pl.DataFrame) -> pl.Series:
        """Process and thread in one number; threads likewise keep the 24 bits that they have, or get free ones."""
        pairs = frame.select("process", pl.col("thread").fill_null(0)).unique(maintain_order=True)
        taken: dict[int, set[int]] = {}
        for (process, _), number in self._threads.items():
            taken.setdefault(process, set()).add(number)
        for process, thread in pairs.iter_rows():
            if (process, thread) in self._threads:
                continue
            used = taken.setdefault(process, set())
            number = thread % (1 << THREAD_BITS)
            while number in used:
                number = (number + 1) % (1 << THREAD_BITS)
            used.add(number)
            self._threads[process, thread] = number
        numbers = pairs.with_columns(
            number=pl.Series([self._threads[pair] for pair in pairs.iter_rows()], dtype=pl.Int64)
        )
        joined = frame.select("process", pl.col("thread").fill_null(0)).join(
            numbers, on=["process", "thread"], how="left", maintain_order="left"
        )
        return (self.process(frame["process"]) + joined["number"]).alias("globalTid")
