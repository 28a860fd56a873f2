"""Benchmarks on real GPUs beside what `plan` predicted: `python validation/bench.py [--again] [--plots FOLDER] [FILE …]`.

Reads `results/bench/*.json` and those in `two-gpus/`, `methods/` and `held-out/*/` there, as `busfare bench methods
--json` and `busfare bench strategies --json` wrote them, and recomputes every error, pick and limit from the measured and
predicted seconds in them. Without results it says so and claims nothing. `--again` predicts anew what was measured, with
the models of today; what was said before the run stays in the files. `--plots` draws them into a folder, for the guide
(those in `held-out/` apart). Exit status 1 where any goal is missed; the last line of each result says which ones, and how
often.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from busfare.errors import InputError

FOLDER = Path(__file__).parents[1] / "results" / "bench"
FOLDERS = (FOLDER, FOLDER / "two-gpus", FOLDER / "methods")
#: Runs of other machines by the same `probe` and models, which the guide does not draw.
HELD_OUT = FOLDER / "held-out"
#: The project's goals: largest error of a strategy at its best (W14 published 10.75), what following a prediction may
#: cost where another was measured faster, the share of the limit that the best streams version of W14's *state* reaches,
#: all in percent; and two factors.
MOST_ERROR, MOST_COST, LEAST_SHARE = 5.0, 2.0, 95.0
#: Percent of the limit, beyond which the limit was measured wrong.
MOST_SHARE = 102.0
STREAMS_FACTOR, CROSSOVER_FACTOR = 2.0, 1.5
#: W14's grid.
PAPERS_GRID = 1024 * 1024 * 42
#: Both ways to submit the streams version.
STREAMED = ("streams", "three-streams")
W14 = ("explicit", "mapped", *STREAMED, "hybrid")
#: Measured and predicted beside them: their errors are listed, and no goal is about them.
BESIDE = ("batched", "graph", "streams-2gpu")


class Goals:
    """The goals of one result: how often each was missed."""

    def __init__(self) -> None:
        self.missed: Counter[str] = Counter()

    def verdict(self, goal: str, met: bool) -> str:
        """In a word; a missed one is counted."""
        self.missed[goal] += not met
        return "met" if met else "MISSED"

    def all_met(self) -> bool:
        """Prints those that were missed, with how often."""
        missed = [f"{goal} ({times} times)" for goal, times in self.missed.items() if times]
        print(f"  goals missed: {'; '.join(missed)}" if missed else "  every goal is met")
        return not missed


def main() -> int:
    parser = argparse.ArgumentParser(description="predicted beside measured, from results of bench")
    parser.add_argument("files", nargs="*", type=Path, help="results; else those of results/bench/")
    parser.add_argument(
        "--again",
        action="store_true",
        help="predict anew with today's models, from the node file beside each result; not what was said before the run",
    )
    options = parser.parse_args()
    paths = options.files or [path for folder in FOLDERS for path in sorted(folder.glob("*.json"))]
    if not options.files:
        paths += sorted(HELD_OUT.glob("*/*.json"))
    if not paths:
        print("no results: results/bench/ has no *.json yet; docs/bench.md says which commands write them")
        return 0
    met = True
    for path in paths:
        try:
            result = read(path)
            if options.again:
                from bench_again import predicted_again

                result = predicted_again(result, path)
            met &= judge(result)
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
    if result.get("again"):
        print(
            f"  PREDICTED AGAIN, after the run, with today's models, from {result['again']}: no test of them"
        )
    print(f"  {result['command']}; predicted by {result['node']['name']} ({result['node']['source']})")
    for sentence in result["disturbances"]:
        print(f"  disturbed: {sentence}")
    for row in result["left_out"]:
        print(f"  left out: {row['case']}: {row['why']}")
    goals = Goals()
    if not result["cells"]:
        print("  nothing was measured")
        return False
    if "strategies" in result["schema"]:
        strategies(result["cells"], goals)
    else:
        methods(result, goals)
    return goals.all_met()


def strategies(cells: list[dict[str, Any]], goals: Goals) -> None:
    """Every cell: each strategy at its fastest, the pick, the number of streams, and the limit."""
    errors: dict[str, list[float]] = {name: [] for name in W14}
    beside: dict[str, list[float]] = {name: [] for name in BESIDE}
    picked = 0
    print("  cell                             strategy       streams | measured ms | predicted ms | error %")
    for cell in cells:
        for strategy in W14:
            best = fastest(cell, (strategy,))
            if best is None or best["predicted_seconds"] is None:
                print(f"  {cell['name']:32} {strategy:14} not measured")
                continue
            off = error(best)
            errors[strategy].append(abs(off))
            print(
                f"  {cell['name']:32} {strategy:14} {best['streams']:7} | {1e3 * best['measured_seconds']:11.3f} | "
                f"{1e3 * best['predicted_seconds']:12.3f} | {off:+7.2f}"
            )
        for strategy, own in beside.items():
            best = fastest(cell, (strategy,))
            own += [abs(error(best))] if best is not None and best["predicted_seconds"] is not None else []
        picked += pick(cell, goals)
        number_of_streams(cell, goals)
        limit(cell, goals)
    for strategy, own in errors.items():
        if own:
            print(f"  errors of {strategy}: median {median(own):.2f} %, largest {max(own):.2f} %")
    for strategy, own in beside.items():
        if own:
            print(f"  {strategy}, beside these: median {median(own):.2f} %, largest {max(own):.2f} %")
    found = [off for own in errors.values() for off in own]
    said = goals.verdict(f"largest error at most {MOST_ERROR:g} %", max(found) <= MOST_ERROR)
    print(
        f"  errors of strategies at their fastest: median {median(found):.2f} %, largest {max(found):.2f} % "
        f"(goal {MOST_ERROR:g}) {said}"
    )
    said = goals.verdict("best strategy picked in all cells", picked == len(cells))
    print(f"  best picked in {picked} of {len(cells)} cells (goal: all) {said}")


def pick(cell: dict[str, Any], goals: Goals) -> bool:
    """Prints whether the strategy that was predicted to be the fastest is the fastest measured, and what it costs."""
    best, planned = fastest(cell, W14), cell["best"]["predicted"]
    assert best is not None
    taken = version(cell, planned["strategy"], planned["streams"])
    cost = None if taken is None else 100 * (taken["measured_seconds"] / best["measured_seconds"] - 1)
    same = {planned["strategy"], best["strategy"]}
    right = len(same) == 1 or same == {*STREAMED} or (taken is not None and overlap(taken, best))
    met = goals.verdict(
        f"the prediction followed costs at most {MOST_COST:g} %", cost is not None and cost <= MOST_COST
    )
    said = "not measured" if cost is None else f"costs {cost:.2f} % (measured)"
    plain = fastest(cell, ("explicit",))
    gain = plain["measured_seconds"] / best["measured_seconds"] if plain else float("nan")
    print(
        f"    best measured {best['strategy']} ({best['streams']}), {gain:.2f} times as fast as explicit; predicted "
        f"{planned['strategy']} ({planned['streams']}), {'the same' if right else 'ANOTHER ONE'}; {said} (goal "
        f"{MOST_COST:g}) {met}"
    )
    return right


def number_of_streams(cell: dict[str, Any], goals: Goals) -> None:
    """Prints the predicted number of streams beside the fastest one."""
    streams = fastest(cell, ("streams",))
    number = cell["streams"]["predicted_best"]
    at = version(cell, "streams", number)
    if streams is None or at is None:
        return
    factor = max(streams["streams"] / number, number / streams["streams"])
    more = 100 * (at["measured_seconds"] / streams["measured_seconds"] - 1)
    near = goals.verdict(f"number of streams within a factor of {STREAMS_FACTOR:g}", factor <= STREAMS_FACTOR)
    cheap = goals.verdict(f"the predicted number of streams costs at most {MOST_COST:g} %", more <= MOST_COST)
    print(
        f"    streams: predicted {number}, measured {streams['streams']}, a factor of {factor:.2f} (goal "
        f"{STREAMS_FACTOR:g}) {near}; at the predicted number {more:.2f} % above the best (goal {MOST_COST:g}) {cheap}"
    )


def limit(cell: dict[str, Any], goals: Goals) -> None:
    """Prints how near the streams versions come to the slower of link and kernel. The better of both has a goal in W14's
    *state* on its grid; other cells have none.
    """
    slower = max(cell["measured_link_seconds"], cell["measured_kernel_seconds"])
    shares = {
        name: 100 * slower / found["measured_seconds"]
        for name in STREAMED
        if (found := fastest(cell, (name,)))
    }
    for name, share in shares.items():
        beyond = ": faster than link and kernel alone, which were disturbed or are no limit"
        print(
            f"    {name} reach {share:.1f} % of the limit, the slower of link and kernel (measured)"
            f"{beyond if share > MOST_SHARE else ''}"
        )
    ends = sorted(cell.get("measured_link_ends_seconds") or [], key=max)
    if ends:
        # The quickest quarter, which is what the limit is made of.
        into, out = (1e3 * median(way) for way in zip(*ends[: max(1, len(ends) // 4)], strict=True))
        print(
            f"    both ways at once, nothing else: copies in end after {into:.2f} ms, copies out after {out:.2f}"
        )
    papers = cell["kernel"] == "state" and cell["levels"] * cell["level_elements"] == PAPERS_GRID
    if papers and shares and max(shares.values()) <= MOST_SHARE:
        better = max(shares, key=lambda name: shares[name])
        said = goals.verdict(
            f"state at {LEAST_SHARE:g} % of the limit or more", shares[better] >= LEAST_SHARE
        )
        print(
            f"    state on W14's grid: the better is {better}, {shares[better]:.1f} % (goal {LEAST_SHARE:g}) {said}"
        )


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two measurements' intervals overlap: nothing says then which one is faster."""
    try:
        (low, high), (lower, higher) = (v["measured_interval_seconds"] for v in (one, other))
    except KeyError:
        return False
    return bool(low <= higher and lower <= high)


def methods(result: dict[str, Any], goals: Goals) -> None:
    """Every case: the methods by time, the ranking, the pick, and the crossover."""
    errors, picked, ranked = [], 0, 0
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
        cost = best["cost_percent"]
        met = goals.verdict(
            f"the prediction followed costs at most {MOST_COST:g} %", cost is not None and cost <= MOST_COST
        )
        said = "not measured" if cost is None else f"costs {cost:.2f} %"
        pairs = "; ".join(f"{one} was faster than {other}" for one, other in wrong)
        seconds = {m["method"]: float(m["measured_gpu_seconds"]) for m in rows}
        longer = ", ".join(
            f"{name} {seconds[name] / rows[0]['measured_gpu_seconds']:.2f}"
            for name in ("pinned", "zero-copy", "managed-prefetch", "pageable", "managed")
            if seconds.get(name, 0.0) > 0 and rows[0]["measured_gpu_seconds"] > 0
        )
        print(
            f"    best measured {best['measured']}, predicted {best['predicted']}, {said} (goal {MOST_COST:g}) {met}; "
            f"ranking: {goals.verdict('ranking as predicted', not wrong)}{': ' + pairs if wrong else ''}\n"
            f"    times as long as the best: {longer}"
        )
    if not errors:
        print("  nothing was predicted")
        goals.verdict("something predicted", False)
        return
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
    crossing = result["crossover"]
    if crossing is None:
        print("  crossover from zero-copy to pinned: not measured")
        return
    seen, due = crossing["measured_accesses"], crossing["predicted_accesses"]
    if seen is None or due is None:
        met = goals.verdict("crossover", seen is due)
        print(f"  crossover from zero-copy to pinned, accesses: measured {seen}, predicted {due} {met}")
        return
    factor = max(seen / due, due / seen)
    met = goals.verdict(f"crossover within a factor of {CROSSOVER_FACTOR:g}", factor <= CROSSOVER_FACTOR)
    print(
        f"  crossover from zero-copy to pinned, accesses: measured {seen:.2f}, predicted {due:.2f}, a factor of "
        f"{factor:.2f} (goal {CROSSOVER_FACTOR:g}) {met}"
    )


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


if __name__ == "__main__":
    sys.exit(main())
