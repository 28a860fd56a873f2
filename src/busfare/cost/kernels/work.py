"""What an operator computes and moves, by the shapes and types of its inputs as a framework's trace has them."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import Any, NamedTuple

from busfare.cost.kernels.classes import MEMORY, type_named

__all__ = ["Work", "work_of"]

#: Operators that are one product: where the left and the right matrix are among the inputs.
_PRODUCTS = {
    "mm": (0, 1), "bmm": (0, 1), "matmul": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "addbmm": (1, 2), "linear": (0, 1),
    "_scaled_mm": (0, 1), "mv": (0, 1), "addmv": (1, 2), "dot": (0, 1), "_addmm_activation": (1, 2), "_int_mm": (0, 1),
}  # fmt: skip
#: Beyond any tensor in any memory.
MOST = 1 << 48


class Work(NamedTuple):
    """Of one kernel; NaN where not known. Bytes are those that have to be moved once."""

    flops: float = math.nan
    bytes: float = math.nan
    batch: float = math.nan
    m: float = math.nan
    n: float = math.nan
    k: float = math.nan
    element_bytes: float = math.nan
    pipeline: str | None = None


@lru_cache(maxsize=65536)
def work_of(kind: str, operator: str | None, shapes: str | None, types: str | None) -> Work:
    """The work of a kernel of class `kind` that `operator` launched; nothing where its inputs are not known."""
    sizes = [_size(size) for size in _listed(shapes)]
    words = [word for word in _listed(types) if isinstance(word, str)]
    typed = next((found for word in words if (found := type_named(word, kind))), None)
    if not operator or not sizes or typed is None:
        return Work()
    name, (pipeline, width) = operator.rpartition("::")[2], typed
    name = name if name.endswith("_mm") else name.rstrip("_")
    if kind == "gemm" and name in _PRODUCTS:
        left, right = (sizes[at] if at < len(sizes) else [] for at in _PRODUCTS[name])
        return _product(left, right, name == "linear", pipeline, float(width))
    if kind in MEMORY and kind != "optimizer":
        elements = [math.prod(size) for size in sizes if size]
        if not elements:
            return Work()
        # What is read, and a result as large as the largest of it; a reduction's result is small.
        written = 0 if kind == "reduction" else max(elements)
        return Work(bytes=float(width * (sum(elements) + written)), pipeline=pipeline, element_bytes=width)
    return Work(pipeline=pipeline, element_bytes=width)


def _product(left: list[int], right: list[int], transposed: bool, pipeline: str, width: float) -> Work:
    if not left or not right:
        return Work()
    k = left[-1]
    n = right[0 if transposed else -1] if len(right) > 1 else 1
    m = left[-2] if len(left) > 1 else 1
    batch = math.prod(left[:-2])
    if transposed or len(right) == 2:
        m, batch = m * batch, 1
    b, m_, n_, k_ = sides = [float(side) for side in (batch, m, n, k)]
    if min(sides) < 1 or math.prod(sides) > MOST * 64:
        return Work()
    moved = b * (m_ * n_ + m_ * k_ + n_ * k_) * width
    return Work(2 * b * m_ * n_ * k_, moved, b, m_, n_, k_, width, pipeline)


def _listed(text: str | None) -> list[Any]:
    """The list that a trace has as JSON; empty where it has none."""
    try:
        value = json.loads(text) if text else []
    except ValueError:
        return []
    return value if isinstance(value, list) else []


def _size(value: Any) -> list[int]:
    """The sides of a tensor; none where no tensor has such."""
    whole = isinstance(value, list) and all(type(side) is int and 0 < side <= MOST for side in value)
    return value if whole and math.prod(value) <= MOST else []
