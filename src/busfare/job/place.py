"""Which rank of a job a trace is of, and which host it was recorded on; unknown stays unknown."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from busfare.trace import Trace

__all__ = ["Place", "place_of"]

#: `rank0.json.gz`, `sampled_rank-12.json`, `rank_3/trace.sqlite`.
RANK_IN_NAME = re.compile(r"(?:^|[^a-zA-Z])rank[-_.=]?(\d{1,9})(?!\d)", re.IGNORECASE)
#: What `torch.profiler.tensorboard_trace_handler` calls its files: HOST_PROCESS.TIME.pt.trace.json.
TORCH_NAME = re.compile(r"^([A-Za-z0-9][A-Za-z0-9.-]{0,252})_\d+\.\d+\.pt\.trace\.json(?:\.gz)?$")
MOST_RANK = 1 << 31
LONGEST_HOST = 253


class Place(msgspec.Struct, frozen=True):
    """`rank_from` and `host_from`: `trace`, `file name`, or None where nothing says it."""

    rank: int | None = None
    rank_from: str | None = None
    host: str | None = None
    host_from: str | None = None


def place_of(trace: Trace, path: Path) -> Place:
    """Rank and host from what the trace itself says; from the names of file and folder as a last resort."""
    rank, host = _rank(trace), trace.host.get("hostname") or None
    rank_from, host_from = "trace", "trace"
    if rank is None:
        rank, rank_from = _rank_in_name(path), "file name"
    if host is None and (named := TORCH_NAME.match(path.name)):
        host, host_from = named[1], "file name"
    return Place(
        rank,
        rank_from if rank is not None else None,
        host[:LONGEST_HOST] if host else None,
        host_from if host else None,
    )


def _rank(trace: Trace) -> int | None:
    said = trace.host.get("rank", "")
    # A trace of several processes has no one rank: the launcher's environment was recorded, not theirs.
    if not (said.isascii() and said.isdigit()) or trace.operations["process"].drop_nulls().n_unique() > 1:
        return None
    rank = int(said[:20])
    return rank if rank < MOST_RANK else None


def _rank_in_name(path: Path) -> int | None:
    for name in (path.name, path.parent.name):
        if found := RANK_IN_NAME.search(name):
            return int(found[1])
    return None
