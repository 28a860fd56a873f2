"""How much of its own rate a path keeps while something else moves data: measured, or typical of the GPU's generation; and
what was published of costs that nobody measured on a host.
"""

from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from busfare.nodes.component import Factor, FloatArray, Gpu, Ordinal, Seconds, Sourced
from busfare.nodes.link import C2cLink, Link, NvlinkLink, SocketLink

Rung = Literal["probed", "typical"]


class Shares(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares (0..1] of a path's own one-way rate that remain, into the GPU and out of it. `low` and `high` are the least and
    the most of both that any known machine keeps; None where this one was measured.
    """

    h2d: Factor
    d2h: Factor
    low: Factor | None = None
    high: Factor | None = None

    def of(self, direction: str) -> float:
        """The share of `direction` (h2d or d2h); 1 for any other."""
        return self.h2d if direction == "h2d" else self.d2h if direction == "d2h" else 1.0


_UNDISTURBED = Shares(1.0, 1.0)
#: A kernel that reads and writes as much each way holds all that `mapped_both_start_s` counts.
START_BYTES = 1 << 20


class Contention(Sourced, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shares of its one-way rate that each direction keeps.

    `both`: copies both ways at once. `mapped_both`: a kernel that reads and writes mapped memory.
    `copy_beside_mapped`: copies while a kernel accesses mapped memory the other way. `mapped_beside_copy`: that kernel.
    `mapped`: of the rate of copies, what a kernel alone on mapped memory reaches, where its curve was not measured.
    `mapped_both_start_s`: what a kernel that reads and writes a mebibyte each of mapped memory takes besides: its first
    threads only read, its last ones only write.
    `across_streams`: of the rates that `both` leaves, what is left where each of many streams copies a chunk in, computes
    on it and copies it out; None where nobody measured it.
    """

    both: Shares = _UNDISTURBED
    mapped_both: Shares = _UNDISTURBED
    copy_beside_mapped: Shares = _UNDISTURBED
    mapped_beside_copy: Shares = _UNDISTURBED
    mapped: Shares = _UNDISTURBED
    mapped_both_start_s: Seconds = 0.0
    across_streams: Factor | None = None
    rung: Rung = "probed"
    gpu: Ordinal | None = None

    def in_many_streams(self) -> "Contention":
        """The same where chunks of many streams go both ways at once."""
        kept = self.across_streams or 1.0
        return msgspec.structs.replace(self, both=Shares(self.both.h2d * kept, self.both.d2h * kept))

    def mapped_start(self, reads: ArrayLike, writes: ArrayLike) -> FloatArray:
        """Seconds that a kernel takes longer because its first threads only read its mapped memory and its last ones only
        write: `mapped_both_start_s`, or in proportion where it moves fewer bytes, or fewer one way than the other.
        """
        even, most = np.minimum(reads, writes), np.maximum(reads, writes)
        share = np.minimum(even / START_BYTES, 1.0) * even / np.maximum(most, 1.0)
        return np.asarray(self.mapped_both_start_s * share, np.float64)


class _Typical(Contention, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A row of contention.toml: what holds for GPUs whose compute capability begins with one of `capabilities`."""

    link: str
    capabilities: tuple[str, ...] = ()
    rung: Rung = "typical"


class MemoryShares(msgspec.Struct, frozen=True):
    """Shares of the host memory's peak that several GPUs' copies reach: `read` or `write` alone, `duplex_*` together."""

    read: Factor
    write: Factor
    duplex_read: Factor
    duplex_write: Factor


class Published(msgspec.Struct, frozen=True):
    """The least and the most that was published of what nobody measured on a host, SI; and where."""

    low: float
    high: float
    sources: str


class _Tables(msgspec.Struct, frozen=True):
    """contention.toml."""

    typical: tuple[_Typical, ...]
    memory: MemoryShares
    published: dict[str, Published]


@cache
def _tables() -> _Tables:
    text = files("busfare.nodes").joinpath("contention.toml").read_text(encoding="utf-8")
    return msgspec.toml.decode(text, type=_Tables)


def typical_memory() -> MemoryShares:
    """What copies of several GPUs reach together of host memory that nobody measured."""
    return _tables().memory


def published(what: str) -> Published:
    """What was published of `what`, a table of contention.toml."""
    return _tables().published[what]


def typical(gpu: Gpu, links: tuple[Link, ...]) -> "Contention":
    """What GPUs of this generation keep on links of this kind to the host; else the last row, of that link alone."""
    kind = "pcie"
    if gpu.unified_memory or any(isinstance(link, SocketLink) and gpu.name in link.between for link in links):
        kind = "integrated"
    elif any(isinstance(link, (C2cLink, NvlinkLink)) for link in links):
        kind = "c2c" if any(isinstance(link, C2cLink) for link in links) else "nvlink"
    rows = [row for row in _tables().typical if row.link == kind]
    of_generation = (row for row in rows if (gpu.compute_capability or "").startswith(row.capabilities))
    return next(of_generation, rows[-1])
