"""The result of `plan kv`, with its words."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from busfare import questions
from busfare.advise import amounts
from busfare.advise.amounts import Predicted, Ranged
from busfare.answers.plan import machine_named
from busfare.cost.ranges import seconds_between
from busfare.errors import InputError
from busfare.nodes import Node
from busfare.planning import Machine
from busfare.planning.machine import Basis
from busfare.planning.offload.kv import (
    LAYOUTS,
    Blocks,
    Fetch,
    Host,
    Layout,
    Prefill,
    fetch,
    host_of,
    ranked,
    worth_fetching,
)
from busfare.planning.offload.network import gpu_seconds
from busfare.planning.offload.shapes import Model, kv_bytes_per_token, read_model

__all__ = ["KvLayout", "PlanKvResult", "answer_kv"]

#: What to write for each layout.
DO = {
    "contiguous": "Keep the prompt's cache in one piece on the host: one cudaMemcpyAsync.",
    "gather-kernel": "Let one kernel read the pieces from mapped pinned memory, by a table of their addresses.",
    "batched": "Hand all pieces to one cudaMemcpyBatchAsync (CUDA 12.8 and newer).",
    "gather-host-halves": "Pack half of the pieces into a pinned buffer, copy it, and pack the other half meanwhile.",
    "gather-host": "Pack the pieces into one pinned buffer, then copy that.",
    "per-block": "One cudaMemcpyAsync a piece, from pinned memory.",
}
LIMITS = {
    "link": "the link",
    "submission": "the host's calls",
    "copy engine": "the copy engine, which starts no copy sooner",
    "host gather": "the processor's core that packs",
}
#: Tokens of a block in the sweep; what is drawn of prompts begins at one block.
SWEPT_TOKENS = tuple(4**n for n in range(7))
LONGEST_DRAWN = 1 << 17
#: Prompts whose computing is predicted; between them it is a power of the length.
PREFILLS = tuple(1 << n for n in range(0, 18))


class KvLayout(Predicted, kw_only=True):
    """A layout: `calls` of the API, and what limits it."""

    layout: Layout
    calls: int
    limited_by: str
    bytes_per_second: float


class KvBlock(Struct):
    """`count` blocks of the cache, each in `pieces` pieces."""

    tokens: int
    bytes: float
    pieces: int
    piece_bytes: float
    count: int


class Recompute(Ranged, kw_only=True):
    """What computing the cache again takes: `given`, or predicted of the layers of a `model`."""

    by: Literal["given", "model"]
    seconds: float

    def __str__(self) -> str:
        return self.shown(self.seconds)


class KvByBlock(Struct):
    block_tokens: int
    piece_bytes: float
    predicted_seconds: dict[Layout, float]


class KvByTokens(Struct):
    tokens: int
    fetch_seconds: float
    recompute_seconds: float | None


class PlanKvResult(Struct, tag_field="schema", tag="busfare.plan-kv/1", kw_only=True):
    """`best` is the fastest layout of those that a paged cache can have. `worth_fetching`: from and up to how many tokens,
    `null` for all longer ones; `break_even_between`: by the range of computing.
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
    reason: str | UnsetType = UNSET  # only where there is no break-even
    by_block: list[KvByBlock]
    by_tokens: list[KvByTokens]
    basis: list[Basis]
    words: list[str]


def answer_kv(asked: questions.KvCache) -> PlanKvResult:
    """Raises InputError where the node or the model is not known, or blocks cannot be cut so."""
    machine = machine_named(asked.node)
    model = read_model(asked.model) if asked.model else None
    per_token: float = asked.bytes_per_token or 0
    if asked.bytes_per_token is None and model:
        per_token = kv_bytes_per_token(model, asked.type)
    block_tokens, pieces = asked.block_tokens, asked.pieces
    if pieces is None:
        # Keys and values of each layer lie in tensors of their own; of latent attention in one.
        pieces = sum(1 if layer.latent_size else 2 for layer in model.layers) if model else 1
    if not per_token or pieces > per_token * block_tokens:
        raise InputError(
            f"`pieces` {pieces}: a block of {per_token * block_tokens:.0f} bytes cannot have so many pieces; give fewer"
        )
    host = host_of(machine, asked.launch, asked.batch_launch, asked.memcpy)
    count, left = (math.ceil(n / block_tokens) for n in (asked.tokens, asked.evict))
    prefill, reason = None, "what computing the prompt takes is not said; give --prefill-seconds, or --model"
    if asked.prefill_seconds:
        prefill = Prefill(asked.prefill_seconds)
    elif model:
        try:
            prefill = _predicted(model, machine.node, asked.type)
        except InputError as error:
            reason = str(error)
    blocks = Blocks(per_token * block_tokens, count, pieces, left)
    result = _Cache(machine, host, blocks, asked.tokens, block_tokens, prefill).result(asked.layout, reason)
    result.model = model.name if model else None
    return result


def _predicted(model: Model, node: Node, type_: str) -> Prefill:
    """By the layers' operators on the node's GPU. Raises InputError where its limits are not known."""
    found = [(tokens, gpu_seconds(model, node, tokens, type_=type_)) for tokens in PREFILLS]
    points = tuple((float(tokens), float(one.seconds.sum())) for tokens, one in found)
    last = found[-1][1]
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

    def result(self, layout: Layout | None, reason: str) -> PlanKvResult:
        """`layout`: of which the break-even and the prompts are, in place of the best one; `reason`: why it is not known
        what computing takes.
        """
        blocks, prefill = self.blocks, self.prefill
        found = ranked(blocks, self.machine, self.host)
        best = next(
            one for one in found if one.layout == layout or (layout is None and one.layout != "contiguous")
        )
        moved = blocks.bytes * (blocks.count + blocks.evicted)
        ranking = [
            KvLayout(
                layout=one.layout,
                predicted_seconds=one.seconds,
                calls=one.calls,
                limited_by=one.limited_by,
                bytes_per_second=moved / one.seconds,
                **one.beside(self.machine),
            )
            for one in found
        ]
        worth = self.worth(best.layout)
        result = PlanKvResult(
            node=self.machine.node.name,
            model=None,
            tokens=self.tokens,
            bytes_per_token=blocks.bytes / self.block_tokens,
            block=KvBlock(self.block_tokens, blocks.bytes, blocks.pieces, blocks.piece_bytes, blocks.count),
            fetched_bytes=blocks.moved("h2d")[0],
            evicted_bytes=blocks.moved("d2h")[0],
            ranking=ranking,
            best=best.layout,
            recompute=_recompute(prefill, self.tokens) if prefill else None,
            worth_fetching=worth,
            break_even_tokens=_even(worth),
            break_even_between=None,
            by_block=self.by_block(),
            by_tokens=self.by_tokens(best.layout),
            basis=[*self.host.basis, *self.machine.basis],
            words=[],
        )
        if prefill is None:
            result.reason = reason
        elif result.break_even_tokens is None:
            result.reason = f"computing is faster at {questions.MOST_PROMPT:,} tokens"
        if prefill and prefill.rung and math.isfinite(prefill.low + prefill.high):
            low, high = (_even(self.worth(best.layout, end)) for end in (prefill.high, prefill.low))
            result.break_even_between = low, high
        result.words = _words(result, found, best)
        return result

    def worth(self, layout: Layout, factor: float = 1.0) -> list[tuple[int, int | None]] | None:
        """From and up to which lengths a prompt is worth fetching, where computing takes so many times as long."""
        if self.prefill is None:
            return None
        prefill = self.prefill.times(factor)
        return worth_fetching(layout, self.blocks, self.block_tokens, self.machine, self.host, prefill)

    def by_block(self) -> list[KvByBlock]:
        """The same cache in other blocks, in as many pieces each."""
        rows, blocks, own = [], self.blocks, self.block_tokens
        for many in sorted({own, *(n for n in SWEPT_TOKENS if n <= max(self.tokens, own))}):
            size, evicted = blocks.bytes / own * many, math.ceil(blocks.evicted * own / many)
            if size >= blocks.pieces:
                cut = Blocks(size, math.ceil(self.tokens / many), blocks.pieces, evicted)
                seconds = {one: fetch(one, cut, self.machine, self.host).seconds for one in LAYOUTS}
                rows.append(KvByBlock(many, cut.piece_bytes, seconds))
        return rows

    def by_tokens(self, layout: Layout) -> list[KvByTokens]:
        """Prompts from one block on, each twice as long as the one before; and the one that was asked for."""
        lengths, blocks, many = {self.tokens}, self.blocks, self.block_tokens
        while many <= max(LONGEST_DRAWN, self.tokens):
            lengths.add(many)
            many *= 2
        rows = []
        for length in sorted(lengths):
            count = math.ceil(length / self.block_tokens)
            cut = replace(blocks, count=count, evicted=round(count * blocks.evicted / max(1, blocks.count)))
            seconds = fetch(layout, cut, self.machine, self.host).seconds
            computing = self.prefill.seconds(length) if self.prefill else None
            rows.append(KvByTokens(length, seconds, computing))
        return rows


def _even(worth: list[tuple[int, int | None]] | None) -> int | None:
    """From which length on all longer prompts are worth fetching."""
    return worth[-1][0] if worth and worth[-1][1] is None else None


def _recompute(prefill: Prefill, tokens: int) -> Recompute:
    seconds = prefill.seconds(tokens)
    if prefill.rung is None:
        return Recompute(by="given", seconds=seconds, reason="as given")
    between = seconds_between(seconds * prefill.low, seconds * prefill.high, prefill.rung)
    return Recompute(by="model", seconds=seconds, **between)


def _words(result: PlanKvResult, found: list[Fetch], best: Fetch) -> list[str]:
    block, bound = result.block, next(one for one in found if one.layout == "contiguous")
    moved = amounts.size(result.fetched_bytes)
    if result.evicted_bytes:
        moved += f" in and {amounts.size(result.evicted_bytes)} out meanwhile"
    pieces = f", each in {amounts.several(block.pieces, 'piece')}" if block.pieces > 1 else ""
    sentences = [
        f"{result.tokens:,} tokens are {moved}: {amounts.several(block.count, 'block')} of {amounts.size(block.bytes)}"
        f"{pieces}.",
        f"{best.layout}: predicted {amounts.time(best.seconds)}, bound by {LIMITS[best.limited_by]}; in one piece, by one "
        f"copy, {amounts.time(bound.seconds)}. {DO[best.layout]}",
    ]
    single = next(one for one in found if one.layout == "per-block")
    if best.layout != "per-block" and single.limited_by != "link":
        sentences.append(
            f"A copy a piece of {amounts.size(block.piece_bytes)} takes {single.seconds / best.seconds:.1f} times as long: "
            f"{amounts.several(single.calls, 'copy')}, bound by {LIMITS[single.limited_by]}."
        )
    if (computing := result.recompute) is not None:
        faster, slower = sorted((best.seconds, computing.seconds))
        verb = "Fetching" if best.seconds <= computing.seconds else "Computing"
        by = "as given" if computing.by == "given" else "predicted"
        sentences.append(
            f"{verb} is {slower / faster:.1f} times as fast: to fetch takes {amounts.time(best.seconds)}, predicted, and to "
            f"compute again {computing}, {by}."
        )
        sentences.append(_worth(result))
    return sentences


def _worth(result: PlanKvResult) -> str:
    """From and up to which lengths a prompt is fetched sooner than computed."""
    parts, between = [], result.break_even_between
    for first, last in result.worth_fetching or ():
        if last is None:
            ends = [f"{end:,}" if end else "never" for end in between or ()]
            inside = f" ({' to '.join(ends)} by the range of computing)" if len(set(ends)) > 1 else ""
            parts.append(f"from {first:,} tokens on{inside}")
        else:
            parts.append(f"from {first:,} to {last:,} tokens")
    return f"Fetch {' and '.join(parts)}." if parts else f"Compute, at any length: {result.reason}."
