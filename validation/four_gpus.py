"""Four GPUs from what two showed and what data sheets say: `python validation/four_gpus.py`.

`--predict FILE` writes, before anything ran on four: data-parallel jobs from recordings of two ranks (`what-if --ranks 4`),
collectives by NCCL's model of the node, and copies of all GPUs at once by its links. Without it those predictions, as they
were written then, stand beside what was measured. Exit status 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from job_pairs import bare_seconds
from stored import busfare, unpacked

from busfare.node import load_node
from busfare.timeline.at_once import copy_seconds_at_once

RANKS = 4
#: Jobs whose ranks do what those of two did, by the cards that they were recorded on.
DATA_PARALLEL = {
    "jobs-h100-x2": (
        "small-buckets", "behind-backward", "straggler", "one-rank-pageable", "all-ranks-pageable", "little-copied",
        "compressed", "checkpoint", "uneven", "waiting-anyway",
    ),
    "jobs-h200-x2": ("convolutions", "long-buckets", "half-gradients", "accumulated", "long-sentences"),
}  # fmt: skip
NODES = {"jobs-h100-x2": "h100-sxm", "jobs-h200-x2": "h200-sxm"}
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive")
WAYS, COPIED = (("h2d",), ("d2h",), ("h2d", "d2h")), 1 << 28
SIZES = tuple(4**power * 8 for power in range(14))


def predicted() -> dict[str, Any]:
    """Everything, in seconds and bytes per second."""
    jobs: dict[str, Any] = {}
    for archive, names in DATA_PARALLEL.items():
        folder = unpacked(archive)
        for name in names:
            if not (folder / name).exists():
                continue
            bare = bare_seconds(archive, name, "before")
            words = ("--ranks", str(RANKS), "--from", NODES[archive], "--unrecorded", f"{bare}s")
            told = busfare("what-if", str(folder / name), *words)
            jobs[name] = {
                "from": archive, "two_seconds": bare, "seconds": told["predicted_seconds"],
                "range_seconds": told["range_seconds"],
            }  # fmt: skip
    collectives = {
        kind: [_collective(kind, size) for size in SIZES if size >= 4 * RANKS] for kind in COLLECTIVES
    }
    copies = {f"{'+'.join(ways)} {gpus}": _copies(ways, gpus) for ways in WAYS for gpus in (1, 2, RANKS)}
    return {"ranks": RANKS, "jobs": jobs, "collectives": collectives, "copies": copies}


def _copies(ways: tuple[str, ...], gpus: int) -> float:
    """Bytes per second of each copy of COPIED bytes."""
    flows = [(way, gpu) for gpu in range(gpus) for way in ways]
    return COPIED / float(copy_seconds_at_once(load_node("h100-sxm"), flows, COPIED).max())


def _collective(kind: str, size: int) -> list[Any]:
    told = busfare(
        "price", "--node", "h100-sxm", "--collective", kind, "--ranks", str(RANKS), "--bytes", str(size)
    )
    price = next(one for one in told["prices"] if one["model"] == "nccl")
    return [size, price["seconds"], price["low_seconds"], price["high_seconds"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--predict", type=Path, metavar="FILE", help="instead: write what is predicted to FILE"
    )
    options = parser.parse_args()
    if options.predict:
        options.predict.write_text(json.dumps(predicted(), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
