"""Which kernels take less time on a GPU with more memory bandwidth, and whether a recording says so beforehand.

Run `python validation/kernels_there.py`. Of each program's kernels (by name and number of blocks; results/pairs and
results/pairs-machines) that hold a hundredth of all kernel time: what they take on an H100 and on an H200, means over the
machines of each kind, and how long one multiprocessor works on a block, which is what a recording tells of how little a
kernel computes. Those that memory holds up would take 0.70 of their time, by the two GPUs' bandwidths.
"""

from __future__ import annotations

import sys

import polars as pl
from node_change import OTHERS
from pairs.judged import NoAnswerError
from pairs.table import read_plan
from replay_pairs import FOLDER, machines_in

from busfare.trace import read

#: An H100 and an H200 have as many.
MULTIPROCESSORS = 132
LISTED = 0.01


def kernels_of(programs: list[str]) -> pl.DataFrame:
    """program, name, blocks, kind of GPU, machine, seconds of one, and of all."""
    tables = []
    machines = [m for folder in (FOLDER, OTHERS[0]) for m in machines_in(folder).values()]
    for machine in machines:
        for program in programs:
            try:
                operations = read(machine.recording(program, "before")).operations
            except NoAnswerError:
                continue
            took = (pl.col("end_ns") - pl.col("start_ns")) * 1e-9
            tables.append(
                operations.filter(pl.col("kind") == "kernel")
                .group_by(pl.col("name").cast(pl.String), "blocks")
                .agg(seconds=took.mean(), together=took.sum())
                .with_columns(program=pl.lit(program), kind=pl.lit(machine.kind))
            )
    return pl.concat(tables)


def ratios(kernels: pl.DataFrame, here: str, there: str) -> pl.DataFrame:
    """program, name, blocks, seconds on `here` and `there`, together (all of them on `here`), ratio."""
    like = ["program", "name", "blocks"]
    mean = kernels.group_by(*like, "kind").agg(pl.col("seconds", "together").mean())
    one, other = (mean.filter(pl.col("kind") == kind).drop("kind") for kind in (here, there))
    both = one.join(other.select(*like, there="seconds"), on=like)
    return both.with_columns(ratio=pl.col("there") / pl.col("seconds")).sort("ratio")


def main() -> int:
    found = ratios(kernels_of(list(read_plan().programs)), "h100", "h200")
    every = float(found["together"].sum())
    print("  program              blocks  µs on H100   H200  ratio  µs a block  share  kernel")
    for row in found.filter(pl.col("together") >= LISTED * every).iter_rows(named=True):
        block = row["seconds"] * MULTIPROCESSORS / row["blocks"]
        print(
            f"  {row['program']:18} {row['blocks']:8,} {1e6 * row['seconds']:11.1f} {1e6 * row['there']:7.1f}"
            f" {row['ratio']:6.2f} {1e6 * block:11.3f} {100 * row['together'] / every:5.1f} %  {row['name'][:48]}"
        )
    kept = float((found["together"] * (1 - found["ratio"]).abs()).sum()) / every
    print(f"  kernels that keep their times on the H200 are {100 * kept:.1f} % off, weighted by time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
