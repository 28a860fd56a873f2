"""Results in host memory held against the reference by the GPU: at the link's pace, where the processor would take
a second for what was measured in milliseconds.
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
from busfare.measure.cuda.memory import Buffer, allocate
from busfare.node.arrays import FloatArray

__all__ = ["Reference"]

_NONE = (1 << 64) - 1
_KINDS = (
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_ulonglong,
    ctypes.c_double,
    ctypes.c_double,
    ctypes.c_void_p,
)


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
            self._found = allocate("device", 24)
            self._buffers.append(self._found)
            for array in arrays:
                made = allocate("device", array.nbytes)
                self._buffers.append(made)
                _upload(made.address, array)
        except BaseException:
            self.free()
            raise

    def compare(self, outputs: Sequence[FloatArray]) -> Compared:
        """All elements of pinned `outputs`, array by array."""
        board = self._board
        board.enter()
        stream = board.streams(1)[0]
        wrong, worst, first = 0, 0.0, None
        for array, want, slack in zip(outputs, self._buffers[1:], self._slacks, strict=True):
            _upload(self._found.address, np.array([0, 0, _NONE], np.uint64))
            values = (
                int(array.ctypes.data),
                want.address,
                array.size,
                self._relative,
                slack,
                self._found.address,
            )
            board.kernels.launch_wide("differ", stream, values, _KINDS)
            checked(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")
            answer = bytearray(24)
            checked(driver.cuMemcpyDtoH(answer, self._found.address, len(answer)), "cuMemcpyDtoH")
            count, largest, place = struct.unpack("<QdQ", answer)
            wrong += count
            worst = max(worst, largest)
            if count and first is None:
                first = place
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
