"""What a kernel does and in which numbers, by its name and the operator that launched it."""

from __future__ import annotations

import re
import tomllib
from functools import cache, lru_cache
from pathlib import Path

__all__ = ["CLASSES", "MEMORY", "class_named", "class_of", "type_named", "type_of"]

#: Classes whose kernels read and write each byte about once: the memory, or a cache, bounds them.
MEMORY = frozenset({"elementwise", "reduction", "softmax", "norm", "copy", "pooling", "optimizer"})
CLASSES = (
    "gemm", "convolution", "attention", "fft", *sorted(MEMORY), "gather", "sort", "random", "communication", "other",
)  # fmt: skip

#: Of a name; those of templates may be megabytes.
MOST_CHARACTERS = 4096
#: Types as traces and people spell them.
_SPELLED = {
    "half": "fp16", "c10::half": "fp16", "float16": "fp16", "f16": "fp16", "fp16": "fp16", "bfloat16": "bf16",
    "c10::bfloat16": "bf16", "bf16": "bf16", "float": "fp32", "float32": "fp32", "f32": "fp32", "fp32": "fp32",
    "single": "fp32", "double": "fp64", "float64": "fp64", "f64": "fp64", "fp64": "fp64", "tf32": "tf32",
    "signed char": "int8", "char": "int8", "int8": "int8", "i8": "int8", "unsigned char": "int8",
    "c10::float8_e4m3fn": "fp8", "c10::float8_e5m2": "fp8", "fp8": "fp8", "f8": "fp8", "e4m3": "fp8", "e5m2": "fp8",
}  # fmt: skip
_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
_ALIASES = {
    "matmul": "gemm", "linear": "gemm", "bmm": "gemm", "mm": "gemm", "conv": "convolution", "layernorm": "norm",
    "rmsnorm": "norm", "layer_norm": "norm", "batchnorm": "norm", "activation": "elementwise", "pointwise": "elementwise",
    "add": "elementwise", "mul": "elementwise", "relu": "elementwise", "gelu": "elementwise", "memory": "elementwise",
    "rope": "elementwise", "stream": "elementwise", "reduce": "reduction", "embedding": "gather", "index": "gather",
    "transpose": "copy", "memcpy": "copy", "copy-like": "copy", "flash": "attention", "flashattention": "attention",
    "nccl": "communication", "unknown": "other", "hand-written": "other", "scan": "reduction", "pool": "pooling",
}  # fmt: skip


@cache
def _patterns() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """The lists of `classes.toml`: what each is of, and any of its patterns."""
    lists = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    flags = {"kernel": re.IGNORECASE}
    return {
        name: [(row["is"], re.compile("|".join(row["matches"]), flags.get(name, 0))) for row in rows]
        for name, rows in lists.items()
    }


def class_named(word: str) -> str | None:
    """The class that people call `word`; None where nobody does."""
    word = word.strip().lower()
    return word if word in CLASSES else _ALIASES.get(word)


@lru_cache(maxsize=65536)
def class_of(name: str, operator: str | None = None) -> str:
    """The class of a kernel by its name, else by its operator; `other` where neither says anything."""
    for what, text in (("kernel", name[:MOST_CHARACTERS]), ("operator", operator or "")):
        kind = next((kind for kind, pattern in _patterns()[what] if pattern.search(text)), None)
        if kind is not None:
            return kind
    return "other"


@lru_cache(maxsize=65536)
def type_of(name: str) -> str | None:
    """The pipeline that a kernel's name speaks of, as the keys of peaks: `fp16_tensor`; None where it says nothing."""
    return next(
        (kind for kind, pattern in _patterns()["pipeline"] if pattern.search(name[:MOST_CHARACTERS])), None
    )


def type_named(word: str, kind: str, tensor: bool = True) -> tuple[str, int] | None:
    """The pipeline and the bytes of an element for numbers that a trace, or people, call `word` in a kernel of class
    `kind`; None where nobody does. Products of matrices in fp16 and below run on tensor pipelines.
    """
    plain = _SPELLED.get(word.strip().lower())
    if plain is None:
        return None
    matrix = kind in ("gemm", "convolution", "attention")
    on_tensor = tensor and matrix and plain not in ("fp32", "fp64")
    return (f"{plain}_tensor" if on_tensor or plain == "tf32" else plain), _BYTES[plain]
