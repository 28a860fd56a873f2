"""The one kind of array that sizes, seconds and wire bytes come in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["FloatArray"]

FloatArray = npt.NDArray[np.float64]
