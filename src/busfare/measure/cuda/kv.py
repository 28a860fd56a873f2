"""Blocks of a cache on their way between pinned host memory and an NVIDIA GPU, in every layout."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from busfare.measure.bench.kv import PACKED, SHORT_PACK_BYTES
from busfare.measure.bench.results import HostAlone
from busfare.measure.cases import Samples
from busfare.measure.cuda.board import FirstGpu, require_room
from busfare.measure.cuda.driver import (
    LONG,
    POINTER,
    Buffer,
    allocate,
    batched,
    checked,
    copier,
    driver,
    synchronise,
    upload,
    view,
)
from busfare.measure.cuda.timing import LEAD_IN_BYTES, Issue, Timed, once
from busfare.measure.device import StalledError, WrongDataError
from busfare.plan.offload.kv import Blocks, Layout

Numbers = npt.NDArray[np.int64]
Places = npt.NDArray[np.uint64]
Pairs = Sequence[tuple[int, int]]
#: Pinned memory from which pieces are fetched: far beyond any processor's cache, so that those of every run are read from
#: memory as those of a real cache are.
POOL_BYTES = 1 << 30
#: Runs take so many different sets of pieces in turn, or as many as the pool holds: all of it where a set has 16 MiB, since
#: processors' caches hold up to 300. The host's part alone is taken so often.
SETS, TIMES = 64, 5
#: More copies than this do not fit the launch queues while they are held.
MOST_HELD = 384
#: The host's part alone: a train of so many calls that copy so many bytes each; and so many blocks of so many bytes packed,
#: more than a processor's cache holds.
TRAIN, SHORT_BYTES = 2048, 64
PACKED_BLOCKS, ALONE_BYTES = 1024, 1 << 16


@dataclass
class _Set:
    """Numbers of pieces: of those fetched in the pool, of those evicted in the slots; on the GPU both lie one behind the
    other. And addresses of both in device memory, as `collect` and `misplaced` read them.
    """

    fetched: Numbers
    evicted: Numbers
    tables: dict[str, Buffer]


class CudaKv(FirstGpu):
    """Fetches blocks to the machine's first GPU, one piece behind the other in its memory."""

    KERNELS = {"collect": (POINTER, LONG, LONG), "misplaced": (POINTER, LONG, LONG, POINTER)}  # noqa: RUF012

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus)
        self._blocks: Blocks | None = None
        self._sets: list[_Set] = []
        self._turn = 0
        self._most_held = MOST_HELD

    def warm_up(self) -> None:
        self._launch("collect", self.board.streams(1)[0], 0, 0, 1)
        self._launch("misplaced", self.board.streams(1)[0], 0, 0, 1, 0)

    def start(self, fetched: int, evicted: int) -> None:
        _ = self.board
        self.give()
        pool, slots, left = max(POOL_BYTES, 2 * fetched), max(2 * evicted, 1 << 16), max(evicted, 1 << 16)
        host = {"pool": pool, "slots": slots, "packed": fetched, "unpacked": left}
        device = {"target": fetched, "victims": left}
        require_room(sum(host.values()), sum(device.values()))
        wanted = {
            name: (kind, size)
            for kind, sizes in (("pinned", host), ("device", device))
            for name, size in sizes.items()
        }
        self.take(**wanted)
        for name in ("pool", "victims"):
            self._on_bytes("fill", name, self.buffers[name].size)

    def host_alone(self) -> HostAlone:
        room = self.buffers["packed"].size
        size = min(ALONE_BYTES, room // 4 // 16 * 16)
        alone = Blocks(size, min(PACKED_BLOCKS, room // size))
        self._place(alone)
        (stream,), pieces = self.board.streams(1), np.arange(alone.count)
        pairs = self._pairs("target", pieces, "pool", self._sets[0].fetched, size)
        pairs = (list(pairs) * (TRAIN // len(pairs) + 1))[:TRAIN]
        pool, packed = (self._words(name, size // 8) for name in ("pool", "packed"))
        calls = list[float]()
        for _ in range(TIMES):
            began = time.perf_counter()
            _one_by_one(pairs, [], SHORT_BYTES, [stream, stream])
            calls.append((time.perf_counter() - began) / len(pairs))
            synchronise(stream)
        rates = list[float]()
        for count in (min(SHORT_PACK_BYTES // size, alone.count), alone.count):
            taken_s = list[float]()
            for _ in range(TIMES):
                # Other pieces each time: the last ones may be in a cache.
                self._turn = (self._turn + 1) % len(self._sets)
                numbers = self._sets[self._turn].fetched[:count]
                began = time.perf_counter()
                np.take(pool, numbers, axis=0, out=packed[:count], mode="clip")
                taken_s.append(time.perf_counter() - began)
            rates.append(count * size / median(taken_s))
        short, long = rates
        return HostAlone(median(calls), long, short)

    def run(self, layout: Layout, blocks: Blocks, runs: int) -> Samples:
        board = self.board
        self._place(blocks)
        streams = 2 if blocks.evicted and layout != "gather-kernel" else 1
        host_s, calls_s, device_s = [], [], []
        copies = (blocks.count + blocks.evicted) * blocks.pieces
        held = layout not in PACKED and (
            copies <= self._most_held or layout in ("contiguous", "gather-kernel")
        )
        lead_in = None
        if layout != "gather-kernel":
            size = min(int(blocks.piece_bytes), LEAD_IN_BYTES)
            lead_in = copier("h2d", self.at("target"), self.at("pool"), size)
        for _ in range(runs + 1):
            # Another set of pieces than the last one's, so that no cache holds what is read.
            self._turn = (self._turn + 1) % len(self._sets)
            own = self._sets[self._turn]
            timed = Timed(board, self._issue(layout, own, blocks), streams, lead_in=lead_in)
            for hold in (False, *((True,) if held else ())):
                self._poison(own, blocks)
                if hold:
                    try:
                        device_s.append(max(once((timed,))[0]))
                    except StalledError:
                        self._most_held, held, device_s = min(self._most_held, copies - 1), False, []
                        continue
                else:
                    began = time.perf_counter()
                    timed.call()
                    called = time.perf_counter()
                    timed.synchronise()
                    host_s.append(time.perf_counter() - began)
                    calls_s.append(called - began)
                self._check(layout, own, blocks)
        return Samples(tuple(device_s[1:]), tuple(calls_s[1:]), tuple(host_s[1:]))

    def _place(self, blocks: Blocks) -> None:
        """Chooses the pieces of each set: in no order, and no two sets the same where the pool has that many."""
        if self._blocks == blocks:
            return
        self._forget()
        rng, size = np.random.default_rng(1), int(blocks.piece_bytes)
        orders = [rng.permutation(self.buffers[name].size // size) for name in ("pool", "slots")]
        counts = [blocks.count * blocks.pieces, blocks.evicted * blocks.pieces]
        # The slots may hold fewer sets than the pool, which are then taken in turn.
        sets = [max(1, min(SETS, len(order) // max(1, n))) for order, n in zip(orders, counts, strict=True)]
        for turn in range(sets[0]):
            fetched, evicted = (
                order[turn % most * n : (turn % most + 1) * n]
                for order, n, most in zip(orders, counts, sets, strict=True)
            )
            to, at, slots, left = (
                self._addresses(name, numbers, size)
                for name, numbers in (
                    ("target", np.arange(counts[0])), ("pool", fetched), ("slots", evicted),
                    ("victims", np.arange(counts[1])),
                )
            )  # fmt: skip
            tables = {
                # By turns, so that a kernel reads and writes the link at once.
                "collect": _uploaded(_by_turns(to, slots), _by_turns(at, left)),
                "fetched": _uploaded(to, at - np.uint64(self.at("pool"))),
                "evicted": _uploaded(slots, left - np.uint64(self.at("victims"))),
            }
            self._sets.append(_Set(fetched, evicted, tables))
        self._blocks = blocks

    def _addresses(self, name: str, numbers: Numbers, size: int) -> Places:
        """Where pieces of `size` bytes of a buffer are."""
        return np.asarray(self.at(name) + numbers * size, np.uint64)

    def _pairs(self, target: str, to: Numbers, source: str, at: Numbers, size: int) -> Pairs:
        """Target and source of each piece's copy."""
        ends = (self._addresses(name, own, size).tolist() for name, own in ((target, to), (source, at)))
        return list(zip(*ends, strict=True))

    def _issue(self, layout: Layout, own: _Set, blocks: Blocks) -> Issue:
        """What submits a layout into the streams of copies in and out."""
        size, count, left = int(blocks.piece_bytes), len(own.fetched), len(own.evicted)
        if layout in PACKED:
            return self._packing(layout, own, size)
        if layout == "gather-kernel":
            values = (own.tables["collect"].address, count + left, size // 16)
            return lambda streams: self._launch("collect", streams[0], *values)
        if layout == "contiguous":
            into = copier("h2d", self.at("target"), self.at("pool"), count * size)
            out = copier("d2h", self.at("slots"), self.at("victims"), left * size) if left else None
            return partial(_each, into, out)
        fetched = self._pairs("target", np.arange(count), "pool", own.fetched, size)
        evicted = self._pairs("slots", own.evicted, "victims", np.arange(left), size)
        if layout == "per-block":
            return partial(_one_by_one, fetched, evicted, size)
        return partial(
            _each, batched(fetched, [size] * count), batched(evicted, [size] * left) if left else None
        )

    def _packing(self, layout: Layout, own: _Set, size: int) -> Issue:
        """The host packs what is fetched, at once or in two halves, and takes apart what was evicted."""
        pool, slots, packed, unpacked = (
            self._words(name, size // 8) for name in ("pool", "slots", "packed", "unpacked")
        )
        count, left, parts = len(own.fetched), len(own.evicted), 2 if layout == "gather-host-halves" else 1
        ends = [count * n // parts for n in range(parts + 1)]

        def issue(streams: Sequence[Any]) -> None:
            if left:
                copier("d2h", self.at("unpacked"), self.at("victims"), left * size)(streams[1])
            for first, last in pairwise(ends):
                np.take(pool, own.fetched[first:last], axis=0, out=packed[first:last], mode="clip")
                target, source = (self.at(name) + first * size for name in ("target", "packed"))
                copier("h2d", target, source, (last - first) * size)(streams[0])
            if left:
                synchronise(streams[1])
                slots[own.evicted] = unpacked[:left]

        return issue

    def _poison(self, own: _Set, blocks: Blocks) -> None:
        """Overwrites what is fetched and evicted with what no copy could have left."""
        size = int(blocks.piece_bytes)
        self._on_bytes("poison", "target", len(own.fetched) * size)
        if left := len(own.evicted) * size:
            self._on_bytes("poison", "slots", self.buffers["slots"].size)
            self._on_bytes("poison", "unpacked", left)

    def _check(self, layout: Layout, own: _Set, blocks: Blocks) -> None:
        """Every word of what was fetched and evicted. Raises WrongDataError."""
        words, (stream,) = int(blocks.piece_bytes) // 4, self.board.streams(1)

        def count(wrong: int) -> None:
            for name, table, pieces in (
                ("target", "fetched", len(own.fetched)),
                ("slots", "evicted", len(own.evicted)),
            ):
                if layout == "contiguous" and pieces:
                    # One copy of as many bytes, from where the pattern begins.
                    self._on_bytes("check", name, pieces * words * 4, wrong)
                elif pieces:
                    self._launch("misplaced", stream, own.tables[table].address, pieces, words, wrong)
            synchronise(stream)

        if found := self.board.counted(count):
            raise WrongDataError(f"{found} words of {blocks.count} blocks arrived changed, or elsewhere")

    def _words(self, name: str, words: int) -> npt.NDArray[np.uint64]:
        """A pinned buffer as rows of so many words of eight bytes."""
        made = self.buffers[name]
        rows = made.size // (8 * words)
        return view(made.address, 8 * rows * words).view(np.uint64).reshape(rows, words)

    def _on_bytes(self, name: str, buffer: str, size: int, *more: int) -> None:
        """Runs a kernel of the probe's on the first `size` bytes of a buffer, to its end."""
        self.board.to_its_end(name, self.at(buffer), size, size, size, *more)

    def _launch(self, name: str, stream: Any, *values: int) -> None:
        self._module.launch(name, stream, values, 4 * self.board.multiprocessors, 256)

    def _forget(self) -> None:
        for own in self._sets:
            for table in own.tables.values():
                table.free()
        self._sets.clear()
        self._blocks = None

    def give(self) -> None:
        self._forget()
        super().give()


def _one_by_one(into: Pairs, out: Pairs, size: int, streams: Sequence[Any]) -> None:
    """A copy a piece, in and out by turns."""
    for n in range(max(len(into), len(out))):
        if n < len(into):
            checked(driver.cuMemcpyHtoDAsync(*into[n], size, streams[0]), "h2d copy")
        if n < len(out):
            checked(driver.cuMemcpyDtoHAsync(*out[n], size, streams[1]), "d2h copy")


def _each(into: Callable[[Any], None], out: Callable[[Any], None] | None, streams: Sequence[Any]) -> None:
    """What goes out first, as the plan has it, then what comes in."""
    if out is not None:
        out(streams[1])
    into(streams[0])


def _by_turns(one: Places, other: Places) -> Places:
    """Both, one of each as long as there are some of both."""
    most = min(len(one), len(other))
    turns = np.stack([one[:most], other[:most]], axis=1).ravel()
    return np.concatenate([turns, one[most:], other[most:]])


def _uploaded(*columns: Places) -> Buffer:
    """A table in device memory. Raises UnavailableError."""
    values = np.ascontiguousarray(np.concatenate(columns))
    made = allocate("device", max(8, values.nbytes))
    upload(made.address, values)
    return made
