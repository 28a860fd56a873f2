"""The JSON object of `bench ft` and `bench mg`: runs measured, each beside its predicted limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from busfare.errors import InputError
from busfare.measure.middle import median
from busfare.measure.nas.limit import Rates, each_way_of, limit_of, rates_beside
from busfare.measure.nas.problem import CLASSES, Benchmark, points

__all__ = ["PARTS", "gains", "nas_result", "row_of", "rows_of"]

#: The parts of an iteration [U11 figure 11], and MG's own; what none of them holds is `rest`.
PARTS: dict[Benchmark, tuple[str, ...]] = {
    "ft": (
        "fft_1d",
        "fft_2d",
        "outstanding_communication",
        "synchronous_local_copies",
        "device_phases",
        "barrier",
        "rest",
    ),
    "mg": ("kernels", "copies", "waited_for_ghost_cells", "coarse_levels", "rest"),
}
#: What FT does not tell apart on a device unless it is asked to time its parts.
_UNTOLD = ("fft_1d", "fft_2d", "synchronous_local_copies")
#: What tells runs of one mode and number of ranks apart, with the value that goes without saying.
_VARIANT = {
    "algorithm": "",
    "exchange": "",
    "coarse": "",
    "fused": True,
    "axes": 0,
    "chunk_bytes": 0,
    "streams": 3,
    "coarse_points": 16,
    "transposed_lines": False,
}
_SAID = (
    "exchange", "coarse", "coarse_points", "fused", "axes", "chunk_bytes", "streams", "transposed_lines",
)  # fmt: skip
_SAID_ON_CPU = ("axes",)
#: Runs that agree in all of these are one run, with and without its parts timed.
_ALIKE = ("mode", "ranks", "class", "ranks_per_node", "visible", *_VARIANT)


def row_of(
    benchmark: Benchmark,
    plain: dict[str, Any],
    timed: dict[str, Any] | None,
    rates: Rates | None,
    gpus: int | None,
    link: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """One run from the program's own JSON, and from that of the same run with its parts timed (None: not made).

    `gpus` stands for older results that do not tell; `link` is what `device_limits --link` measured just before and
    after it, on which the limit then rests. Raises InputError where a figure is missing or is no number.
    """
    try:
        each_way = [each_way_of(measured) for measured in link]
        beside = rates_beside(rates, each_way) if rates and each_way else rates
        return _row(benchmark, plain, timed, beside, gpus) | {
            "measured_link_bytes_per_second": each_way or None
        }
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(
            f"a run of {benchmark.upper()}: a figure is missing or wrong ({type(error).__name__}: {error})"
        ) from None


def _row(
    benchmark: Benchmark,
    plain: dict[str, Any],
    timed: dict[str, Any] | None,
    rates: Rates | None,
    gpus: int | None,
) -> dict[str, Any]:
    mode, size, ranks = str(plain["mode"]), str(plain["class"]), int(plain["ranks"])
    points(benchmark, size)
    used = 0 if mode == "cpu" else int(plain.get("gpus") or gpus or (ranks if mode == "single" else 1))
    seconds = median([float(s) for s in plain["iteration_seconds"]])
    inside = plain.get("exchange") == "device"
    standin = "stand-in" in str(plain["device"])
    limit = None if rates is None or not used or standin else limit_of(benchmark, size, rates, used, inside)
    parts = timed or plain
    said = _SAID_ON_CPU if mode == "cpu" else _SAID
    return {
        "mode": mode,
        "ranks": ranks,
        "ranks_per_node": plain.get("ranks_per_node"),
        "gpus": used,
        "device": str(plain["device"]),
        "class": size,
        "algorithm": str(plain.get("algorithm", "")),
        "variant": {key: plain[key] for key in said if key in plain and plain[key] != _VARIANT[key]},
        "iterations": int(plain["iterations"]),
        "verified": _verified(plain, timed),
        "error": plain.get("largest_checksum_error", plain.get("norm_error")),
        "measured_seconds": float(plain["seconds"]),
        "measured_iteration_seconds": seconds,
        "iteration_seconds": [float(s) for s in plain["iteration_seconds"]],
        "measured_mflops": plain.get("mflops"),
        "measured_parts_seconds": _parts(benchmark, parts),
        "parts_timed": bool(parts.get("timed")),
        "limit": limit,
        "limit_share_percent": None if limit is None else 100 * limit["predicted_seconds"] / seconds,
        "alone_share_percent": None
        if limit is None or limit["predicted_alone_seconds"] is None
        else 100 * limit["predicted_alone_seconds"] / seconds,
    }


def _verified(plain: dict[str, Any], timed: dict[str, Any] | None) -> bool | None:
    """Against the official values; None where a shortened run of MG has none to compare with."""
    found = [run["verified"] for run in (plain, timed) if run is not None and "verified" in run]
    return all(found) if found else None


def _parts(benchmark: Benchmark, run: dict[str, Any]) -> dict[str, float]:
    """Seconds of an iteration, mean over ranks and iterations; with `rest`, what no part holds. Where FT's parts on a
    device were not timed, its transforms and the copies that they left exposed are one, `device_phases`.

    FT's time for an iteration includes all of its parts. MG's first residual and norms lie outside of iterations, but
    inside of the program's timed part, over which its parts are summed.
    """
    count = int(run["iterations"])
    booked = {
        name: float(s) / count for name, s in run["breakdown_seconds"].items() if name in PARTS[benchmark]
    }
    if benchmark == "ft" and run["mode"] != "cpu" and not run.get("timed"):
        booked = {name: s for name, s in booked.items() if name not in _UNTOLD}
        booked["device_phases"] = float(run["breakdown_seconds"]["synchronous_local_copies"]) / count
    whole = float(run["seconds"]) if benchmark == "mg" else sum(float(s) for s in run["iteration_seconds"])
    return booked | {"rest": max(0.0, whole / count - sum(booked.values()))}


def rows_of(
    benchmark: Benchmark, runs: list[dict[str, Any]], rates: Rates | None
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Rows of raw runs `{command, status, result, gpus?, link?}`, timed ones joined with their like; what is left out."""
    plain: list[tuple[tuple[str, ...], dict[str, Any], Any, Any]] = []
    timed: dict[tuple[str, ...], dict[str, Any]] = {}
    alone: dict[tuple[str, ...], Any] = {}
    left_out = []
    for run in runs:
        result = run.get("result")
        if not isinstance(result, dict):
            if f"nas_{benchmark}" in str(run.get("command")):
                why = " ".join(str(run.get("note") or run.get("stderr") or "").split())[:200]
                ended = "cut off" if run.get("cut_off") else f"ended with {run.get('status')}"
                left_out.append({"case": str(run["command"]), "why": f"{ended}: {why or 'nothing said'}"})
            continue
        if result.get("schema") != f"busfare.hybrid.{benchmark}/1":
            continue
        told = result | {"visible": run.get("gpus")}
        key = tuple(str(told.get(name)) for name in _ALIKE)
        if result.get("timed"):
            timed.setdefault(key, result)
            alone.setdefault(key, run.get("gpus"))
        else:
            plain.append((key, result, run.get("gpus"), run.get("link") or ()))
    plain += [(key, timed[key], gpus, ()) for key, gpus in alone.items() if key not in {k for k, *_ in plain}]
    rows = [
        row_of(benchmark, result, timed.get(key), rates, len(str(gpus).split(",")) if gpus else None, link)
        for key, result, gpus, link in plain
    ]
    order = {mode: n for n, mode in enumerate(("cpu", "single", "multiple", "multiple-mps", "funneled"))}
    rows.sort(
        key=lambda r: (
            CLASSES.index(r["class"]),
            r["gpus"],
            order.get(r["mode"], 9),
            r["ranks"],
            r["algorithm"] != "slabs",
        )
    )
    return rows, left_out


def gains(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many times as fast one way is as another, the rest being equal, each at its fastest: funneled beside the other
    modes that share, and slabs beside packed slabs.
    """
    found = []
    settings = dict.fromkeys((r["class"], r["gpus"], r["ranks"]) for r in rows if r["mode"] != "cpu")
    for size, gpus, ranks in settings:
        own = [r for r in rows if (r["class"], r["gpus"], r["ranks"]) == (size, gpus, ranks)]
        setting = {"class": size, "gpus": gpus, "ranks": ranks}
        for other in ("multiple", "multiple-mps"):
            one, two = (_fastest(own, mode=mode) for mode in ("funneled", other))
            if one and two:
                found.append(setting | _gain("funneled", other, one, two))
    for size, gpus, ranks, mode in dict.fromkeys(
        (r["class"], r["gpus"], r["ranks"], r["mode"]) for r in rows
    ):
        own = [r for r in rows if (r["class"], r["gpus"], r["ranks"]) == (size, gpus, ranks)]
        one, two = (_fastest(own, mode=mode, algorithm=order) for order in ("slabs", "packed-slabs"))
        if one and two:
            setting = {"class": size, "gpus": gpus, "ranks": ranks}
            found.append(setting | _gain(f"slabs, {mode}", f"packed slabs, {mode}", one, two))
    return found


def _fastest(rows: list[dict[str, Any]], **wanted: str) -> dict[str, Any] | None:
    own = [r for r in rows if all(r[key] == value for key, value in wanted.items())]
    return min(own, key=lambda r: float(r["measured_iteration_seconds"]), default=None)


def _gain(name: str, over: str, one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    return {
        "way": name,
        "over": over,
        "measured_times_as_fast": two["measured_iteration_seconds"] / one["measured_iteration_seconds"],
    }


def nas_result(
    benchmark: Benchmark, rows: list[dict[str, Any]], left_out: list[dict[str, str]], rates: Rates | None,
    told: dict[str, Any], limits: dict[str, Any] | None,
) -> dict[str, Any]:  # fmt: skip
    """`busfare.bench-ft/1` or `busfare.bench-mg/1`; `told` are the date, the command and the machine, `limits` what
    `device_limits` measured.
    """
    on_gpu = [r for r in rows if r["mode"] != "cpu" and r["algorithm"] != "packed-slabs"]
    best = min(on_gpu or rows, key=lambda r: float(r["measured_iteration_seconds"]), default=None)
    return {
        "schema": f"busfare.bench-{benchmark}/1",
        **told,
        "rates": rates.row() if rates else None,
        "runs": rows,
        "fastest": None
        if best is None
        else {key: best[key] for key in ("mode", "ranks", "algorithm", "class")},
        "all_verified": all(r["verified"] is not False for r in rows),
        "gains": gains(rows),
        "left_out": left_out,
        "limits": limits,
    }
