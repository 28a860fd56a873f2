"""NCCL of the system or of PyTorch's wheel, by its C interface: one process, a communicator a GPU, calls in groups."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from busfare.measure.cases import Case, Samples
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import record, seconds, synchronise
from busfare.measure.device import UnavailableError

NAME = "libnccl.so.2"
#: ncclFloat32 and ncclSum [nccl.h].
FLOAT, SUM, FLOAT_BYTES = 7, 0, 4
#: Operations behind each other in a sample: of few bytes many, so that its clock's ticks do not count.
MANY, FEW, LONG_BYTES = 20, 4, 1 << 24


def library() -> ctypes.CDLL:
    """NCCL from the loader's path, else from an installed wheel. Raises UnavailableError where there is none."""
    wheel = find_spec("nvidia.nccl") if find_spec("nvidia") else None
    folders = [Path(folder) / "lib" for folder in (wheel.submodule_search_locations or ())] if wheel else []
    for path in (NAME, *(str(folder / NAME) for folder in folders)):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise UnavailableError(
        f"{NAME} is neither in the loader's path nor in a wheel; pip install nvidia-nccl-cu12"
    )


class Communicators:
    """One communicator for each of `boards`. Reductions in the switch (NVLS) are off in this process."""

    def __init__(self, boards: Sequence[Board]) -> None:
        """Raises UnavailableError where there is no NCCL, or it refuses."""
        os.environ["NCCL_NVLS_ENABLE"] = "0"  # NCCL reads it when its first communicator is made
        self.boards, self._nccl = boards, library()
        self._nccl.ncclGetErrorString.restype = ctypes.c_char_p
        self._seen: set[Case] = set()
        self._made = (ctypes.c_void_p * len(boards))()
        ordinals = (ctypes.c_int * len(boards))(*(board.ordinal for board in boards))
        self._call("ncclCommInitAll", self._made, len(boards), ordinals)

    def _call(self, name: str, *values: Any) -> None:
        code = getattr(self._nccl, name)(*values)
        if code:
            why = self._nccl.ncclGetErrorString(code).decode(errors="replace")
            raise UnavailableError(f"NCCL call {name} failed: {why}; NCCL_DEBUG=WARN says more")

    @contextmanager
    def _group(self) -> Iterator[None]:
        self._call("ncclGroupStart")
        try:
            yield
        finally:
            self._call("ncclGroupEnd")

    def issue(self, kind: str, bytes_: int) -> None:
        """One operation of `bytes_` bytes, as nccl-tests counts them, into the first stream of every GPU."""
        with self._group():
            for rank, board in enumerate(self.boards):
                board.enter()
                self._issue_rank(kind, bytes_, rank, board)

    def _issue_rank(self, kind: str, bytes_: int, rank: int, board: Board) -> None:
        ranks = len(self.boards)
        source, target = (board.buffer("device", role, bytes_) for role in ("source", "target"))
        end = (ctypes.c_void_p(self._made[rank]), ctypes.c_void_p(int(board.streams(1)[0])))
        whole, part = (ctypes.c_size_t(max(n // FLOAT_BYTES, 1)) for n in (bytes_, bytes_ // ranks))
        at, to = ctypes.c_void_p(source), ctypes.c_void_p(target)
        if kind == "all_reduce":
            self._call("ncclAllReduce", at, to, whole, FLOAT, SUM, *end)
        elif kind == "all_gather":
            self._call("ncclAllGather", at, to, part, FLOAT, *end)
        elif kind == "reduce_scatter":
            self._call("ncclReduceScatter", at, to, part, FLOAT, SUM, *end)
        elif kind == "send_receive":
            self._call("ncclSend", at, whole, FLOAT, (rank + 1) % ranks, *end)
            self._call("ncclRecv", to, whole, FLOAT, (rank - 1) % ranks, *end)
        else:
            for peer in range(ranks):
                offset = peer * part.value * FLOAT_BYTES
                self._call("ncclSend", ctypes.c_void_p(source + offset), part, FLOAT, peer, *end)
                self._call("ncclRecv", ctypes.c_void_p(target + offset), part, FLOAT, peer, *end)

    def samples(self, kind: str, case: Case, repeats: int) -> Samples:
        """Seconds an operation, of the GPU that took longest: back to back, held until all are submitted.

        Raises UnavailableError for sizes that do not fit, StalledError where the hold gave up.
        """
        # Below a float a rank the parts would not be of the size that was asked for.
        if case.bytes < FLOAT_BYTES * len(self.boards):
            raise UnavailableError(f"{case.bytes} bytes are no number for each of {len(self.boards)} GPUs")
        if case not in self._seen:  # the first one makes connections, and must not wait for what waits for it
            self.issue(kind, case.bytes)
            self._synchronise()
            self._seen.add(case)
        count = FEW if case.bytes > LONG_BYTES else MANY
        taken = tuple(self._sample(kind, case.bytes, count) for _ in range(repeats))
        return Samples(taken, taken)

    def _sample(self, kind: str, bytes_: int, count: int) -> float:
        try:
            for board in self.boards:
                board.enter()
                board.flags.hold(board.streams(1)[0])
                record(board.events(2)[0], board.streams(1)[0])
            for _ in range(count):
                self.issue(kind, bytes_)
            for board in self.boards:
                board.enter()
                record(board.events(2)[1], board.streams(1)[0])
        finally:
            for board in self.boards:
                board.flags.release()
        self._synchronise()
        return max(self._elapsed(board) for board in self.boards) / count

    @staticmethod
    def _elapsed(board: Board) -> float:
        board.enter()
        board.flags.verify()
        return seconds(*board.events(2))

    def _synchronise(self) -> None:
        for board in self.boards:
            board.enter()
            synchronise(board.streams(1)[0])

    def close(self) -> None:
        for made in self._made:
            self._call("ncclCommDestroy", ctypes.c_void_p(made))
