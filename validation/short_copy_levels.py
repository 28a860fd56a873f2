"""What a pinned copy of one byte depends on besides its length: measured on a GPU, written to a file, and shown again.

Run `PYTHONPATH=src python validation/short_copy_levels.py --measure FILE.json` on a GPU (15 s), and without arguments
to print what `results/probe/short-copies-*.json` hold. Each time is that of one copy right after another, as `probe`
takes L+o. By turns, in random order: the same pages again and again; pages of the host's buffer; places within one of
them; pages of the GPU's buffer; pairs of events; streams; processors that submit. Then the same mean over random pages
in one context after another, and in some that live beside each other.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parents[1] / "results" / "probe"
ROOM, PAGE, LINE = 1 << 28, 1 << 12, 64
#: Visits of each level of a factor, and copies of each visit, whose median counts.
VISITS, COPIES = 6, 3
LEVELS, OF_CONTEXT = 48, 150
#: Of all times of a factor, those beyond are disturbed and count as much as this one.
CAP = 0.98


class Copies:
    """Times copies of one byte in one context of a GPU."""

    def __init__(self, board: Any) -> None:
        from busfare.measure.cuda.memory import allocate

        board.enter()
        self.board, self.streams, self.events = board, board.streams(16), board.events(32)
        self.buffers = allocate("pinned", ROOM), allocate("device", ROOM)

    def seconds(self, host: int, device: int, way: str, stream: int = 0, events: int = 0) -> float:
        """The median time of a few copies between two offsets."""
        from busfare.measure.cuda.driver import checked, driver
        from busfare.measure.cuda.events import record, seconds, synchronised

        queue, (start, end) = self.streams[stream], self.events[2 * events : 2 * events + 2]
        at, there = self.buffers[0].address + host, self.buffers[1].address + device
        taken = []
        for _ in range(COPIES):
            self.board.flags.hold(queue)
            for event in (start, end):
                if way == "h2d":
                    checked(driver.cuMemcpyHtoDAsync(there, at, 1, queue), "cuMemcpyHtoDAsync")
                else:
                    checked(driver.cuMemcpyDtoHAsync(at, there, 1, queue), "cuMemcpyDtoHAsync")
                record(event, queue)
            self.board.flags.release()
            synchronised(queue)
            self.board.flags.verify()
            taken.append(seconds(start, end))
        return float(np.median(taken))

    def close(self) -> None:
        for buffer in self.buffers:
            buffer.free()


def _page(drawn: random.Random) -> int:
    """The offset of a page of a buffer."""
    return PAGE * drawn.randrange(ROOM // PAGE)


def factors(drawn: random.Random) -> dict[str, list[dict[str, int]]]:
    """What is varied, and its levels; everything else stays."""
    pages = [_page(drawn) for _ in range(LEVELS)]
    return {
        "nothing": [{}],
        "page of the host": [{"host": page} for page in pages],
        "place in a page of the host": [{"host": pages[0] + LINE * n} for n in range(LEVELS)],
        "page of the GPU": [{"device": page} for page in pages],
        "place in a page of the GPU": [{"device": pages[0] + LINE * n} for n in range(LEVELS)],
        "stream": [{"stream": n} for n in range(16)],
        "events": [{"events": n} for n in range(16)],
        "processor": [{"processor": n} for n in sorted(os.sched_getaffinity(0))[:16]],
    }


def measure(path: Path) -> None:
    """Writes all times to `path`. Raises NoGpuError where there is none."""
    from busfare.measure.cuda import facts
    from busfare.measure.cuda.board import Board
    from busfare.measure.cuda.device import gpu_count

    gpu_count()
    drawn, began = random.Random(1), time.monotonic()
    found: dict[str, Any] = {"date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    machine = facts.of_machine(1)
    found |= {"gpu": machine["gpus"][0]["name"], "driver": machine["driver"], "factors": [], "contexts": []}
    board = Board(0, PAGE)
    copies, everywhere = Copies(board), os.sched_getaffinity(0)
    for way in ("h2d", "d2h"):
        for name, levels in factors(drawn).items():
            each: list[list[float]] = [[] for _ in levels]
            visits = VISITS * (LEVELS if name == "nothing" else 1)
            for n in drawn.sample(list(range(len(levels))) * visits, visits * len(levels)):
                level = {"host": PAGE, "device": PAGE, **levels[n]}
                if "processor" in level:
                    os.sched_setaffinity(0, {level.pop("processor")})
                each[n].append(copies.seconds(way=way, **level))
            os.sched_setaffinity(0, everywhere)
            found["factors"].append({"way": way, "varied": name, "seconds": each})
    copies.close()
    board.close()
    for how in ("one after another", "beside each other"):
        kept = []
        for _ in range(8):
            made = time.monotonic()
            board = Board(0, PAGE, primary=how == "one after another")
            took, copies = time.monotonic() - made, Copies(board)
            for way in ("h2d", "d2h"):
                taken = [copies.seconds(_page(drawn), _page(drawn), way) for _ in range(OF_CONTEXT)]
                found["contexts"].append({"way": way, "how": how, "made_s": round(took, 3), "seconds": taken})
            copies.close()
            if how == "one after another":
                board.close()
            else:
                kept.append(board)
        for board in kept:
            board.close()
    found["took_s"] = round(time.monotonic() - began, 1)
    path.write_text(json.dumps(found) + "\n")


def capped(seconds: Sequence[float]) -> np.ndarray:
    """Microseconds, the largest few of them cut."""
    x = 1e6 * np.asarray(seconds)
    return np.minimum(x, np.quantile(x, CAP))


def show(path: Path) -> None:
    """Prints, for each factor, how much of the scatter it explains, and the levels of all contexts."""
    found = json.loads(path.read_text())
    print(f"{found['gpu']}, driver {found['driver']}, {found['date']}, {path.name}")
    print("  a pinned copy of 1 byte      varied                        median  5 to 95 % of all  explained")
    for factor in found["factors"]:
        groups = factor["seconds"]
        x = capped([s for group in groups for s in group])
        ends = np.cumsum([len(group) for group in groups])[:-1]
        within = np.mean([group.var(ddof=1) for group in np.split(x, ends)])
        total = x.var(ddof=1)
        told = "" if len(groups) == 1 else f"{max(1 - within / total, 0):9.0%}" if total > 0 else "        -"
        low, high = np.quantile(x, [0.05, 0.95])
        print(
            f"    {factor['way']}   {factor['varied']:48s}{np.median(x):.2f} µs     {low:.2f} to {high:.2f}  {told}"
        )
    for way in ("h2d", "d2h"):
        for how in ("one after another", "beside each other"):
            means = [
                capped(c["seconds"]).mean() for c in found["contexts"] if (c["way"], c["how"]) == (way, how)
            ]
            if not means:
                continue
            spread = f"{(max(means) / min(means) - 1):.1%}"
            print(
                f"    {way}   contexts {how}, mean over random pages: {' '.join(f'{m:.2f}' for m in means)} ({spread})"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--measure", type=Path, metavar="FILE", help="measure here, and write all times")
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
    files = options.files or (
        [options.measure] if options.measure else sorted(FOLDER.glob("short-copies-*.json"))
    )
    for path in files:
        show(path)
    if not files:
        print(f"no short-copies-*.json in {FOLDER}: run with --measure FILE on a GPU", file=sys.stderr)
    return 0 if files else 2


if __name__ == "__main__":
    raise SystemExit(main())
