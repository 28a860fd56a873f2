"""What a trace of a played timeline would say, and the timeline that is found from it alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from busfare.timeline import _core
from tests.timeline.random_columns import Columns

__all__ = ["TIMES", "recorded", "taken_apart"]

TIMES = ("call_start", "call_end", "operation_start", "operation_end")


def recorded(columns: Columns, played: dict[str, Any], classes: int) -> Columns:
    """What a trace of `played` would say."""
    return {name: played[name] for name in TIMES} | {
        "call_class": (np.arange(len(columns["call_own"])) % classes).astype(np.uint8),
        "operation_class": (np.arange(len(columns["operation_call"])) % classes).astype(np.uint8),
        "operation_unit": (np.arange(len(columns["operation_call"])) % classes // 2).astype(np.uint8),
    }


def taken_apart(columns: Columns, trace: Columns) -> Columns:
    """`columns` as they are found from a recording alone: durations, gaps, turns, and what explain makes of the rest."""
    before = np.zeros(len(columns["call_own"]), np.int64)
    last: dict[int, int] = {}
    for call, thread in enumerate(columns["call_thread"].tolist()):
        after = int(columns["call_after"][call])
        before[call] = trace["call_end"][after] if after >= 0 else last.get(thread, 0)
        last[thread] = int(trace["call_end"][call])
    found = columns | {
        "call_gap": trace["call_start"] - before,
        "operation_duration": trace["operation_end"] - trace["operation_start"],
        "operation_turn": trace["operation_start"],
    }
    explained = _core.explain(found, trace)
    return found | {name: explained[name] for name in found if name in explained}
