"""What a kernel does and in which numbers, by its name and the operator that launched it."""

from __future__ import annotations

import re
import tomllib
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

__all__ = ["CLASSES", "MEMORY", "class_named", "class_of", "type_named", "type_of"]

#: Classes whose kernels read and write each byte about once: the memory, or a cache, bounds them.
MEMORY = frozenset({"elementwise", "reduction", "softmax", "norm", "copy", "pooling", "optimizer"})
CLASSES = (
    "gemm", "convolution", "attention", "fft", *sorted(MEMORY), "gather", "sort", "random", "communication", "other",
)  # fmt: skip

#: Of a name; those of templates may be megabytes.
MOST_CHARACTERS = 4096


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


def type_of(name: str) -> str | None:
    """The pipeline that a kernel's name speaks of, as the keys of peaks: `fp16_tensor`; None where it says nothing."""
    return _first("pipeline", name[:MOST_CHARACTERS])


@cache
def _spelled() -> dict[str, tuple[str, int]]:
    """The numbers that a word is for, and their bytes."""
    return {
        word: (kind, row["bytes"]) for kind, row in _table()["numbers"].items() for word in row["spelled"]
    }


def type_named(word: str, kind: str) -> tuple[str, int] | None:
    """The pipeline and the bytes of an element for numbers that a trace, or people, call `word` in a kernel of class
    `kind`; None where nobody does. Products of matrices in fp16 and below run on tensor pipelines.
    """
    found = _spelled().get(word.strip().lower())
    if found is None:
        return None
    plain, width = found
    matrix = kind in ("gemm", "convolution", "attention")
    on_tensor = matrix and plain not in ("fp32", "fp64")
    return (f"{plain}_tensor" if on_tensor or plain == "tf32" else plain), width
