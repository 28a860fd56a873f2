"""The sentences of `plan offload` and `plan kv`: what is fastest, what limits it, what to write, and when it pays."""

from msgspec import UNSET

from busfare.advise.amounts import percent, several, size, time
from busfare.answers.kv import PlanKvResult
from busfare.answers.offload import PlanOffloadResult
from busfare.planning.offload.schedule import ROWS_OF_TILE
from busfare.planning.problem import RecordedLayers

#: What to write for each memory kind, and for each layout.
MEMORIES = {
    "pinned": "Keep the streamed layers in pinned memory (cudaHostAlloc), copy them with cudaMemcpyAsync in a stream of "
    "their own, and make each layer's kernels wait for its copy with an event.",
    "pageable": "Pageable memory is as fast as any other here; pin it only if the CPU has other work meanwhile.",
    "mapped": "Let the kernels read the streamed layers in place (cudaHostAlloc with cudaHostAllocMapped): each "
    "weight once, with coalesced accesses.",
    "managed": "Keep the layers in managed memory, and call cudaMemPrefetchAsync to the GPU before a layer and to the "
    "host after it.",
}
EXPERTS = (
    "Keep the experts in pinned memory, copy each chosen expert with cudaMemcpyAsync as soon as the CPU has the router's "
    "choice, and launch the kernels of these experts after the copies."
)
REREAD = (
    f"Each tile of rows ({ROWS_OF_TILE} tokens at most) reads the mapped weights again: published programs took 13 to 29 "
    "times as long as with copies."
)
LAYOUTS = {
    "contiguous": "Keep the prompt's cache in one piece on the host: one cudaMemcpyAsync.",
    "gather-kernel": "Let one kernel read the pieces from mapped pinned memory, through a table of their addresses.",
    "batched": "Pass all pieces to one cudaMemcpyBatchAsync (CUDA 12.8 and newer).",
    "gather-host-halves": "Pack half of the pieces into a pinned buffer, and pack the other half while it is copied.",
    "gather-host": "Pack the pieces into one pinned buffer, then copy the buffer.",
    "per-block": "One cudaMemcpyAsync per piece, from pinned memory.",
}
LIMITS = {
    "link": "the link",
    "submission": "the host's calls",
    "copy engine": "the copy engine's time to start a copy",
    "host gather": "the CPU core that packs",
}


def offload_words(result: PlanOffloadResult) -> list[str]:
    """The time of a pass and its limit, faster or equal schedules, and the number of tokens from which streaming pays."""
    words = [_layers(result.from_trace)] if result.from_trace else []
    if result.tokens is None:
        words.append("The trace does not contain the number of tokens per pass; give it with --tokens.")
    parts, seconds, fastest = result.parts, result.predicted_seconds, result.ranking[0]
    named = f"{result.resident} of {several(result.layers, 'layer')} resident"
    if result.limited_by == "nothing is streamed":
        words.append(
            f"All {result.layers} layers stay in {size(result.device_bytes)} of GPU memory: nothing is streamed. A "
            f"pass takes {time(parts.kernels_seconds)}, its kernel time."
        )
        return words
    share = result.share_hidden
    hidden = "" if share is None else f"; {percent(share)} of the copy time is hidden"
    cached = f"cached experts {size(result.cached_bytes)} and " if result.cached_bytes else ""
    words += [
        f"A pass with {named}, depth {result.depth}, {result.memory} memory: predicted {result.shown(seconds)}. Copies take "
        f"{time(parts.copies_seconds)}, kernels {time(parts.kernels_seconds)}{hidden}.",
        f"GPU memory for layers: {size(result.device_bytes)}, of which {cached}buffers {size(result.buffer_bytes)}.",
        *_experts(result),
        *([REREAD] if result.memory == "mapped" and not 0 < (result.tokens or 0) <= ROWS_OF_TILE else []),
        "The link is the limit: use more resident layers, smaller weights or more tokens per pass."
        if result.limited_by == "link"
        else "The kernels are the limit: with a depth of 1 or more, they hide the copies.",
    ]
    planned = (result.resident, result.depth, result.memory)
    best, soonest = (fastest.resident, fastest.depth, fastest.memory), fastest.predicted_seconds
    if best != planned and soonest < seconds * 0.99:
        words.append(
            f"Fastest with the same GPU memory: {best[0]} resident, depth {best[1]}, {best[2]}: predicted "
            f"{time(soonest)}, {seconds / soonest:.2f} times as fast. {_do(result, fastest.memory)}"
        )
    elif best != planned:  # within 1 %, prefer the least memory, then the shallowest schedule
        less = result.device_bytes < fastest.device_bytes
        why = (
            ", and takes less GPU memory" if less else ", and needs fewer buffers" * (result.depth < best[1])
        )
        words.append(
            f"This schedule is within 1 % of the fastest, {best[0]} resident, depth {best[1]}, {best[2]} memory "
            f"({time(soonest)}){why}. {_do(result, result.memory)}"
        )
    else:
        words.append(_do(result, result.memory))
    most = fastest.high_seconds or 0.0
    unsure = {
        r.memory: 0 for r in result.ranking if r.memory != fastest.memory and (r.low_seconds or most) < most
    }
    if unsure:
        overlap = f"prediction intervals overlap that of {fastest.memory} ({', '.join(unsure)})"
        words.append(f"It is uncertain which memory is the fastest: {overlap}.")
    if result.break_even_tokens is not None:
        words.append(
            f"From {result.break_even_tokens:.0f} tokens per pass on, streaming is faster than the CPU."
        )
    elif result.break_even_reason is not UNSET:
        words.append(f"Compared with the CPU: {result.break_even_reason}.")
    if result.hidden_from_tokens is not None:
        words.append(
            f"From {result.hidden_from_tokens:.0f} tokens per pass on, the kernels take as long as the copies."
        )
    if result.gpus > 1:
        words.append(
            f"{result.gpus} GPUs stream at once: each gets {percent(result.link_share)} of its link's rate."
        )
    return words


def _do(result: PlanOffloadResult, memory: str) -> str:
    """What to write. Experts cannot be copied before the router has chosen them."""
    return EXPERTS if result.routed_seconds and memory == "pinned" else MEMORIES[memory]


def _experts(result: PlanOffloadResult) -> list[str]:
    """Why experts are not prefetched."""
    if not (waits := result.routed_seconds):
        return []
    return [
        "Depth 0: the router of a layer chooses the experts, and their copies can only begin then. Each layer waits "
        f"{time(waits)} for that choice and for the end of the copies, in addition to the copy time."
    ]


def _layers(layers: RecordedLayers) -> str:
    """How the layers of a trace were identified."""
    left = f"{size(layers.left_out_bytes)} of copies and {time(layers.left_out_seconds)} of kernels"
    sentence = f"The layers are identified by {layers.identified_by}, over {several(layers.passes, 'pass')}; "
    sentence += (
        f"{percent(layers.confidence)} agree with the median of their passes; {left} belong to no layer."
    )
    if layers.resident:
        on_gpu = several(len(layers.resident), "layer")
        sentence += f" The trace has no copies for {on_gpu}: their bytes count as 0."
    return " ".join([sentence, *(f"{note[:1].upper()}{note[1:]}." for note in layers.notes)])


def kv_words(result: PlanKvResult) -> list[str]:
    """What is fetched and how, what limits it, and whether recomputing is faster."""
    layouts = {row.layout: row for row in result.ranking}
    bound, best, single = (layouts[layout] for layout in ("contiguous", result.best, "per-block"))
    block = result.block
    fastest = best.predicted_seconds
    moved = size(result.fetched_bytes)
    if result.evicted_bytes:
        moved += f" in and, at the same time, {size(result.evicted_bytes)} out"
    pieces = f", each in {several(block.pieces, 'piece')}" if block.pieces > 1 else ""
    sentences = [
        f"The cache of {several(result.tokens, 'token')} has {moved}: {several(block.count, 'block')} of "
        f"{size(block.bytes)}{pieces}.",
        f"{best.layout}: predicted {time(fastest)}, limited by {LIMITS[best.limited_by]}. A single copy of all data takes "
        f"{time(bound.predicted_seconds)}. {LAYOUTS[best.layout]}",
    ]
    if best.layout != "per-block" and single.limited_by != "link":
        sentences.append(
            f"One copy per piece of {size(block.bytes / block.pieces)} takes {single.predicted_seconds / fastest:.1f} "
            f"times as long: {several(single.calls, 'copy')}, limited by {LIMITS[single.limited_by]}."
        )
    if result.weight_bytes and result.memory_bytes and result.weight_bytes > result.memory_bytes:
        gpus = f" on each of {result.tensor_parallel} GPUs" * (result.tensor_parallel > 1)
        sentences.append(
            f"The weights ({size(result.weight_bytes)}{gpus}) exceed GPU memory ({size(result.memory_bytes)}). "
            "Use a smaller type or more GPUs (--tensor-parallel)."
        )
    if (computing := result.recompute) is not None:
        faster, slower = sorted((fastest, computing.seconds))
        verb = "Fetching" if fastest <= computing.seconds else "Recomputing"
        by = {"given": "as given", "extended": "from the given times", "model": "predicted"}[computing.by]
        if result.tensor_parallel > 1 and computing.by == "model":
            by += f" on {result.tensor_parallel} identical GPUs, without communication"
        sentences.append(
            f"{verb} is {slower / faster:.1f} times as fast: fetching takes {time(fastest)} (predicted), recomputing "
            f"{computing} ({by})."
        )
        sentences.append(_worth(result))
    return sentences


def _worth(result: PlanKvResult) -> str:
    """The prompt lengths for which fetching is faster than recomputing."""
    parts, between = [], result.break_even_between
    for first, last in result.worth_fetching or ():
        if last is None:
            ends = [f"{end:,}" if end else "never" for end in between or ()]
            inside = (
                f" ({' to '.join(ends)} within the interval of recomputing)" if len(set(ends)) > 1 else ""
            )
            parts.append(f"from {several(first, 'token')} on{inside}")
        else:
            parts.append(f"from {first:,} to {several(last, 'token')}")
    return f"Fetch {' and '.join(parts)}." if parts else f"Recompute at any length: {result.reason}."
