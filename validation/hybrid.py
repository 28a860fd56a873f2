"""NAS FT and MG on GPUs that ranks share: `python validation/hybrid.py [FILE.json …]`.

Reads `results/hybrid/*.json`, raw runs as the programs wrote them, and recomputes every figure: official values reached,
what funneling gains, slabs beside packed slabs, the share of the limit that the model gives, FT's kernels beside cuFFT,
MG's beside copies, the transform on processors beside FFTW-MPI, and what a message and a tiny task cost. Files, or
benchmarks of a file, that are marked as superseded get no verdicts. Exit status 1 where a run missed the official values.

Two shares are printed of MG's iteration. "Of its kernels": of the time that its kernels take one after the other, each
measured alone by `device_limits`; it is judged, because a kernel's time is what our model takes of it (`plan` is given
kernels' times, not their bytes). "By bytes": of the fewest bytes they move, at the copy rate; beside it stands what each
kernel reaches of that rate, which has a goal of its own.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "hybrid" / "run"))
from nas_bench.errors import UsageError
from nas_bench.limit import rates_of_limits
from nas_bench.result import gains, rows_of

FOLDER = Path(__file__).parents[1] / "results" / "hybrid"
BENCHMARKS = ("ft", "mg")
#: The project's goals: funneled over `multiple` and over `multiple-mps`, slabs over packed slabs (times as fast); the
#: share of the limit, MG's stencils of the copy rate (percent at least); FT's kernels over cuFFT's (percent at most);
#: the transform on processors over FFTW-MPI's (times at most).
OVER_MULTIPLE, OVER_MPS, OVER_PACKED = 1.3, 1.0, 1.0
LEAST_SHARE, LEAST_STENCIL, MOST_ABOVE_CUFFT, MOST_OVER_FFTW = 90.0, 80.0, 5.0, 1.10
#: cuFFT's own transform, and ours of the same data.
KERNELS = (("ft_planes", "cufft_planes"), ("ft_lines_contiguous", "cufft_contiguous_lines"))
#: Kernels by variant, in a session whose copy rate the other file has; the variant that was taken, of these.
VARIANTS, VARIANTS_SESSION, TAKEN = "h200-ahead-variants.txt", "h200-four-gpus.json", "prem"
VARIANTS_KERNELS, VARIANTS_GRID = ("rprj", "correct"), "512.512"
#: Variants by turns with what they were compared with; those that were taken, and the kernels before them.
STAGED = "h200-staged-variants.txt"
STAGED_TAKEN = {
    "r4 4 slots u-ahead": "present",
    "ADDS: r4 4 slots u-ahead": "ADDS: present",
    "PSINV staged t4 4 slots, 512 enough": "psinv (24 B a point)",
}
STAGED_ROW = re.compile(r"(\d+)  (.+?) +([\d.]+) us +[\d.]+ least +\d+ GB/s +([\d.]+) % of the copy")
STENCILS = (
    "mg_resid", "mg_psinv", "mg_rprj3", "mg_interp", "mg_interp_resid", "mg_interp_resid_replace", "mg_correct_residual",
    "mg_correct_and_smooth", "mg_correct_and_smooth_replace",
)  # fmt: skip
#: Goals are judged on this class, on these numbers of ranks, on one GPU.
JUDGED_CLASS, JUDGED_RANKS = "C", (4, 8)


def main() -> int:
    paths = [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.json"))
    if not paths:
        print("no results: results/hybrid/ has no *.json; hybrid/README.md says which programs write them")
        return 0
    verified = True
    for path in paths:
        try:
            found = json.loads(path.read_text("utf-8"))
            if not isinstance(found, dict):
                raise UsageError("no JSON object")
            verified &= judge(path, found)
        except (OSError, ValueError, UsageError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 2
        except (KeyError, TypeError) as error:
            print(f"{path}: a key of the results is missing or wrong: {error}", file=sys.stderr)
            return 2
        print()
    if not sys.argv[1:]:
        variants(FOLDER / VARIANTS, FOLDER / VARIANTS_SESSION)
        staged_variants(FOLDER / STAGED)
    return 0 if verified else 1


def judge(path: Path, found: dict[str, Any]) -> bool:
    """Prints one file; whether every run that ended reached the official values."""
    if found.get("schema") == "busfare.hybrid.against_fftw_mpi/1":
        against_fftw(path, found)
        return True
    superseded = found.get("superseded") or []
    old = {benchmark: superseded is True or benchmark in superseded for benchmark in BENCHMARKS}
    where = f"{found['gpu']}, driver {found['driver']}" if found["gpu"] else "processors, no GPU"
    print(f"{path.name}: {where}, {found['date']}, commit {found.get('commit')}")
    print(f"  {found['machine']}{shown_old(old)}")
    limits = found.get("limits")
    rates = rates_of_limits(limits, path.name) if limits else None
    if rates:
        print(
            f"  limit from: {rates.each_way_bytes_per_s / 1e9:.1f} GB/s each way together, "
            f"{rates.memory_bytes_per_s / 1e12:.2f} TB/s copied in GPU memory (measured)"
        )
    verified = True
    for benchmark in BENCHMARKS:
        rows, left_out = rows_of(benchmark, found["runs"], rates)
        if rows or left_out:
            verified &= runs(benchmark, rows, left_out, old[benchmark])
    if limits:
        kernels(limits, old["ft"], old["mg"])
    for run in found["runs"]:
        if (run.get("result") or {}).get("schema") == "busfare.hybrid.communication/1":
            messages(run["result"])
    return verified


def shown_old(old: dict[str, bool]) -> str:
    """Of which benchmarks no verdicts follow."""
    names = [name.upper() for name in BENCHMARKS if old[name]]
    return f"; SUPERSEDED, no verdicts: {', '.join(names)}" if names else ""


def runs(benchmark: str, rows: list[dict[str, Any]], left_out: list[dict[str, str]], old: bool) -> bool:
    """Every run of FT or MG, and the goals on them."""
    print(
        f"  {benchmark.upper()}: class, GPUs, mode, ranks, order; iteration, measured ms | limit by bytes, predicted ms | "
        "share % | of its kernels % | verified"
    )
    for row in rows:
        limit = row["limit"]
        said = (
            f"{1e3 * limit['predicted_seconds']:9.3f} | {row['limit_share_percent']:5.1f}"
            if limit
            else "        – |     –"
        )
        alone = row["alone_share_percent"]
        said += " |     –" if alone is None else f" | {alone:5.1f}"
        variant = " ".join(f"{key}={value}" for key, value in row["variant"].items())
        print(
            f"    {row['class']} {row['gpus']} {row['mode']:12} {row['ranks']:2} {row['algorithm']:12} "
            f"{1e3 * row['measured_iteration_seconds']:9.3f} | {said} | {said_of(row['verified'])}  {variant}"
        )
    for row in left_out:
        print(f"    no result: {row['case']}: {row['why']}")
    compared = [row for row in rows if row["verified"] is not None]
    good = sum(row["verified"] for row in compared)
    # What the measuring script itself cut off says nothing of the program.
    ended = [row for row in left_out if not row["why"].startswith("cut off")]
    print(
        f"    official values: {good} of {len(compared)} runs that were compared, {len(ended)} ended without a "
        f"result (goal: all) {verdict(good == len(compared) and not ended, old)}"
    )
    for gain in gains(rows):
        goal = goal_of(gain)
        times = gain["measured_times_as_fast"]
        judged = f" (goal {goal:g}) {verdict(times >= goal, old)}" if goal else ""
        print(
            f"    class {gain['class']}, {gain['ranks']} ranks, {gain['gpus']} GPUs: {gain['way']} {times:.2f} × "
            f"{gain['over']} (measured){judged}"
        )
    for ranks in JUDGED_RANKS:
        best = fastest(rows, ranks)
        if best is None or not best["limit"]:
            continue
        by = best["limit"]["by"]
        bytes_share, alone = best["limit_share_percent"], best["alone_share_percent"]
        share = bytes_share if alone is None else alone
        of = f"the {by}" if alone is None else "its kernels, each measured alone"
        beside = "" if alone is None else f"; {bytes_share:.1f} % by bytes"
        print(
            f"    class {JUDGED_CLASS}, {ranks} ranks, funneled: {share:.1f} % of the limit, {of} "
            f"(goal {LEAST_SHARE:g}) {verdict(share >= LEAST_SHARE, old)}{beside}"
        )
    return good == len(compared)


def goal_of(gain: dict[str, Any]) -> float | None:
    """What a gain ought to be at least; None where no goal was set."""
    if gain["class"] != JUDGED_CLASS or gain["ranks"] not in JUDGED_RANKS or gain["gpus"] != 1:
        return None
    goals = {"multiple": OVER_MULTIPLE, "multiple-mps": OVER_MPS, "packed slabs, funneled": OVER_PACKED}
    return goals.get(gain["over"])


def fastest(rows: list[dict[str, Any]], ranks: int) -> dict[str, Any] | None:
    """The fastest funneled run on one GPU, with the data moved as it comes."""
    wanted = ("funneled", ranks, JUDGED_CLASS, 1)
    own = [
        r
        for r in rows
        if (r["mode"], r["ranks"], r["class"], r["gpus"]) == wanted and r["algorithm"] != "packed-slabs"
    ]
    return min(own, key=lambda r: float(r["measured_iteration_seconds"]), default=None)


def kernels(limits: dict[str, Any], old: bool, old_mg: bool) -> None:
    """FT's kernels beside cuFFT's own, MG's beside a copy in GPU memory; all measured."""
    for table in ("fft_512_64_planes", "fft_512_4_planes"):
        seconds = {row["name"]: row["seconds"] for row in limits.get(table, ())}
        for own, cufft in KERNELS:
            if own in seconds and cufft in seconds:
                above = 100 * (seconds[own] / seconds[cufft] - 1)
                print(
                    f"  {table} {own}: {1e6 * seconds[own]:.1f} µs, {cufft} {1e6 * seconds[cufft]:.1f} µs, {above:+.1f} % "
                    f"(goal {MOST_ABOVE_CUFFT:g}) {verdict(above <= MOST_ABOVE_CUFFT, old)}"
                )
        others = [name for name in seconds if name not in {n for pair in KERNELS for n in pair}]
        if others:
            print(f"  {table}: " + ", ".join(f"{name} {1e6 * seconds[name]:.1f} µs" for name in others))
    copy = limits["device_copy_bytes_per_second"]
    for table in ("mg_512", "mg_256", "mg_128", "mg_64", "mg_32"):
        as_large = {row["name"]: row["bytes_per_second"] for row in limits.get(table, ())}.get("mg_copy")
        for row in limits.get(table, ()):
            if row["name"] not in STENCILS:
                print(f"  {table} {row['name']}: {1e6 * row['seconds']:.1f} µs")
                continue
            share = 100 * row["bytes_per_second"] / copy
            judged = (
                f" (goal {LEAST_STENCIL:g}) {verdict(share >= LEAST_STENCIL, old_mg)}"
                if table == "mg_512"
                else ""
            )
            of_as_large = (
                f", {100 * row['bytes_per_second'] / as_large:.0f} % of a copy's at that size"
                if as_large
                else ""
            )
            print(
                f"  {table} {row['name']}: {1e6 * row['seconds']:.1f} µs, {share:.1f} % of the copy rate"
                f"{of_as_large}{judged}"
            )


def variants(path: Path, session: Path) -> None:
    """MG's kernels before and as they were chosen, of the copy rate of their session; all measured."""
    if not (path.is_file() and session.is_file()):
        return
    copy = json.loads(session.read_text("utf-8"))["limits"]["device_copy_bytes_per_second"]
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for line in path.read_text("utf-8").splitlines():
        name, _, said = line.partition(" :: ")
        for kernel, rate, us in re.findall(r"(\S+) (\d+) GB/s ([\d.]+) us", said):
            found[name, kernel] = float(rate) * 1e9, float(us)
    print(f"{path.name}: kernels of MG by variant, of {copy / 1e12:.2f} TB/s (measured)")
    for kernel in VARIANTS_KERNELS:
        (before, slow), (rate, fast) = (
            found["new", kernel + VARIANTS_GRID],
            found[TAKEN, kernel + VARIANTS_GRID],
        )
        share = 100 * rate / copy
        print(
            f"  {kernel}: {TAKEN} {fast:.0f} µs, {share:.1f} % of the copy rate (goal {LEAST_STENCIL:g}) "
            f"{verdict(share >= LEAST_STENCIL, False)}; before {slow:.0f} µs, {100 * before / copy:.1f} %"
        )


def staged_variants(path: Path) -> None:
    """MG's stencils with planes staged in shared memory beside the kernels before, by size; all measured."""
    if not path.is_file():
        return
    found = {
        (int(n), name): (float(us), float(share))
        for n, name, us, share in STAGED_ROW.findall(path.read_text("utf-8"))
    }
    print(f"{path.name}: microseconds, and percent of the rate of a copy as large (measured)")
    for n in sorted({n for n, _ in found}, reverse=True):
        for taken, before in STAGED_TAKEN.items():
            (us, share), (us_before, share_before) = found[n, taken], found[n, before]
            print(
                f"  {n}³ {taken}: {us:.1f} µs, {share:.0f} %; before {us_before:.1f} µs, {share_before:.0f} %"
            )


def messages(result: dict[str, Any]) -> None:
    """From GPU to GPU through both hosts, with shared staging memory and with separate buffers; and a tiny task."""
    sizes = {(row["path"], row["bytes"]): row for row in result["by_size"]}
    most = max(row["bytes"] for row in result["by_size"])
    for path in ("device_to_device_shared", "device_to_device_separate"):
        row = sizes.get((path, most))
        if row:
            print(
                f"  {result['mode']}, {path}: {row['flooded_bytes_per_second'] / 1e9:.1f} GB/s in messages of {most} "
                "bytes (measured)"
            )
    for name, seconds in result["tiny_tasks"].items():
        if isinstance(seconds, float):
            each = 1e6 * seconds / result["ranks"]
            print(f"  {result['mode']}, tiny tasks, {name}, counted over all ranks: {each:.1f} µs (measured)")


def against_fftw(path: Path, found: dict[str, Any]) -> None:
    """FT's transform on processors beside FFTW's own distributed one, rounds in turn."""
    ratio = found["median_ratio"]
    print(f"{path.name}: {found['machine']}, {found['mpi']}, {found['date']}; {found['command']}")
    print(
        f"  transform, class {found['class']}, {found['ranks']} ranks: {ratio:.2f} of FFTW-MPI's time, median of "
        f"{len(found['our_seconds'])} rounds (measured; goal at most {MOST_OVER_FFTW:g}) "
        f"{verdict(ratio <= MOST_OVER_FFTW, False)}"
    )


def said_of(verified: bool | None) -> str:
    """In a table."""
    return {True: "yes", False: "NO", None: "–"}[verified]


def verdict(met: bool, old: bool) -> str:
    """Empty for results that newer ones supersede."""
    return "" if old else "met" if met else "MISSED"


if __name__ == "__main__":
    sys.exit(main())
