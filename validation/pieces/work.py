"""Fixed pieces of the host's work, a millisecond or less each: which of them tells how fast Python programs are?"""

from __future__ import annotations

import ast
import json
import os
import random
import time
import zlib
from collections.abc import Callable

import numpy as np

__all__ = ["PIECES", "seconds_of_all"]

CHECKED = bytes(range(256)) * 64
SOURCE = "\n".join(
    f"def f{n}(a, b=None, *c, **d):\n    for i in range(a + {n}):\n        if i % 3 == {n % 3} and b:\n"
    f"            b[i] = [x * {n} for x in c if x > i]\n        elif d.get('k{n}'):\n            return d['k{n}'].value\n"
    f"    return {{'a': a, 'b': b, 'n{n}': (a, b, {n})}}\n"
    for n in range(8)
)
TREE = {
    "programs": [
        {
            "name": f"program{n}",
            "seconds": [n * 0.5, n + 0.25, None],
            "flags": {"a": True, "b": [n, n + 1]},
            "text": "x" * (n % 17),
        }
        for n in range(120)
    ]
}
TEXT = json.dumps(TREE)
FEW, MANY, OTHERS = np.ones(8), np.ones(1 << 20), np.ones(1 << 20)
TABLE = np.random.default_rng(1).permutation(1 << 19).astype(np.int64)
PLACES = np.random.default_rng(2).integers(0, 1 << 19, 40_000)


class Item:
    """An object of a ring of them, in no order of memory."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.next: Item = self
        self.other = {"n": value}

    def step(self, by: int) -> int:
        return self.value + by if self.value & 1 else self.other["n"] - by


def _ring(count: int) -> Item:
    order = [Item(n) for n in range(count)]
    random.Random(3).shuffle(order)
    for one, two in zip(order, order[1:] + order[:1], strict=True):
        one.next = two
    return order[0]


#: About 0.1, 1.5 and 6 MB.
RINGS = {count: _ring(count) for count in (200, 4_000, 16_000)}


def _walk(count: int) -> None:
    item, total = RINGS[count], 0
    for _ in range(4_000):
        total += item.step(3)
        item = item.next
    RINGS[count] = item


def _checksums() -> None:
    for _ in range(200):
        zlib.crc32(CHECKED)


def _bare_loop() -> None:
    total = 0
    for number in range(20_000):
        total += number & 3


def _kernel_entries() -> None:
    for _ in range(1_500):
        os.getppid()


def _small_arrays() -> None:
    for _ in range(400):
        np.add(FEW, FEW).sum()


def _copy() -> None:
    np.copyto(OTHERS, MANY)


def _compiled() -> None:
    compile(SOURCE, "source", "exec")


PIECES: dict[str, Callable[[], object]] = {
    "checksum of 16 KiB": lambda: zlib.crc32(CHECKED),
    "200 such checksums": _checksums,
    "bare loop": _bare_loop,
    "objects, 0.1 MB": lambda: _walk(200),
    "objects, 1.5 MB": lambda: _walk(4_000),
    "objects, 6 MB": lambda: _walk(16_000),
    "compiling": _compiled,
    "parsing": lambda: ast.parse(SOURCE),
    "reading JSON": lambda: json.loads(TEXT),
    "writing JSON": lambda: json.dumps(TREE),
    "small arrays": _small_arrays,
    "entries to the kernel": _kernel_entries,
    "copying 8 MiB": _copy,
    "gathering from 4 MiB": lambda: TABLE[PLACES].sum(),
}
#: Not done once before: the interpreter where 8 MiB have just passed through the caches.
COLD = "compiling, caches cold"


def _seconds(piece: Callable[[], object]) -> float:
    before = time.perf_counter()
    piece()
    return time.perf_counter() - before


def seconds_of_all() -> dict[str, float]:
    """Seconds of each piece, done right after it was done once."""
    found = {}
    for name, piece in PIECES.items():
        piece()
        found[name] = _seconds(piece)
    _copy()
    return found | {COLD: _seconds(_compiled)}
