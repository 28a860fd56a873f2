"""One-time costs of a process: how much longer its first calls take than their work and later calls of their kind.

A first call creates the context, loads a module, sets up a kernel or allocates staging buffers. No change to copies or
kernels removes that time. The rule uses the structure of the run, no fitted limit:

- A *kind* is the name of a call with what it launches: the kernel, or the direction of the copy, and the device.
- *Before its work* is the time from the start of a call to its first operation, or to its return if it launches nothing.
  If the call waits for the GPU, the time in which the GPU works is subtracted.
- The first call of a kind contains start-up if that time exceeds every later call and is an outlier among them: more than
  three interquartile ranges above the third quartile [Tukey 1977, Exploratory Data Analysis]. Its start-up is the part above
  their median and, for a blocking copy, above the time of the copy. Later calls have the same name; if all calls of
  the name are first ones, they have any name. A call that launches nothing may just be large: it contains start-up only
  before the first kernel of its process has ended, or if it names code, streams or events, which have no size.
  A free before the first allocation of its process (`cudaFree(0)`) frees nothing, and is not large.
- After a call that resets the device, a process has new contexts, and calls are first ones again. Every blocking copy
  before the first kernel counts as a first call, since each may load a module: a later one shows what it takes without.
- Calls that load code or create contexts are start-up as a whole, whenever they are made.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.nodes import FloatArray
from busfare.timeline.build.work import DeviceWork, HostCalls, Rows, alike
from busfare.timeline.model import WAIT, Mask, Times
from busfare.trace.columns import numbered
from busfare.trace.lanes import Union
from busfare.trace.words import Names, Words

#: Tukey's fence for values that are far out, in interquartile ranges beyond the third quartile.
FAR_OUT = 3.0
NEVER = np.iinfo(np.int64).max
#: Calls by their names: those of CUDA, HIP and HSA; those that load code or create a context; those whose only one may just
#: be large, since it pins memory or ends something; those that free and that allocate memory; those that name what has no
#: size; those that copy or set; those that launch work; those that end the contexts of their process.
PATTERNS = {
    "of_gpu": r"^_*(cu|hip|hsa_)",
    "loads": r"^(cu|hip)(Init$|CtxCreate|DevicePrimaryCtxRetain|(Module|Library)Load|Link(Create|Add|Complete))|^cudaInitD",
    "may_be_large": r"HostM?Alloc|MallocHost|HostRegister|Free|Destroy|Unload|Unregister|Reset|Finalize",
    "frees": r"Free",
    "allocates": r"[Aa]lloc|MemCreate",
    "sizeless": r"Stream|Event|Func|Kernel|Occupancy|Symbol|Module|Library",
    "copies": r"Memcpy|Memset",
    "launches": r"Memcpy|Memset|Launch",
    "resets": r"(Device|Thread|PrimaryCtx)(Reset|Exit)",
}


def startup(host: HostCalls, work: DeviceWork, wait: NDArray[np.uint8]) -> Times:
    """How much of each outermost call, from its beginning, is start-up; ns, shape (calls,). `wait`: of WAIT, as long."""
    calls = host.calls
    if calls.is_empty():
        return np.zeros(0, np.int64)
    names = Names.of_calls(calls)
    named = {name: names.matching(pattern) for name, pattern in PATTERNS.items()}
    # A process begins anew behind a reset.
    epochs = calls.select("process", epoch=pl.Series(named["resets"]))
    process, _ = alike(epochs.with_columns(pl.col("epoch").cast(pl.Int64).cum_sum().over("process")))
    starts, ends = (calls[name].to_numpy() for name in ("start_ns", "end_ns"))
    callers, operation, before, took = _before_work(work, starts, ends, wait)
    waits = wait != WAIT["none"]
    of_operation, _ = alike(work.operations.select("device", "kind", "direction", "name"))
    launched = np.zeros(len(starts), np.uint32)
    launched[callers] = of_operation[operation] + np.uint32(1)
    works = launched > 0
    kind, first_rows = numbered([process, names.of, launched])
    # What begins before the first call of its kind has returned waits for that one.
    first = starts < ends[first_rows][kind]
    first[first_rows] = True
    # Before anything was launched there is nothing to wait for, and nothing to free before anything was allocated.
    before_call = pl.DataFrame({name: named[name] for name in ("launches", "allocates")}).select(
        pl.all().cum_max().shift(1, fill_value=False).over(pl.Series(process))
    )
    nothing_yet, frees_nothing = (~column.to_numpy() for column in before_call)
    may_be_large = named["may_be_large"] & ~(named["frees"] & frees_nothing)
    timed = named["of_gpu"] & (works | ~named["copies"] & (~waits | nothing_yet))
    kernels = Words(work.operations).among("kind", "kernel", "graph")
    running = (kernels if kernels.any() else ~kernels)[operation]
    first_end = np.full(int(process.max()) + 1, NEVER)
    kernel_ends = work.operations["end_ns"].to_numpy()[operation[running]]
    np.minimum.at(first_end, process[callers[running]], kernel_ends)
    early = works | named["sizeless"] | (starts < first_end[process])
    # Before the first kernel, copies may each load a module: none shows what the next usually takes.
    blocking = named["copies"] & works & (wait == WAIT["operation"])
    first |= blocking & (starts < first_end[process]) & (first_end < NEVER)[process]
    later = timed & ~first
    longest = np.full(len(names.texts), -1)
    np.maximum.at(longest, names.of[later], before[later])
    comparable = (longest[names.of] >= 0) | ~may_be_large & early
    rows = np.flatnonzero(timed & first & (before > longest[names.of]) & comparable)
    usual, fence = _references(names.of, before, later if later.any() else timed, rows)
    excess = np.where(before[rows] > fence, before[rows] - np.maximum(usual, took[rows]), 0)
    starting = np.zeros(len(starts), np.int64)
    starting[rows] = np.maximum(excess, 0)
    starting[named["loads"]] = before[named["loads"]]
    return starting


def _references(
    name: NDArray[np.uint32], before: Times, later: Mask, rows: NDArray[np.int64]
) -> tuple[FloatArray, FloatArray]:
    """For each of the calls `rows`, shape (rows,): the median time of `later` calls of the same name, and the limit for
    outliers among them; of later calls of any name if the name has none.
    """
    usual, fence = np.zeros((2, int(name.max()) + 1))
    for number in np.unique(name[rows]):
        of_name = before[later & (name == number)]
        times = of_name if len(of_name) else before[later]
        low, usual[number], high = np.quantile(times, (0.25, 0.5, 0.75)) if len(times) else (0.0, 0.0, 0.0)
        fence[number] = max(times.max(initial=0), high + FAR_OUT * (high - low))
    return usual[name[rows]], fence[name[rows]]


def _before_work(
    work: DeviceWork, starts: Times, ends: Times, wait: NDArray[np.uint8]
) -> tuple[Rows, NDArray[np.int64], Times, Times]:
    """The calls that launch operations, and the first operation of each. For each call from `starts` to `ends`: the time
    before that operation, and the time of its operations if it waits for them; ns, shape (calls,).
    """
    operations = work.operations
    begun, done = (operations[name].to_numpy() for name in ("start_ns", "end_ns"))
    launched = np.flatnonzero(operations["launched"].to_numpy())
    caller = operations["call"].to_numpy()[launched]  # in order
    begins = np.diff(caller, prepend=np.int32(-1)) != 0
    callers, first = caller[begins], launched[begins]
    before = ends - starts
    before[callers] = np.clip(begun[first] - starts[callers], 0, before[callers])
    # Calls that launch and do not wait return however busy the GPU is.
    launches = np.zeros(len(starts), bool)
    launches[callers] = True
    rows = np.flatnonzero((wait != WAIT["none"]) | ~launches)
    until = starts[rows] + before[rows]
    before[rows] -= Union.of(begun, done).covered_within(starts[rows], until)
    took = np.zeros(len(starts), np.int64)
    waited = wait[caller] == WAIT["operation"]
    np.add.at(took, caller[waited], (done - begun)[launched[waited]])
    return callers, first, before, took
