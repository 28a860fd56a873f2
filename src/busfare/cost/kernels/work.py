"""What an operator computes and moves, by the shapes and types of its inputs as a framework's trace has them."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import NamedTuple

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
    sizes, words = _sizes(shapes), _words(types)
    if not operator or not sizes:
        return Work()
    name = (
        operator.rpartition("::")[2].rstrip("_")
        if not operator.endswith("_mm")
        else operator.rpartition("::")[2]
    )
    typed = next((found for word in words if (found := type_named(word, kind))), None)
    if typed is None:
        return Work()
    pipeline, width = typed
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
    sides = [float(side) for side in (batch, m, n, k)]
    if min(sides) < 1 or math.prod(sides) > MOST * 64:
        return Work()
    b, m_, n_, k_ = sides
    return Work(
        2 * b * m_ * n_ * k_, b * (m_ * n_ + m_ * k_ + n_ * k_) * width, b, m_, n_, k_, width, pipeline
    )


def _sizes(text: str | None) -> list[list[int]]:
    try:
        value = json.loads(text) if text else []
    except ValueError:
        return []
    if not isinstance(value, list):
        return []
    sizes = []
    for size in value:
        whole = isinstance(size, list) and all(type(side) is int and 0 < side <= MOST for side in size)
        sizes.append(list(size) if whole and math.prod(size) <= MOST else [])
    return sizes


def _words(text: str | None) -> list[str]:
    try:
        value = json.loads(text) if text else []
    except ValueError:
        return []
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []
