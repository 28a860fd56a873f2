"""What launching collectives takes the host, and a run without some of those launches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from busfare.timeline import Timeline

Rows = NDArray[np.int64]


def without_launches(run: Timeline, carries: NDArray[np.bool_], gone: Rows) -> Timeline:
    """`run` whose host no longer launches the operations `gone`, of those that carry data between ranks (`carries`, shape
    (operations,)).

    A library records events, checks and prepares around such a launch: all that its thread does since the launch before,
    and until the next, but for what usually lies between two other launches.
    """
    columns = run.columns
    gap, own = columns["call_gap"].copy(), columns["call_own"].copy()
    launched = columns["operation_launched"] != 0
    kind = np.zeros(len(own), np.uint8)  # 1: launches; 2: launches what carries; 3: that no longer
    for value, rows in ((1, launched), (2, launched & carries), (3, gone[launched[gone]])):
        kind[columns["operation_call"][rows]] = value
    start = run.calls["start_ns"].to_numpy()
    end = run.calls["end_ns"].to_numpy()
    thread = columns["call_thread"]
    for number in np.unique(thread[kind == 3]):
        calls = np.flatnonzero(thread == number)
        launches = np.flatnonzero(kind[calls])
        between = [
            start[calls[after]] - end[calls[before]]
            for before, after in pairwise(launches)
            if kind[calls[before]] == kind[calls[after]] == 1
        ]
        usual = int(np.median(between)) if between else 0
        for before, at, after in zip(
            [-1, *launches[:-1]], launches, [*launches[1:], len(calls)], strict=True
        ):
            if kind[calls[at]] != 3:
                continue
            mine = calls[before + 1 : at + 1]
            last = after < len(calls) and kind[calls[after]] == 1
            if last:  # what follows is its own, too
                mine = np.concatenate([mine, calls[at + 1 : after]])
            gap[mine] = own[mine] = 0
            if last:
                gap[calls[after]] = min(gap[calls[after]], usual)
    return run.with_columns(call_gap=gap, call_own=own)
