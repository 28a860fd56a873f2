"""What a kernel's name says of the arrays among its arguments: the bytes of one element of each."""

from __future__ import annotations

import math
import re
from functools import lru_cache

import numpy as np

from busfare.cost.kernels.classes import MOST_CHARACTERS

__all__ = ["array_bytes"]

#: Numbers as C++ and CUDA spell them.
_BYTES = {
    "bool": 1, "char": 1, "signed char": 1, "unsigned char": 1, "short": 2, "unsigned short": 2, "int": 4, "unsigned int": 4,
    "unsigned": 4, "long": 8, "unsigned long": 8, "long long": 8, "unsigned long long": 8, "float": 4, "double": 8,
    "__half": 2, "half": 2, "__half2": 4, "__nv_bfloat16": 2, "__nv_bfloat162": 4, "c10::Half": 2, "c10::BFloat16": 2,
    "cuComplex": 8, "cuDoubleComplex": 16,
}  # fmt: skip
_VECTOR = re.compile(r"u?(char|short|int|longlong|long|float|double)([1-4])")
_COMPLEX = re.compile(r"(?:\w+::)*complex<(float|double)>")
_QUALIFIER = re.compile(r"\b(?:const|volatile|__restrict__|__restrict)\b")
#: CuPy names a kernel by what it does and NumPy's types of its arrays; `float` and `int` are numbers of Python.
_CUPY = re.compile(r"cupy_\w+?__(\w+)")
_CUPY_BYTES = {
    np.dtype(code).name: np.dtype(code).itemsize for code in "?" + np.typecodes["AllInteger"] + "efdFD"
}
_CUPY_BYTES |= {"float": 0, "int": 0}


@lru_cache(maxsize=65536)
def array_bytes(name: str) -> float:
    """The bytes of one element of every array among the arguments of a kernel; NaN where its name does not say them."""
    if len(name) > MOST_CHARACTERS:
        return math.nan
    typed = _CUPY.fullmatch(name)
    if typed:
        sizes = [_CUPY_BYTES.get(word, math.nan) for word in typed[1].split("_")]
    else:
        plain = (_QUALIFIER.sub("", argument).strip() for argument in _arguments(name))
        sizes = [_element_bytes(" ".join(each[:-1].split())) for each in plain if each.endswith("*")]
    return float(sum(sizes)) or math.nan


def _arguments(name: str) -> list[str]:
    """The arguments of a readable C++ name, the last first; none where it has none."""
    depth = 0
    arguments: list[str] = []
    letters: list[str] = []
    # From the end: templates before the arguments have brackets, too.
    for letter in reversed(name):
        closes, opens = letter in ")>]}", letter in "(<[{"
        if depth == 0 and letter != ")":
            break
        depth += closes - opens
        if depth == 0 or (depth == 1 and letter == ","):
            arguments.append("".join(reversed(letters)))
            letters = []
            if depth == 0:
                return arguments
        elif depth > 1 or not closes:
            letters.append(letter)
    return []


def _element_bytes(kind: str) -> float:
    """The bytes of a number or vector of such a type; NaN where they are not known."""
    if kind in _BYTES:
        return _BYTES[kind]
    vector, pair = _VECTOR.fullmatch(kind), _COMPLEX.fullmatch(kind)
    if vector:
        return _BYTES[vector[1].replace("longlong", "long")] * int(vector[2])
    return 2 * _BYTES[pair[1]] if pair else math.nan
