"""KV caches on the host: layouts, prompts and hosts, and what `plan kv` answers."""

from dataclasses import replace
from typing import Any

import pytest

from busfare.answers.kv import PlanKvResult, answer_kv
from busfare.errors import InputError
from busfare.nodes import load_node
from busfare.planning import machine_of
from busfare.planning.offload.kv import (
    HANDED_OVER_S,
    LAYOUTS,
    MOST_PLAYED,
    Blocks,
    Prefill,
    fetch,
    host_of,
    program_of,
    ranked,
    worth_fetching,
)
from busfare.questions import KvCache
from busfare.show.page import page
from busfare.show.plan_words import kv_words
from busfare.show.plans import kv_document
from busfare.show.words import worded
from tests.traces import as_json

MACHINE = machine_of(load_node("h100-probed"))
HOST = host_of(MACHINE)
KIB = 1 << 10


@pytest.mark.parametrize("piece", [4 * KIB, 64 * KIB, 1024 * KIB])
@pytest.mark.parametrize("copy_s", [1e-7, 3e-6, 1e-5])
@pytest.mark.parametrize(("fetched", "evicted"), [(400, 0), (0, 400), (400, 400)])
def test_thousands_of_copies_replay_as_priced(piece: int, copy_s: float, fetched: int, evicted: int) -> None:
    host, blocks = replace(HOST, copy_s=copy_s), Blocks(piece, fetched, 1, evicted)
    assert max(fetched, evicted) > MOST_PLAYED
    played = program_of("per-block", blocks, MACHINE, host).play().seconds
    assert fetch("per-block", blocks, MACHINE, host).seconds - host.wait_s == pytest.approx(played, rel=0.01)


def test_eviction_during_a_fetch_adds_no_more_than_it_takes_alone() -> None:
    """Copies that have no partner the other way pay for no partner."""
    host = replace(HOST, copy_s=1e-7)
    alone, pairs, few, evicted_alone = (
        fetch("per-block", Blocks(4 * KIB, fetched, 1, evicted), MACHINE, host).seconds
        for fetched, evicted in ((500, 0), (500, 500), (500, 10), (10, 10))
    )
    assert alone < few < alone + evicted_alone < pairs


def test_small_pieces_are_bound_by_submission_and_long_ones_by_the_link() -> None:
    by_size = {
        piece: fetch("per-block", Blocks(piece, (64 << 20) // piece), MACHINE, HOST)
        for piece in (4 * KIB, 64 * KIB, 4096 * KIB)
    }
    slow = fetch("per-block", Blocks(4 * KIB, 16384), MACHINE, replace(HOST, copy_s=5e-6))
    assert slow.limited_by == "submission"
    assert slow.seconds == pytest.approx(16384 * 5e-6, rel=0.01)
    assert [fetched.limited_by for fetched in by_size.values()] == ["copy engine", "copy engine", "link"]
    bound = fetch("contiguous", Blocks(64 << 20, 1), MACHINE, HOST).seconds
    assert bound == pytest.approx(0.81 * 3.033e-6 + 3.781e-6 + (64 << 20) * 1.81e-11 + 1.908e-6, rel=1e-3)
    assert bound < by_size[4096 * KIB].seconds < 1.1 * bound


def test_pieces_of_a_block_count_as_separate_copies() -> None:
    whole = Blocks(2048 * KIB, 32)
    scattered = replace(whole, pieces=64)
    single = fetch("per-block", scattered, MACHINE, HOST)
    assert (single.calls, single.limited_by) == (2048, "copy engine")
    at_once = [fetch("contiguous", blocks, MACHINE, HOST).seconds for blocks in (scattered, whole)]
    assert at_once[0] == pytest.approx(at_once[1])


def test_a_gather_on_the_host_takes_its_memcpy_before_or_during_the_copy() -> None:
    host = replace(HOST, pack_s_per_byte=1e-10)
    blocks = Blocks(64 * KIB, 1024)
    packed, copied = blocks.moved("h2d")[0] * 1e-10, fetch("contiguous", blocks, MACHINE, host).seconds
    serial, halves = (fetch(name, blocks, MACHINE, host) for name in ("gather-host", "gather-host-halves"))
    assert serial.limited_by == halves.limited_by == "host gather"
    assert serial.seconds == pytest.approx(packed + copied, rel=0.001)
    assert halves.seconds == pytest.approx(packed + copied / 2, rel=0.01)
    # What was evicted is taken apart by the same core, behind it.
    back = fetch("gather-host", replace(blocks, evicted=1024), MACHINE, host).seconds
    assert back == pytest.approx(2 * packed, rel=0.01)


def test_every_layout_is_ranked_and_none_beats_the_bound() -> None:
    fetches = ranked(Blocks(64 * KIB, 4096, evicted=2048), MACHINE, HOST)
    assert {fetched.layout for fetched in fetches} == set(LAYOUTS)
    assert fetches[0].layout == "contiguous"
    assert [fetched.seconds for fetched in fetches] == sorted(fetched.seconds for fetched in fetches)
    with pytest.raises(InputError, match="`tokens`"):
        ranked(Blocks(64 * KIB, 0), MACHINE, HOST)


def test_prefill_between_and_beyond_its_points() -> None:
    twice = Prefill(((1000.0, 0.1), (2000.0, 0.3)))
    assert twice.seconds(1000) == pytest.approx(0.1)
    assert twice.seconds(4000) == pytest.approx(0.9)
    assert Prefill(((1000.0, 0.1),)).seconds(250) == pytest.approx(0.025)


def test_break_even_is_where_fetching_takes_as_long_as_computing() -> None:
    blocks, prefill = Blocks(4 * KIB, 1), Prefill(((1.0, 1e-6),))
    ((tokens, end),) = worth_fetching("contiguous", blocks, 1, MACHINE, HOST, prefill)
    assert end is None
    for count, faster in ((tokens, True), (tokens - 1, False)):
        fetched = fetch("contiguous", replace(blocks, count=count), MACHINE, HOST).seconds
        assert (fetched < prefill.seconds(count)) is faster
    assert worth_fetching("per-block", blocks, 1, MACHINE, HOST, prefill) == []
    assert worth_fetching("per-block", blocks, 16, MACHINE, HOST, Prefill(((1.0, 1.0),))) == [(16, None)]


def test_short_and_long_prompts_may_be_worth_fetching_and_those_between_not() -> None:
    """Computing takes 5 ms at least, and grows by the square in the end; 64 copies a block from Python cost 0.64 ms."""
    host, blocks = replace(HOST, copy_s=1e-5), Blocks(2 << 20, 1, 64)
    prefill = Prefill(((16.0, 5e-3), (256.0, 5.5e-3), (8192.0, 0.2), (131072.0, 20.0)))
    (first, up_to), (again, end) = worth_fetching("per-block", blocks, 16, MACHINE, host, prefill)
    assert (first, end) == (16, None)
    assert up_to < 8192 < again
    for tokens, faster in ((up_to, True), (up_to + 16, False), (again * 0.999, False), (again, True)):
        count = round(tokens / 16)
        fetched = fetch("per-block", replace(blocks, count=count), MACHINE, host).seconds
        assert (fetched < prefill.seconds(16 * count)) == faster


OPTIONS = {
    "node": "h100-probed", "bytes_per_token": "128KiB", "tokens": "8192", "block_tokens": "16", "pieces": "64",
}  # fmt: skip


def answered(**more: Any) -> PlanKvResult:
    return answer_kv(KvCache.of(**(OPTIONS | more)))


def of_model(**options: Any) -> PlanKvResult:
    return answer_kv(KvCache.of(**({"node": "h100-probed", "model": "llama-3.1-8b"} | options)))


def test_the_answer_for_a_model_of_32_layers() -> None:
    answer = answered(prefill_seconds="1024=60ms,8192=600ms")
    assert (answer.block.count, answer.block.bytes / answer.block.pieces) == (512, 32768)
    assert answer.fetched_bytes == 8192 * 131072
    assert answer.ranking[0].layout == "contiguous"
    assert answer.best == answer.ranking[1].layout == "gather-kernel"
    single = next(row for row in answer.ranking if row.layout == "per-block")
    # 32,768 starts of 2.332 µs and what one that is handed over alone takes longer, and 32 KiB at 18.1 ps a byte.
    assert (single.calls, single.limited_by) == (32768, "copy engine")
    start = 2.332e-6 + HANDED_OVER_S
    assert single.predicted_seconds == pytest.approx(32768 * (start + 32768 * 1.81e-11), rel=1e-3)
    assert (answer.recompute.by, answer.recompute.seconds) == ("given", pytest.approx(0.6))
    assert (answer.recompute.low_seconds, answer.recompute.rung) == (None, None)
    for row in answer.ranking:
        assert row.low_seconds <= row.predicted_seconds <= row.high_seconds
        assert row.rung == "probed"


def test_a_slow_link_and_a_fast_gpu_have_a_break_even() -> None:
    """1 MiB a token over PCIe 3 takes longer than 10 µs a token, until attention's square is felt."""
    slow = {"node": "v100-pcie", "bytes_per_token": "1MiB", "prefill_seconds": "1000=10ms,100000=100s"}
    tokens = answered(**slow).break_even_tokens
    assert tokens % 16 == 0
    for share, faster in ((0.99, False), (1.01, True)):
        answer = answered(**slow, tokens=str(int(tokens * share)))
        best = next(row for row in answer.ranking if row.layout == answer.best)
        assert (best.predicted_seconds < answer.recompute.seconds) == faster


def test_options_move_what_they_name() -> None:
    plain, slower, packed = (
        {row.layout: row.predicted_seconds for row in answered(**more).ranking}
        for more in ({}, {"launch": "10us"}, {"memcpy": "20GB"})
    )
    assert slower["per-block"] == pytest.approx(32768 * 1e-5, rel=0.01)
    assert slower["gather-kernel"] == plain["gather-kernel"]
    saved = 8192 * 131072 * (1.063e-10 / 0.79 - 5e-11)
    assert plain["gather-host"] - packed["gather-host"] == pytest.approx(saved, rel=1e-6)
    evicted = answered(evict="4096")
    assert evicted.evicted_bytes == evicted.fetched_bytes / 2
    assert all(row.predicted_seconds > plain[row.layout] for row in evicted.ranking)
    assert answered(layout="per-block").best == "per-block"


def test_without_prefill_seconds_the_answer_has_no_computing() -> None:
    answer = as_json(worded(answered()))
    assert next(iter(answer.items())) == ("schema", "busfare.plan-kv/1")
    assert answer["recompute"] is answer["break_even_tokens"] is None
    assert "--prefill-seconds" in answer["reason"]
    text = page(kv_document(answered()))
    # A line a layout by block size; each in its legend, too.
    assert text.count('class="line"') == 2 * 6


def test_a_network_by_name_says_its_cache_and_what_computing_takes() -> None:
    answer = of_model(tokens="8192", block_tokens="16")
    # 2 · 32 layers · 8 heads · 128 · 2 bytes.
    assert (answer.bytes_per_token, answer.block.pieces) == (131072, 64)
    assert answer.recompute.by == "model"
    # 2 · 7 billion weights of its layers · 8192 tokens, and attention, at no more than the H100's 989 TFLOP/s.
    assert 2 * 6.98e9 * 8192 / 989e12 < answer.recompute.seconds < 1.0
    short = of_model(tokens="16").recompute
    # A token more costs no more than reading all weights, which a prefill of 16 tokens reads, too.
    assert short is not None and short.seconds == pytest.approx(2 * 6.98e9 / 3.35e12, rel=0.5)
    slow = of_model(node="pcie:1x1", tokens="64", block_tokens="16")
    assert slow.recompute is slow.break_even_tokens is None
    assert slow.reason
    latent = of_model(model="deepseek-v3", tokens="64", block_tokens="16")
    assert (latent.bytes_per_token, latent.block.pieces) == (61 * (512 + 64) * 2, 61)


def test_weights_that_do_not_fit_are_named_and_gpus_share_them() -> None:
    alone, shared = (of_model(node="dgx-a100", model="llama-3.1-70b", tensor_parallel=n) for n in ("1", "8"))
    assert alone.weight_bytes == pytest.approx(2 * 7.055e9 * 10, rel=1e-3)
    assert alone.memory_bytes is not None and shared.weight_bytes == pytest.approx(alone.weight_bytes / 8)
    assert shared.fetched_bytes == alone.fetched_bytes / 8
    assert alone.recompute and shared.recompute
    assert shared.recompute.seconds == pytest.approx(alone.recompute.seconds / 8)
    lacking = "The weights (141 GB) exceed GPU memory (42.9 GB)"
    assert any(lacking in sentence for sentence in kv_words(alone))
    fitting = of_model(node="h200-sxm", model="llama-3.1-70b")  # GB of its data sheet are 2^30 bytes
    assert not any("exceed GPU memory" in sentence for sentence in (*kv_words(shared), *kv_words(fitting)))
    # Latent attention has one head of keys, which each GPU holds.
    latent = [of_model(node="h100-sxm", model="deepseek-v3", tensor_parallel=n) for n in ("1", "8")]
    assert latent[0].fetched_bytes == latent[1].fetched_bytes
    with pytest.raises(InputError, match="`tensor_parallel`: needs `model`"):
        answered(tensor_parallel="2")


@pytest.mark.parametrize(
    ("node", "gpus", "says"),
    [
        ("h100-sxm", "3", "`tensor_parallel` 3: does not divide the 32 heads and 8 key heads.*one of 1, 2, 4, 8, 16, 32$"),
        ("l40s", "3", "one of 1, 2, 4, 8, 16, 32$"),
    ],
)  # fmt: skip
def test_gpus_that_cannot_share_the_heads_are_refused(node: str, gpus: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        of_model(node=node, tensor_parallel=gpus)


@pytest.mark.parametrize(("node", "gpus"), [("rtx-4090", 4), ("minsky", 8)])
def test_a_node_stands_for_more_gpus_than_it_has(node: str, gpus: int) -> None:
    alone, shared = (of_model(node=node, tensor_parallel=n).fetched_bytes for n in ("1", str(gpus)))
    assert shared == alone / gpus


def test_only_given_times_are_marked_as_given() -> None:
    given, extended = (answered(prefill_seconds="8192=600ms", tokens=n).recompute for n in ("8192", "4096"))
    assert given and extended
    assert (given.by, extended.by, extended.seconds) == ("given", "extended", pytest.approx(0.3))
    assert "compute, as given" not in page(kv_document(answered(prefill_seconds="8192=600ms")))


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"node": None}, "`node`"),
        ({"bytes_per_token": None}, "`bytes_per_token`"),
        ({"bytes_per_token": "0"}, "`bytes_per_token` '0' is zero"),
        ({"tokens": "0"}, "`tokens`"),
        ({"block_tokens": "1.5"}, "`block_tokens`"),
        ({"layout": "heap"}, "`layout`"),
        ({"evict": "1e12"}, "`evict`"),
        ({"prefill_seconds": "8192"}, "`prefill_seconds`"),
        ({"prefill_seconds": "8192=1s,8192=2s"}, "`prefill_seconds`"),
        ({"launch": "5"}, "time"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(wrong: dict[str, Any], names: str) -> None:
    with pytest.raises(InputError, match=names):
        answered(**wrong)
