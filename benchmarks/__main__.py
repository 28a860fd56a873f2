"""Runs every benchmark: `python -m benchmarks`."""

from __future__ import annotations

import sys

from benchmarks import kineto_report, plan, sqlite_columns


def main() -> int:
    return max(benchmark.main([]) for benchmark in (plan, kineto_report, sqlite_columns))


if __name__ == "__main__":
    sys.exit(main())
