"""The result of `plan offload`, with its words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType, convert

from busfare.advise import amounts
from busfare.errors import InputError
from busfare.node import load_node
from busfare.plan import Machine, machine_of
from busfare.plan.machine import Basis
from busfare.plan.offload.network import OF_NETWORK, network_of
from busfare.plan.offload.question import Question, question_of
from busfare.plan.offload.rank import (
    DEPTHS,
    Ranked,
    best_first,
    break_even,
    link_share,
    ranged,
    residents_of,
    schedules,
    share_hidden,
)
from busfare.plan.offload.schedule import MEMORIES, Layers, Schedule, copy_seconds, seconds_of
from busfare.results import Predicted

__all__ = ["OffloadRow", "PlanOffloadResult", "answer_offload"]

#: What to write for each memory kind.
DO = {
    "pinned": "Keep the streamed layers in pinned memory (cudaHostAlloc), copy them with cudaMemcpyAsync in a stream of "
    "their own, and let each layer's kernels wait for its copy by an event.",
    "pageable": "Pageable memory is as fast as anything here; pin it only if something else wants the host meanwhile.",
    "mapped": "Let the kernels read the streamed layers where they are (cudaHostAlloc with cudaHostAllocMapped): each "
    "weight once, neighbours beside each other.",
    "managed": "Keep the layers in managed memory, and call cudaMemPrefetchAsync to the GPU ahead and to the host behind.",
}


class OffloadRow(Predicted, kw_only=True):
    """A schedule. `device_bytes`: GPU memory of its layers and buffers; `share_hidden`: of its copies' time."""

    resident: int
    depth: int
    memory: str
    device_bytes: float
    share_hidden: float | None


class ByResident(Struct):
    """The best depth for so many resident layers, of the memory kind that is planned."""

    resident: int
    depth: int
    predicted_seconds: float
    share_hidden: float | None


class ByTokens(Struct):
    tokens: float
    streamed_seconds: float
    kernels_seconds: float
    cpu_seconds: float | None


class Pass(Struct):
    """Parts of a pass, each alone."""

    copies_seconds: float
    kernels_seconds: float
    full_overlap_seconds: float
    no_overlap_seconds: float
    all_resident_seconds: float


class FromTrace(Struct):
    """How layers were found in a trace: `busfare.plan.offload.from_trace.RecordedLayers`."""

    found_by: str
    passes: int
    resident: list[int]
    memory: dict[str, int]
    confidence: float
    left_out_seconds: float
    left_out_bytes: int
    notes: list[str]


class PlanOffloadResult(Predicted, tag_field="schema", tag="busfare.plan-offload/1", kw_only=True):
    """`predicted_seconds` is of the schedule that was asked for: what was not said of it, as is fastest."""

    node: str
    gpu: str | None
    layers: int
    bytes: float
    tokens: float
    resident: int
    depth: int
    memory: str
    device_bytes: float
    buffer_bytes: float
    budget_bytes: float | None
    gpus: int
    link_share: float
    share_hidden: float | None
    limited_by: str
    parts: Pass
    ranking: list[OffloadRow]
    break_even_tokens: float | None
    break_even_reason: str | UnsetType = UNSET
    hidden_from_tokens: float | None
    hidden_reason: str | UnsetType = UNSET
    by_resident: list[ByResident]
    by_tokens: list[ByTokens]
    basis: list[Basis]
    words: list[str]
    from_trace: FromTrace | UnsetType = UNSET
    model: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    beside_bytes: float | UnsetType = UNSET


def answer_offload(asked: Mapping[str, Any]) -> PlanOffloadResult:
    """The result for the options of the command line by name; those not given are None. Raises InputError."""
    if not asked.get("node"):
        raise InputError(
            "--node: the machine is not said; name one, as in --node h100-sxm (see `busfare nodes`)"
        )
    machine = machine_of(load_node(asked["node"]))
    if asked.get("model"):
        if asked.get("from_trace"):
            raise InputError("--from-trace, --model: both say the layers; give one of them")
        return offload_result(question_of(asked, network=network_of(asked, machine.node)), machine)
    if of_model := [key for key in OF_NETWORK if asked.get(key)]:
        raise InputError(f"--{of_model[0].replace('_', '-')}: holds with --model")
    if not asked.get("from_trace"):
        return offload_result(question_of(asked), machine)
    from busfare.plan.offload.from_trace import layers_from_trace
    from busfare.trace import read

    found = layers_from_trace(read(asked["from_trace"]))
    result = offload_result(question_of(asked, found.layers), machine)
    result.from_trace = convert(found, FromTrace, from_attributes=True)
    result.words.insert(0, _found(result.from_trace))
    return result


def _found(layers: FromTrace) -> str:
    """What a reader has to know of layers from a trace."""
    left = f"{amounts.size(layers.left_out_bytes)} of copies and {amounts.time(layers.left_out_seconds)} of kernels"
    told = f"The layers are told by {layers.found_by}, over {amounts.several(layers.passes, 'pass')}; "
    told += (
        f"{100 * layers.confidence:.0f} % agree with the median of their passes, and {left} belong to none."
    )
    if layers.resident:
        on_gpu = amounts.several(len(layers.resident), "layer")
        told += f" For {on_gpu} nothing was copied: their bytes are not in the trace, and count as 0."
    return " ".join([told, *(f"{note[:1].upper()}{note[1:]}." for note in layers.notes)])


def offload_result(question: Question, machine: Machine) -> PlanOffloadResult:
    """What a pass takes as asked, and in the same GPU memory by every depth and memory kind. Raises InputError where
    nothing fits.
    """
    layers, share = question.layers(), link_share(machine.node, question.gpus)
    budget = _budget(question, layers, machine)
    depths = sorted({*DEPTHS, *(() if question.depth is None else (question.depth,))})
    rows = [
        best_first(layers, machine, schedules(layers, budget, residents, [depth], [memory]), share)[:1]
        for memory in MEMORIES
        for depth in depths
        for residents in [residents_of(layers, budget, depth, memory)]
    ]
    chosen = _asked(question, layers, machine, budget, depths, share)
    every = {r.schedule: r for row in rows for r in row} | {chosen.schedule: chosen}
    ranking = sorted(every.values(), key=lambda r: (r.seconds, r.device_bytes, r.schedule.depth))
    schedule, seconds = chosen.schedule, chosen.seconds
    copies = copy_seconds(layers, schedule, machine, share)
    streamed = sum(layers.bytes[schedule.resident :])
    even, why = _break_even(question, schedule, machine, share)
    hidden, unhidden = _hidden_from(question, schedule, machine, share)
    kernels = sum(layers.seconds)
    result = PlanOffloadResult(
        node=machine.node.name, gpu=machine.gpu.title or machine.gpu.name, layers=len(layers), bytes=sum(layers.bytes),
        tokens=question.tokens, resident=schedule.resident, depth=schedule.depth, memory=schedule.memory,
        device_bytes=chosen.device_bytes, buffer_bytes=chosen.device_bytes - sum(layers.resident_bytes[: schedule.resident]),
        budget_bytes=budget, gpus=question.gpus, link_share=share,
        share_hidden=share_hidden(layers, schedule, machine, seconds, share),
        limited_by="nothing is streamed" if not streamed else "link" if copies > kernels else "kernels",
        parts=Pass(copies, kernels, max(copies, kernels), copies + kernels, kernels),
        ranking=[_row(r, question, layers, machine, share) for r in ranking],
        break_even_tokens=even, break_even_reason=why or UNSET, hidden_from_tokens=hidden,
        hidden_reason=unhidden or UNSET, by_resident=_by_resident(layers, schedule, machine, share),
        by_tokens=_by_tokens(question, schedule, machine, share), basis=list(machine.basis), words=[],
        predicted_seconds=seconds, **_ranged(chosen, question, machine, share),
    )  # fmt: skip
    if question.network is not None:
        result.model, result.type = question.network.model.name, question.network.type
        result.beside_bytes = question.network.always_bytes(question.tokens)
    result.words = _words(result, ranking[0], layers)
    return result


def _budget(question: Question, layers: Layers, machine: Machine) -> float | None:
    """The GPU memory for layers: as said, else what the asked schedule takes, else all that the GPU has."""
    if question.budget is not None:
        return question.budget
    if question.resident is not None:
        depth = 1 if question.depth is None else question.depth
        return Schedule(question.resident, depth, question.memory or "pinned").device_bytes(layers)
    memory = machine.gpu.memory_bytes
    if memory is None or question.network is None:
        return memory
    beside = question.network.always_bytes(question.tokens)
    if beside >= memory:
        raise InputError(
            f"{machine.node.name}: its GPU has {amounts.size(memory)}; embedding, head, caches and what is not brought take "
            f"{amounts.size(beside)} of it; give a smaller type, fewer sequences or a shorter context"
        )
    return memory - beside


def _asked(
    question: Question,
    layers: Layers,
    machine: Machine,
    budget: float | None,
    depths: list[int],
    share: float,
) -> Ranked:
    memories = [question.memory] if question.memory else list(MEMORIES)
    exact = question.resident is not None and question.depth is not None
    fits = [
        schedule
        for memory in memories
        for depth in ([question.depth] if question.depth is not None else depths)
        for schedule in schedules(
            layers,
            question.budget if exact else budget,
            residents_of(layers, budget, depth, memory) if question.resident is None else [question.resident],
            [depth],
            [memory],
        )
    ]
    if not fits:
        raise InputError(
            f"--budget: {amounts.size(budget or 0)} of GPU memory hold no such schedule: its layers and buffers take more; "
            "give more, fewer resident layers or a smaller depth"
        )
    return best_first(layers, machine, fits, share)[0]


def _ranged(ranked: Ranked, question: Question, machine: Machine, share: float) -> dict[str, Any]:
    ends, rung = None, ""
    if question.network is not None and question.predicted:
        ends, rung = question.network.ends(question.tokens), question.network.rung
    return ranged(ranked.seconds, ranked.schedule, machine, ends, share, rung)


def _row(ranked: Ranked, question: Question, layers: Layers, machine: Machine, share: float) -> OffloadRow:
    s = ranked.schedule
    return OffloadRow(
        resident=s.resident, depth=s.depth, memory=s.memory, device_bytes=ranked.device_bytes,
        share_hidden=share_hidden(layers, s, machine, ranked.seconds, share), predicted_seconds=ranked.seconds,
        **_ranged(ranked, question, machine, share),
    )  # fmt: skip


def _break_even(
    question: Question, schedule: Schedule, machine: Machine, share: float
) -> tuple[float | None, str]:
    on_cpu = question.cpu_seconds
    if on_cpu is None:
        return None, (
            "what a layer takes on the processor is not said; give --cpu-seconds-per-layer, or with --model --cpu-flops "
            "and --cpu-bandwidth"
        )
    first = schedule.resident
    if first == len(question.bytes):
        return None, "all layers are resident"

    def computed_there(tokens: float) -> float:
        return sum(question.seconds(tokens)[:first]) + sum(on_cpu(tokens)[first:])

    return break_even(lambda n: seconds_of(question.layers(n), schedule, machine, share), computed_there)


def _hidden_from(
    question: Question, schedule: Schedule, machine: Machine, share: float
) -> tuple[float | None, str]:
    """From how many tokens on the streamed layers' kernels take as long as their copies."""
    if not question.varies:
        return None, "what a layer takes is not said by tokens; give --seconds-per-layer TOKENS=TIME,…"
    first = schedule.resident
    if copy_seconds(question.layers(), schedule, machine, share) <= 0:
        return None, "nothing is streamed"

    def copies(tokens: float) -> float:
        return copy_seconds(question.layers(tokens), schedule, machine, share)

    return break_even(copies, lambda n: sum(question.seconds(n)[first:]))


def _by_resident(layers: Layers, schedule: Schedule, machine: Machine, share: float) -> list[ByResident]:
    if layers.back_bytes or schedule.memory == "managed":
        return []
    points = []
    for resident in sorted(set(residents_of(layers, None, 0, schedule.memory)) | {schedule.resident}):
        of = [Schedule(resident, depth, schedule.memory) for depth in sorted({0, 1, schedule.depth})]
        best = best_first(layers, machine, of, share)[0]
        hidden = share_hidden(layers, best.schedule, machine, best.seconds, share)
        points.append(ByResident(resident, best.schedule.depth, best.seconds, hidden))
    return points


def _by_tokens(question: Question, schedule: Schedule, machine: Machine, share: float) -> list[ByTokens]:
    if not question.varies:
        return []
    most = max(16.0, 8.0 * question.tokens)
    points = []
    tokens = 1.0
    while tokens <= most:
        layers = question.layers(tokens)
        on_cpu = sum(question.cpu_seconds(tokens)) if question.cpu_seconds else None
        points.append(
            ByTokens(tokens, seconds_of(layers, schedule, machine, share), sum(layers.seconds), on_cpu)
        )
        tokens *= 2
    return points


def _words(result: PlanOffloadResult, fastest: Ranked, layers: Layers) -> list[str]:
    parts, seconds = result.parts, result.predicted_seconds
    named = f"{result.resident} of {amounts.several(result.layers, 'layer')} resident"
    if result.limited_by == "nothing is streamed":
        return [
            f"All {result.layers} layers stay in {amounts.size(result.device_bytes)} of GPU memory: nothing is streamed. "
            f"A pass takes its kernels' {amounts.time(parts.kernels_seconds)}."
        ]
    hidden = (
        f"; {result.share_hidden:.0%} of the copies are hidden" if result.share_hidden is not None else ""
    )
    words = [
        f"A pass with {named}, depth {result.depth}, {result.memory} memory: predicted {result.shown(seconds)}. Copies take "
        f"{amounts.time(parts.copies_seconds)}, kernels {amounts.time(parts.kernels_seconds)}{hidden}.",
        f"GPU memory for layers: {amounts.size(result.device_bytes)}, of which buffers {amounts.size(result.buffer_bytes)}.",
    ]
    words.append(
        "The link limits it: more resident layers, smaller weights or more tokens a pass make it faster."
        if result.limited_by == "link"
        else "The kernels limit it: with a depth of 1 or more the copies hide behind them."
    )
    s = fastest.schedule
    if (s.resident, s.depth, s.memory) != (
        result.resident,
        result.depth,
        result.memory,
    ) and fastest.seconds < seconds * 0.99:
        words.append(
            f"Fastest in as much GPU memory: {s.resident} resident, depth {s.depth}, {s.memory}: predicted "
            f"{amounts.time(fastest.seconds)}, {seconds / fastest.seconds:.2f} times as fast. {DO[s.memory]}"
        )
    else:
        words.append(DO[result.memory])
    if result.break_even_tokens is not None:
        words.append(
            f"From {result.break_even_tokens:.0f} tokens a pass on, streaming is faster than the processor."
        )
    elif result.break_even_reason is not UNSET and "not said" not in str(result.break_even_reason):
        words.append(f"Against the processor: {result.break_even_reason}.")
    if result.hidden_from_tokens is not None:
        words.append(
            f"From {result.hidden_from_tokens:.0f} tokens a pass on, the kernels take as long as the copies."
        )
    if result.gpus > 1:
        words.append(
            f"{result.gpus} GPUs stream at once: each gets {result.link_share:.0%} of its link's rate."
        )
    return words
