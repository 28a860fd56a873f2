"""The result of `plan offload`, with its words."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import asdict

from busfare import questions
from busfare.advise import amounts
from busfare.advise.amounts import Predicted
from busfare.answers.plan import machine_named
from busfare.errors import FieldError, InputError
from busfare.planning import Machine
from busfare.planning.machine import Basis
from busfare.planning.offload.network import Network, network_of
from busfare.planning.offload.schedule import (
    DEPTHS,
    MEMORIES,
    Layers,
    Ranked,
    Schedule,
    best_first,
    break_even,
    copy_seconds,
    link_share,
    ranged,
    rereads,
    residents_of,
    schedules,
    seconds_of,
    share_hidden,
)
from busfare.planning.problem import RecordedLayers, layers_from_trace
from busfare.quantities import LayerTimes
from busfare.statements import Words, statement
from busfare.trace import read
from busfare.trace.window import part_of


class OffloadRow(Predicted, kw_only=True):
    """A schedule. `device_bytes`: GPU memory of its layers and buffers; `share_hidden`: of its copies' time."""

    resident: int
    depth: int
    memory: str
    device_bytes: float
    share_hidden: float | None


class Pass(Struct):
    """Parts of a pass, each alone."""

    copies_seconds: float
    kernels_seconds: float


class PlanOffloadResult(OffloadRow, tag_field="schema", tag="busfare.plan-offload/1", kw_only=True):
    """What is planned, the row of the schedule that was asked for: what was not said of it, as is fastest. `tokens`: null
    of a trace, which does not count them. Of experts: `cached_bytes` on the GPU, and `routed_seconds` that the host waits in
    each layer for the router's choice and the copies; 0 where all are brought.
    """

    node: str
    gpu: str | None
    layers: int
    bytes: float
    tokens: float | None
    buffer_bytes: float
    budget_bytes: float | None
    gpus: int
    link_share: float
    limited_by: str
    parts: Pass
    ranking: list[OffloadRow]
    break_even_tokens: float | None
    break_even_reason: Words | UnsetType = UNSET
    hidden_from_tokens: float | None
    hidden_reason: Words | UnsetType = UNSET
    by_resident: list[OffloadRow]
    basis: Sequence[Basis]
    words: list[str] = field(default_factory=list)  # which `show` adds
    from_trace: RecordedLayers | UnsetType = UNSET
    model: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    unstreamed_bytes: float | UnsetType = UNSET
    cached_bytes: float | UnsetType = UNSET
    routed_seconds: float | UnsetType = UNSET


def answer_offload(options: questions.Offload) -> PlanOffloadResult:
    """Raises InputError for what cannot be used, and where nothing fits."""
    machine = machine_named(options.node, options.link)
    if not options.from_trace:
        network = network_of(options, machine.node) if options.model else None
        return _Planned(question_of(options, network=network), machine).result()
    layers, recorded = layers_from_trace(part_of(read(options.from_trace), **options.part()))
    result = _Planned(question_of(options, layers), machine).result()
    result.from_trace = recorded
    return result


class _Planned:
    """What a pass takes as asked, and in the same GPU memory by every depth and memory kind. `share`: of the link's rate."""

    def __init__(self, question: "Question", machine: Machine) -> None:
        self.question, self.machine = question, machine
        self.layers = question.layers(question.tokens)
        self.share = link_share(machine.node, question.options.gpus)
        self.budget = self._budget()
        depth = question.options.depth
        self.depths = sorted(DEPTHS if depth is None else {*DEPTHS, depth})
        self.chosen = self._fastest()
        self.schedule = self.chosen.schedule

    def best(self, of: Iterable[Schedule]) -> list[Ranked]:
        return best_first(self.layers, self.machine, of, self.share)[:1]

    def copies(self, tokens: float) -> float:
        return copy_seconds(self.question.layers(tokens), self.schedule, self.machine, self.share)

    def streamed(self, tokens: float) -> float:
        return seconds_of(self.question.layers(tokens), self.schedule, self.machine, self.share)

    def result(self) -> PlanOffloadResult:
        question, layers, machine, chosen = self.question, self.layers, self.machine, self.chosen
        rows = [
            self.best(schedules(layers, self.budget, depth, memory))
            for memory in MEMORIES
            for depth in self.depths
        ]
        every = {r.schedule: r for row in rows for r in row} | {chosen.schedule: chosen}
        ranking = sorted(
            every.values(),
            key=lambda r: (rereads(layers, r.schedule), r.seconds, r.device_bytes, r.schedule.depth),
        )
        even, why = self._break_even()
        hidden, unhidden = self._hidden_from()
        copies, kernels, first = self.copies(question.tokens), sum(layers.seconds), self.schedule.resident
        streamed, cached, options = sum(layers.bytes[first:]), sum(layers.cached[first:]), question.options
        result = PlanOffloadResult(
            **asdict(self._row(chosen)),
            node=machine.node.name,
            gpu=machine.gpu.title or machine.gpu.name,
            layers=len(layers),
            bytes=sum(layers.bytes),
            tokens=None if options.from_trace and options.tokens is None else question.tokens,
            buffer_bytes=chosen.device_bytes - sum(layers.resident_bytes[:first]) - cached,
            budget_bytes=self.budget,
            gpus=options.gpus,
            link_share=self.share,
            limited_by="nothing is streamed" if not streamed else "link" if copies > kernels else "kernels",
            parts=Pass(copies, kernels),
            ranking=[*map(self._row, ranking)],
            break_even_tokens=even,
            break_even_reason=why or UNSET,
            hidden_from_tokens=hidden,
            hidden_reason=unhidden or UNSET,
            by_resident=self._by_resident(),
            basis=machine.basis,
        )
        if question.network is not None:
            result.model, result.type = question.network.model.name, question.network.type
            result.unstreamed_bytes = question.network.always_bytes(question.tokens)
        if layers.cached:
            result.cached_bytes, result.routed_seconds = cached, layers.routed_seconds
        return result

    def _budget(self) -> float | None:
        """The GPU memory for layers: as said, else what the asked schedule takes, else all that the GPU has."""
        question, memory = self.question, self.machine.gpu.memory_bytes
        options, network = question.options, question.network
        if options.budget is not None:
            return options.budget
        taken = None
        if options.resident is not None:
            depth = 1 if options.depth is None else options.depth
            taken = Schedule(options.resident, depth, options.memory or "pinned").device_bytes(self.layers)
        if memory is None or network is None:
            return memory if taken is None else taken
        unstreamed, cached = network.always_bytes(question.tokens), sum(self.layers.cached)
        least = unstreamed + (cached if taken is None else taken)
        if least >= memory:
            kept = " and cached experts" * (cached > 0)
            raise InputError(
                f"{self.machine.node.name}: its GPU has {amounts.size(memory)}; embedding, head, caches, weights "
                f"that are not streamed{kept} take {amounts.size(least)}; give a smaller type, fewer resident layers, "
                "`cached_experts` or sequences, or a shorter context"
            )
        return memory - unstreamed if taken is None else taken

    def _fastest(self) -> Ranked:
        """The fastest of those that were asked for."""
        options, layers = self.question.options, self.layers
        exact = options.resident is not None and options.depth is not None
        budget = options.budget if exact else self.budget
        fits = [
            schedule
            for memory in ([options.memory] if options.memory else MEMORIES)
            for depth in (self.depths if options.depth is None else [options.depth])
            for schedule in schedules(layers, budget, depth, memory, options.resident)
        ]
        if not fits:
            raise InputError(
                f"`budget`: {amounts.size(self.budget or 0)} of GPU memory is too small for the layers and buffers "
                "of this schedule; give more memory, fewer resident layers or a smaller depth"
            )
        return self.best(fits)[0]

    def _row(self, ranked: Ranked) -> OffloadRow:
        schedule, layers, machine, share = ranked.schedule, self.layers, self.machine, self.share
        ends, rung, network = None, "", self.question.network
        if network is not None and self.question.predicted:
            ends, rung = network.ends(self.question.tokens), network.computed(1).rung
        return OffloadRow(
            resident=schedule.resident,
            depth=schedule.depth,
            memory=schedule.memory,
            device_bytes=ranked.device_bytes,
            share_hidden=share_hidden(layers, schedule, machine, ranked.seconds, share),
            predicted_seconds=ranked.seconds,
            **ranged(ranked.seconds, schedule, machine, layers, ends, share, rung),
        )

    def _break_even(self) -> tuple[float | None, Words]:
        question, on_cpu, first = self.question, self.question.cpu_seconds, self.schedule.resident
        if on_cpu is None:
            return None, statement("plan.no-cpu-time")
        if first == len(self.layers):
            return None, statement("no-answer.all-resident")

        def elsewhere(tokens: float) -> float:
            return sum(question.layers(tokens).seconds[:first]) + sum(on_cpu(tokens)[first:])

        return break_even(self.streamed, elsewhere)

    def _hidden_from(self) -> tuple[float | None, Words]:
        """From how many tokens on the streamed layers' kernels take as long as their copies."""
        if not self.question.varies:
            return None, statement("plan.no-time-by-tokens")
        if self.copies(self.question.tokens) <= 0:
            return None, statement("no-answer.nothing-streamed")
        first = self.schedule.resident
        return break_even(self.copies, lambda tokens: sum(self.question.layers(tokens).seconds[first:]))

    def _by_resident(self) -> list[OffloadRow]:
        """The best depth for each number of resident layers, of the memory kind that is planned."""
        layers, chosen = self.layers, self.schedule
        if layers.back_bytes or chosen.memory == "managed":
            return []
        points = []
        for resident in sorted({*residents_of(layers, None, 0, chosen.memory), chosen.resident}):
            depths = sorted({0, 1, chosen.depth})
            of = [s for depth in depths for s in schedules(layers, None, depth, chosen.memory, resident)]
            points.append(self._row(self.best(of)[0]))
        return points


#: Seconds by layer, by tokens.
SecondsByTokens = Callable[[float], Sequence[float]]


class Question(NamedTuple):
    """The `layers` at any number of tokens, and `cpu_seconds` of each on the processor.

    `varies`: whether seconds do, with tokens. `network`: whose layers they are. `predicted`: whether their seconds are
    predicted too, and have a range of their own.
    """

    options: questions.Offload
    layers: Callable[[float], Layers]
    tokens: float
    cpu_seconds: SecondsByTokens | None
    varies: bool
    network: Network | None
    predicted: bool


def question_of(
    options: questions.Offload, recorded: Layers | None = None, network: Network | None = None
) -> Question:
    """The question about layers that were `recorded`, of a `network` (whose times go behind those that were measured), or
    that `asked` describes. Raises InputError that names the field.
    """
    count = len(network.model.layers) if network else len(recorded) if recorded else options.layers or 0
    tokens = options.tokens or 1
    given = _by_tokens("seconds_per_layer", options.seconds_per_layer, count)
    varies = isinstance(options.seconds_per_layer, Mapping) or (network is not None and given is None)
    back = tuple(_by_layer("back_bytes_per_layer", options.back_bytes_per_layer, count))
    sizes = tuple(_by_layer("bytes_per_layer", options.bytes_per_layer, count))

    def layers(tokens: float) -> Layers:
        if recorded:
            return replace(recorded, rows=options.tokens or 0.0)
        seconds = given(tokens) if given else ()
        if network:
            seconds = seconds or network.computed(tokens).seconds.tolist()
            return network.layers(tokens, seconds, back)
        return Layers(sizes, tuple(seconds), back, rows=tokens if options.tokens else 0.0)

    if varies and options.tokens is None:
        raise InputError(
            "`tokens`: the times depend on the tokens; give the tokens per pass, as in `tokens` 1"
        )
    if options.resident is not None and options.resident > count:
        raise InputError(f"`resident` {options.resident}: not a whole number from 0 to {count}")
    on_cpu = _by_tokens("cpu_seconds_per_layer", options.cpu_seconds_per_layer, count)
    if on_cpu is None and network and (network.cpu_bandwidth or network.cpu_flops):
        network.cpu_seconds(tokens)  # which says what is missing
        on_cpu = network.cpu_seconds
    return Question(options, layers, tokens, on_cpu, varies, network, network is not None and given is None)


def _by_layer(name: str, values: Sequence[float], count: int) -> Sequence[float]:
    if len(values) in (0, count):
        return values
    if len(values) > 1:
        raise FieldError(name, f": {len(values)} values for {count} layers; give one value, or one per layer")
    return list(values) * count


def _by_tokens(name: str, given: LayerTimes | None, count: int) -> SecondsByTokens | None:
    """Seconds of each layer by tokens: straight lines between and along the last two beyond, never below the first."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        fixed = _by_layer(name, given, count)
        return lambda tokens: fixed
    places, times = [*given], [*given.values()]
    slope = max(0.0, (times[-1] - times[-2]) / (places[-1] - places[-2])) if len(places) > 1 else 0.0

    def seconds(tokens: float) -> Sequence[float]:
        beyond = slope * max(0.0, tokens - places[-1])
        return [float(np.interp(tokens, places, times)) + beyond] * count

    return seconds
