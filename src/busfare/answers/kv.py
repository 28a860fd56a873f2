"""The result of `plan kv`, with its words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from busfare.advise.amounts import Predicted, Ranged
from busfare.answers.plan import machine_named
from busfare.cost.ranges import seconds_between
from busfare.errors import InputError
from busfare.nodes import Node
from busfare.planning import Machine
from busfare.planning.machine import Basis
from busfare.planning.offload.kv import (
    LAYOUTS,
    MOST_TOKENS,
    Blocks,
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
from busfare.quantities import parse_bytes, parse_count, parse_seconds

__all__ = ["KvLayout", "PlanKvResult", "answer_kv"]

#: What a core packs in a second at the least.
LEAST_MEMCPY = 1e6
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
    words: list[str] = field(default_factory=list)  # which `show` adds


def answer_kv(asked: Mapping[str, Any]) -> PlanKvResult:
    """The result for the options of the command line by name; those not given are None. Raises InputError."""
    machine = machine_named(asked.get("node"))
    model = read_model(asked["model"]) if asked.get("model") else None
    type_ = asked.get("type") or "fp16"
    if asked.get("bytes_per_token"):
        per_token: float = parse_bytes(asked["bytes_per_token"], "--bytes-per-token", most=1 << 30)
    elif model:
        per_token = kv_bytes_per_token(model, type_)
    else:
        raise InputError(
            "--bytes-per-token: how large the cache of a token is, is not said: 2 · layers · kv_heads · "
            "head_dim · bytes of the type, as in --bytes-per-token 128KiB; or give --model"
        )
    tokens, block_tokens = (_count(asked, key, MOST_TOKENS) for key in ("tokens", "block_tokens"))
    evicted = _count(asked, "evict", MOST_TOKENS, least=0)
    # Keys and values of each layer lie in tensors of their own; of latent attention in one.
    pieces = sum(1 if layer.latent_size else 2 for layer in model.layers) if model else 1
    if asked.get("pieces"):
        pieces = _count(asked, "pieces", 1 << 16)
    if not per_token or pieces > per_token * block_tokens:
        raise InputError(
            f"--pieces {pieces}: a block of {per_token * block_tokens:.0f} bytes cannot have so many pieces; give fewer"
        )
    if (layout := asked.get("layout")) not in (None, *LAYOUTS):
        raise InputError(f"--layout {str(layout)[:40]!r}: not known; one of {', '.join(LAYOUTS)}")
    launch, batch = (
        parse_seconds(asked[key], f"--{key.replace('_', '-')}", most=1.0) if asked.get(key) else None
        for key in ("launch", "batch_launch")
    )
    rate = float(parse_bytes(asked["memcpy"], "--memcpy")) if asked.get("memcpy") else None
    if rate is not None and rate < LEAST_MEMCPY:
        raise InputError(f"--memcpy {asked['memcpy']!r}: a core packs more in a second; give 1MB or more")
    host = host_of(machine, launch, batch, rate)
    count, left = (math.ceil(n / block_tokens) for n in (tokens, evicted))
    prefill, reason = None, "what computing the prompt takes is not said; give --prefill-seconds, or --model"
    if asked.get("prefill_seconds"):
        prefill = _given(asked["prefill_seconds"])
    elif model:
        try:
            prefill = _predicted(model, machine.node, type_)
        except InputError as error:
            reason = str(error)
    blocks = Blocks(per_token * block_tokens, count, pieces, left)
    result = _Cache(machine, host, blocks, tokens, block_tokens, prefill).result(layout, reason)
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
        )
        if prefill is None:
            result.reason = reason
        elif result.break_even_tokens is None:
            result.reason = f"computing is faster at {MOST_TOKENS:,} tokens"
        if prefill and prefill.rung and math.isfinite(prefill.low + prefill.high):
            low, high = (_even(self.worth(best.layout, end)) for end in (prefill.high, prefill.low))
            result.break_even_between = low, high
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


def _count(asked: Mapping[str, Any], key: str, most: int, least: int = 1) -> int:
    option = f"--{key.replace('_', '-')}"
    value = parse_count(str(asked.get(key) or 0), option)
    if value != int(value) or not least <= value <= most:
        raise InputError(f"{option} {asked[key]}: give a whole number from {least} to {most:,}")
    return int(value)


def _given(text: str) -> Prefill:
    """'1024=80ms,8192=700ms'. Raises InputError."""
    points = []
    for part in text.split(","):
        tokens, equals, seconds = part.partition("=")
        if not equals:
            raise InputError(f"--prefill-seconds {part[:40]!r}: write TOKENS=TIME, as in 8192=700ms")
        points.append((parse_count(tokens, "--prefill-seconds"), parse_seconds(seconds, "--prefill-seconds")))
    if not all(n >= 1 and s > 0 for n, s in points) or len({n for n, _ in points}) < len(points):
        raise InputError("--prefill-seconds: give tokens of at least 1, each once, and times above 0")
    return Prefill(tuple(sorted(points)))
