"""The result of `plan kv`, with its words."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from busfare import questions
from busfare.advise.amounts import Predicted, Timed
from busfare.answers.plan import machine_named
from busfare.cost.ranges import seconds_between, strategy_range
from busfare.errors import FieldError, InputError
from busfare.nodes import Node
from busfare.planning import Machine
from busfare.planning.machine import Basis
from busfare.planning.offload.kv import LAYOUTS, Blocks, Host, Prefill, fetch, host_of, ranked, worth_fetching
from busfare.planning.offload.network import Network
from busfare.planning.offload.shapes import Model, kv_bytes_per_token, number_type, read_model, weight_bytes
from busfare.questions import KvLayout as Layout
from busfare.statements import Words, statement

#: Tokens of a block in the sweep.
SWEPT_TOKENS = tuple(4**n for n in range(7))
#: Prompts whose computing is predicted; between them it is a power of the length.
PREFILLS = tuple(1 << n for n in range(0, 18))


class KvLayout(Predicted, kw_only=True):
    """A layout: `calls` of the API, and what limits it."""

    layout: Layout
    calls: int
    limited_by: str


class KvBlock(Struct):
    """`count` blocks of the cache, each in `pieces` pieces."""

    tokens: int
    bytes: float
    pieces: int
    count: int


class Recompute(Timed, kw_only=True):
    """What computing the cache again takes: `given`, `extended` from times at other lengths, or predicted of a `model`."""

    by: Literal["given", "extended", "model"]


class KvByBlock(Struct):
    block_tokens: int
    predicted_seconds: dict[Layout, float]


class PlanKvResult(Struct, tag_field="schema", tag="busfare.plan-kv/1", kw_only=True):
    """`best` is the fastest layout of those that a paged cache can have. `worth_fetching`: from and up to how many tokens,
    `null` for all longer ones; `break_even_between`: by the range of computing. Of one of `tensor_parallel` GPUs:
    `weight_bytes` of the model, `memory_bytes` that the GPU has.
    """

    node: str
    model: str | None
    tokens: int
    bytes_per_token: float
    block: KvBlock
    fetched_bytes: float
    evicted_bytes: float
    ranking: list[KvLayout]
    best: Layout
    recompute: Recompute | None
    worth_fetching: list[tuple[int, int | None]] | None
    break_even_tokens: int | None
    break_even_between: tuple[int | None, int | None] | None
    reason: Words | UnsetType = UNSET  # only without a break-even
    by_block: list[KvByBlock]
    tensor_parallel: int
    weight_bytes: float | None
    memory_bytes: float | None
    basis: list[Basis]
    words: list[str] = field(default_factory=list)  # which `show` adds


def answer_kv(question: questions.KvCache) -> PlanKvResult:
    """Raises InputError where the node or the model is not known, or blocks cannot be cut so."""
    machine = machine_named(question.node, question.link)
    model = read_model(question.model) if question.model else None
    per_token: float = question.bytes_per_token or 0
    if question.bytes_per_token is None and model:
        shared_by = _shared_by(model, question.tensor_parallel)
        per_token = kv_bytes_per_token(model, question.type) / shared_by
    block_tokens, pieces = question.block_tokens, question.pieces
    if pieces is None:
        # Keys and values of each layer lie in tensors of their own; of latent attention in one.
        pieces = sum(1 if layer.latent_size else 2 for layer in model.layers) if model else 1
    if not per_token or pieces > per_token * block_tokens:
        raise InputError(
            f"`pieces` {pieces}: a block of {per_token * block_tokens:.0f} bytes cannot have that many pieces; give fewer"
        )
    host = host_of(machine, question.launch, question.batch_launch, question.memcpy)
    count, left = (math.ceil(n / block_tokens) for n in (question.tokens, question.evict))
    prefill, reason = None, statement("plan.no-prefill-time")
    if question.prefill_seconds:
        prefill = Prefill(question.prefill_seconds)
    elif model:
        try:
            prefill = _predicted(model, machine.node, question.type, question.tensor_parallel)
        except InputError as error:
            reason = str(error)
    blocks = Blocks(per_token * block_tokens, count, pieces, left)
    cache = _Cache(machine, host, blocks, question.tokens, block_tokens, prefill)
    result = cache.result(question.layout, reason)
    if model:
        width = number_type(question.type).weight_size
        weights = float(weight_bytes(model, question.type).sum()) + (model.embedding + model.head) * width
        result.model, result.tensor_parallel = model.name, question.tensor_parallel
        result.weight_bytes = weights / question.tensor_parallel
    return result


def _shared_by(model: Model, gpus: int) -> int:
    """How many of `gpus` share the cache of a token, split by key heads; with latent attention, each GPU has all of it. They
    are GPUs like that of the node, which may have fewer. Raises InputError for a number that does not divide the heads.
    """
    heads = math.gcd(*(layer.heads for layer in model.layers))
    kv_heads = math.gcd(
        *(1 if layer.latent_size else layer.kv_elements // (2 * layer.key_size) for layer in model.layers)
    )
    fits = [n for n in range(1, heads + 1) if heads % n == 0 and (kv_heads % n == 0 or n % kv_heads == 0)]
    if gpus not in fits:
        numbers = ", ".join(map(str, fits))
        raise FieldError(
            "tensor_parallel",
            f" {gpus}: does not divide the {heads} heads and {kv_heads} key heads of {model.name}; give one of {numbers}",
        )
    return min(gpus, kv_heads)


def _predicted(model: Model, node: Node, type_: str, gpus: int) -> Prefill:
    """By the layers' operators on the node's GPU, in equal parts on `gpus` of them, without the sums that they exchange.
    Raises InputError where its limits are not known.
    """
    network = Network(model, type_, node)
    passes = [(tokens, network.gpu_seconds(tokens)) for tokens in PREFILLS]
    points = tuple((float(tokens), float(computed.seconds.sum()) / gpus) for tokens, computed in passes)
    last = passes[-1][1]
    low, high = (float(end.sum() / last.seconds.sum()) for end in (last.low, last.high))
    return Prefill(points, low, high, last.rung)


@dataclass(frozen=True)
class _Cache:
    """A cache of `tokens` in `blocks` of `block_tokens` each, and what computing it again takes, where that is known."""

    machine: Machine
    host: Host
    blocks: Blocks
    tokens: int
    block_tokens: int
    prefill: Prefill | None

    def result(self, layout: Layout | None, reason: Words) -> PlanKvResult:
        """`layout`: whose break-even it is, in place of the best; `reason`: why the time of computing is not known."""
        blocks, prefill = self.blocks, self.prefill
        fetched = ranked(blocks, self.machine, self.host)
        best = next(
            option
            for option in fetched
            if option.layout == layout or (layout is None and option.layout != "contiguous")
        )
        ranking = [
            KvLayout(
                layout=option.layout,
                predicted_seconds=option.seconds,
                calls=option.calls,
                limited_by=option.limited_by,
                **strategy_range(option.layout, option.seconds, self.machine.node, what="kv"),
            )
            for option in fetched
        ]
        worth = self.worth(best.layout)
        result = PlanKvResult(
            node=self.machine.node.name,
            model=None,
            tokens=self.tokens,
            bytes_per_token=blocks.bytes / self.block_tokens,
            block=KvBlock(self.block_tokens, blocks.bytes, blocks.pieces, blocks.count),
            fetched_bytes=blocks.moved("h2d")[0],
            evicted_bytes=blocks.moved("d2h")[0],
            ranking=ranking,
            best=best.layout,
            recompute=_recompute(prefill, self.tokens) if prefill else None,
            worth_fetching=worth,
            break_even_tokens=_even(worth),
            break_even_between=None,
            by_block=self.by_block(),
            tensor_parallel=1,
            weight_bytes=None,
            memory_bytes=self.machine.gpu.memory_bytes,
            basis=[*self.host.basis, *self.machine.basis],
        )
        if prefill is None:
            result.reason = reason
        elif result.break_even_tokens is None:
            result.reason = statement("no-answer.computing-faster", tokens=questions.MOST_PROMPT)
        if prefill and prefill.rung and math.isfinite(prefill.low + prefill.high):
            low, high = (_even(self.worth(best.layout, end)) for end in (prefill.high, prefill.low))
            result.break_even_between = low, high
        return result

    def worth(self, layout: Layout, factor: float = 1.0) -> list[tuple[int, int | None]] | None:
        """From and up to which lengths a prompt is worth fetching, where computing takes so many times as long."""
        if self.prefill is None:
            return None
        points = tuple((tokens, seconds * factor) for tokens, seconds in self.prefill.points)
        prefill = replace(self.prefill, points=points)
        return worth_fetching(layout, self.blocks, self.block_tokens, self.machine, self.host, prefill)

    def by_block(self) -> list[KvByBlock]:
        """The same cache in other blocks, in as many pieces each."""
        rows, blocks, given = [], self.blocks, self.block_tokens
        for many in sorted({given, *(n for n in SWEPT_TOKENS if n <= max(self.tokens, given))}):
            size, evicted = blocks.bytes / given * many, math.ceil(blocks.evicted * given / many)
            if size >= blocks.pieces:
                cut = Blocks(size, math.ceil(self.tokens / many), blocks.pieces, evicted)
                seconds = {layout: fetch(layout, cut, self.machine, self.host).seconds for layout in LAYOUTS}
                rows.append(KvByBlock(many, seconds))
        return rows


def _even(worth: list[tuple[int, int | None]] | None) -> int | None:
    """From which length on all longer prompts are worth fetching."""
    return worth[-1][0] if worth and worth[-1][1] is None else None


def _recompute(prefill: Prefill, tokens: int) -> Recompute:
    seconds = prefill.seconds(tokens)
    if prefill.rung is None:
        if tokens in [length for length, _ in prefill.points]:
            return Recompute(by="given", seconds=seconds, reason=statement("no-range.given"))
        return Recompute(by="extended", seconds=seconds, reason=statement("no-range.given-elsewhere"))
    between = seconds_between(seconds * prefill.low, seconds * prefill.high, prefill.rung)
    return Recompute(by="model", seconds=seconds, **between)
