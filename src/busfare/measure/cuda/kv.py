"""Blocks of a cache on their way between pinned host memory and an NVIDIA GPU, in every layout."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from busfare.measure.bench.kv import PACKED, KvTiming
from busfare.measure.cuda import facts
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.copies import batched
from busfare.measure.cuda.driver import LONG, POINTER, Buffer, CudaError, Module, allocate, checked, driver
from busfare.measure.cuda.timing import LEAD_IN_BYTES, Timed
from busfare.measure.device import StalledError, UnavailableError, WrongDataError
from busfare.measure.kv_results import HostAlone
from busfare.plan.offload.kv import Blocks, Layout

Places = npt.NDArray[np.uint64]
Issue = Callable[[Sequence[Any]], None]
#: Pinned memory from which pieces are fetched: far beyond any processor's cache, so that those of every run are read from
#: memory as those of a real cache are.
POOL_BYTES = 1 << 30
#: Runs take so many different sets of pieces in turn, or as many as the pool holds: 16 MiB sixteen times are more than a
#: processor's cache holds. The host's part alone is taken so often.
SETS, TIMES = 16, 5
#: More copies than this do not fit the launch queues while they are held.
MOST_HELD = 384
#: The host's part alone: a train of so many calls that copy so many bytes each; and so many blocks of so many bytes packed,
#: more than a processor's cache holds.
TRAIN, SHORT_BYTES = 256, 64
PACKED_BLOCKS, ALONE_BYTES = 1024, 1 << 16
#: Of the host's and the GPU's free memory a benchmark takes at most these shares.
_HOST_SHARE, _DEVICE_SHARE = 0.3, 0.8


@dataclass
class _Set:
    """Addresses of pieces: of those fetched and evicted, from where and to where; and their tables in device memory, as
    `collect` and `misplaced` read them.
    """

    sources: Places
    targets: Places
    victims: Places
    slots: Places
    tables: dict[str, Buffer] = field(default_factory=dict)


class CudaKv(facts.CudaHost):
    """Fetches blocks to the machine's first GPU, one piece behind the other in its memory."""

    def __init__(self, gpus: int) -> None:
        super().__init__(gpus)
        self._board: Board | None = None
        self._module: Module | None = None
        self._buffers: dict[str, Buffer] = {}
        self._blocks: Blocks | None = None
        self._sets: list[_Set] = []
        self._turn = 0
        self._most_held = MOST_HELD

    def start(self, fetched: int, evicted: int) -> None:
        try:
            self._started(fetched, evicted)
        except CudaError as error:
            raise UnavailableError(str(error)) from None

    def _started(self, fetched: int, evicted: int) -> None:
        board = self._opened()
        self._free()
        pool, slots = max(POOL_BYTES, 2 * fetched), max(2 * evicted, 1 << 16)
        host = {"pool": pool, "slots": slots, "packed": fetched, "unpacked": max(evicted, 1 << 16)}
        device = {"target": fetched, "victims": max(evicted, 1 << 16), "wrong": 1 << 16}
        free, _ = checked(driver.cuMemGetInfo(), "cuMemGetInfo")
        # `roomy_bytes` is an eighth of the memory that there is.
        for sizes, most in ((host, 8 * _HOST_SHARE * facts.roomy_bytes()), (device, _DEVICE_SHARE * free)):
            if sum(sizes.values()) > most:
                raise UnavailableError(
                    f"{sum(sizes.values())} bytes are too much of the {most:.0f} to be had"
                )
        try:
            for kind, sizes in (("pinned", host), ("device", device)):
                for name, size in sizes.items():
                    self._buffers[name] = allocate(kind, size)
        except BaseException:
            self._free()
            raise
        for name in ("pool", "victims"):
            self._on_bytes(board, "fill", name)

    def host_alone(self) -> HostAlone:
        try:
            return self._host_alone()
        except CudaError as error:
            raise UnavailableError(str(error)) from None

    def _host_alone(self) -> HostAlone:
        board = self._opened()
        room = self._buffers["packed"].size
        size = min(ALONE_BYTES, room // 4 // 16 * 16)
        alone = Blocks(size, min(PACKED_BLOCKS, room // size))
        self._place(alone)
        own, (stream,) = self._sets[0], board.streams(1)
        pairs = list(zip(own.targets.tolist(), own.sources.tolist(), strict=True))[:TRAIN]
        pool, packed = (self._words(name, size // 8) for name in ("pool", "packed"))
        taken = ((own.sources - np.uint64(self._at("pool"))) // np.uint64(size)).astype(np.int64)
        calls, packs = [], []
        for _ in range(TIMES):
            began = time.perf_counter()
            _one_by_one(pairs, [], SHORT_BYTES, [stream, stream])
            calls.append((time.perf_counter() - began) / len(pairs))
            checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")
            began = time.perf_counter()
            np.take(pool, taken, axis=0, out=packed[: len(taken)], mode="clip")
            packs.append(alone.moved("h2d")[0] / (time.perf_counter() - began))
        return HostAlone(median(calls), median(packs))

    def run(self, layout: Layout, blocks: Blocks, runs: int) -> KvTiming:
        try:
            return self._run(layout, blocks, runs)
        except CudaError as error:
            raise UnavailableError(str(error)) from None

    def _run(self, layout: Layout, blocks: Blocks, runs: int) -> KvTiming:
        board = self._opened()
        self._place(blocks)
        streams = 2 if blocks.evicted and layout != "gather-kernel" else 1
        host_s, calls_s, device_s = [], [], []
        copies = (blocks.count + blocks.evicted) * blocks.pieces
        held = layout not in PACKED and (
            copies <= self._most_held or layout in ("contiguous", "gather-kernel")
        )
        for _ in range(runs + 1):
            own = self._next()
            issue = self._issue(layout, own, blocks)
            timed = Timed(
                board, issue, streams, lead_in=None if layout == "gather-kernel" else self._lead_in(blocks)
            )
            for hold in (False, *((True,) if held else ())):
                self._poison(board, own)
                if hold:
                    try:
                        device_s.append(_held(timed))
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
                self._check(board, layout, own, blocks)
        return KvTiming(tuple(host_s[1:]), tuple(calls_s[1:]), tuple(device_s[1:]))

    def _next(self) -> _Set:
        """Another set of pieces than the last one's, so that no cache holds what is read."""
        self._turn = (self._turn + 1) % len(self._sets)
        return self._sets[self._turn]

    def _place(self, blocks: Blocks) -> None:
        """Chooses the pieces of each set: in no order, and no two sets the same where the pool has that many."""
        if self._blocks == blocks:
            return
        self._forget()
        rng, size = np.random.default_rng(1), int(blocks.piece_bytes)
        orders = {name: rng.permutation(self._buffers[name].size // size) for name in ("pool", "slots")}
        counts = {"pool": blocks.count * blocks.pieces, "slots": blocks.evicted * blocks.pieces}

        def at(name: str, numbers: npt.NDArray[Any]) -> Places:
            return np.asarray(self._buffers[name].address + numbers * size, np.uint64)

        for n in range(max(1, min(SETS, len(orders["pool"]) // counts["pool"]))):
            chosen = {}
            for name, count in counts.items():
                sets = max(1, min(SETS, len(orders[name]) // max(1, count)))
                chosen[name] = at(name, orders[name][n % sets * count : (n % sets + 1) * count])
            targets, victims = (
                at(name, np.arange(counts[of])) for name, of in (("target", "pool"), ("victims", "slots"))
            )
            own = _Set(chosen["pool"], targets, victims, chosen["slots"])
            pool, filled = self._buffers["pool"].address, self._buffers["victims"].address
            own.tables = {
                # By turns, so that a kernel reads and writes the link at once.
                "collect": _uploaded(_by_turns(targets, own.slots), _by_turns(own.sources, victims)),
                "fetched": _uploaded(targets, own.sources - np.uint64(pool)),
                "evicted": _uploaded(own.slots, victims - np.uint64(filled)),
            }
            self._sets.append(own)
        self._blocks = blocks

    def _issue(self, layout: Layout, own: _Set, blocks: Blocks) -> Issue:
        """What submits a layout into the streams of copies in and out."""
        size, count, left = int(blocks.piece_bytes), len(own.sources), len(own.victims)
        if layout in PACKED:
            return self._packing(layout, own, size)
        if layout == "gather-kernel":
            values = (own.tables["collect"].address, count + left, size // 16)
            return lambda streams: self._launch("collect", streams[0], values, (POINTER, LONG, LONG))
        if layout == "contiguous":
            into = _copy("h2d", self._at("target"), self._at("pool"), count * size)
            out = _copy("d2h", self._at("slots"), self._at("victims"), left * size) if left else None
            return partial(_each, into, out)
        fetched, evicted = (
            list(zip(to.tolist(), at.tolist(), strict=True))
            for to, at in ((own.targets, own.sources), (own.slots, own.victims))
        )
        if layout == "per-block":
            return partial(_one_by_one, fetched, evicted, size)
        return partial(
            _each, batched(fetched, [size] * count), batched(evicted, [size] * left) if left else None
        )

    def _packing(self, layout: Layout, own: _Set, size: int) -> Issue:
        """The host packs what is fetched, at once or in two halves, and takes apart what was evicted."""
        words = size // 8
        pool, slots, packed, unpacked = (
            self._words(name, words) for name in ("pool", "slots", "packed", "unpacked")
        )
        taken, given = (
            ((places - np.uint64(self._at(name))) // np.uint64(size)).astype(np.int64)
            for places, name in ((own.sources, "pool"), (own.slots, "slots"))
        )
        count, left, parts = len(taken), len(given), 2 if layout == "gather-host-halves" else 1
        ends = [count * n // parts for n in range(parts + 1)]

        def issue(streams: Sequence[Any]) -> None:
            if left:
                _copy("d2h", self._at("unpacked"), self._at("victims"), left * size)(streams[1])
            for first, last in pairwise(ends):
                np.take(pool, taken[first:last], axis=0, out=packed[first:last], mode="clip")
                target, source = (self._at(name) + first * size for name in ("target", "packed"))
                _copy("h2d", target, source, (last - first) * size)(streams[0])
            if left:
                checked(driver.cuStreamSynchronize(streams[1]), "cuStreamSynchronize")
                slots[given] = unpacked[:left]

        return issue

    def _lead_in(self, blocks: Blocks) -> Callable[[Any], None]:
        return _copy("h2d", self._at("target"), self._at("pool"), min(int(blocks.piece_bytes), LEAD_IN_BYTES))

    def _poison(self, board: Board, own: _Set) -> None:
        """Overwrites what is fetched and evicted with what no copy could have left."""
        size = int(self._blocks.piece_bytes) if self._blocks else 0
        for name, pieces in (
            ("target", len(own.targets)),
            ("slots", len(own.slots)),
            ("unpacked", len(own.slots)),
        ):
            if pieces:
                whole = self._buffers[name].size if name == "slots" else pieces * size
                self._on_bytes(board, "poison", name, whole)

    def _check(self, board: Board, layout: Layout, own: _Set, blocks: Blocks) -> None:
        """Every word of what was fetched and evicted. Raises WrongDataError."""
        wrong = self._at("wrong")
        checked(driver.cuMemsetD8(wrong, 0, 8), "cuMemsetD8")
        words, stream = int(blocks.piece_bytes) // 4, board.streams(1)[0]
        for table, pieces in (("fetched", len(own.targets)), ("evicted", len(own.slots))):
            at = own.tables[table].address
            if layout == "contiguous" and pieces:
                # One copy of as many bytes, from where the pattern begins.
                name = "target" if table == "fetched" else "slots"
                self._on_bytes(board, "check", name, pieces * words * 4, wrong)
            elif pieces:
                self._launch("misplaced", stream, (at, pieces, words, wrong), (POINTER, LONG, LONG, POINTER))
        checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")
        answer = bytearray(8)
        checked(driver.cuMemcpyDtoH(answer, wrong, 8), "cuMemcpyDtoH")
        if found := int.from_bytes(answer, "little"):
            raise WrongDataError(f"{found} words of {blocks.count} blocks arrived changed, or elsewhere")

    def _at(self, name: str) -> int:
        return self._buffers[name].address

    def _words(self, name: str, words: int) -> npt.NDArray[np.uint64]:
        """A pinned buffer as rows of so many words of eight bytes."""
        made = self._buffers[name]
        rows = made.size // (8 * words)
        flat = np.ctypeslib.as_array((ctypes.c_uint64 * (rows * words)).from_address(made.address))
        return flat.reshape(rows, words)

    def _on_bytes(self, board: Board, name: str, buffer: str, size: int = 0, *more: int) -> None:
        """Runs a kernel of the probe's on a buffer, or on its first `size` bytes, to its end."""
        (stream,), size = board.streams(1), size or self._buffers[buffer].size
        board.on_bytes(name, stream, self._at(buffer), size, size, size, *more)
        checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")

    def _launch(self, name: str, stream: Any, values: Sequence[int], kinds: Sequence[Any]) -> None:
        board = self._opened()
        assert self._module is not None
        self._module.launch(name, stream, values, kinds, 4 * board.multiprocessors, 256)

    def _opened(self) -> Board:
        if self._board is None:
            board = Board(0)
            source = resources.files("busfare.measure.bench").joinpath("kernels.cu").read_text("utf-8")
            self._module = Module(source, "kernels.cu", board.capability, ("collect", "misplaced"))
            self._board = board
            # What is loaded late would wait for the blocking kernel, which waits for it.
            for name, values in (("collect", (0, 0, 1)), ("misplaced", (0, 0, 1, 0))):
                kinds = (POINTER, LONG, LONG, POINTER)[: len(values)]
                self._module.launch(name, board.streams(1)[0], values, kinds)
            checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
        self._board.enter()
        return self._board

    def _forget(self) -> None:
        for own in self._sets:
            for table in own.tables.values():
                table.free()
        self._sets.clear()
        self._blocks = None

    def _free(self) -> None:
        self._forget()
        for buffer in self._buffers.values():
            buffer.free()
        self._buffers.clear()

    def close(self) -> None:
        if self._board is not None:
            self._board.enter()
            self._free()
            if self._module is not None:
                self._module.unload()
            self._board.close()
            self._board = None


def _held(timed: Timed) -> float:
    """Seconds on the GPU, all of it submitted before it begins."""
    try:
        timed.submit()
    finally:
        timed.board.flags.release()
        timed.synchronise()
    timed.board.flags.verify()
    return max(timed.ends_s())


def _copy(way: str, target: int, source: int, size: int) -> Callable[[Any], None]:
    copy = driver.cuMemcpyHtoDAsync if way == "h2d" else driver.cuMemcpyDtoHAsync
    return lambda stream: checked(copy(target, source, size, stream), f"{way} copy")


def _one_by_one(
    into: Sequence[tuple[int, int]], out: Sequence[tuple[int, int]], size: int, streams: Sequence[Any]
) -> None:
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
    if values.nbytes:
        checked(driver.cuMemcpyHtoD(made.address, int(values.ctypes.data), values.nbytes), "cuMemcpyHtoD")
        checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
    return made
