"""The communication of many ranks in blocks that fit into memory: no collective or message is in two of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from busfare.jobs.matching import OF_SEND, Group, Numbering, begun, joints
from busfare.jobs.ranks import packed, unpacked

#: Rows of a block, of which so many are packed together.
BLOCK_ROWS, TOGETHER_ROWS = 500_000, 20_000
#: What nobody asks of a row once it is numbered.
DROPPED = ("operation", "process", "device", "stream", "place")


@dataclass
class _Pieces:
    """Rows of one block as they come: packed once there are many."""

    done: list[bytes] = field(default_factory=list)
    waiting: list[pl.DataFrame] = field(default_factory=list)

    def add(self, rows: pl.DataFrame) -> None:
        self.waiting.append(rows)
        if sum(each.height for each in self.waiting) >= TOGETHER_ROWS:
            self.pack()

    def pack(self) -> None:
        if self.waiting:
            self.done.append(packed(pl.concat(self.waiting)))
            self.waiting.clear()


def in_blocks(files: Sequence[pl.DataFrame], count: int) -> list[list[bytes]]:
    """The rows of `files` (columns of MEMBERS and others, whole ranks in each file) in so many blocks, packed in pieces, as
    `matched` takes them. A file at a time is asked for, three times.
    """
    numbering, pieces = Numbering(files), [_Pieces() for _ in range(count)]
    for file, frame in enumerate(files):
        every, rows = numbering.of(frame, file)
        for block, some_rows in _cut(every, rows, numbering.groups, count):
            pieces[block].add(some_rows.drop(DROPPED))
    for each in pieces:
        each.pack()
    return [each.done for each in pieces]


def matched(pieces: Sequence[bytes]) -> pl.DataFrame:
    """The rows of a block with `joint`, as `match` gives it."""
    every = pl.concat([unpacked(piece) for piece in pieces]).sort("member")
    rows = begun(every)
    return joints(every, rows).drop("group", "numbered", "number", "again", "member", "source", "target")


def _cut(
    every: pl.DataFrame, rows: pl.DataFrame, groups: Sequence[Group], count: int
) -> Iterator[tuple[int, pl.DataFrame]]:
    """The rows of a file by block, each with what ends its sends."""
    of = rows["group"].to_numpy()
    least, span = (
        np.array(values)[of]
        for values in (
            [group.least for group in groups], [group.highest - group.least + 1 for group in groups]
        )
    )  # fmt: skip
    number = rows["number"].to_numpy()
    block = np.where(number < 0, -number % count, (number - least) * count // span)
    rows = rows.with_columns(block=pl.Series(np.clip(block, 0, count - 1)))
    sent = rows.filter(pl.col("collective_kind") == "send").drop_nulls("sequence")
    ended = every.filter(pl.col("ended").fill_null(False))
    ended = ended.join(
        sent.select(*OF_SEND, "block").unique(OF_SEND, maintain_order=True, keep="first"),
        on=OF_SEND, how="inner", nulls_equal=True, maintain_order="left",
    )  # fmt: skip
    both = pl.concat([rows, ended], how="diagonal").sort("member")
    for (block_of,), own in both.group_by("block", maintain_order=True):
        yield int(block_of), own.drop("block")
