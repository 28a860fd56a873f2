"""Compares waits and event records noted by callbacks with CUPTI's own of the same calls.

python same_waits.py results/recorder/h200-2026-11-21-callbacks.json
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

STREAM_WAIT_EVENT = 2


def main() -> None:
    results = json.loads(Path(sys.argv[1]).read_text())
    print(results["gpu"], results["date"])
    for name, program in results["programs"]["also"].items():
        if "waits" not in program:
            print(name, program.get("failed"))
            continue
        waits, records = defaultdict(list), defaultdict(list)
        for row in program["waits"]:
            waits[row[1]].append(row)
        for row in program["events"]:
            records[row[0]].append(row)
        twice = [rows for rows in waits.values() if len(rows) == 2]
        alike = sum(a[0] == b[0] and a[3] == b[3] for a, b in twice)
        events = [rows for rows in records.values() if len(rows) == 2]
        same = sum(a[2] == b[2] for a, b in events)
        # CUPTI counts a query of an event among the waits; nothing waits there.
        once = len(waits) - len(twice)
        recorded = {row[4] for rows in records.values() for row in rows}
        found = sum(
            row[5] in recorded for rows in twice for row in rows if row[0] == STREAM_WAIT_EVENT and row[5]
        )
        print(
            f"{name}: {len(twice)} waits both ways, {alike} with one type and stream; {once} of CUPTI's alone; "
            f"{len(events)} event records both ways, {same} with one stream; "
            f"{found} rows of streams' waits name a record that is there"
        )


if __name__ == "__main__":
    main()
