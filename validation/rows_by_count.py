"""What each of many copies at once adds to its bytes, by the number of streams: why `probe` has the rows that it has.

Run `PYTHONPATH=src python validation/rows_by_count.py --measure FILE.json` on a GPU (5 s), and without arguments to print
what `results/probe/rows-by-count-*.json` hold: for each way, size and number of streams, seconds of the whole row over that
number, less the bytes at the link's pace; the mean of the quicker half of eight visits, in random order, each on pages of
its own. Then how much longer chunks of no whole pages take beside what their neighbours of whole pages say.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from busfare.measure.case import Case
from busfare.measure.middle import quicker

FOLDER = Path(__file__).parents[1] / "results" / "probe"
COUNTS = (96, 112, 128, 136, 144, 160, 176, 192, 200, 208, 224, 240, 256)
SIZES = (32768, 49152, 50000, 65536, 98304, 100000, 131072, 196608)
#: Into the GPU two sizes suffice: there the number of streams makes no difference.
SIZES_IN = (49152, 98304)
#: Each chunk of no whole pages, and those of whole pages on both sides of it.
BETWEEN = {50000: (49152, 65536), 100000: (98304, 131072)}
VISITS, REPEATS = 8, 2


def measure(path: Path) -> None:
    """Writes all times to `path`. Raises NoGpuError where there is none."""
    from busfare.measure.cuda.device import open_cuda

    device, drawn = open_cuda(), random.Random(2)
    cases = [Case("d2h", "pinned", "streams", size, count, 0) for count in COUNTS for size in SIZES]
    cases += [Case("h2d", "pinned", "streams", size, count, 0) for count in COUNTS for size in SIZES_IN]
    seconds: dict[Case, list[float]] = {case: [] for case in cases}
    for _ in range(VISITS):
        for case in drawn.sample(cases, len(cases)):
            # The first sample finds address translation as the case before left it.
            seconds[case] += device.run(case, REPEATS).device_s[1:]
    link = quicker(device.run(Case("d2h", "pinned", "copies", 1 << 28, 1, 0), VISITS).device_s)
    facts = device.facts()
    device.close()
    found = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": facts["gpus"][0]["name"],
        "driver": facts["driver"],
        "link_bytes_per_second": (1 << 28) / link,
        "rows": [[c.direction, c.count, c.bytes, taken] for c, taken in seconds.items()],
    }
    path.write_text(json.dumps(found, separators=(",", ":")) + "\n")


def added(found: dict[str, Any], way: str) -> dict[tuple[int, int], float]:
    """By bytes and number of streams: what each copy adds to its bytes at the link's pace, seconds."""
    rows = [row for row in found["rows"] if row[0] == way]
    return {(b, n): quicker(taken) / n - b / found["link_bytes_per_second"] for _, n, b, taken in rows}


def unaligned(found: dict[str, Any], size: int, counts: Sequence[int]) -> float:
    """Percent by which copies out of `size` bytes take longer than those of whole pages, along a line between these."""
    told = added(found, "d2h")
    low, high = BETWEEN[size]
    own = [told[size, n] + size / found["link_bytes_per_second"] for n in counts]
    line = [
        np.interp(size, (low, high), [told[b, n] + b / found["link_bytes_per_second"] for b in (low, high)])
        for n in counts
    ]
    return float(100 * (np.sum(own) / np.sum(line) - 1))


def show(path: Path) -> None:
    found = json.loads(path.read_text())
    print(f"{found['gpu']}, driver {found['driver']}, {found['date']}, {path.name}")
    for way in ("d2h", "h2d"):
        told = added(found, way)
        counts = sorted({n for _, n in told})
        print(f"  {way}, ns that each copy adds, by bytes and streams")
        print("   " + " " * 8 + "".join(f"{n:6d}" for n in counts))
        for size in sorted({b for b, _ in told}):
            print(f"   {size:8d}" + "".join(f"{1e9 * told[size, n]:6.0f}" for n in counts))
    for size in BETWEEN:
        few, many = ([n for n in COUNTS if (n > 176) == beyond] for beyond in (False, True))
        print(
            f"  {size} bytes out beside chunks of whole pages: up to 176 streams"
            f" {unaligned(found, size, few):+.1f} %, beyond {unaligned(found, size, many):+.1f} %"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--measure", type=Path, metavar="FILE", help="measure here, and write all times")
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
    files = [options.measure] if options.measure else sorted(FOLDER.glob("rows-by-count-*.json"))
    for path in files:
        show(path)
    if not files:
        print(f"no rows-by-count-*.json in {FOLDER}: run with --measure FILE on a GPU", file=sys.stderr)
    return 0 if files else 2


if __name__ == "__main__":
    raise SystemExit(main())
