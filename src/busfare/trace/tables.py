"""The columns of every table of a `Trace`: the one place where they are named, typed and explained.

Times are integer nanoseconds since the first thing that the trace saw; sizes are bytes; a null is 'the trace
does not say', never zero.
"""

from collections.abc import Mapping

import polars as pl

#: What ran on the GPU. `graph` is a whole graph launch whose nodes the trace hides.
KINDS = ("kernel", "copy", "set", "migration", "graph")
DIRECTIONS = ("h2d", "d2h", "d2d", "p2p", "h2h")
#: `array` and `static` are device memory (CUDA arrays, `__device__`/`__constant__` symbols) with advice of their own.
MEMORY_KINDS = ("pageable", "pinned", "managed", "mapped", "device", "array", "static")
WAITS_FOR = ("none", "operation", "stream", "device", "event")
EVENT_KINDS = ("record", "wait")
STREAM_KINDS = ("null", "blocking", "non-blocking")

Schema = Mapping[str, pl.DataType]
#: Numbers that only tell things apart, and have 32 bits: of a wider one, such as an address, the lower bits are kept.
NUMBERS = ("process", "context", "stream")

OPERATIONS: Schema = {
    "kind": pl.Enum(KINDS),
    "direction": pl.Enum(DIRECTIONS),  # of copies and migrations
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "bytes": pl.Int64(),
    "source_memory": pl.Enum(MEMORY_KINDS),
    "destination_memory": pl.Enum(MEMORY_KINDS),  # of sets, too
    "device": pl.Int32(),  # the ordinal that the program used
    "peer_device": pl.Int32(),  # the other device of a p2p copy (the destination)
    "context": pl.Int32(),
    "stream": pl.Int32(),
    "process": pl.Int32(),
    "correlation": pl.Int64(),  # unique within a process only
    "name": pl.Categorical(),
    "graph_node": pl.Int64(),  # not null: ran inside a graph launch; negative: numbered by busfare
    "copy_count": pl.Int32(),  # copies that one row stands for (a batched copy); 1 otherwise
}

#: Columns that only busfare's own recorder fills; absent from other traces.
OPERATIONS_RECORDED: Schema = {
    "source_address": pl.UInt64(),
    "destination_address": pl.UInt64(),
    "fingerprint": pl.UInt64(),  # a hash of the bytes copied
}

#: What only kernels have: the row of `launches`. Absent from traces that were not read with their launches.
OPERATIONS_OF_KERNELS: Schema = {"launch": pl.UInt32()}

#: `grid_x` and on, in blocks, then `block_x` and on, in threads.
SHAPE: Schema = {f"{what}_{side}": pl.Int32() for what in ("grid", "block") for side in "xyz"}

#: How a kernel is launched. Readers give it as columns of the operations, for `launches.py` to number.
LAUNCH_SHAPE: Schema = {
    **SHAPE,
    "registers": pl.Int32(),  # a thread
    "shared_bytes": pl.Int64(),  # a block, static and dynamic
}

#: What a trace tells of the memory that a launch can reach, as columns of the operations like its shape.
REACH: Schema = {
    "allocated_bytes": pl.Int64()  # the most that its process had of the GPU's memory until it last ended
}

#: The PyTorch operator that launches it; lists are compact JSON.
OPERATORS: Schema = {
    "operator": pl.String(),  # aten::mm
    "shapes": pl.String(),  # of its inputs: [[64,128],[128,32]]
    "types": pl.String(),  # of its inputs, as the trace spells them: ["float","c10::BFloat16"]
    "inputs": pl.String(),  # those that are no tensors, as text: ["","[1, 1]","False"]
}

#: What the arguments of a communication kernel or range say; absent from traces that say nothing.
OPERATIONS_OF_COLLECTIVES: Schema = {
    "collective": pl.UInt32()  # row of `described`, as the reader gave it
}

#: Of ranges that busfare's own recorder noted: so many rows of `described`, from `collective` on; of other ranges one.
RANGES_OF_COLLECTIVES: Schema = {"messages": pl.UInt32()}

COLLECTIVE_KINDS = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "gather", "scatter", "barrier",
    "send", "receive", "send_receive",
)  # fmt: skip

#: Collectives that no member leaves before the last one has sent its part.
SYMMETRIC = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")

#: What tells of a collective: its arguments in the trace, the range around its call, or its kernel's name.
DESCRIBED: Schema = {
    "collective_kind": pl.Enum(COLLECTIVE_KINDS),  # null: several at once, or unknown
    "communicator": pl.String(),  # as the program calls it, alike in all ranks
    "members": pl.String(),  # ranks of it, "0,1,2"; null where the trace cuts the list
    "group_size": pl.Int32(),
    # As nccl-tests counts: of an all-gather what is gathered, of a reduce-scatter the whole input, of an all-to-all what a
    # rank sends to all, else the buffer.
    "bytes": pl.Int64(),
    "sequence": pl.Int64(),  # of its communicator (of messages: one way, with one tag), where the trace numbers them
    "place": pl.Int32(),  # the rank's own in the communicator; null: that of the job
    "peer": pl.Int32(),  # of a message, by the same numbers
    "tag": pl.Int32(),  # of a message
    "ended": pl.Boolean(),  # where the program waits for a send that it began before, in a row of its own
    "algorithm": pl.String(),  # ring, tree, nvls, …
    "protocol": pl.String(),  # simple, ll, ll128
}

#: A row a communication kernel, or a range of an MPI call that talks to other ranks, in order of their starts.
COLLECTIVES: Schema = {
    "operation": pl.UInt32(),  # row of the operations; null of a range
    "marker": pl.UInt32(),  # row of the markers; null of a kernel
    "process": pl.Int32(),
    "device": pl.Int32(),
    "stream": pl.Int32(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    **DESCRIBED,
}

#: Kernel launches that are alike in all that the trace says of them, each once.
LAUNCHES: Schema = {**LAUNCH_SHAPE, **REACH, **OPERATORS}

CALLS: Schema = {
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "process": pl.Int32(),
    "thread": pl.Int64(),
    "name": pl.Categorical(),  # without the ABI suffix: cudaMemcpyAsync, not cudaMemcpyAsync_v3020
    "correlation": pl.Int64(),
    "waits_for": pl.Enum(WAITS_FOR),
    "context": pl.Int32(),  # of a wait: the context of its device or stream, where the trace says which
    "stream": pl.Int32(),  # the stream waited for, where `waits_for` is `stream` and the trace says which
    "event": pl.Int64(),  # the event waited for, likewise
}

#: Only of calls that busfare's own recorder held up by more than a moment; absent from other traces.
CALLS_RECORDED: Schema = {
    # Between the thread's call before and this one, for fingerprints.
    "recorder_ns": pl.Int64()
}

#: What readers give, for `sound.py` to make the columns `failed` and `not_ready` (of queries) of, which are absent where no
#: call was that, or the trace does not say.
CALLS_RETURNED: Schema = {
    "result": pl.Int32()  # CUDA's error, 0 where the call succeeded
}

#: Where in the program a call is made; absent from traces that say nothing of it.
CALLS_LOCATED: Schema = {
    "site": pl.Categorical(),  # train.py:42 load_batch, or main (saxpy)
    "module": pl.Categorical(),  # the class of PyTorch's module around it
}

#: Event records, and the waits of one stream for an event of another.
EVENTS: Schema = {
    "kind": pl.Enum(EVENT_KINDS),
    "start_ns": pl.Int64(),  # of the call on the host
    "end_ns": pl.Int64(),
    "process": pl.Int32(),
    "device": pl.Int32(),
    "context": pl.Int32(),
    "stream": pl.Int32(),  # where the event is recorded, or which waits
    "event": pl.Int64(),  # re-used: an event may be recorded many times
    "event_sync": pl.Int64(),  # unique to one record and its waits, where the trace has it
    "correlation": pl.Int64(),
    # The record that a wait waits for, where the trace says it itself (Kineto).
    "record_correlation": pl.Int64(),
}

#: Ranges and marks that the program named (NVTX, user annotations).
MARKERS: Schema = {
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),  # null for an instantaneous mark
    "process": pl.Int32(),
    "thread": pl.Int64(),
    "name": pl.Categorical(),
    "domain": pl.Int64(),
}

ACTIVITY_KINDS = ("range", "operator", "function", "os-call", "sample")

#: Activity of host threads: PyTorch operators, Python functions, system calls, sampled stacks.
ACTIVITY: Schema = {
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),  # null for samples
    "process": pl.Int32(),
    "thread": pl.Int64(),
    "kind": pl.Enum(ACTIVITY_KINDS),
    "name": pl.Categorical(),
}

DEVICES: Schema = {
    "device": pl.Int32(),
    "process": pl.Int32(),  # null: the same in every process
    "name": pl.String(),
    "integrated": pl.Boolean(),  # it and the host share one memory
    "uuid": pl.String(),
    "bus_id": pl.String(),
    "memory_bytes": pl.Int64(),
    "memory_bandwidth_bytes_per_s": pl.Float64(),
    "clock_hz": pl.Float64(),
    "multiprocessors": pl.Int32(),
    "compute_capability": pl.String(),
    "copy_engines": pl.Int32(),
    "pcie_generation": pl.Int32(),
    "pcie_lanes": pl.Int32(),
}

STREAMS: Schema = {
    "process": pl.Int32(), "device": pl.Int32(), "context": pl.Int32(), "stream": pl.Int32(),
    "kind": pl.Enum(STREAM_KINDS), "priority": pl.Int32(),
}  # fmt: skip

#: Why a kernel's bytes are not counted: its rows differ, it shares its bare name, their cells hold no number, it has none.
UNCOUNTED = ("rows-differ", "shared-name", "no-number", "no-row")
#: Bytes that hardware counters saw, a row a distinct kernel (name, grid, block): of a file that was given with the trace.
COUNTERS: Schema = {
    "name": pl.String(),  # as in `operations`
    **SHAPE,
    "dram_read_bytes": pl.Float64(),
    "dram_write_bytes": pl.Float64(),
    "l2_bytes": pl.Float64(),  # looked up in L2, by whomever
    "launches": pl.UInt32(),
    "uncounted": pl.Enum(UNCOUNTED),  # null: counted
}


def empty(schema: Schema) -> pl.DataFrame:
    """A table of no rows."""
    return pl.DataFrame(schema=dict(schema))


def conform(frame: pl.DataFrame, schema: Schema, optional: Schema | None = None) -> pl.DataFrame:
    """`frame` with exactly the columns of `schema` (and of `optional` those that it has), so typed.

    A column that `frame` lacks is all null. A value that does not fit its type (a 64-bit number where 32 are
    meant, but for `NUMBERS`; a kind that is not listed) becomes null: readers must have mapped and counted it before.
    """
    wanted = dict(schema) | {k: v for k, v in (optional or {}).items() if k in frame.columns}
    given = frame.schema
    changed = [
        pl.col(name).cast(kind, strict=False, wrap_numerical=name in NUMBERS)
        if name in given
        else pl.lit(None, dtype=kind).alias(name)
        for name, kind in wanted.items()
        if given.get(name) != kind
    ]
    return (frame.with_columns(changed) if changed else frame).select(*wanted)
