"""Runs every benchmark: `python -m benchmarks`."""

from __future__ import annotations

import sys

from benchmarks import kineto_report, many_traces, plan, sqlite_columns


def main() -> int:
    return max(benchmark.main([]) for benchmark in (plan, kineto_report, many_traces, sqlite_columns))


if __name__ == "__main__":
    sys.exit(main())
