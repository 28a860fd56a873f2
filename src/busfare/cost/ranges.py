"""The 80 % range of a prediction, and the rung that it is based on: how far off that rung was on held-out data.

The table `ranges.toml` is derived from measurements by `validation/ranges.py`, which says how and prints how often the
truth lay inside.
"""

import tomllib
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from busfare.cost.batches import Batch, batches, priced
from busfare.nodes import FloatArray, Node
from busfare.statements import Words, statement

FILE = Path(__file__).with_suffix(".toml")
#: What figures of a node are taken from, and where held-out data is looked for when there is none of them.
WIDER = ("probed", "datasheet")
#: Copies whose model knows no start, and collectives, have a range below this many bytes and another from it on.
LONG_COPY_BYTES = 4 << 20
COPIES = ("pinned", "pageable", "managed", "device", "p2p")
#: Models that others published. On short copies, and between other memories, they are off like `datasheet`.
BASELINES = ("ahead", "peak", "envelope")
#: What has a row for all its models together, and what has a row for all figures together: their ranges are alike.
ALL_MODELS = frozenset({"change", "gain", "job-change", "strategy", "run", "layer", "kv"})
ALL_FIGURES = frozenset({"gain", "kernel-alike", "kv", "run"})
#: Cases with separate rows for short and long copies; for others, the errors are alike or too wide to be useful.
BY_SIZE = frozenset({"pinned", "pageable", "p2p"})
#: A range whose ends are so many times apart is shown without the prediction inside.
WIDE = 10.0
#: Built-in models and the rung of their prices. Errors of those on other rungs than the data sheet's are taken to be no
#: larger than its errors where nobody has measured them.
RUNGS = {"calibrated": "calibrated", "loggp": "probed"}
RUNGS |= dict.fromkeys(("datasheet", "ahead", "peak", "envelope"), "datasheet")
NO_HELD_OUT_DATA = statement("price.no-held-out-data")
#: Strategies that were measured as methods of migration.
METHODS = {"managed": "managed", "managed-prefetch": "managed-prefetch", "explicit-pageable": "pageable",
           "streams-pageable": "pageable"}  # fmt: skip
#: What two runs differ by though nothing that a change touches does, as a part of the run. Of 94 programs and machines, the
#: process furthest from the median was 2.9 % off or less in four of five, and both runs are: `validation/replay_pairs.py`.
UNCHANGED = 0.04
#: A copy as long as those of strategies that are worth planning.
LONG_BYTES = 64 << 20


class Ranged(NamedTuple):
    """Factors of a predicted time, at most 1 and at least 1."""

    low: float
    high: float


class Row(NamedTuple):
    """What shares a range; `size`: `short` or `long`, or empty where sizes share it, too."""

    what: str
    model: str
    figures: str
    size: str = ""


def row_of(what: str, model: str, figures: str, bytes_: float) -> Row | None:
    """The row of `ranges.toml` for predictions of `what` by `model`; None where the model knows no start of copies."""
    size = "short" if bytes_ < LONG_COPY_BYTES else "long"
    if what in ALL_FIGURES or (what, model) == ("device", "calibrated") or model.startswith("product"):
        figures = "datasheet"
    if what in ALL_MODELS:
        return Row(what, "any", figures)
    if what in ("method", "offload"):
        memory = next((kind for kind in ("pageable", "managed") if model.startswith(kind)), "pinned")
        return Row(what, memory, figures)
    if (what, model) == ("kernel-alike", "allocated"):
        model = "counted"
    if (what, model) in (("collective", "nccl"), ("collective", "fitted")):
        return Row(what, model, figures, size)
    if what in COPIES and model == "envelope" and size == "short":
        return None
    if what in COPIES and model in BASELINES:
        model = "baseline" if what in ("pinned", "pageable") and size == "long" else "datasheet"
    return Row(what, model, figures, size if what in BY_SIZE and model == "datasheet" else "")


def figures_of(*nodes: Node | None, memory: str = "pinned") -> str:
    """What the figures of `nodes` are for a memory kind: `probed`, there or on a machine of the kind, or `datasheet` where
    one of them was not probed: nobody knows how far the figures that others measured with other tools carry.
    """
    return "datasheet" if any(node is None or not _probed(node, memory) for node in nodes) else "probed"


def _probed(node: Node, memory: str) -> bool:
    curves = [node.curve(direction, memory) for direction in ("h2d", "d2h")]
    sources = [curve and node.provenance(curve, "gap_per_byte_s") for curve in curves]
    return all(source and source.cite.startswith("busfare probe") for source in sources)


@cache
def _table() -> dict[Row, Ranged]:
    rows = tomllib.loads(FILE.read_text("utf-8"))["range"]
    return {
        Row(row["what"], row["model"], row["figures"], row.get("size", "")): Ranged(row["low"], row["high"])
        for row in rows
    }


def range_of(what: str, model: str, figures: str, bytes_: float = 0.0) -> Ranged | None:
    """The range of `what` (a memory kind, `run`, `change` or `job-change`: the run after it, `more-ranks`, `strategy` or
    `method`) by `model` (of strategies, methods and changes: which; of more ranks: what sets the pace), from the nearest
    wider figures that have held-out data; None where none have.
    """
    models = (model,) if RUNGS.get(model, "datasheet") == "datasheet" else (model, "datasheet")
    for wider in WIDER[WIDER.index(figures) :]:
        for name in models:
            row = row_of(what, name, wider, bytes_)
            if row in _table():
                return _table()[row]
    return None


def is_wide(low: float, high: float) -> bool:
    """Whether a range is shown as its two ends alone."""
    return low > 0 and high > WIDE * low


def ranged(
    operations: pl.DataFrame, model: str, to: Node, recorded_on: Node | None = None
) -> tuple[FloatArray, FloatArray]:
    """Factors, low and high, of every operation's price by `model` on `to`: shape (rows,); NaN where none is known.

    The copies of one path are off together: sum lows, and sum highs. On the node where they were recorded, nothing is
    predicted.
    """
    if model == "calibrated" and recorded_on == to:
        return np.ones(operations.height), np.ones(operations.height)
    nodes = (to, recorded_on) if model == "calibrated" else (to,)
    path_batches = batches(operations)
    low, high = (
        priced(operations.height, path_batches, partial(_factors, model=model, nodes=nodes, end=end))
        for end in (0, 1)
    )
    return low, high


def _factors(batch: Batch, model: str, nodes: tuple[Node | None, ...], end: int) -> FloatArray | None:
    if batch.kind == "set" or model not in RUNGS:
        return None
    what = "p2p" if batch.direction == "p2p" else {"mapped": "pinned"}.get(batch.memory, batch.memory)
    memory = what if what in ("pageable", "managed") else "pinned"
    figures = figures_of(*nodes, memory=memory) if RUNGS[model] != "datasheet" else "datasheet"
    short, long = (range_of(what, model, figures, size) for size in (0, LONG_COPY_BYTES))
    if what == "pageable" and end and nodes[0] is not None and nodes[0].host_path(batch.device).is_c2c:
        # Read in place: no staging makes it longer than it makes copies of pinned memory.
        short, long = (range_of("pinned", model, figures, size) for size in (0, LONG_COPY_BYTES))
    ends = [np.nan if ends is None else ends[end] for ends in (short, long)]
    return np.where(batch.sizes < LONG_COPY_BYTES, *ends)


def seconds_between(
    low: float | None, high: float | None, rung: str | None, reason: Words = NO_HELD_OUT_DATA
) -> dict[str, Any]:
    """`low_seconds`, `high_seconds` and `rung`, with a `reason` where they are not known."""
    finite = low is not None and high is not None and np.isfinite([low, high]).all()
    keys = {"low_seconds": low if finite else None, "high_seconds": high if finite else None, "rung": rung}
    return keys if finite else keys | {"reason": reason}


def strategy_range(
    strategy: str, seconds: float | None, node: Node, method: str = "", what: str = ""
) -> dict[str, Any]:
    """`low_seconds`, `high_seconds` and `rung` of what a strategy, or a migration method, is predicted to take on `node`.
    `what`: `offload` or `kv`, whose strategies are memory kinds and layouts.
    """
    figures = figures_of(node)
    method = method or ("" if what else METHODS.get(strategy, ""))
    name = method or strategy
    factors = range_of(what or ("method" if method else "strategy"), name, figures)
    if figures == "datasheet" and factors is not None:
        # All of these were run on two kinds of GPU; copies were measured on many.
        memory = next((kind for kind in ("pageable", "managed") if name.startswith(kind)), "pinned")
        copies = range_of(memory, "datasheet", figures, LONG_BYTES) or factors
        factors = Ranged(min(factors.low, copies.low), max(factors.high, copies.high))
    rung = "datasheet" if figures == "datasheet" else "probed"
    if seconds is None or factors is None:
        return seconds_between(None, None, rung)
    return seconds_between(seconds * factors.low, seconds * factors.high, rung)


def gain_range(
    gain: float, run: float, figures: str, what: str = "change", touched: float | None = None
) -> tuple[float, float]:
    """The least and the most seconds that a change gains of a run of `run` seconds, where `gain` is predicted: by the range
    of the run after it, as far as that is not what it was. `what`: `job-change` of a job of several ranks. `touched`: for
    how many seconds of the run something that it touches was under way; None: maybe all of it.
    """
    factors, after = range_of(what, "any", figures) or Ranged(1.0, 1.0), max(0.0, run - gain)
    moved = after if touched is None else min(after, touched + UNCHANGED * run)
    return gain - moved * (factors.high - 1.0), gain + moved * (1.0 - factors.low)


def gain_between(
    gain: float, bound: float | None, cost_error: tuple[float, float] = (0.0, 0.0)
) -> tuple[float, float]:
    """The least and the most seconds of a predicted gain that cannot exceed its `bound`; from nothing to the gain where that
    is only bounded (`bound` None). `cost_error`: s by which the change may cost less, or more. What loses never gains.
    """
    factors = range_of("gain", "any", "datasheet") or Ranged(0.0, np.inf)
    if bound is None:
        return 0.0, gain
    if gain < 0:
        return gain * factors.high, gain * factors.low
    low, high = gain * factors.low, max(gain, min(gain * factors.high, bound))
    less, more = cost_error
    return max(0.0, low - more), min(high + less, max(high, bound))
