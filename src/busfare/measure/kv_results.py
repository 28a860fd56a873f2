"""What `bench kv` returns: the JSON is the Struct; keys in docs/json.md. Seconds, bytes; None is 'not known'."""

from __future__ import annotations

from msgspec import Struct

from busfare.measure.results import Benched, Beside, BestMethod, Ranking
from busfare.plan.offload.kv import Layout

__all__ = ["HostAlone", "KvBenchResult", "KvCell", "KvErrors", "KvMeasured"]


class KvMeasured(Beside, kw_only=True):
    """A layout, until all is there by the host's clock; `measured_calls_seconds` of it until the last call has returned.
    `device_…`: on the GPU alone, with all submitted before it began, where that can be.
    """

    layout: Layout
    measured_seconds: float
    samples_seconds: tuple[float, ...]
    measured_calls_seconds: float
    measured_device_seconds: float | None
    device_samples_seconds: tuple[float, ...]
    predicted_device_seconds: float | None
    device_error_percent: float | None


class KvCell(Struct, kw_only=True):
    """Pieces of one size, fetched in every layout, the fastest first. `best`: of those that a paged cache can have."""

    piece_bytes: int
    fetched_bytes: int
    evicted_bytes: int
    layouts: list[KvMeasured]
    ranking: Ranking
    best: BestMethod


class HostAlone(Struct):
    """What the program's own host code takes, by itself: a call in a train of short copies, and what one core packs."""

    measured_call_seconds: float
    measured_pack_bytes_per_second: float


class KvErrors(Struct):
    """Of all layouts of all cells: percent of what was measured; how many of them lie in their range, in percent; and in how
    many cells no two layouts were predicted the wrong way round, and the fastest one was picked.
    """

    count: int
    median_percent: float
    ninetieth_percent: float
    largest_percent: float
    inside_percent: float | None
    ranked_right: int
    picked: int


class KvBenchResult(Benched, tag_field="schema", tag="busfare.bench-kv/1", kw_only=True):
    cells: list[KvCell]
    errors: KvErrors
    host: HostAlone | None = None
