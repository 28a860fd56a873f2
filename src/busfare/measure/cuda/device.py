"""A machine with NVIDIA GPUs, measured through the driver API."""

from __future__ import annotations

from typing import Any

from busfare.measure.case import Case, Samples
from busfare.measure.cuda import facts
from busfare.measure.cuda.board import MOST_BYTES, Board
from busfare.measure.cuda.calls import CALLS
from busfare.measure.cuda.copies import COPIES, Ends, copies
from busfare.measure.cuda.driver import CudaError, checked, driver
from busfare.measure.device import UnavailableError

__all__ = ["CudaDevice"]


class CudaDevice:
    """Runs cases on real GPUs."""

    virtual = False

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self._boards: dict[int, Board] = {}
        #: Whether each ordered pair of GPUs that was asked for copies without the host's help.
        self._direct: dict[tuple[int, int], bool] = {}
        self._most_bytes = min(MOST_BYTES, facts.roomy_bytes())

    def facts(self) -> dict[str, Any]:
        return facts.of_machine(self.gpus)

    def state(self, gpu: int) -> dict[str, Any]:
        return facts.state(gpu)

    def run(self, case: Case, repeats: int) -> Samples:
        try:
            board = self._board(case.gpu)
            board.enter()
            if case.mode in CALLS:
                return CALLS[case.mode](case, board, repeats)
            return self._copied(case, board, repeats)
        except CudaError as error:
            raise UnavailableError(str(error)) from None

    def _copied(self, case: Case, board: Board, repeats: int) -> Samples:
        """Samples of copies; their target is overwritten before, and compared afterwards."""
        peer = None if case.peer is None else self._board(case.peer)
        board.enter()
        ends = Ends(case, board, peer)
        target = (ends.target_kind, case.total_bytes, case.bytes, ends.pitch)
        # A kernel that only reads leaves nothing to check.
        written = case.mode not in ("kernel", "kernel-beside-copies") or case.direction == "d2h"
        if written:
            ends.board.enter()
            ends.board.poison(*target)
            board.enter()
        if peer is not None and not self._reaches(board, peer):
            # The host stages them, and may wait for a stream that a blocking kernel holds.
            samples = copies(case, board, ends, repeats, held=False)
        else:
            samples = COPIES[case.mode](case, board, ends, repeats)
        if written:
            ends.board.enter()
            ends.board.check(*target)
        return samples

    def close(self) -> None:
        for board in self._boards.values():
            board.close()
        self._boards.clear()

    def _board(self, ordinal: int) -> Board:
        if ordinal not in self._boards:
            self._boards[ordinal] = Board(ordinal, self._most_bytes)
        return self._boards[ordinal]

    def _reaches(self, here: Board, there: Board) -> bool:
        """Whether one GPU copies to another without the host's help."""
        pair = (here.ordinal, there.ordinal)
        if pair not in self._direct:
            can = checked(driver.cuDeviceCanAccessPeer(here.handle, there.handle), "cuDeviceCanAccessPeer")
            here.enter()
            if can:
                checked(driver.cuCtxEnablePeerAccess(there.context, 0), "cuCtxEnablePeerAccess")
            self._direct[pair] = bool(can)
        return self._direct[pair]
