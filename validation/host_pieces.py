"""Which fixed piece of the host's work tells how fast Python programs are there.

Run `python validation/host_pieces.py`. Of results/host-pieces, the hosts of an H100 and an H200
(`validation/pieces/measure.py`): what each piece takes, and what programs take beside them, at the quickest moments (the
fastest tenth of the pieces, the fastest region) and in the middle of all; and the H200's over the H100's. Then what an
interpreter takes longer where a large copy has just passed through the caches.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from pieces.work import COLD

FOLDER = Path(__file__).parents[1] / "results" / "host-pieces"
HERE, THERE = "h100", "h200"


def pieces_of(found: dict[str, Any], name: str) -> list[float]:
    return [region[when][name] for region in found["regions"] for when in ("before", "after")]


def regions_of(found: dict[str, Any], program: str) -> list[float]:
    return [region["seconds"] for region in found["regions"] if region["program"] == program]


def quickest(seconds: Sequence[float], one_in: int) -> float:
    return sorted(seconds)[len(seconds) // one_in]


def row(name: str, quick: tuple[float, float], middle: tuple[float, float], unit: float) -> str:
    ratios = [there / here for here, there in (quick, middle)]
    said = "   ".join(f"{unit * here:8.1f} {unit * there:8.1f}  {ratio:5.2f}"
                      for (here, there), ratio in zip((quick, middle), ratios, strict=True))  # fmt: skip
    return f"  {name:24} {said}"


def main() -> int:
    found = [json.loads((FOLDER / f"{kind}.json").read_text()) for kind in (HERE, THERE)]
    for one in found:
        print(f"{one['gpu']}, {one['cpu']}, {one['date']}: {len(one['regions'])} regions")
    print(f"{'':26} quickest: {HERE}, {THERE}, ratio   middle: {HERE}, {THERE}, ratio")
    print("  pieces of work, µs")
    for name in found[0]["regions"][0]["before"]:
        all_ = [pieces_of(one, name) for one in found]
        quick, middle = [quickest(one, 10) for one in all_], [median(one) for one in all_]
        print(row(name, (quick[0], quick[1]), (middle[0], middle[1]), 1e6))
    print("  programs, ms (torch_host, cupy_host: the host alone)")
    for name in dict.fromkeys(region["program"] for region in found[0]["regions"]):
        all_ = [regions_of(one, name) for one in found]
        print(row(name, (min(all_[0]), min(all_[1])), (median(all_[0]), median(all_[1])), 1e3))
    print("  an interpreter's work behind a copy of 8 MiB takes longer by, µs")
    warm = COLD.partition(",")[0]
    for one, kind in zip(found, (HERE, THERE), strict=True):
        quick, middle = (
            read(pieces_of(one, COLD)) - read(pieces_of(one, warm))
            for read in (lambda s: quickest(s, 10), median)
        )
        print(f"    {kind}: {1e6 * quick:.0f} at the quickest moments, {1e6 * middle:.0f} in the middle")
    return 0


if __name__ == "__main__":
    sys.exit(main())
