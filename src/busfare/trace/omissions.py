"""What readers skip, repair or cannot know of a trace: ids, and the sentence that tells the user of each."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["INCOMPLETE", "WHAT", "Omission", "Omissions"]

#: Ids of omissions by which a part of the run is not in the file: a reader has to know before any number.
INCOMPLETE = frozenset(
    {"cut", "damaged", "damaged-compression", "missing", "torn", "truncated", "truncated-compression"}
)

#: The sentences by their ids; where several have one id, it stands before a slash.
WHAT = {
    # Of any trace.
    "copies-not-recorded": "calls that launch copies, but the trace has no copies: record copies too",
    "kernels-not-recorded": "calls that launch kernels, but the trace has no kernels: record kernels too",
    "failed-calls": "calls failed, first {call} with {error}: advice covers only what ran",
    "launches-failed": "launches failed: {error}; none of them ran a kernel",
    "clock-backwards": "{what} that end before they start: counted with zero duration",
    "copying-kernels": "runtime kernels that copy: counted as kernels, because the trace does not record what they copied",
    "cut-window": "GPU operations whose API call is outside the recorded window: counted, but not assigned to a host thread",
    "far-away": "{what} more than 30 days from most others: skipped",
    "graph-nodes": "operations inside graph launches: their dependencies are not recorded; busfare keeps the observed order",
    "impossible-rates": "copies faster than the memory of any GPU: treated as unknown size",
    "impossible-sizes": "operations with a negative or impossible size: treated as unknown size",
    "listed-twice": "copies that the profiler listed a second time: skipped; each is counted once",
    "no-calls": "the trace has no API calls: host activity and host waits are unknown",
    "no-gpu-records": "the trace has no GPU activity: {lost}; record with {command}",
    "no-gpu-records/failed": "the trace has no GPU activity: records of the GPU are lost when a program fails",
    "no-gpu-records/calls": "calls launch GPU work, but the trace has no GPU activity: the profiler did not collect it. "
    "Likely causes: a driver newer than the profiler, no permission to profile, a virtual machine or WSL, or a program that "
    "was killed before the profiler wrote its records",
    "part": "API calls and GPU operations outside {part}: left out",
    "records-without-call": "event records or waits whose call is outside the trace: excluded from the dependencies",
    "two-clocks": "GPU operations use a different clock than the API calls, {distance:.6g} s apart: shifted to align "
    "the operation with the shortest launch delay to its call{drift}",
    "unknown-sizes": "copies of unrecorded size: their time is counted, their bytes are not",
    "untimed": "{what} without usable timestamps: skipped",
    # Of several profilers.
    "open-ranges": "NVTX ranges still open at the end of the trace: shown as marks",
    "opaque-graphs": "CUDA graph launches recorded as a whole: the kernels and copies inside them are not in the "
    "trace or in any count here; {remedy} to see them",
    "profiler-said": "profiler warning: {text}",
    "profiler-said/more": "more profiler warnings; see DIAGNOSTIC_EVENT in the file",
    "truncated": "the file is truncated or damaged: data beyond that point is missing",
    "unknown-direction": "copies of unrecorded direction: counted without a direction",
    "unknown-memory": "copies whose host memory is not recorded as pinned or pageable: no advice on pinning is possible",
    "unknown-memory/all": "the trace does not record which host memory was pinned: no advice on pinning is possible",
    "unknown-memory/allocations": "copies whose host memory cannot be classified as pinned or pageable from the "
    "recorded allocations",
    "unnamed-calls": "API calls without a name: assumed not to wait",
    "unusable-events": "entries of the event list without usable timestamps: skipped",
    # Of compressed files.
    "after-compressed": "data after the end of the compressed stream: ignored",
    "damaged-compression": "the compressed data is damaged near byte {at}: the rest is skipped",
    "truncated-compression": "the compressed file is truncated",
    # Of PyTorch's profiler.
    "calls-left-out": "host calls that belong to neither CUDA nor HIP: skipped, because their waits are unknown",
    "damaged/json": "damaged JSON at byte {at} ({error}): the rest is skipped",
    "other-accelerator": "events of an accelerator that is not a GPU: skipped",
    # Of Nsight Systems and nvprof.
    "links-unlike": "PCIe links recorded for only some GPUs, or of several kinds: they cannot be matched to GPUs",
    "mpi-without-process": "MPI calls without a process: skipped",
    "mpi-without-partners": "MPI calls without communicators, partners and bytes, as recorded by older versions of Nsight "
    "Systems: shown, but not matched across ranks; record with a newer version or with `busfare record`",
    "unknown-communicators": "MPI calls on communicators that the export does not describe: shown, but not matched "
    "across ranks (record with NSYS_MPI_STORE_TEAMS_PER_RANK=1)",
    "unknown-nvtx": "table {table} is newer than this version of busfare: its NVTX ranges are not read",
    "unknown-wait": "synchronisations without a recorded call, where either a stream or the host may have waited for an "
    "event: excluded from the dependencies",
    "unnamed-calls/numbers": "minor API calls recorded only by number: shown as numbers, assumed not to wait",
    "waits-without-records": "stream waits for events whose records are not in the trace: what they wait for is unknown",
    # Of AMD's profilers.
    "barriers": "barrier packets in queues: skipped, because they do no work",
    "driver-events": "driver events (page faults, page migrations, queues): skipped",
    "opaque-graphs/amd": "operations inside graph launches: the trace records when they ran but not what they copied "
    "({copied} of them are copies); they count as GPU work of kind `graph`, not as kernels or copies",
    "repeated-kernels": "kernels that the profiler replayed to collect counters: skipped",
    "tracer-calls": "calls made by the tracer itself: skipped",
    "unknown-agents": "agents that the trace does not list: agents that ran kernels are treated as GPUs, numbered in order",
    "unknown-events": "events of unrecorded type: skipped",
    "unknown-gpus": "copies without a recorded GPU: counted, but assigned to no GPU",
    "unknown-operations": "operations other than kernels, copies and fills: their time is counted as kernel time",
    # Of XLA's profiler.
    "calls-named-by-work": "API calls recorded under the name of the work that they launch: shown under the name of the "
    "matching driver call",
    "cut/timeline": "the timeline has {events:,} events: the profiler drops events beyond a million; pass the "
    ".xplane.pb instead",
    "damaged/plane": "the plane at byte {at} is damaged: skipped",
    "damaged/protobuf": "damaged protobuf near byte {at}: the rest is skipped",
    "unknown-operations/xla": "events on GPU streams other than kernels, copies, sets and graphs: skipped",
    # Of recordings, by the name of the file.
    "calls-lost": "{file}: calls that arrived faster than they could be recorded: these calls, or the addresses of "
    "their copies, are missing",
    "cut": "{file}: the program ended without closing its recording; everything after the last flush is missing",
    "damaged": "{file}: chunks with a wrong checksum: skipped",
    "damaged-header": "{file}: the header is damaged: process and clock may be wrong",
    "dropped": "{file}: records that CUPTI dropped because it ran out of buffers: operations are missing",
    "missing": "{file}: chunks are missing in the middle of the file",
    "no-buffer": "{file}: failed buffer requests from CUPTI: operations are missing",
    "pauses": "{file}: pauses of the recording, {paused:.3g} of {whole:.3g} s: unrecorded activity in them counts as "
    "host time",
    "retired-losses": "{file}: lost rows of tables that busfare no longer reads",
    "retired-tables": "rows of tables from an earlier version that busfare no longer reads ({tables})",
    "several-clocks": "the recordings come from {hosts} hosts, and their clocks may differ",
    "stacks-lost": "{file}: calls from too many different places: the call sites of the rest are unknown",
    "torn": "{file}: the last chunk is incomplete: skipped",
    "unknown-loss": "{file}: losses of a kind that this version of busfare does not know",
    "unknown-records": "{file}: records of a kind that the recorder does not know",
    "unknown-tables": "{file}: tables that only a later version of busfare can read",
    "untimed/recorded": "operations without timestamps from the GPU: counted, but without times",
    "window": "{file}: only part of the program was recorded ({limits})",
}


@dataclass(frozen=True, slots=True)
class Omission:
    """Something of the trace that was skipped, repaired or unknown.

    `id` is a short stable name; `count` how many records it concerns (0: not countable); `what` tells the
    user, and what follows from it.
    """

    id: str
    count: int
    what: str


@dataclass(slots=True)
class Omissions:
    """Omissions in the order in which they were noted; the same one noted again adds to its count."""

    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, key: str, count: int = 0, **about: object) -> None:
        """Note an omission of `count` records, 0 where they cannot be counted; `about` completes its sentence."""
        noted = key.partition("/")[0], WHAT[key].format(**about)
        self.counts[noted] = self.counts.get(noted, 0) + count

    def count(self, key: str, count: int, **about: object) -> None:
        """Note an omission of `count` records, if there are any."""
        if count:
            self.add(key, count, **about)

    def list(self) -> list[Omission]:
        return [Omission(id, count, what) for (id, what), count in self.counts.items()]
