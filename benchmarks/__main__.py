"""Runs every benchmark: `python -m benchmarks`."""

from __future__ import annotations

import sys

from benchmarks import kineto_report, large_job, many_traces, page, plan, replay, sqlite_columns, trial_calls


def main() -> int:
    benchmarks = (plan, replay, kineto_report, many_traces, large_job, sqlite_columns, page, trial_calls)
    return max(benchmark.main([]) for benchmark in benchmarks)


if __name__ == "__main__":
    sys.exit(main())
