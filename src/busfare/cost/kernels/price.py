"""Prices of recorded kernels on another GPU, with their ranges and what they rest on."""

import re
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.cost.kernels import classes
from busfare.cost.kernels.limits import SHARE_OF_PEAK, Limits, limits_of
from busfare.cost.kernels.move import BOUNDS, Evidence, Moved, move, split, tensor_products
from busfare.cost.ranges import UNCHANGED, range_of
from busfare.errors import InputError
from busfare.nodes import FloatArray, Node
from busfare.trace.tables import REACH, SHAPE
from busfare.trace.words import COMMUNICATION

#: Columns of counted bytes.
COUNTED = ("dram_read_bytes", "dram_write_bytes", "l2_bytes")
#: Of a launch, what tells kernels of one name apart.
SIDES = tuple(SHAPE)
#: Bounds whose ranges are those of held-out kernels.
RANGED = ("memory", "compute", "counted", "allocated")
#: Generations with HBM [NVIDIA's white papers on P100, V100, A100, H100, B200 and B300].
HBM = {"6.0", "7.0", "8.0", "9.0", "10.0", "10.3"}
#: The rung of predictions between vendors: no kernels were measured on GPUs of both. Only the two bounds are predictions.
NOT_VALIDATED = "not validated"
_CARRIES = re.compile(COMMUNICATION)
#: Classes whose bytes, where somebody gives them, are counted ones: nothing says that each is moved once.
_UNSTREAMED = frozenset({"other", "sort", "random", "fft", "gather"})


@dataclass
class KernelPrices:
    """Of the kernels of a table of operations: shape (kernels,), seconds; NaN where not predicted. `rows`: where they are in
    the table. `kinds`, `bounds`: places in CLASSES and BOUNDS. `rung`: of all that counters do not tell.
    """

    rows: NDArray[np.intp]
    recorded: FloatArray
    seconds: FloatArray
    low: FloatArray
    high: FloatArray
    kinds: NDArray[np.int8]
    bounds: NDArray[np.int8]
    rung: str

    @property
    def counted(self) -> int:
        """How many are priced by counted bytes."""
        return int((self.bounds == BOUNDS.index("counted")).sum())

    def rung_of(self, bound: int) -> str | None:
        """The rung of prices by that bound; None where there is none."""
        return {"counted": "counters", "none": None}.get(BOUNDS[bound], self.rung)


@dataclass(frozen=True)
class KernelPrice:
    """One kernel on a rung: seconds, None where not predicted."""

    rung: str
    seconds: float | None
    low_seconds: float | None
    high_seconds: float | None


def price_kernels(
    operations: pl.DataFrame,
    launches: pl.DataFrame,
    recorded_on: Node,
    to: Node,
    counters: pl.DataFrame | None = None,
) -> KernelPrices:
    """What the kernels of `operations` take on `to`. `launches`: of the trace; `counters`: counted, of the same program.
    Raises InputError where what bounds kernels on one of the GPUs is not known.
    """
    here, there = limits_of(recorded_on), limits_of(to)
    if recorded_on.gpu(0).coherent:  # kernels reach all memory of the host, allocated by CUDA or not
        launches = launches.drop(REACH, strict=False)
    rows, recorded, of, evidence = _kernels(operations, launches, counters)
    kinds = np.array([classes.CLASSES.index(kind) for kind in evidence.kinds], np.int8)
    moved = move(evidence, of, recorded, here, there)
    if recorded_on == to:  # nothing is predicted
        moved = moved._replace(seconds=recorded)
        low = high = recorded
    else:
        low, high = ranges(moved, recorded, here, there, evidence, of)
        moved = moved._replace(seconds=np.clip(moved.seconds, low, high))
    return KernelPrices(rows, recorded, moved.seconds, low, high, kinds[of], moved.bounds, _rung(here, there))


def shares_of_peak(operations: pl.DataFrame, launches: pl.DataFrame, node: Node) -> dict[str, float]:
    """By name of a kernel: the time that its work takes at the peaks of the GPU's data sheet (FLOP/s or bytes/s, whichever
    is longer), over its time. Only of kernels whose work is known for all launches. Raises InputError for a GPU without
    peaks.
    """
    here = limits_of(node, measured=False)
    rows, recorded, of, evidence = _kernels(operations, launches, None)
    peaks = [(pipeline and here.peak(pipeline)) or np.nan for pipeline in evidence.pipelines]
    computing = evidence["flops"] * SHARE_OF_PEAK / np.array(peaks)
    least = np.fmax(computing, evidence["bytes"] / here.memory_peak)
    times = operations.select(pl.col("name").cast(pl.String))[rows].with_columns(
        least=pl.Series(least[of]), recorded=pl.Series(recorded)
    )
    share = pl.col("least").sum() / pl.col("recorded").sum()
    shares = times.group_by("name").agg(share=share).drop_nulls().filter(pl.col("share").is_not_nan())
    return {name: share for name, share in shares.iter_rows() if share <= 1}  # faster: from caches


def _kernels(
    operations: pl.DataFrame, launches: pl.DataFrame, counters: pl.DataFrame | None
) -> tuple[NDArray[np.intp], FloatArray, NDArray[np.intp], Evidence]:
    """Of the kernels of a table: their rows, recorded seconds, and for each the row of its evidence; and the evidence."""
    chosen = (operations["kind"] == "kernel").fill_null(False).to_numpy()
    rows = np.flatnonzero(chosen)
    columns = ["name", "in_graph", *(["launch"] if "launch" in operations.columns else [])]
    graph = pl.col("graph_node").is_not_null() if "graph_node" in operations.columns else pl.lit(False)
    kernels = operations[rows].with_columns(in_graph=graph)
    kernels = kernels.select(*columns, recorded=(pl.col("end_ns") - pl.col("start_ns")) * 1e-9)
    distinct = kernels.select(columns).unique(maintain_order=True).with_row_index("of")
    placed = kernels.join(distinct, on=columns, how="left", nulls_equal=True, maintain_order="left")
    of, recorded = placed["of"].to_numpy().astype(np.intp), kernels["recorded"].to_numpy()
    return rows, recorded, of, _evidence(_described(distinct, launches, counters))


def price_kernel(
    recorded_on: Node,
    to: Node,
    kind: str,
    seconds: float,
    number_type: str = "fp32",
    shape: tuple[int, int, int] | None = None,
    **given: float | None,
) -> list[KernelPrice]:
    """Prices on `to` of a kernel that took `seconds` on `recorded_on`, by each rung that the nodes have, the best first.

    `kind`: a class; `shape`: m, n, k of a product of matrices. `given`: columns of `Evidence`; of its work `flops` and
    `bytes`, of its launch `blocks`, `threads` and `shared_bytes` of a block, `registers` of a thread.

    Raises InputError for a class, type or size that is not known.
    """
    kernel_class = classes.class_named(kind)
    if kernel_class is None:
        raise InputError(f"`kernel` {kind!r}: not a kernel class; choose one of {', '.join(classes.CLASSES)}")
    typed = classes.type_named(number_type, kernel_class)
    if typed is None:
        raise InputError(f"`type` {number_type!r}: not known; fp64, fp32, tf32, fp16, bf16, fp8 or int8")
    if not 0 < seconds < 1e9:
        raise InputError(f"`seconds` {seconds:g}: give the time of one launch, above 0")
    pipeline, width = typed
    bytes_, flops = given.get("bytes"), given.get("flops")
    if kernel_class == "gemm" and shape is None and flops and bytes_:
        shape = _square_shape(flops, bytes_ / width)
    product = dict(zip("mnk", shape, strict=True)) | {"batch": 1} if shape else {}
    given |= {"element_bytes": width} | product
    took = np.array([seconds])
    pairs = [(limits_of(recorded_on, measured), limits_of(to, measured)) for measured in (True, False)]
    prices: list[KernelPrice] = []
    for here, there in pairs if all(limits.rung == "probed" for limits in pairs[0]) else pairs[1:]:
        # Bytes of a kernel whose class says nothing are counted ones: they show how much of its time the memory takes.
        passed = kernel_class in here.passes.keys() & there.passes.keys()
        measures = given | {"dram_bytes": bytes_ if kernel_class in _UNSTREAMED and not passed else None}
        columns = {name: np.array([value], float) for name, value in measures.items()}  # None is NaN
        evidence = Evidence([kernel_class], [pipeline], columns)
        moved = move(evidence, np.zeros(1, np.intp), took, here, there)
        rung = "counters" if BOUNDS[moved.bounds[0]] == "counted" else _rung(here, there)
        # Between makers there are two bounds, and no measurement that says where between them.
        point = moved.seconds if rung != NOT_VALIDATED else np.full(1, np.nan)
        numbers = [point, *ranges(moved, took, here, there, evidence)]
        prices.append(KernelPrice(rung, *(float(n[0]) if np.isfinite(n[0]) else None for n in numbers)))
    return prices


def _rung(here: Limits, there: Limits) -> str:
    if here.vendor != there.vendor:
        return NOT_VALIDATED
    return "probed" if here.rung == there.rung == "probed" else "class"


def _square_shape(flops: float, elements: float) -> tuple[int, int, int] | None:
    """The m of an m × k by k × k product of so many operations that reads and writes so many elements."""
    # 2·m·k² = flops and 2·m·k + k² = elements: k is a root of k³ - elements·k + flops = 0, of a square a double one.
    roots = np.roots([1.0, 0.0, -elements, flops])
    sides = roots.real[(np.abs(roots.imag) < 1e-4 * np.abs(roots)) & (roots.real > 0)]
    if not len(sides):
        return None
    k = float(sides.max())
    return max(1, round(flops / (2 * k * k))), max(1, round(k)), max(1, round(k))


def _described(distinct: pl.DataFrame, launches: pl.DataFrame, counters: pl.DataFrame | None) -> pl.DataFrame:
    """The distinct kernels with what their launches say of them."""
    if "launch" in distinct.columns and not launches.is_empty():
        distinct = distinct.join(
            launches.with_row_index("launch").with_columns(pl.col("launch").cast(pl.UInt32)),
            on="launch", how="left", maintain_order="left",
        )  # fmt: skip
    distinct = distinct.with_columns(pl.col("name").cast(pl.String))
    if counters is None:
        return distinct
    sizes = [name for name in SIDES if name in distinct.columns]
    counted = counters.with_columns(pl.col("name").cast(pl.String)).unique(["name", *sizes], keep="first")
    counted_columns = [name for name in COUNTED if name in counted.columns]
    counted, on = counted.select("name", *sizes, *counted_columns), ["name", *sizes]
    return distinct.join(counted, on=on, how="left", nulls_equal=True, maintain_order="left")


def _evidence(described: pl.DataFrame) -> Evidence:
    texts = [
        described[name].to_list() if name in described.columns else [None] * described.height
        for name in ("name", "operator", "shapes", "types")
    ]
    kinds, pipelines, works = [], [], []
    for name, operator, shapes, types in zip(*texts, strict=True):
        kind = "communication" if name and _CARRIES.search(name) else classes.class_of(name or "", operator)
        part = kind == "gemm" and "reduce" in name.lower()
        work = classes.Work() if part else classes.work_of(kind, operator, shapes, types)
        kinds.append(kind)
        # The kernel's name knows better than its inputs whether a product of fp32 ran as tf32, and nothing else better.
        plain = work.pipeline in (None, "fp32")
        pipelines.append((classes.type_of(name or "") if plain else None) or work.pipeline)
        works.append(work)
    fields = ("flops", "bytes", "batch", "m", "n", "k", "element_bytes")
    columns = {field: np.array([getattr(work, field) for work in works], np.float64) for field in fields}
    columns["user_code"] = np.array([classes.is_user_code(name or "") for name in texts[0]], np.float64)
    for side, name in (("grid", "blocks"), ("block", "threads")):
        sides = [f"{side}_{axis}" for axis in "xyz"]
        if all(column in described.columns for column in sides):
            product = described.select(pl.fold(1.0, lambda left, right: left * right, sides)).to_series()
            columns[name] = product.cast(pl.Float64).fill_null(np.nan).to_numpy()
    for name in ("in_graph", "registers", "shared_bytes", "allocated_bytes"):
        if name in described.columns:
            columns[name] = described[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
    if all(name in described.columns for name in COUNTED):
        read, written, looked_up = (described[name].fill_null(np.nan).to_numpy() for name in COUNTED)
        # L2 looks up what fills it, too.
        columns |= {
            "dram_bytes": read + written,
            "written_bytes": written,
            "l2_bytes": np.maximum(looked_up - read, 0),
        }
    return Evidence(kinds, pipelines, columns)


def product_model(here: Limits, there: Limits) -> str:
    """The model in `ranges.toml` for products on tensor cores; clocks of GPUs without HBM vary more."""
    generations = {here.generation, there.generation}
    return "product" if len(generations) == 1 or generations <= HBM else "product-without-hbm"


def ranges(
    moved: Moved,
    recorded: FloatArray,
    here: Limits,
    there: Limits,
    evidence: Evidence,
    of: NDArray[np.intp] | slice = slice(None),
) -> tuple[FloatArray, FloatArray]:
    """The ends of the ranges of moved times, NaN without a prediction; shape (kernels,). `of`: their rows of `evidence`.

    For kernels without evidence, between vendors, and for bounds without held-out data, the range spans both ratios plus the
    variation between two runs. Between vendors, peak rates are compared instead of multiprocessors, and no kernel moves
    bytes faster than the memory.
    """
    seconds, moved_bytes = moved.seconds, evidence["bytes"][of]
    work, floor = split(recorded, np.zeros(len(recorded)), here, there)
    memory, units = here.memory / there.memory, here.units / there.units
    if here.vendor != there.vendor:
        peaks = here.peak("fp32"), there.peak("fp32")
        units = peaks[0] / peaks[1] if peaks[0] and peaks[1] else units
    low, high = floor + work * min(memory, units), floor + work * max(memory, units)
    if here.vendor == there.vendor:
        low, high = np.minimum(low, seconds), np.maximum(high, seconds)
    else:
        streamed = np.where(moved_bytes > there.l2_bytes, moved_bytes / there.memory_peak, 0.0)
        low, high = np.maximum(low, streamed), np.maximum(high, streamed)
    low, high = low / (1 + UNCHANGED), high * (1 + UNCHANGED)
    rung = "probed" if here.rung == there.rung == "probed" else "datasheet"
    what = "kernel-alike" if here.generation == there.generation else "kernel"
    kinds = [(bound, moved.bounds == BOUNDS.index(bound)) for bound in RANGED]
    kinds.append((product_model(here, there), tensor_products(evidence, here, there)[of]))
    for model, rows in kinds if here.vendor == there.vendor else ():
        ranged = range_of(what, model, rung)
        if ranged is not None:
            low[rows], high[rows] = seconds[rows] * ranged.low, seconds[rows] * ranged.high
    return low, high
