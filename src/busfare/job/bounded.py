"""Collections of bounded size that merge to the same whatever the order: the memory of a job's reducer is made of these.

Each is a commutative and associative merge of its parts, so any number of workers may deliver in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, Generic, TypeVar

__all__ = ["Least", "Sampled"]

V = TypeVar("V")
HASHES = 1 << 64


def _hash(key: str) -> int:
    return int.from_bytes(blake2b(key.encode("utf-8", "backslashreplace"), digest_size=8).digest())


class Sampled(Generic[V]):
    """A mapping of at most `most` keys: all of them, or those whose hashes are the least.

    A key of the final sample was in every sample on the way, so its value lacks nothing. That is the k-minimum-values
    sketch [Bar-Yossef et al. 2002], whose largest hash also tells how many keys there were.
    """

    def __init__(self, most: int, join: Callable[[V, V], V]) -> None:
        self._most = most
        self._join = join
        self._kept: dict[str, tuple[int, V]] = {}
        self._full = False
        self._largest = HASHES

    def add(self, key: str, value: V) -> None:
        """Joins `value` to what stands under `key`."""
        self._put(key, _hash(key), value)

    def merge(self, other: Sampled[V]) -> None:
        """Takes in all of `other`, which may have been full."""
        if other._full:
            self._full = True
            self._largest = min(self._largest, other._largest)
        for key, (number, value) in other._kept.items():
            self._put(key, number, value)
        self._drop()

    def _put(self, key: str, number: int, value: V) -> None:
        held = self._kept.get(key)
        if held is not None:
            self._kept[key] = (number, self._join(held[1], value))
        elif number <= self._largest:
            self._kept[key] = (number, value)
            if len(self._kept) > self._most + self._most // 8:
                self._drop()

    def _drop(self) -> None:
        if len(self._kept) > self._most:
            self._full = True
            order = sorted(self._kept, key=lambda key: self._kept[key][0])
            self._kept = {key: self._kept[key] for key in order[: self._most]}
            self._largest = min(self._largest, self._kept[order[self._most - 1]][0])

    def items(self) -> Iterator[tuple[str, V]]:
        """Keys and values, sorted by key."""
        self._drop()
        return ((key, self._kept[key][1]) for key in sorted(self._kept))

    def values(self) -> Iterator[V]:
        """The values, sorted by key."""
        return (value for _, value in self.items())

    @property
    def complete(self) -> bool:
        """Whether every key that was ever added is in it."""
        self._drop()
        return not self._full

    def count(self) -> int:
        """How many different keys were added: exact while complete, otherwise an estimate."""
        if self.complete:
            return len(self._kept)
        return round((len(self._kept) - 1) * HASHES / max(number for number, _ in self._kept.values()))


class Least(Generic[V]):
    """The `most` least of all values by `key`, which must tell any two apart."""

    def __init__(self, most: int, key: Callable[[V], Any]) -> None:
        self._most = most
        self._key = key
        self._kept: list[V] = []

    def add(self, value: V) -> None:
        self._kept.append(value)
        if len(self._kept) > 2 * self._most:
            self._drop()

    def merge(self, other: Least[V]) -> None:
        for value in other._kept:
            self.add(value)

    def _drop(self) -> None:
        self._kept = sorted(self._kept, key=self._key)[: self._most]

    def __iter__(self) -> Iterator[V]:
        """The values, least first."""
        self._drop()
        return iter(self._kept)
