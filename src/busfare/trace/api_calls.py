"""What names mean: of an API call its plain name and what it waits for, of a kernel whether it carries data."""

from __future__ import annotations

import polars as pl

from busfare.trace.tables import WAITS_FOR

#: The ABI's version and the per-thread default stream, in either order: cudaMemcpy_ptds_v7000, hipMemcpy_spt.
ABI_SUFFIX = r"(_v\d+|_ptsz|_ptds|_spt)+$"

WAITS_FOR_DEVICE = (
    r"^(cuda|hip)(Device|Thread)Synchronize$|^(cu|hip)CtxSynchronize$"
    r"|^(cuda|hip)(Free|DeviceReset|FreeHost|HostFree|FreeArray|HostUnregister)$|^cuMem(Free|FreeHost|HostUnregister)$"
    r"|^cu(ArrayDestroy|DevicePrimaryCtxReset)$"
)
WAITS_FOR_STREAM = r"^(cuda|cu|hip)StreamSynchronize$"
WAITS_FOR_EVENT = r"^(cuda|cu|hip)EventSynchronize$"
#: Copies that return when the copy is done.
BLOCKING_COPY = (
    r"^(cuda|hip)Memcpy(2D|3D)?(Peer|(To|From)(Symbol|Array)|ArrayToArray)?$"
    r"|^(cu|hip|hipDrv)Memcpy([HDA]to[HDA]|2D|2DUnaligned|3D|Peer|3DPeer)?$"
    r"|^hipMemcpy(WithStream|Param2D)$"
)
#: Values handed over in `__constant__` or `__device__` variables.
SYMBOL_COPY = r"MemcpyToSymbol"
#: Launches that take the grid in work-items; others take it in blocks.
GRID_IN_ITEMS = r"^hip(Hcc|Ext)ModuleLaunchKernel"
EVENT_RECORD = r"^(cuda|cu|hip)EventRecord(WithFlags)?$"
GRAPH_LAUNCH = r"^(cuda|cu|hip)GraphLaunch$"
#: Functions of the program's that a stream runs on the host, between its other work.
HOST_FUNCTION = r"^(cuda|cu|hip)(LaunchHostFunc|StreamAddCallback)"
#: Sends managed memory where it will be needed.
PREFETCH = r"^(cuda|cu|hip)MemPrefetch(Batch)?Async$"
STREAM_WAIT_EVENT = r"^(cuda|cu|hip)StreamWaitEvent$"
#: Questions about the state of things, and what libraries wrap around them.
QUERY = (
    r"^(cuda|cu|hip)((Event|Stream)Query|ThreadExchangeStreamCaptureMode|StreamIsCapturing|[GS]etDevice"
    r"|(Get|PeekAt)LastError|Ctx([GS]etCurrent|PushCurrent|PopCurrent))$"
)

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


def waits_for(plain: pl.Expr) -> pl.Expr:
    """What a call of this plain name waits for before it returns, as far as its name tells."""
    return (
        pl.when(plain.str.contains(WAITS_FOR_STREAM))
        .then(pl.lit("stream"))
        .when(plain.str.contains(WAITS_FOR_EVENT))
        .then(pl.lit("event"))
        .when(plain.str.contains(WAITS_FOR_DEVICE))
        .then(pl.lit("device"))
        .when(plain.str.contains(BLOCKING_COPY))
        .then(pl.lit("operation"))
        .otherwise(pl.lit("none"))
        .cast(pl.Enum(WAITS_FOR))
    )
