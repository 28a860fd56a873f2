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
    "copies-not-recorded": "calls that launch copies, of which the trace holds none: record them, too",
    "kernels-not-recorded": "calls that launch kernels, of which the trace holds none: record them, too",
    "clock-backwards": "{what} that end before they start: counted, as taking no time",
    "copying-kernels": "kernels of the runtime that copy: counted as kernels, for the trace does not say what they copied",
    "cut-window": "GPU operations whose API call is not in the trace (it began or was cut in the middle): counted, "
    "but not tied to a host thread",
    "graph-nodes": "operations inside graph launches: seen, but not how they depend on each other; taken in the "
    "order observed",
    "impossible-sizes": "operations of a negative or impossible size: size taken as unknown",
    "no-calls": "the trace holds no API calls: what the host did and waited for is not known",
    "no-gpu-records": "the trace holds no GPU activity: {lost}; record with {command}",
    "records-without-call": "event records or waits whose call is outside the trace: left out of the dependencies",
    "two-clocks": "GPU operations timed by another clock than the calls, {distance:.6g} s apart: moved so that the "
    "quickest starts with its call{drift}",
    "unknown-sizes": "copies whose size the trace does not say: their time counts, their bytes do not",
    "untimed": "{what} without usable times: left out",
    # Of several profilers.
    "open-ranges": "NVTX ranges that were still open when the trace ended: shown as marks",
    "opaque-graphs": "launches of CUDA graphs recorded as a whole: the kernels and copies inside them are not in the "
    "trace, and not in any count here; {remedy} to see them",
    "profiler-said": "the profiler said while it recorded: {text}",
    "profiler-said/more": "further warnings of the profiler; see DIAGNOSTIC_EVENT in the file",
    "truncated": "the file ends in the middle or is damaged there: what it held beyond is missing",
    "unknown-direction": "copies whose direction the trace does not say: counted, with no direction",
    "unknown-memory": "copies whose host memory is not told as pinned or pageable: advice on pinning cannot be given",
    "unknown-memory/all": "the trace does not say which host memory was pinned: advice on pinning cannot be given",
    "unknown-memory/allocations": "copies whose host memory the recorded allocations do not tell as pinned or pageable",
    "unnamed-calls": "API calls whose name is lost: taken to wait for nothing",
    "unusable-events": "entries of the event list without usable times: left out",
    # Of compressed files.
    "after-compressed": "the compressed file has something after its end: left out",
    "damaged-compression": "the compressed data is damaged near byte {at}: what follows is left out",
    "truncated-compression": "the compressed file ends in the middle",
    # Of PyTorch's profiler.
    "calls-left-out": "calls of the host that are neither CUDA's nor HIP's: what they wait for is not known; left out",
    "damaged/json": "damaged JSON at byte {at} ({error}): what follows is left out",
    "other-accelerator": "events of an accelerator that is no GPU: left out",
    # Of Nsight Systems and nvprof.
    "links-unlike": "PCIe links of some GPUs only, or of several kinds: the trace does not say which is whose",
    "mpi-without-partners": "MPI calls without communicators, partners and bytes, as older versions of Nsight "
    "Systems record them: shown, but not matched with other ranks; record with a newer one, or with `busfare record`",
    "unknown-communicators": "MPI calls in communicators that the export does not describe: shown, but not matched "
    "with other ranks (record with NSYS_MPI_STORE_TEAMS_PER_RANK=1)",
    "unknown-nvtx": "table {table} is newer than this version: its NVTX ranges are not read",
    "unknown-wait": "synchronisations whose call was not recorded and which may be a stream or a host waiting for an "
    "event: left out of the dependencies",
    "unnamed-calls/numbers": "API calls known by number only (minor ones): shown as numbers, taken to wait for nothing",
    "waits-without-records": "streams wait for events whose records the trace does not hold: what they wait for is "
    "not known",
    # Of AMD's profilers.
    "barriers": "packets that wait in a queue: left out, for they do no work",
    "driver-events": "events of the driver (pages that fault or move, queues): left out",
    "opaque-graphs/amd": "operations inside graph launches: the trace says when they ran but not what they copied "
    "({copied} of them are copies); they count as GPU work of kind `graph`, not as kernels or copies",
    "repeated-kernels": "kernels that the profiler ran again for its counters: left out",
    "tracer-calls": "calls of the tracer's own among the program's: left out",
    "unknown-agents": "agents that the trace does not list: those that kernels run on are taken as GPUs, numbered in order",
    "unknown-events": "events of which the file does not say what they are: left out",
    "unknown-gpus": "copies of which the trace does not say on which GPU they are: counted, on none",
    "unknown-operations": "operations that are no kernel, copy or fill: counted as kernels, by their time",
    # Of XLA's profiler.
    "calls-named-by-work": "API calls that the trace names by the work that they launch: given the name of the "
    "driver's call for that",
    "cut/timeline": "the time line has {events:,} events: its writer leaves out those after a million; give the .xplane.pb",
    "damaged/plane": "a damaged plane at byte {at} is left out",
    "damaged/protobuf": "damaged protobuf near byte {at}: what follows is left out",
    "unknown-operations/xla": "events on streams of GPUs that are no kernel, copy, set or graph: left out",
    # Of recordings, by the name of the file.
    "calls-lost": "{file}: calls that came faster than they could be noted: they, or the addresses of their copies, "
    "are missing",
    "cut": "{file}: the program ended without closing its recording; what it did after the last flush is missing",
    "damaged": "{file}: chunks fail their checksum and were left out",
    "damaged-header": "{file}: its header is damaged: process and clock may be wrong",
    "dropped": "{file}: records that CUPTI dropped for want of buffers: operations are missing",
    "missing": "{file}: chunks are missing from its middle",
    "no-buffer": "{file}: times that CUPTI asked for a buffer and got none: operations are missing",
    "pauses": "{file}: pauses of the recording, {paused:.3g} of {whole:.3g} s: what the program did then is not "
    "known, and counts as time of its host",
    "retired-losses": "{file}: lost rows of tables that are no longer read",
    "retired-tables": "rows of an earlier version's tables that are no longer read ({tables})",
    "several-clocks": "the recordings come from {hosts} hosts, whose clocks agree only as far as the hosts keep time",
    "stacks-lost": "{file}: calls from too many different places: where these are made is not known",
    "torn": "{file}: its last bytes are no whole chunk and were left out",
    "unknown-loss": "{file}: losses of a kind that this version does not know",
    "unknown-records": "{file}: records of a kind that the recorder does not know",
    "unknown-tables": "{file}: holds tables that only a later version knows",
    "untimed/recorded": "operations whose times the GPU did not give: counted, with no times",
    "window": "{file}: only a part of the program was recorded ({limits})",
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
