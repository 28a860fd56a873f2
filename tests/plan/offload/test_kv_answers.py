"""What `plan kv` answers: from its options to words, JSON and page."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from busfare.answers.kv import PlanKvResult, answer_kv
from busfare.errors import InputError
from busfare.planning.offload.kv import HANDED_OVER_S
from busfare.show.page import page
from busfare.show.plans import kv_document
from tests.traces import as_json

ASKED = {
    "node": "h100-probed", "bytes_per_token": "128KiB", "tokens": "8192", "block_tokens": "16", "pieces": "64",
}  # fmt: skip


def answered(**more: Any) -> PlanKvResult:
    return answer_kv(ASKED | more)


def test_the_answer_for_a_model_of_32_layers() -> None:
    found = answered(prefill_seconds="1024=60ms,8192=600ms")
    assert (found.block.count, found.block.piece_bytes) == (512, 32768)
    assert found.fetched_bytes == 8192 * 131072
    assert found.ranking[0].layout == "contiguous"
    assert found.best == found.ranking[1].layout == "gather-kernel"
    single = next(row for row in found.ranking if row.layout == "per-block")
    # 32,768 starts of 2.332 µs and what one that is handed over alone takes longer, and 32 KiB at 18.1 ps a byte.
    assert (single.calls, single.limited_by) == (32768, "copy engine")
    assert single.predicted_seconds == pytest.approx(
        32768 * (2.332e-6 + HANDED_OVER_S + 32768 * 1.81e-11), rel=1e-3
    )
    assert found.recompute is not None
    assert (found.recompute.by, found.recompute.seconds) == ("given", pytest.approx(0.6))
    assert (found.recompute.low_seconds, found.recompute.rung) == (None, None)
    for row in found.ranking:
        assert row.low_seconds is not None
        assert row.high_seconds is not None
        assert row.low_seconds <= row.predicted_seconds <= row.high_seconds
        assert row.rung == "probed"


def test_a_slow_link_and_a_fast_gpu_have_a_break_even() -> None:
    """1 MiB a token over PCIe 3 takes longer than 10 µs a token, until attention's square is felt."""
    found = answered(node="v100-pcie", bytes_per_token="1MiB", prefill_seconds="1000=10ms,100000=100s")
    tokens = found.break_even_tokens
    assert tokens is not None
    assert tokens % 16 == 0
    before, after = (answered(
        node="v100-pcie", bytes_per_token="1MiB", prefill_seconds="1000=10ms,100000=100s", tokens=str(n)
    ) for n in (int(tokens * 0.99), int(tokens * 1.01)))  # fmt: skip
    for row, faster in ((before, False), (after, True)):
        fetched = next(one for one in row.ranking if one.layout == row.best).predicted_seconds
        assert row.recompute is not None
        assert (fetched < row.recompute.seconds) == faster


def test_options_move_what_they_name() -> None:
    plain = {row.layout: row.predicted_seconds for row in answered().ranking}
    slower = {row.layout: row.predicted_seconds for row in answered(launch="10us").ranking}
    assert slower["per-block"] == pytest.approx(32768 * 1e-5, rel=0.01)
    assert slower["gather-kernel"] == plain["gather-kernel"]
    packed = {row.layout: row.predicted_seconds for row in answered(memcpy="20GB").ranking}
    assert plain["gather-host"] - packed["gather-host"] == pytest.approx(
        8192 * 131072 * (1.063e-10 / 0.79 - 5e-11), rel=1e-6
    )
    evicted = answered(evict="4096")
    assert evicted.evicted_bytes == evicted.fetched_bytes / 2
    assert all(row.predicted_seconds > plain[row.layout] for row in evicted.ranking)
    assert answered(layout="per-block").best == "per-block"


def test_without_prefill_nothing_is_said_of_computing() -> None:
    found = as_json(answered())
    assert next(iter(found.items())) == ("schema", "busfare.plan-kv/1")
    assert found["recompute"] is found["break_even_tokens"] is None
    assert "--prefill-seconds" in found["reason"]
    assert all(row["recompute_seconds"] is None for row in found["by_tokens"])
    text = page(kv_document(answered()))
    # A line a layout by block size, and one of fetching by length; each in its legend, too.
    assert text.count('class="line"') == 2 * (6 + 1)


def test_a_network_by_name_says_its_cache_and_what_computing_takes() -> None:
    found = answer_kv(
        {"node": "h100-probed", "model": "llama-3.1-8b", "tokens": "8192", "block_tokens": "16"}
    )
    assert (found.bytes_per_token, found.block.pieces) == (
        131072,
        64,
    )  # 2 · 32 layers · 8 heads · 128 · 2 bytes
    assert found.recompute is not None
    assert found.recompute.by == "model"
    # 2 · 7 billion weights of its layers · 8192 tokens, and attention, at no more than the H100's 989 TFLOP/s.
    assert 2 * 6.98e9 * 8192 / 989e12 < found.recompute.seconds < 1.0
    lengths = [(row.tokens, row.recompute_seconds) for row in found.by_tokens]
    assert all(more[1] > fewer[1] > 0 for fewer, more in pairwise(lengths) if more[1] and fewer[1])
    # A token more costs no more than reading all weights, which a prefill of 16 tokens reads, too.
    assert lengths[0][1] == pytest.approx(2 * 6.98e9 / 3.35e12, rel=0.5)
    slow = answer_kv({
        "node": "pcie:1x1", "model": "llama-3.1-8b", "tokens": "64", "block_tokens": "16", "prefill_seconds": None,
    })  # fmt: skip
    assert slow.recompute is slow.break_even_tokens is None
    assert slow.reason
    latent = answer_kv({"node": "h100-probed", "model": "deepseek-v3", "tokens": "64", "block_tokens": "16"})
    assert (latent.bytes_per_token, latent.block.pieces) == (61 * (512 + 64) * 2, 61)


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"node": None}, "--node"),
        ({"bytes_per_token": None}, "--bytes-per-token"),
        ({"bytes_per_token": "0"}, "--pieces"),
        ({"tokens": "0"}, "--tokens"),
        ({"block_tokens": "1.5"}, "--block-tokens"),
        ({"layout": "heap"}, "--layout"),
        ({"evict": "1e12"}, "--evict"),
        ({"prefill_seconds": "8192"}, "--prefill-seconds"),
        ({"prefill_seconds": "8192=1s,8192=2s"}, "--prefill-seconds"),
        ({"launch": "5"}, "time"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(wrong: dict[str, Any], names: str) -> None:
    with pytest.raises(InputError, match=names):
        answered(**wrong)
