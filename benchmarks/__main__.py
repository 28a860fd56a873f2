"""Runs every benchmark: `python -m benchmarks`."""

from __future__ import annotations

import sys

from benchmarks import kineto_report


def main() -> int:
    return kineto_report.main()


if __name__ == "__main__":
    sys.exit(main())
