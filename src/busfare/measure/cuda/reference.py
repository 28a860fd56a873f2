"""Results in host memory held against the reference by the GPU: at the link's rate, where the processor would take a
second for what was measured in milliseconds.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from busfare.measure.bench.device import Compared
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import checked, driver
from busfare.measure.cuda.kernels import LONG, POINTER
from busfare.measure.cuda.memory import Buffer, allocate
from busfare.node.arrays import FloatArray

__all__ = ["Reference"]

_NONE = (1 << 64) - 1
_KINDS = (POINTER, POINTER, LONG, ctypes.c_double, ctypes.c_double, POINTER)


class Reference:
    """What the results should be, in the memory of `board`'s GPU."""

    def __init__(
        self, board: Board, arrays: Sequence[FloatArray], relative: float, slacks: Sequence[float]
    ) -> None:
        """Raises UnavailableError where the GPU has no room for them."""
        self._board, self._relative, self._slacks = board, relative, tuple(slacks)
        self._buffers: list[Buffer] = []
        board.enter()
        try:
            self._buffers.append(allocate("device", 24))
            for array in arrays:
                self._buffers.append(allocate("device", array.nbytes))
                _upload(self._buffers[-1].address, array)
        except BaseException:
            self.free()
            raise

    def compare(self, outputs: Sequence[FloatArray]) -> Compared:
        """All elements of pinned `outputs`, array by array."""
        self._board.enter()
        stream, (found, *wanted) = self._board.streams(1)[0], [b.address for b in self._buffers]
        wrong, worst, first = 0, 0.0, None
        for array, want, slack in zip(outputs, wanted, self._slacks, strict=True):
            _upload(found, np.array([0, 0, _NONE], np.uint64))
            values = (int(array.ctypes.data), want, array.size, self._relative, slack, found)
            self._board.kernels.launch_wide("differ", stream, values, _KINDS)
            checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")
            answer = bytearray(24)
            checked(driver.cuMemcpyDtoH(answer, found, len(answer)), "cuMemcpyDtoH")
            count, largest, place = struct.unpack("<QdQ", answer)
            wrong, worst = wrong + count, max(worst, largest)
            first = place if count and first is None else first
        return Compared(wrong, worst, first)

    def free(self) -> None:
        """Gives the memory back."""
        self._board.enter()
        for buffer in self._buffers:
            buffer.free()
        self._buffers.clear()


def _upload(address: int, array: FloatArray | npt.NDArray[np.uint64]) -> None:
    """Copies an array to the device, and waits: a copy of pageable memory may return before the data are there, and our
    streams do not wait for it.
    """
    checked(driver.cuMemcpyHtoD(address, int(array.ctypes.data), array.nbytes), "cuMemcpyHtoD")
    checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
