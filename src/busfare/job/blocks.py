"""The communication of many ranks in blocks that fit into memory: no collective or message is in two of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.job.matching import GROUP, OF_SEND, InOrder, begun, by_order, grouped, joints, numbered
from busfare.job.ranks import packed, unpacked

#: Rows of a block, of which so many are packed together.
BLOCK_ROWS, TOGETHER_ROWS = 500_000, 20_000
#: What nobody asks of a row once it is numbered.
DROPPED = ("operation", "process", "device", "stream", "place")


@dataclass
class _Group:
    """What is matched in its own order, over all files: whether traces number all of its rows, its least and highest number,
    and of the rank with most rows (of several the first): how many, minus the rank, and its file.
    """

    number: int
    by_trace: bool = True
    least: int = 0
    highest: int = 0
    most: tuple[int, int, int] = (0, 0, 0)
    first: InOrder | None = None


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
    groups = _groups(files)
    first_in = defaultdict(list)
    for group in groups.values():
        if not group.by_trace:
            first_in[group.most[2]].append(group)
    for file, some in first_in.items():
        every = _with_groups(files[file], groups)
        wanted = {(group.number, -group.most[1]): group for group in some}
        for number, rank, own in _in_order(begun(every)):
            if (number, rank) in wanted:
                wanted[number, rank].first = own
    pieces = [_Pieces() for _ in range(count)]
    by_number = sorted(groups.values(), key=lambda group: group.number)
    member = 0
    for file, frame in enumerate(files):
        every = _with_groups(frame, groups).with_columns(member=pl.int_range(pl.len()) + member)
        member += every.height
        rows = numbered(begun(every))
        rows = rows.with_columns(number=pl.Series(_numbers(rows, by_number, file), dtype=pl.Int64))
        for block, some_rows in _cut(every, rows, by_number, count):
            pieces[block].add(some_rows.drop(DROPPED))
    for each in pieces:
        each.pack()
    return [each.done for each in pieces]


def matched(pieces: Sequence[bytes]) -> pl.DataFrame:
    """The rows of a block with `joint`, as `match` gives it."""
    every = pl.concat([unpacked(piece) for piece in pieces]).sort("member")
    rows = begun(every)
    return joints(every, rows).drop("group", "numbered", "number", "again", "member", "source", "target")


def _groups(files: Iterable[pl.DataFrame]) -> dict[tuple[object, ...], _Group]:
    """By values of GROUP."""
    groups: dict[tuple[object, ...], _Group] = {}
    for file, frame in enumerate(files):
        seen = begun(grouped(frame)).group_by(*GROUP, "rank", maintain_order=True).agg(
            pl.len().alias("count"), pl.col("sequence").is_not_null().all().alias("by_trace"),
            pl.col("sequence").min().alias("least"), pl.col("sequence").max().alias("highest"),
        )  # fmt: skip
        for *of, rank, rows, by_trace, least, highest in seen.iter_rows():
            group = groups.setdefault(tuple(of), _Group(len(groups), least=least or 0))
            group.by_trace &= by_trace
            group.least = min(group.least, least or 0)
            group.highest = max(group.highest, highest or 0)
            group.most = max(group.most, (rows, -rank, file))
    for group in groups.values():
        if not group.by_trace:
            group.least, group.highest = 0, group.most[0]
    return groups


def _with_groups(frame: pl.DataFrame, groups: dict[tuple[object, ...], _Group]) -> pl.DataFrame:
    """`frame` with `group` and `numbered`."""
    every = grouped(frame)
    kinds = every.select(GROUP).unique(maintain_order=True)
    own = [groups.get(tuple(values)) for values in kinds.iter_rows()]  # none where all rows of one are ends
    kinds = kinds.with_columns(
        group=pl.Series([group.number if group else -1 for group in own], dtype=pl.Int64),
        numbered=pl.Series([group.by_trace if group else True for group in own], dtype=pl.Boolean),
    )
    return every.join(kinds, on=GROUP, how="left", nulls_equal=True, maintain_order="left")


def _in_order(rows: pl.DataFrame) -> Iterator[tuple[int, int, InOrder]]:
    """Group and rank of what traces do not number, with those rows in their order."""
    lists = by_order(rows.with_columns(row=pl.int_range(pl.len())))
    for at in range(lists.height):
        each = {name: lists[name][at] for name in lists.columns}
        yield each["group"], each["rank"], InOrder.of(each)


def _numbers(rows: pl.DataFrame, groups: Sequence[_Group], file: int) -> NDArray[np.int64]:
    """The number of each row of a file, shape (rows,): of one that is alone, one that no other has."""
    number = rows["number"].to_numpy().copy()
    member = rows["member"].to_numpy()
    for of, rank, own in _in_order(rows):
        group = groups[of]
        if group.first is None or group.most[1:] == (-rank, file):
            continue
        if (anew := own.as_in(group.first)) is not None:
            theirs, mine = anew
            number[own.row] = -1 - member[own.row]
            number[own.row[mine]] = theirs
    return number


def _cut(
    every: pl.DataFrame, rows: pl.DataFrame, groups: Sequence[_Group], count: int
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
