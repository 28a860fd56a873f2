"""When programs first use what comes back, and what waiting until then gains: `python validation/first_use.py`.

Programs of `validation/pairs/first_use.toml`, which stamp by themselves how long after each copy they use it. Beside that
what `record --first-use` saw, for every copy that it watched; and the gain of `what-if --wait-at-first-use` beside the one
measured.
Goals: each slack and each speed-up within 10 %. Exit status 1 where one is missed.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
from claims import goal, judge, table
from pairs.table import read_plan
from stored import busfare, unpacked

from busfare.nodes.arrays import FloatArray
from busfare.trace import read

WITHIN_PERCENT = 10.0
RECORDING = "before-first-use"


def slacks(recording: Path, stamped: list[float]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Seconds from the end of each watched copy to its first use, as seen and as the program stamped it; and the stamps of
    the copies that were not watched.
    """
    trace = read(recording)
    uses = trace.first_uses.filter(pl.col("until") == "touched").select("correlation", used_ns="end_ns")
    copies = trace.operations.filter((pl.col("kind") == "copy") & (pl.col("direction") == "d2h")).sort(
        "end_ns"
    )
    place = copies.join(uses, on="correlation", how="semi")["destination_address"].mode()[0]
    copies = copies.filter(pl.col("destination_address") == place).with_row_index("number")
    own = np.array(stamped[-copies.height :])  # the recorded region is the last one
    seen = copies.join(uses, on="correlation", how="inner")
    watched = seen["number"].to_numpy()
    return (
        (seen["used_ns"] - seen["end_ns"]).to_numpy() * 1e-9,
        own[watched],
        np.delete(own, watched),
    )


def main() -> None:
    folder = unpacked("first-use/h100")
    place = folder if (folder / "times.json").exists() else next(folder.glob("*/times.json")).parent
    programs: dict[str, Any] = json.loads((place / "times.json").read_text("utf-8"))["programs"]
    rows, worst = [], 0.0
    for pair in read_plan("first_use.toml").pair:
        ran = programs[pair.program]
        recording = place / f"{pair.program}-{RECORDING}.bf"
        seen, stamped, others = slacks(recording, ran["slack_seconds"][RECORDING])
        before, after = (ran["variants"][name]["median_seconds"] for name in (pair.before, pair.after))
        words = (*pair.options, "--unrecorded", f"{before}s", "--from", str(place / "node.toml"))
        told = busfare("what-if", str(recording), *words)
        predicted = told["baseline"]["replayed_seconds"] / told["predicted_seconds"]
        off = 100 * (seen / stamped - 1)
        worst = max(worst, float(np.abs(off).max()))
        held = read(recording).calls["recorder_ns"].drop_nulls()
        held = held.filter(held > 0) * 1e-6
        slower = 100 * (median(stamped) / median(others) - 1)
        speed_up = before / after
        rows.append(
            (pair.program, len(seen), 1e3 * median(stamped), float(np.median(off)), float(off.max()), slower,
             held.min(), held.max(), speed_up, predicted, 100 * (predicted / speed_up - 1))
        )  # fmt: skip
    table(
        "program|watched:.0f|slack ms:.2f|seen, % off:+.1f|at most:+.1f|host slower, %:+.0f|held ms, least:.2f|most:.2f"
        "|measured ×:.3f|predicted ×:.3f"
        "|% off:+.1f",
        rows,
    )
    goal("first use seen, % off the program's own stamp at most", worst, most=WITHIN_PERCENT, form=".1f")
    most = max(abs(float(row[-1])) for row in rows)
    goal("gain of waiting at first use, % off at most", most, most=WITHIN_PERCENT, form=".1f")


if __name__ == "__main__":
    judge(main)
