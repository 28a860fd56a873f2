"""What names of calls and kernels mean; columns of few words (kind, direction, memory) as codes; printable names."""

import re
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.printable import HARMFUL, printable
from busfare.trace.columns import numbered, rows_of
from busfare.trace.tables import KINDS, WAITS_FOR

#: The ABI's version and the per-thread default stream, in either order: cudaMemcpy_ptds_v7000, hipMemcpy_spt.
ABI_SUFFIX = r"(_v\d+|_ptsz|_ptds|_spt)+$"

WAITS_FOR_DEVICE = (
    r"^(cuda|hip)(Device|Thread)Synchronize$|^(cu|hip)CtxSynchronize$"
    r"|^(cuda|hip)(Free|DeviceReset|FreeHost|HostFree|FreeArray|HostUnregister)$|^cuMem(Free|FreeHost|HostUnregister)$"
    r"|^cu(ArrayDestroy|DevicePrimaryCtxReset)$"
)
WAITS_FOR_EVENT = r"^(cuda|cu|hip)EventSynchronize$"
#: Copies that return when the copy is done.
BLOCKING_COPY = (
    r"^(cuda|hip)Memcpy(2D|3D)?(Peer|(To|From)(Symbol|Array)|ArrayToArray)?$"
    r"|^(cu|hip|hipDrv)Memcpy([HDA]to[HDA]|2D|2DUnaligned|3D|Peer|3DPeer)?$"
    r"|^hipMemcpy(WithStream|Param2D)$"
)
#: What calls wait for before they return, by their plain names; the first that fits.
WAITS = {
    "stream": r"^(cuda|cu|hip)StreamSynchronize$",
    "event": WAITS_FOR_EVENT,
    "device": WAITS_FOR_DEVICE,
    "operation": BLOCKING_COPY,
}
ALLOCATES_DEVICE_MEMORY = r"^(cuda|hip)Malloc(Pitch|3D)?$|^cuMemAlloc(Pitch)?$"
FREES_DEVICE_MEMORY = r"^(cuda|hip)Free$|^cuMemFree$"
#: Values handed over in `__constant__` or `__device__` variables.
SYMBOL_COPY = r"MemcpyToSymbol"
#: Launches that take the grid in work-items; others take it in blocks.
GRID_IN_ITEMS = r"^hip(Hcc|Ext)ModuleLaunchKernel"
KERNEL_LAUNCH = r"^(cuda|cu|hip)(Ext|Module)?LaunchKernel"
EVENT_RECORD = r"^(cuda|cu|hip)EventRecord(WithFlags)?$"
GRAPH_LAUNCH = r"^(cuda|cu|hip)GraphLaunch$"
#: Functions of the program's that a stream runs on the host, between its other work.
HOST_FUNCTION = r"^(cuda|cu|hip)(LaunchHostFunc|StreamAddCallback)"
#: Sends managed memory where it will be needed.
PREFETCH = r"^(cuda|cu|hip)MemPrefetch(Batch)?Async$"
STREAM_WAIT_EVENT = r"^(cuda|cu|hip)StreamWaitEvent$"
#: Gives kernels memory of the host: what they write there needs no copy.
MAPS_HOST_MEMORY = r"^(cuda|hip|cuMem|hipMem)HostGetDevicePointer$"
#: Calls of MPI, as ranges of a profiler name them.
MPI_CALL = r"^P?MPI_"
#: Questions whether work is done.
POLL = r"^(cuda|cu|hip)(Event|Stream)Query$"
#: Questions about the state of things, and what libraries wrap around them.
QUERY = (
    r"^(cuda|cu|hip)((Event|Stream)Query|ThreadExchangeStreamCaptureMode|StreamIsCapturing|[GS]etDevice"
    r"|(Get|PeekAt)LastError|Ctx([GS]etCurrent|PushCurrent|PopCurrent))$"
)

#: CUDA's errors, as its runtime and its driver number them, without `cudaError` [driver_types.h].
ERRORS = {
    1: "InvalidValue", 2: "MemoryAllocation", 3: "InitializationError", 9: "InvalidConfiguration", 35: "InsufficientDriver",
    46: "DevicesUnavailable", 98: "InvalidDeviceFunction", 100: "NoDevice", 101: "InvalidDevice", 200: "InvalidKernelImage",
    201: "DeviceUninitialized", 209: "NoKernelImageForDevice", 214: "ECCUncorrectable", 217: "PeerAccessUnsupported",
    218: "InvalidPtx", 221: "JitCompilerNotFound", 222: "UnsupportedPtxVersion", 400: "InvalidResourceHandle",
    500: "SymbolNotFound", 700: "IllegalAddress", 701: "LaunchOutOfResources", 702: "LaunchTimeout", 710: "Assert",
    714: "HardwareStackError", 715: "IllegalInstruction", 716: "MisalignedAddress", 717: "InvalidAddressSpace",
    718: "InvalidPc", 719: "LaunchFailure", 720: "CooperativeLaunchTooLarge", 800: "NotPermitted", 801: "NotSupported",
    802: "SystemNotReady", 803: "SystemDriverMismatch", 804: "CompatNotSupportedOnDevice", 999: "Unknown",
}  # fmt: skip
#: No failures: work is not done [cudaErrorNotReady], GPUs reach each other already [cudaErrorPeerAccessAlreadyEnabled].
NOT_READY, PEER_ACCESS = 600, 704
#: Calls that return the error of an earlier call, or by which libraries probe what a kernel or a pointer is.
PROBES = r"^((cuda|hip)(GetLast|PeekAtLast|ExtGetLast)Error|(cuda|cu|hip)(Func|Pointer)GetAttribute)"

#: What kernels of a library are called, behind `void` and namespaces, mangled or not.
CARRIERS = (
    r"nccl\w*Kernel",  # NCCL and RCCL: ncclDevKernel_*, ncclKernel_*, ncclSymkDevKernel_*, ncclAllReduceRingLLKernel_*
    r"rccl\w*Kernel",
    r"mscclKernel",  # RCCL with MSCCL
    r"mscclpp(::|\d)",
    r"nvshmem",
    r"rocshmem",
)
COMMUNICATION = rf"^(_ZN?\d*|void )?(\w+::|\d+)*({'|'.join(CARRIERS)})"


def plain_name(name: pl.Expr) -> pl.Expr:
    """The call's name without its ABI suffix."""
    return name.str.replace(ABI_SUFFIX, "")


def function_name(name: str) -> str:
    """The name of a function without parameters, return type and spaces; lambdas in CUPTI's spelling."""
    name, depth = name.strip(), 0
    if name.endswith(")"):
        for place in range(len(name) - 1, 0, -1):
            depth += (name[place] == ")") - (name[place] == "(")
            if depth == 0:
                name = name[:place].rstrip()
                break
    for place in range(len(name) - 1, -1, -1):
        depth += (name[place] in ">)]}") - (name[place] in "<([{")
        if depth == 0 and name[place] == " ":
            name = name[place:]
            break
    return re.sub(r"\[lambda(\(.*?\))\(instance(\d+)\)\]", r"{lambda\1#\2}", re.sub(r"\s", "", name))


def error_named(code: int) -> str:
    """`cudaErrorIllegalAddress (700)`."""
    return f"cudaError{ERRORS[code]} ({code})" if code in ERRORS else f"CUDA's error {code}"


def waits_for(plain: pl.Expr) -> pl.Expr:
    """What a call of this plain name waits for before it returns, as far as its name tells."""
    named = [pl.when(plain.str.contains(pattern)).then(pl.lit(what)) for what, pattern in WAITS.items()]
    return pl.coalesce(*named, pl.lit("none")).cast(pl.Enum(WAITS_FOR))


#: The code of a null.
NONE = 255
#: The number of a null among those of a Categorical column.
NO_NUMBER = 0xFFFFFFFF


class Words:
    """The columns of type Enum of a table; each is looked at once, however often it is asked."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._columns = {name: frame[name] for name, kind in frame.schema.items() if kind == pl.Enum}
        self._codes: dict[str, NDArray[np.uint8]] = {}
        self._masks: dict[tuple[str, ...], NDArray[np.bool_]] = {}

    def codes(self, name: str) -> NDArray[np.uint8]:
        """The place of each row's word among its column's words, 255 for null; shape (rows,)."""
        if name not in self._codes:
            numbers = self._columns[name].to_physical()
            if numbers.null_count():
                numbers = numbers.fill_null(NONE)
            self._codes[name] = numbers.to_numpy()
        return self._codes[name]

    def among(self, name: str, *words: str) -> NDArray[np.bool_]:
        """Whether each row's word is one of `words`; a null is none. Not to be written to. Shape (rows,)."""
        key = (name, *words)
        if key not in self._masks:
            kind = self._columns[name].dtype
            assert isinstance(kind, pl.Enum)
            wanted = np.zeros(NONE + 1, bool)
            wanted[: len(kind.categories)] = kind.categories.is_in(words)
            self._masks[key] = wanted[self.codes(name)]
        return self._masks[key]


def of_codes(codes: NDArray[np.unsignedinteger[Any]], like: pl.Series) -> pl.Series:
    """A column of the type of `like`, words, by the places of its words; in Enums 255 stands for null."""
    made = pl.Series(codes)
    if isinstance(like.dtype, pl.Enum) and (codes == NONE).any():
        made = pl.select(pl.when(made != NONE).then(made)).to_series()
    return made.cat.to(like.dtype)


class Names(NamedTuple):
    """`texts`: each name once, in order of appearance; None for a null. `of`: which one each call has."""

    texts: list[str | None]
    of: NDArray[np.uint32]

    @staticmethod
    def of_calls(calls: pl.DataFrame) -> "Names":
        """The names of a table of calls."""
        names = calls["name"]
        numbers = names.to_physical()
        if numbers.null_count():
            numbers = numbers.fill_null(NO_NUMBER)
        of, first_rows = numbered([np.ascontiguousarray(numbers.to_numpy())])
        return Names(names[first_rows].cast(pl.String).to_list(), of)

    def matching(self, pattern: str) -> NDArray[np.bool_]:
        """Whether each call's name contains the regular expression `pattern`; shape (calls,)."""
        texts = pl.Series(self.texts, dtype=pl.String)
        return texts.str.contains(pattern).fill_null(False).to_numpy()[self.of]


def calls_named(calls: pl.DataFrame, pattern: str, names: Names | None = None) -> pl.DataFrame:
    """Row, process, correlation, times and waits_for of the calls whose name contains the regular expression `pattern`.
    `names`: those of the calls, where they are known.
    """
    names = names or Names.of_calls(calls)
    named = pl.Series(names.texts, dtype=pl.String).str.contains(pattern).fill_null(False).to_numpy()
    columns = calls.select("process", "correlation", "start_ns", "end_ns", "waits_for")
    rows = rows_of(names.of, named) if named.any() else np.zeros(0, np.uint32)
    return columns[rows].with_columns(row=rows)


def launches_kernel(calls: pl.DataFrame) -> NDArray[np.bool_]:
    """Whether each call launches a kernel; none where graphs are captured, by launches that run nothing. Shape (calls,)."""
    names = Names.of_calls(calls)
    texts = pl.Series(names.texts, dtype=pl.String)
    named = texts.str.contains(KERNEL_LAUNCH).fill_null(False).to_numpy()
    launches: NDArray[np.bool_] = named[names.of] & (not texts.str.contains("BeginCapture").any())
    return launches & ~calls["failed"].to_numpy() if "failed" in calls.columns else launches


#: The kinds of operations as a trace's sums tell them apart.
CLASSES = pl.Enum([*KINDS, "communication"])


def is_communication(name: pl.Expr) -> pl.Expr:
    """Whether a kernel of this name carries data between GPUs; false for none."""
    return name.cast(pl.String).str.contains(COMMUNICATION).fill_null(False)


def kind_codes(operations: pl.DataFrame) -> NDArray[np.uint8]:
    """The place of each operation's kind among those of CLASSES; each name is looked at once. Shape (rows,)."""
    codes = Words(operations).codes("kind")
    numbers = operations["name"].to_physical()
    if numbers.null_count() == len(numbers):
        return codes
    flags = pl.select(is_communication(pl.lit(texts_of(operations["name"])))).to_series().to_numpy()
    if not flags.any():
        return codes
    flags = np.append(flags, False)
    named = flags[(numbers.fill_null(len(flags) - 1) if numbers.null_count() else numbers).to_numpy()]
    named &= codes == KINDS.index("kernel")
    return np.where(named, np.uint8(len(KINDS)), codes)


def with_printable(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """`frame` with nothing in the texts of `column` that a terminal or a page would obey: names may hold anything."""
    texts = frame[column]
    distinct = texts_of(texts) if isinstance(texts.dtype, pl.Categorical) else texts
    bad = distinct.filter(distinct.str.contains(HARMFUL)).unique().drop_nulls()
    if bad.is_empty():
        return frame
    spelt = pl.Series([printable(text) for text in bad], dtype=pl.String)
    made = texts.cast(pl.String).replace(bad, spelt).cast(texts.dtype)
    return frame.with_columns(made.alias(column))


def texts_of(names: pl.Series) -> pl.Series:
    """All texts that a Categorical column may hold, its rows' among them: sooner known than each row's."""
    most = names.to_physical().max()
    codes = np.arange(most + 1 if isinstance(most, int) else 0, dtype=np.uint32)
    return of_codes(codes, names).cast(pl.String)
