"""Prints the figures of a results file of measure.py: `summary.py results.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median


def main() -> None:
    results = json.loads(Path(sys.argv[1]).read_text())
    print(results["gpu"], results["date"])
    for name, row in results.get("programs", {}).items():
        if not isinstance(row, dict):
            print("programs:", row)
            continue
        print(name, "all equal:", row.get("all_equal"), row.get("equal", ""), row.get("known"), row.get("seen", row),
              "nested", row.get("nested_driver_calls"), "addressed", row.get("copies_with_addresses"),
              row.get("managed", ""), row.get("stderr", "")[-200:])  # fmt: skip
    for name, row in results.get("loops", {}).items():
        if isinstance(row, dict):
            print(name, {key: value for key, value in row.items() if key != "samples_ns"})
        else:
            print(name, row)
    for name, row in results.get("torch", {}).items():
        if not isinstance(row, dict):
            print("torch:", row)
            continue
        for kind, runs in row.items():
            for run in runs:
                medians = {
                    key.removesuffix("_seconds_a_step"): round(median(value) * 1e6, 1)
                    for key, value in run.items()
                    if key.endswith("seconds_a_step") and isinstance(value, list)
                }
                copies = (run.get("batch_copies_seen", ""), run.get("exact_batch_copies"))
                print(name, kind, "us a step:", medians, "losses", run.get("seen", {}).get("losses"), *copies)
    print("ten million:", results.get("ten_million"))
    for name, row in results.get("faults", {}).items():
        print(name, row)


if __name__ == "__main__":
    main()
