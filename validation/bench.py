"""Benchmarks on real GPUs beside what `plan` predicted: `python validation/bench.py [FILE.json …]`.

Reads `results/bench/*.json`, as `busfare bench methods --json` and `busfare bench strategies --json` wrote them, and
recomputes every error, pick and limit from the measured and predicted seconds in them. Without results it says so and
claims nothing. Exit status 1 where a strategy or method that was predicted to be the fastest costs more than the goal.
"""

from __future__ import annotations

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
W14 = ("explicit", "mapped", "streams", "hybrid")


def main() -> int:
    paths = [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.json"))
    if not paths:
        print("no results: results/bench/ has no *.json yet; docs/bench.md says which commands write them")
        return 0
    met = True
    for path in paths:
        try:
            met &= judge(read(path))
        except InputError as error:
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
    right = planned["strategy"] == best["strategy"]
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
    if streams is not None:
        limit = max(cell["measured_link_seconds"], cell["measured_kernel_seconds"])
        share = 100 * limit / streams["measured_seconds"]
        goal = f" (goal {LEAST_SHARE:g}) {verdict(share >= LEAST_SHARE)}" if cell["kernel"] == "state" else ""
        print(f"    streams reach {share:.1f} % of the limit, the slower of link and kernel (measured){goal}")
    return right, cost


def methods(result: dict[str, Any]) -> bool:
    """Every case: the methods by time, the pick, and the crossover."""
    met, errors, picked = True, [], 0
    # The processor's part is measured on both sides, and would only hide errors: copies and kernel are compared.
    print("  ints, accesses      method           | whole ms, ± % | measured ms | predicted ms | error %")
    for cell in result["cells"]:
        rows = sorted(cell["methods"], key=lambda m: float(m["measured_seconds"]))
        for m in rows:
            if m["predicted_gpu_seconds"] is None or m["measured_gpu_seconds"] <= 0:
                continue
            errors.append(100 * (m["predicted_gpu_seconds"] / m["measured_gpu_seconds"] - 1))
            case = f"{cell['elements']}, {cell['accesses']}"
            print(
                f"  {case:19} {m['method']:16} | {1e3 * m['measured_seconds']:8.3f} {50 * m['spread']:4.1f} | "
                f"{1e3 * m['measured_gpu_seconds']:11.3f} | {1e3 * m['predicted_gpu_seconds']:12.3f} | {errors[-1]:+7.2f}"
            )
        best = cell["best"]
        picked += best["picked"]
        met &= best["cost_percent"] is not None and best["cost_percent"] <= MOST_COST
        print(
            f"    best measured {best['measured']}, predicted {best['predicted']}: {verdict(best['picked'])}"
        )
    if not errors:
        print("  no case was measured")
        return False
    absolute = [abs(e) for e in errors]
    print(f"  errors of copies and kernel: median {median(absolute):.2f} %, largest {max(absolute):.2f} %")
    print(f"  best picked in {picked} of {len(result['cells'])} cases")
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
