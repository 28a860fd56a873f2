"""A machine with NVIDIA GPUs, measured through the driver API."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from busfare.errors import NoGpuError
from busfare.measure.case import Case, Samples
from busfare.measure.cuda import both_ways, copies, facts, streams, submit
from busfare.measure.cuda.beside import BESIDE
from busfare.measure.cuda.board import MOST_BYTES, Board
from busfare.measure.cuda.bound import bound_to
from busfare.measure.cuda.costs import COSTS
from busfare.measure.cuda.driver import CudaError, checked, driver
from busfare.measure.cuda.managed import managed
from busfare.measure.device import UnavailableError

__all__ = ["CudaDevice", "gpu_count", "open_cuda"]

#: The longest copy by a bound processor, and room for the steps between chunks.
_NEAR_BYTES = (1 << 26) + (1 << 20)
#: Visits of pinned copies of up to `_SHORT_BYTES` take turns in so many contexts: where the driver puts a context's queues
#: makes a copy of a byte up to 2 % slower or faster for as long as the context lives. The last: of each of their buffers.
_CONTEXTS, _SHORT_BYTES, _CONTEXT_BYTES = 4, 1 << 22, 1 << 23


def gpu_count(command: str = "probe") -> int:
    """How many GPUs the driver shows. Raises NoGpuError, with what was looked for, where there is none; `command` is
    what would run on a virtual node.
    """
    try:
        checked(driver.cuInit(0), "cuInit")
        count = int(checked(driver.cuDeviceGetCount(), "cuDeviceGetCount"))
    except (CudaError, RuntimeError) as error:
        raise NoGpuError(
            f"no GPU: looked for NVIDIA's driver (libcuda.so.1) and a device in it: {error}; "
            f"try `busfare {command} --virtual h100-sxm`"
        ) from None
    if count == 0:
        raise NoGpuError(
            "no GPU: NVIDIA's driver is there, but shows no device (is CUDA_VISIBLE_DEVICES empty?)"
        )
    return count


def open_cuda() -> CudaDevice:
    """The machine's GPUs. Raises NoGpuError, with what was looked for, where there is none."""
    return CudaDevice(gpu_count())


class CudaDevice:
    """Runs cases on real GPUs."""

    virtual = False

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.left_out: list[dict[str, str]] = []
        self._boards: dict[int, Board] = {}
        #: Whether each ordered pair of GPUs that was asked for copies without the host's help.
        self._direct: dict[tuple[int, int], bool] = {}
        self._turns: dict[Case, int] = {}
        self._near: dict[int, Board] = {}
        #: The contexts beside a GPU's first one; fewer where memory ran out.
        self._beside: dict[int, list[Board]] = {}
        self._most_bytes = min(MOST_BYTES, facts.roomy_bytes())

    def facts(self) -> dict[str, Any]:
        return facts.of_machine(self.gpus)

    def state(self, gpu: int) -> dict[str, Any]:
        return facts.state(gpu)

    def run(self, case: Case, repeats: int) -> Samples:
        try:
            return self._run(case, repeats)
        except CudaError as error:
            raise UnavailableError(str(error)) from None

    def _run(self, case: Case, repeats: int) -> Samples:
        if case.mode == "bound":
            with bound_to(facts.local_processors(case.gpu)):
                return self._run_on(self._near_board(case.gpu), case, repeats)
        return self._run_on(self._board(case.gpu), case, repeats)

    def _run_on(self, board: Board, case: Case, repeats: int) -> Samples:
        if case.mode in COSTS:
            board.enter()
            return COSTS[case.mode](case, board, repeats)
        if case.memory == "managed":
            board.enter()
            return managed(case, board, repeats)
        peer = self._peer(case) if case.direction == "p2p" else None
        turn = self._turns[case] = self._turns.get(case, -1) + 1
        if submit.placed(case) and case.count * submit.pitch_of(case) <= _SHORT_BYTES:
            contexts = (board, *self._boards_beside(case.gpu))
            board = contexts[turn % len(contexts)]
        board.enter()
        ends = submit.ends_of(case, board, peer, turn, repeats)
        size, pitch = ends.moved, ends.pitch or case.bytes
        # A kernel that only reads leaves nothing to check.
        written = case.mode not in ("kernel", "kernel-beside-copies") or case.direction == "d2h"
        if written:
            ends.board.enter()
            ends.board.poison(ends.target_kind, size, case.bytes, pitch, ends.place, ends.belongs or None)
            board.enter()
        if peer is not None and not self._direct[case.gpu, peer.ordinal]:
            # The host stages them, and may wait for a stream that a blocking kernel holds.
            samples = copies.copies(dataclasses.replace(case, mode="unblocked"), board, ends, repeats)
        elif case.mode in BESIDE:
            samples = BESIDE[case.mode](case, board, self._board(case.peer or 0), ends, repeats)
        else:
            samples = _MODES[case.mode](case, board, ends, repeats)
        if written:
            ends.board.enter()
            ends.board.check(ends.target_kind, size, case.bytes, pitch, ends.place, ends.belongs or None)
        return samples

    def close(self) -> None:
        beside = (board for boards in self._beside.values() for board in boards)
        for board in (*self._near.values(), *beside, *self._boards.values()):
            board.close()
        self._near.clear()
        self._beside.clear()
        self._boards.clear()

    def _board(self, ordinal: int) -> Board:
        if ordinal not in self._boards:
            self._boards[ordinal] = Board(ordinal, self._most_bytes)
        return self._boards[ordinal]

    def _near_board(self, ordinal: int) -> Board:
        """The same GPU with host memory that is made by the processors next to it; call it bound to them."""
        if ordinal not in self._near:
            self._near[ordinal] = Board(ordinal, min(self._most_bytes, _NEAR_BYTES))
        return self._near[ordinal]

    def _boards_beside(self, ordinal: int) -> list[Board]:
        """The same GPU in further contexts, with smaller buffers; as many as it and the host have room for."""
        if ordinal not in self._beside:
            boards = self._beside[ordinal] = []
            try:
                while len(boards) < _CONTEXTS - 1:
                    boards.append(self._board_beside(ordinal))
            except (CudaError, UnavailableError) as error:
                what = (
                    f"{_CONTEXTS - 1 - len(boards)} of {_CONTEXTS} contexts for short copies on GPU {ordinal}"
                )
                self.left_out.append({"case": what, "why": str(error)})
        return self._beside[ordinal]

    def _board_beside(self, ordinal: int) -> Board:
        board = Board(ordinal, min(self._most_bytes, _CONTEXT_BYTES), primary=False)
        try:
            board.make("pinned", "device")
        except (CudaError, UnavailableError):
            board.close()
            raise
        return board

    def _peer(self, case: Case) -> Board:
        assert case.peer is not None
        here, there = self._board(case.gpu), self._board(case.peer)
        if (case.gpu, case.peer) not in self._direct:
            can = checked(driver.cuDeviceCanAccessPeer(here.handle, there.handle), "cuDeviceCanAccessPeer")
            here.enter()
            if can:
                checked(driver.cuCtxEnablePeerAccess(there.context, 0), "cuCtxEnablePeerAccess")
            self._direct[case.gpu, case.peer] = bool(can)
        return there


_MODES: dict[str, Callable[[Case, Board, submit.Ends, int], Samples]] = {
    "copies": copies.copies,
    "unblocked": copies.copies,
    "bound": copies.copies,
    "again": copies.copies,
    "after-kernel": copies.copies,
    "after-event": streams.streams,
    "event-kernel": streams.event_kernel,
    "streams": streams.streams,
    "batch": copies.batch,
    "graph": copies.graph,
    "written": copies.written,
    "hybrid": streams.hybrid,
    "there-and-back": streams.there_and_back,
    "through": streams.through,
    "plane": copies.strided,
    "block": copies.strided,
    "packed": copies.packed,
    "both": both_ways.both,
    "beside-mapped": both_ways.beside_mapped,
    "kernel": both_ways.kernel,
    "kernel-both": both_ways.kernel,
    "kernel-beside-copies": both_ways.kernel_beside_copies,
}
