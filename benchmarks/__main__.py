"""Runs every benchmark: `python -m benchmarks`."""

from __future__ import annotations

import sys

from benchmarks import kineto_report, plan, replay


def main() -> int:
    return max(benchmark.main([]) for benchmark in (plan, replay, kineto_report))


if __name__ == "__main__":
    sys.exit(main())
