"""The result of `plan kv`, with its words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from busfare.advise import amounts
from busfare.errors import InputError
from busfare.node import load_node
from busfare.plan import Machine, machine_of
from busfare.plan.machine import Basis
from busfare.plan.offload.kv import (
    LAYOUTS,
    MOST_TOKENS,
    Blocks,
    Fetch,
    Host,
    Layout,
    Prefill,
    break_even,
    fetch,
    host_of,
    ranked,
)
from busfare.quantities import parse_bytes, parse_count, parse_seconds
from busfare.results import Predicted

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


class KvByBlock(Struct):
    block_tokens: int
    piece_bytes: float
    predicted_seconds: dict[Layout, float]


class KvByTokens(Struct):
    tokens: int
    fetch_seconds: float
    recompute_seconds: float | None


class PlanKvResult(Struct, tag_field="schema", tag="busfare.plan-kv/1", kw_only=True):
    """`best` is the fastest layout of those that a paged cache can have; `recompute_seconds` is as given, or null."""

    node: str
    tokens: int
    bytes_per_token: float
    block: KvBlock
    fetched_bytes: float
    evicted_bytes: float
    ranking: list[KvLayout]
    best: Layout
    recompute_seconds: float | None
    break_even_tokens: int | None
    reason: str | UnsetType = UNSET  # only where there is no break-even
    by_block: list[KvByBlock]
    by_tokens: list[KvByTokens]
    basis: list[Basis]
    words: list[str]


def answer_kv(asked: Mapping[str, Any]) -> PlanKvResult:
    """The result for the options of the command line by name; those not given are None. Raises InputError."""
    if not asked.get("node"):
        raise InputError(
            "--node: the machine is not said; name one, as in --node h100-sxm (see `busfare nodes`)"
        )
    machine = machine_of(load_node(asked["node"]))
    if not asked.get("bytes_per_token"):
        raise InputError("--bytes-per-token: how large the cache of a token is, is not said: 2 · layers · kv_heads · "
                         "head_dim · bytes of the type, as in --bytes-per-token 128KiB")  # fmt: skip
    per_token = parse_bytes(asked["bytes_per_token"], most=1 << 30)
    tokens, block_tokens = (_count(asked, key, MOST_TOKENS) for key in ("tokens", "block_tokens"))
    pieces, evicted = _count(asked, "pieces", 1 << 16), _count(asked, "evict", MOST_TOKENS, least=0)
    if not per_token or pieces > per_token * block_tokens:
        raise InputError(
            f"--pieces {pieces}: a block of {per_token * block_tokens} bytes has no so many pieces"
        )
    if (layout := asked.get("layout")) not in (None, *LAYOUTS):
        raise InputError(f"--layout {str(layout)[:40]!r}: not known; one of {', '.join(LAYOUTS)}")
    launch, batch = (
        parse_seconds(asked[key], 1.0) if asked.get(key) else None for key in ("launch", "batch_launch")
    )
    rate = max(1.0, float(parse_bytes(asked["memcpy"]))) if asked.get("memcpy") else None
    host = host_of(machine, launch, batch, rate)
    count, left = (math.ceil(n / block_tokens) for n in (tokens, evicted))
    blocks = Blocks(per_token * block_tokens, count, pieces, left)
    prefill = _prefill(asked["prefill_seconds"]) if asked.get("prefill_seconds") else None
    return kv_result(machine, host, blocks, tokens, block_tokens, prefill, layout)


def kv_result(
    machine: Machine, host: Host, blocks: Blocks, tokens: int, block_tokens: int, prefill: Prefill | None = None,
    layout: Layout | None = None,
) -> PlanKvResult:  # fmt: skip
    """All layouts of a cache in `blocks` of `block_tokens` each, and with `prefill` what is worth fetching; `layout`: of
    which the break-even and the prompts are, in place of the best one.
    """
    found = ranked(blocks, machine, host)
    best = next(
        one for one in found if one.layout == layout or (layout is None and one.layout != "contiguous")
    )
    moved = blocks.bytes * (blocks.count + blocks.evicted)
    result = PlanKvResult(
        node=machine.node.name,
        tokens=tokens,
        bytes_per_token=blocks.bytes / block_tokens,
        block=KvBlock(block_tokens, blocks.bytes, blocks.pieces, blocks.piece_bytes, blocks.count),
        fetched_bytes=blocks.moved("h2d")[0],
        evicted_bytes=blocks.moved("d2h")[0],
        ranking=[
            KvLayout(
                layout=one.layout,
                predicted_seconds=one.seconds,
                calls=one.calls,
                limited_by=one.limited_by,
                bytes_per_second=moved / one.seconds,
                **one.beside(machine),
            )
            for one in found
        ],
        best=best.layout,
        recompute_seconds=prefill.seconds(tokens) if prefill else None,
        break_even_tokens=break_even(best.layout, blocks, block_tokens, machine, host, prefill) if prefill else None,
        by_block=_by_block(blocks, tokens, block_tokens, machine, host),
        by_tokens=_by_tokens(best.layout, blocks, tokens, block_tokens, machine, host, prefill),
        basis=[*host.basis, *machine.basis],
        words=[],
    )  # fmt: skip
    if prefill is None:
        result.reason = "what computing the prompt takes is not said; give --prefill-seconds"
    elif result.break_even_tokens is None:
        result.reason = f"computing is faster up to {MOST_TOKENS:,} tokens"
    result.words = _words(result, found, best)
    return result


def _by_block(
    blocks: Blocks, tokens: int, block_tokens: int, machine: Machine, host: Host
) -> list[KvByBlock]:
    """The same cache in other blocks, in as many pieces each."""
    rows, per_token = [], blocks.bytes / block_tokens
    for many in sorted({block_tokens, *(n for n in SWEPT_TOKENS if n <= max(tokens, block_tokens))}):
        if per_token * many < blocks.pieces:
            continue
        evicted = math.ceil(blocks.evicted * block_tokens / many)
        cut = Blocks(per_token * many, math.ceil(tokens / many), blocks.pieces, evicted)
        seconds = {one: fetch(one, cut, machine, host).seconds for one in LAYOUTS}
        rows.append(KvByBlock(many, cut.piece_bytes, seconds))
    return rows


def _by_tokens(
    layout: Layout, blocks: Blocks, tokens: int, block_tokens: int, machine: Machine, host: Host,
    prefill: Prefill | None,
) -> list[KvByTokens]:  # fmt: skip
    lengths = {tokens}
    many = block_tokens
    while many <= max(LONGEST_DRAWN, tokens):
        lengths.add(many)
        many *= 2
    rows = []
    for length in sorted(lengths):
        count = math.ceil(length / block_tokens)
        evicted = round(count * blocks.evicted / max(1, blocks.count))
        seconds = fetch(layout, replace(blocks, count=count, evicted=evicted), machine, host).seconds
        rows.append(KvByTokens(length, seconds, prefill.seconds(length) if prefill else None))
    return rows


def _words(result: PlanKvResult, found: list[Fetch], best: Fetch) -> list[str]:
    block, bound = result.block, next(one for one in found if one.layout == "contiguous")
    moved = f"{amounts.size(result.fetched_bytes)} in"
    if result.evicted_bytes:
        moved += f" and {amounts.size(result.evicted_bytes)} out meanwhile"
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
    if (computing := result.recompute_seconds) is not None:
        faster, slower = sorted((best.seconds, computing))
        verb = "Fetching" if best.seconds <= computing else "Computing"
        sentences.append(
            f"{verb} is {slower / faster:.1f} times as fast: {amounts.time(best.seconds)} (predicted) to fetch, "
            f"{amounts.time(computing)} (as given) to compute again."
        )
        tokens = result.break_even_tokens
        sentences.append(
            f"Break-even: fetch from {tokens:,} tokens on." if tokens else f"No break-even: {result.reason}."
        )
    return sentences


def _count(asked: Mapping[str, Any], key: str, most: int, least: int = 1) -> int:
    value = parse_count(str(asked.get(key) or 0))
    if value != int(value) or not least <= value <= most:
        raise InputError(f"--{key.replace('_', '-')} {asked[key]}: a whole number from {least} to {most:,}")
    return int(value)


def _prefill(text: str) -> Prefill:
    """'1024=80ms,8192=700ms'. Raises InputError."""
    points = []
    for part in text.split(","):
        tokens, equals, seconds = part.partition("=")
        if not equals:
            raise InputError(f"--prefill-seconds {part[:40]!r}: write TOKENS=TIME, as in 8192=700ms")
        points.append((parse_count(tokens), parse_seconds(seconds)))
    if not all(n >= 1 and s > 0 for n, s in points) or len({n for n, _ in points}) < len(points):
        raise InputError("--prefill-seconds: tokens of at least 1, each once, and times above 0")
    return Prefill(tuple(sorted(points)))
