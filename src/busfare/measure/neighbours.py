"""What a GPU's place on the host does to its copies: other GPUs that copy too, and processors that are not next to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from busfare.measure.host import processors
from busfare.measure.middle import middle
from busfare.measure.raw import Record

__all__ = ["Neighbour", "apart", "neighbours"]


@dataclass(frozen=True)
class Neighbour:
    """Bytes per second of copies as they are, and beside those of GPU `peer`, or, where there is none, by a processor
    that is bound to those next to the GPU. `both_ways`: all of them go both ways.
    """

    gpu: int
    peer: int | None
    direction: str
    memory: str
    bytes: int
    alone_bytes_per_s: float
    bytes_per_s: float
    both_ways: bool = False


def apart(facts: dict[str, Any], gpu: int) -> bool:
    """Whether some processors of the machine are next to a GPU and others are not."""
    near = processors(facts["gpus"][gpu].get("local_cpus"))
    return (facts.get("numa_nodes") or 1) > 1 and 0 < len(near) < (facts.get("cores") or 0)


def neighbours(record: Record) -> list[Neighbour]:
    """Every such case beside the same copy with nobody near, in the order of the record."""
    found = []
    for m in record.measurements:
        case = m.case
        if case.mode not in ("beside-gpu", "both-beside-gpu", "bound"):
            continue
        both_ways = case.mode == "both-beside-gpu"
        alike = (
            replace(case, mode="both", peer=None)
            if both_ways
            else replace(case, mode="copies", count=1, peer=None)
        )
        alone = record.of(alike)
        if alone is not None:
            rates = (alike.total_bytes / middle(alone.seconds), case.total_bytes / middle(m.seconds))
            path = (case.gpu, case.peer, case.direction, case.memory, case.bytes)
            found.append(Neighbour(*path, *rates, both_ways))
    return found
