"""What a kernel is: class and numbers by its name and operator, and its work by the shapes and types of its inputs."""

import math
import re
import tomllib
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from busfare.trace.columns import decoded_json

#: Classes whose kernels read and write each byte about once: the memory, or a cache, bounds them.
MEMORY = frozenset(
    ["elementwise", "reduction", "softmax", "norm", "copy", "pooling", "optimizer", "activation"]
)
CLASSES = (
    "gemm", "convolution", "attention", "fft", *sorted(MEMORY), "gather", "sort", "random", "communication", "other",
)  # fmt: skip

#: Of a name; those of templates may be megabytes.
MOST_CHARACTERS = 4096
#: People's own code, and some of cuBLAS and cuDNN.
_USER_CODE = re.compile(r"(?:void )?\w+(?:<.*>)?\(.*\)")
#: Operators that are one product: where the left and the right matrix are among the inputs.
_PRODUCTS = {
    "mm": (0, 1), "bmm": (0, 1), "matmul": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "addbmm": (1, 2), "linear": (0, 1),
    "_scaled_mm": (0, 1), "mv": (0, 1), "addmv": (1, 2), "dot": (0, 1), "_addmm_activation": (1, 2), "_int_mm": (0, 1),
}  # fmt: skip
#: Beyond any tensor in any memory.
MOST = 1 << 48


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


@cache
def _patterns() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """The lists of `classes.toml`: what each is of, and any of its patterns."""
    return {
        name: [(row["is"], re.compile("|".join(row["matches"]), flags)) for row in _table()[name]]
        for name, flags in (("kernel", re.IGNORECASE), ("operator", 0), ("pipeline", 0))
    }


@lru_cache(maxsize=65536)
def _first(what: str, text: str) -> str | None:
    """What the first list with a match in `text` is of."""
    return next((kind for kind, pattern in _patterns()[what] if pattern.search(text)), None)


def class_named(word: str) -> str | None:
    """The class that people call `word`; None where nobody does."""
    word = word.strip().lower()
    if word in CLASSES:
        return word
    return next((kind for kind, words in _table()["called"].items() if word in words), None)


def class_of(name: str, operator: str | None = None) -> str:
    """The class of a kernel by its name, else by its operator; `other` where neither says anything."""
    return _first("kernel", name[:MOST_CHARACTERS]) or _first("operator", operator or "") or "other"


def is_user_code(name: str) -> bool:
    """Whether a name is of a function outside any namespace, with its arguments: words in it tell less of its class."""
    return _USER_CODE.fullmatch(name[:MOST_CHARACTERS]) is not None


def type_of(name: str) -> str | None:
    """The pipeline that a kernel's name speaks of, as the keys of peaks: `fp16_tensor`; None where it says nothing."""
    return _first("pipeline", name[:MOST_CHARACTERS])


def type_named(word: str, kind: str) -> tuple[str, int] | None:
    """The pipeline and the bytes of an element for numbers that a trace, or people, call `word` in a kernel of class
    `kind`; None where nobody does. Products of matrices in fp16 and below run on tensor pipelines.
    """
    word = word.strip().lower()
    numbers = _table()["numbers"]
    plain = next((name for name, row in numbers.items() if word in row["spelled"]), None)
    if plain is None:
        return None
    on_tensor = kind in ("gemm", "convolution", "attention") and plain not in ("fp32", "fp64")
    return (f"{plain}_tensor" if on_tensor or plain == "tf32" else plain), numbers[plain]["bytes"]


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
    sizes = [_size(size) for size in decoded_json(shapes, list) or []]
    words = [word for word in decoded_json(types, list) or [] if isinstance(word, str)]
    typed = next((by_word for word in words if (by_word := type_named(word, kind))), None)
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
    if kind == "gather" and name == "embedding" and len(sizes) > 1 and len(sizes[0]) == 2:
        # Rows of the table that are read and written; what says which are small beside them.
        moved = 2.0 * width * sizes[0][1] * math.prod(sizes[1])
        return Work(bytes=moved, pipeline=pipeline, element_bytes=width)
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


def _size(value: Any) -> list[int]:
    """The sides of a tensor; none where no tensor has such."""
    whole = isinstance(value, list) and all(type(side) is int and 0 < side <= MOST for side in value)
    return value if whole and math.prod(value) <= MOST else []
