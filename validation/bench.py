"""Benchmarks on real GPUs beside what `plan` predicted: `python validation/bench.py [--plots FOLDER] [FILE.json …]`.

Reads `results/bench/*.json`, as `busfare bench methods --json` and `busfare bench strategies --json` wrote them, and
recomputes every error, pick and limit from the measured and predicted seconds in them. Without results it says so and
claims nothing. `--plots` draws them into a folder, for the guide. Exit status 1 where a strategy or method that was
predicted to be the fastest costs more than the goal, or a ranking is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from busfare.errors import InputError

FOLDER = Path(__file__).parents[1] / "results" / "bench"
#: The project's goals: largest error of a strategy at its best (W14 published 10.75), what following a prediction may
#: cost where another was measured faster, the streams version's share of the limit, all in percent; and two factors.
MOST_ERROR, MOST_COST, LEAST_SHARE = 5.0, 2.0, 95.0
STREAMS_FACTOR, CROSSOVER_FACTOR = 2.0, 1.5
#: Both ways to submit the streams version are judged.
STREAMED = ("streams", "three-streams")
W14 = ("explicit", "mapped", *STREAMED, "hybrid")


def main() -> int:
    parser = argparse.ArgumentParser(description="predicted beside measured, from results of bench")
    parser.add_argument("files", nargs="*", type=Path, help="results; else those of results/bench/")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw them as SVG into this folder")
    options = parser.parse_args()
    paths = options.files or sorted(FOLDER.glob("*.json"))
    if not paths:
        print("no results: results/bench/ has no *.json yet; docs/bench.md says which commands write them")
        return 0
    met = True
    for path in paths:
        try:
            result = read(path)
            met &= judge(result)
            if options.plots:
                from bench_plots import draw

                print(f"  drawn: {draw(result, path, options.plots)}")
        except (InputError, OSError) as error:
            print(error, file=sys.stderr)
            return 2
        except (KeyError, TypeError) as error:
            print(f"{path}: a key of bench's results is missing or wrong: {error}", file=sys.stderr)
            return 2
        print()
    return 0 if met else 1


def read(path: Path) -> dict[str, Any]:
    """A result. Raises InputError where the file is none of the two."""
    try:
        found = json.loads(path.read_text("utf-8"))
        kind = found["schema"]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: no result of bench ({type(error).__name__})") from None
    if kind not in ("busfare.bench-strategies/1", "busfare.bench-methods/1"):
        raise InputError(f"{path}: schema {kind!r}; give a result of bench")
    return dict(found)


def judge(result: dict[str, Any]) -> bool:
    """Prints one result; whether its picks held."""
    label = "VIRTUAL, nothing measured: " if result["virtual"] else ""
    print(f"{label}{result['gpu']}, driver {result['driver']}, {result['date']}")
    print(f"  {result['command']}; predicted by {result['node']['name']} ({result['node']['source']})")
    for sentence in result["disturbances"]:
        print(f"  disturbed: {sentence}")
    for row in result["left_out"]:
        print(f"  left out: {row['case']}: {row['why']}")
    return strategies(result["cells"]) if "strategies" in result["schema"] else methods(result)


def strategies(cells: list[dict[str, Any]]) -> bool:
    """Every cell: each strategy at its fastest, the pick, the number of streams, and the limit."""
    if not cells:
        print("  no cell was measured")
        return False
    met, errors, picked = True, [], 0
    head = "  cell                             strategy  streams | measured ms | predicted ms | error %"
    print(head)
    for cell in cells:
        for strategy in W14:
            best = fastest(cell, (strategy,))
            if best is None or best["predicted_seconds"] is None:
                print(f"  {cell['name']:32} {strategy:9} not measured")
                continue
            errors.append(error(best))
            print(
                f"  {cell['name']:32} {strategy:9} {best['streams']:7} | {1e3 * best['measured_seconds']:11.3f} | "
                f"{1e3 * best['predicted_seconds']:12.3f} | {errors[-1]:+7.2f}"
            )
        right, cost = pick(cell)
        picked += right
        met &= cost is not None and cost <= MOST_COST
    absolute = [abs(e) for e in errors]
    print(
        f"  errors of strategies at their fastest: median {median(absolute):.2f} %, largest {max(absolute):.2f} % "
        f"(goal {MOST_ERROR:g}) {verdict(max(absolute) <= MOST_ERROR)}"
    )
    print(f"  best picked in {picked} of {len(cells)} cells (goal: all) {verdict(picked == len(cells))}")
    return met


def pick(cell: dict[str, Any]) -> tuple[bool, float | None]:
    """Prints whether the strategy that was predicted to be the fastest is the fastest measured; and what it costs."""
    best, planned = fastest(cell, W14), cell["best"]["predicted"]
    assert best is not None
    taken = version(cell, planned["strategy"], planned["streams"])
    cost = None if taken is None else 100 * (taken["measured_seconds"] / best["measured_seconds"] - 1)
    same = {planned["strategy"], best["strategy"]}
    right = len(same) == 1 or same == {*STREAMED} or (taken is not None and overlap(taken, best))
    said = "not measured" if cost is None else f"costs {cost:.2f} % (measured)"
    print(
        f"    best measured {best['strategy']} ({best['streams']}), predicted {planned['strategy']} "
        f"({planned['streams']}): {verdict(right)}, {said}"
    )
    streams = fastest(cell, ("streams",))
    number = cell["streams"]["predicted_best"]
    at = version(cell, "streams", number)
    if streams is not None and at is not None:
        factor = max(streams["streams"] / number, number / streams["streams"])
        more = 100 * (at["measured_seconds"] / streams["measured_seconds"] - 1)
        print(
            f"    streams: predicted {number}, measured {streams['streams']}, a factor of {factor:.2f} (goal "
            f"{STREAMS_FACTOR:g}) {verdict(factor <= STREAMS_FACTOR)}; at the predicted number {more:.2f} % above the "
            f"best (goal {MOST_COST:g}) {verdict(more <= MOST_COST)}"
        )
    for name in STREAMED:
        found = fastest(cell, (name,))
        if found is not None:
            limit = max(cell["measured_link_seconds"], cell["measured_kernel_seconds"])
            share = 100 * limit / found["measured_seconds"]
            goal = (
                f" (goal {LEAST_SHARE:g}) {verdict(share >= LEAST_SHARE)}"
                if cell["kernel"] == "state"
                else ""
            )
            print(
                f"    {name} reach {share:.1f} % of the limit, the slower of link and kernel (measured){goal}"
            )
    return right, cost


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two measurements' intervals overlap: nothing says then which one is faster."""
    try:
        (low, high), (lower, higher) = (v["measured_interval_seconds"] for v in (one, other))
    except KeyError:
        return False
    return bool(low <= higher and lower <= high)


def methods(result: dict[str, Any]) -> bool:
    """Every case: the methods by time, the ranking, the pick, and the crossover."""
    met, errors, picked, ranked = True, [], 0, 0
    # The processor's part is measured on both sides, and would only hide errors: copies and kernel are compared.
    print(
        "  ints, accesses      method           | copies and kernel, ms: measured | predicted | error % | whole, ± %"
    )
    for cell in result["cells"]:
        rows = sorted(cell["methods"], key=lambda m: float(m["measured_gpu_seconds"]))
        for m in rows:
            if m["predicted_gpu_seconds"] is None or m["measured_gpu_seconds"] <= 0:
                continue
            errors.append((100 * (m["predicted_gpu_seconds"] / m["measured_gpu_seconds"] - 1), m["method"]))
            case = f"{cell['elements']}, {cell['accesses']}"
            print(
                f"  {case:19} {m['method']:16} | {1e3 * m['measured_gpu_seconds']:31.3f} | "
                f"{1e3 * m['predicted_gpu_seconds']:9.3f} | {errors[-1][0]:+7.2f} | "
                f"{1e3 * m['measured_seconds']:8.3f} {50 * m['spread']:4.1f}"
            )
        best, wrong = cell["best"], cell["ranking"]["wrong"]
        picked += best["picked"]
        ranked += not wrong
        met &= best["cost_percent"] is not None and best["cost_percent"] <= MOST_COST
        pairs = "; ".join(f"{one} was faster than {other}" for one, other in wrong)
        print(
            f"    best measured {best['measured']}, predicted {best['predicted']}: {verdict(best['picked'])}; ranking: "
            f"{verdict(not wrong)}{': ' + pairs if wrong else ''}"
        )
    if not errors:
        print("  no case was measured")
        return False
    for method in dict.fromkeys(name for _, name in errors):
        own = [abs(e) for e, name in errors if name == method]
        print(f"  errors of {method}: median {median(own):.2f} %, largest {max(own):.2f} %")
    absolute = [abs(e) for e, _ in errors]
    print(f"  errors of copies and kernel: median {median(absolute):.2f} %, largest {max(absolute):.2f} %")
    cases = len(result["cells"])
    print(f"  best picked in {picked} of {cases} cases, ranking predicted in {ranked} (goal: all)")
    whole = sum(cell["best_whole"]["picked"] for cell in result["cells"])
    print(
        f"  best of the whole program, whose processor's part is as measured, picked in {whole} of {cases} cases"
    )
    met &= ranked == cases
    crossing = result["crossover"]
    if crossing is None:
        print("  crossover from zero-copy to pinned: not measured")
        return met
    seen, due = crossing["measured_accesses"], crossing["predicted_accesses"]
    if seen is None or due is None:
        print(f"  crossover from zero-copy to pinned, accesses: measured {seen}, predicted {due}")
        return met and seen is due
    factor = max(seen / due, due / seen)
    print(
        f"  crossover from zero-copy to pinned, accesses: measured {seen:.2f}, predicted {due:.2f}, a factor of "
        f"{factor:.2f} (goal {CROSSOVER_FACTOR:g}) {verdict(factor <= CROSSOVER_FACTOR)}"
    )
    return met and factor <= CROSSOVER_FACTOR


def fastest(cell: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any] | None:
    """The fastest measured version of some strategies."""
    own = [v for v in cell["versions"] if v["strategy"] in names]
    return min(own, key=lambda v: float(v["measured_seconds"])) if own else None


def version(cell: dict[str, Any], strategy: str, streams: int) -> dict[str, Any] | None:
    """One version of a cell."""
    return next((v for v in cell["versions"] if (v["strategy"], v["streams"]) == (strategy, streams)), None)


def error(row: dict[str, Any]) -> float:
    """Predicted over measured, less one, in percent."""
    return 100 * float(row["predicted_seconds"] / row["measured_seconds"] - 1)


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


if __name__ == "__main__":
    sys.exit(main())
