"""The JSON object of a benchmark: runs measured, each beside its predicted limit."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from nas_bench.errors import UsageError
from nas_bench.limit import CLASSES, Rates, duplex_rate, limit_of, points
from nas_bench.machine import MODES

Row = dict[str, Any]

#: The parts of an iteration [U11 figure 11], and MG's own; what none of them holds is `rest`.
PARTS = {
    "ft": ("fft_1d", "fft_2d", "outstanding_communication", "synchronous_local_copies", "barrier"),
    "mg": ("kernels", "copies", "waited_for_ghost_cells", "coarse_levels"),
}
#: What FT does not tell apart on a device unless it is asked to time its parts.
UNTIMED = ("fft_1d", "fft_2d", "synchronous_local_copies")
#: What tells runs of one mode and number of ranks apart beside FT's order, with the value that goes without saying; on
#: processors only `axes` does.
VARIANT: dict[str, Any] = {
    "exchange": "",
    "coarse": "",
    "coarse_points": 16,
    "fused": True,
    "axes": 0,
    "chunk_bytes": 0,
    "streams": 3,
    "transposed_lines": False,
}
#: Runs that agree in all of these are one run, with and without its parts timed.
ALIKE = ("mode", "ranks", "class", "ranks_per_node", "visible", "algorithm", *VARIANT)


def row_of(
    benchmark: str,
    plain: Row,
    timed: Row | None,
    rates: Rates | None,
    gpus: int | None = None,
    link: Sequence[Row] = (),
) -> Row:
    """One run from the program's own JSON, and from that of the same run with its parts timed (None: not made).

    `gpus` stands for older results that do not say; `link` is what `device_limits --link` measured just before and
    after it, on which the limit then rests. Raises UsageError where a figure is missing or is no number.
    """
    try:
        used = _gpus(plain, gpus)
        measured_link = [duplex_rate(measured, used) for measured in link]
        rates = rates.with_measured_link(measured_link, used) if rates and measured_link else rates
        return _row(benchmark, plain, timed, rates, used) | {
            "measured_link_bytes_per_second": measured_link or None
        }
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UsageError(
            f"a run of {benchmark.upper()}: a figure is missing or wrong ({type(error).__name__}: {error})"
        ) from None


def _gpus(plain: Row, gpus: int | None) -> int:
    """How many GPUs a run used."""
    mode, ranks = str(plain["mode"]), int(plain["ranks"])
    return 0 if mode == "cpu" else int(plain.get("gpus") or gpus or (ranks if mode == "single" else 1))


def _row(benchmark: str, plain: Row, timed: Row | None, rates: Rates | None, used: int) -> Row:
    mode, size, ranks = str(plain["mode"]), str(plain["class"]), int(plain["ranks"])
    points(benchmark, size)
    iterations = [float(s) for s in plain["iteration_seconds"]]
    seconds = statistics.median(iterations)
    standin = "stand-in" in str(plain["device"])
    limit = None
    if rates and used and not standin:
        limit = limit_of(benchmark, size, rates, used, plain.get("exchange") == "device")
    alone = limit["predicted_alone_seconds"] if limit else None
    varied = ("axes",) if mode == "cpu" else VARIANT
    parts = timed or plain
    verified = [run["verified"] for run in (plain, timed) if run and "verified" in run]
    return {
        "mode": mode,
        "ranks": ranks,
        "ranks_per_node": plain.get("ranks_per_node"),
        "gpus": used,
        "device": str(plain["device"]),
        "class": size,
        "algorithm": str(plain.get("algorithm", "")),
        "variant": {key: plain[key] for key in varied if key in plain and plain[key] != VARIANT[key]},
        "iterations": int(plain["iterations"]),
        "verified": all(verified) if verified else None,  # a shortened run of MG has nothing to compare with
        "error": plain.get("largest_checksum_error", plain.get("norm_error")),
        "checksums": plain.get("checksums"),
        "norm": plain.get("norm"),
        "measured_seconds": float(plain["seconds"]),
        "measured_iteration_seconds": seconds,
        "iteration_seconds": iterations,
        "measured_mflops": plain.get("mflops"),
        "measured_parts_seconds": _parts(benchmark, parts),
        "parts_timed": bool(parts.get("timed")),
        "limit": limit,
        "limit_share_percent": 100 * limit["predicted_seconds"] / seconds if limit else None,
        "alone_share_percent": None if alone is None else 100 * alone / seconds,
    }


def _parts(benchmark: str, run: Row) -> dict[str, float]:
    """Seconds of an iteration, mean over ranks and iterations; with `rest`, what no part holds. Where FT's parts on a
    device were not timed, its transforms and the copies that they left exposed are one, `device_phases`.

    FT's time for an iteration includes all of its parts. MG's first residual and norms lie outside of iterations, but
    inside of the program's timed part, over which its parts are summed.
    """
    count, breakdown = int(run["iterations"]), run["breakdown_seconds"]
    booked = {name: float(s) / count for name, s in breakdown.items() if name in PARTS[benchmark]}
    if benchmark == "ft" and run["mode"] != "cpu" and not run.get("timed"):
        booked = {name: s for name, s in booked.items() if name not in UNTIMED}
        booked["device_phases"] = float(breakdown["synchronous_local_copies"]) / count
    whole = float(run["seconds"]) if benchmark == "mg" else sum(float(s) for s in run["iteration_seconds"])
    return booked | {"rest": max(0.0, whole / count - sum(booked.values()))}


def rows_of(benchmark: str, runs: list[Row], rates: Rates | None) -> tuple[list[Row], list[dict[str, str]]]:
    """Rows of raw runs `{command, status, result, gpus?, link?}`, timed ones joined with their like; what is left out."""
    plain: list[tuple[tuple[str, ...], Row, Row]] = []
    timed: dict[tuple[str, ...], tuple[Row, Row]] = {}
    left_out = []
    for run in runs:
        result = run.get("result")
        if not isinstance(result, dict):
            if f"nas_{benchmark}" in str(run.get("command")):
                why = (
                    " ".join(str(run.get("note") or run.get("stderr") or "").split())[:200]
                    or "it wrote nothing"
                )
                ended = "cut off" if run.get("cut_off") else f"ended with {run.get('status')}"
                left_out.append({"case": str(run["command"]), "why": f"{ended}: {why}"})
        elif result.get("schema") == f"busfare.hybrid.{benchmark}/1":
            key = tuple(str((result | {"visible": run.get("gpus")}).get(name)) for name in ALIKE)
            if result.get("timed"):
                timed.setdefault(key, (result, run | {"link": ()}))
            else:
                plain.append((key, result, run))
    plain_keys = {key for key, *_ in plain}
    plain += [(key, *held) for key, held in timed.items() if key not in plain_keys]
    rows = []
    for key, result, run in plain:
        gpus = len(str(run["gpus"]).split(",")) if run.get("gpus") else None
        rows.append(row_of(benchmark, result, timed.get(key, (None,))[0], rates, gpus, run.get("link") or ()))
    rows.sort(
        key=lambda row: (
            CLASSES.index(row["class"]),
            row["gpus"],
            MODES.index(row["mode"]) if row["mode"] in MODES else len(MODES),
            row["ranks"],
            row["algorithm"] != "slabs",
        )
    )
    return rows, left_out


def gains(rows: list[Row]) -> list[Row]:
    """How many times as fast one way is as another, the rest being equal, each at its fastest: funneled beside the other
    modes that share, and slabs beside packed slabs.
    """
    made = []

    def compare(setting: Row, name: str, over: str, faster: dict[str, str], slower: dict[str, str]) -> None:
        compared = [row for row in rows if all(row[key] == value for key, value in setting.items())]
        pair = [
            _fastest([r for r in compared if all(r[k] == v for k, v in which.items())])
            for which in (faster, slower)
        ]
        if pair[0] and pair[1]:
            times = pair[1]["measured_iteration_seconds"] / pair[0]["measured_iteration_seconds"]
            made.append(setting | {"way": name, "over": over, "measured_times_as_fast": times})

    def settings(*keys: str) -> list[Row]:
        return [
            dict(zip(keys, values, strict=True))
            for values in dict.fromkeys(tuple(r[k] for k in keys) for r in rows)
        ]

    for setting in settings("class", "gpus", "ranks"):
        for shared in ("multiple", "multiple-mps"):
            compare(setting, "funneled", shared, {"mode": "funneled"}, {"mode": shared})
    for setting in settings("class", "gpus", "ranks", "mode"):
        mode = setting.pop("mode")
        slabs, packed = ({"mode": mode, "algorithm": order} for order in ("slabs", "packed-slabs"))
        compare(setting, f"slabs, {mode}", f"packed slabs, {mode}", slabs, packed)
    return made


def _fastest(rows: list[Row]) -> Row | None:
    return min(rows, key=lambda row: float(row["measured_iteration_seconds"]), default=None)


def result_of(
    benchmark: str,
    rows: list[Row],
    left_out: list[dict[str, str]],
    rates: Rates | None,
    about: Row,
    limits: Row | None,
) -> Row:
    """`busfare.bench-ft/1` or `busfare.bench-mg/1`; `about` are the date, the command and the machine, `limits` what
    `device_limits` measured.
    """
    on_gpu = [row for row in rows if row["mode"] != "cpu" and row["algorithm"] != "packed-slabs"]
    best = _fastest(on_gpu or rows)
    return {
        "schema": f"busfare.bench-{benchmark}/1",
        **about,
        "rates": rates.row() if rates else None,
        "runs": rows,
        "fastest": best and {key: best[key] for key in ("mode", "ranks", "algorithm", "class")},
        "all_verified": all(row["verified"] is not False for row in rows),
        "gains": gains(rows),
        "left_out": left_out,
        "limits": limits,
    }
