"""A network by options: seconds of layers on a GPU and on a processor, experts that a batch touches, what is brought and
what is there, and options that do not hold.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from busfare.answers.offload import PlanOffloadResult, answer_offload
from busfare.errors import InputError
from busfare.nodes import load_node
from busfare.planning.machine import machine_of
from busfare.planning.offload.network import LayerSeconds, Network, experts_touched, network_of
from busfare.planning.offload.schedule import Schedule, break_even, seconds_of
from busfare.planning.offload.shapes import read_model, weight_bytes
from busfare.questions import Offload
from busfare.show.plan_words import offload_words

NODE = load_node("rtx-4090")


MIXTRAL = {"model": "mixtral-8x7b", "type": "q4_0"}
EXPERT = 3 * 4096 * 14336 * 18 / 32


def network(**options: Any) -> Network:
    return network_of(Offload.of(**(MIXTRAL | options)), NODE)


def planned(**options: Any) -> PlanOffloadResult:
    return answer_offload(Offload.of(**({"node": "rtx-4090"} | options)))


def planned_experts(**options: Any) -> PlanOffloadResult:
    """Of a token of Mixtral, of which experts alone are brought."""
    return planned(**(MIXTRAL | {"only_experts": True, "tokens": "1"} | options))


def test_experts_alone_are_brought_as_far_as_they_are_touched_and_not_there() -> None:
    def brought(tokens: int, **options: str) -> float:
        return network(only_experts=True, **options).bytes(tokens)[0] / EXPERT

    assert (brought(1), brought(4096)) == pytest.approx((2, 8))
    assert brought(4096, cached_experts="6") == pytest.approx(2)
    assert brought(1, cached_experts="6", hit_rate="0.9") == pytest.approx(0.2)
    assert brought(1, cached_experts="6") == pytest.approx(0.25 * 2)
    assert brought(1, cached_experts="6", hit_rate="1") == 0
    always = network(only_experts=True).always_bytes(1) - network().always_bytes(1)
    assert always == pytest.approx(32 * (network().bytes(1)[0] - 8 * EXPERT))


def test_caches_take_memory_in_addition_to_the_layers() -> None:
    more = network(context="4096", batch="8").always_bytes(8) - network().always_bytes(8)
    assert more == 2 * 32 * 8 * 128 * 2 * 4096 * 8


def test_streaming_beats_the_processor_from_some_tokens_on() -> None:
    # Two channels of DDR5 and 1 TFLOP/s against PCIe 4 x16: a layer of 114 MB takes 1.8 ms to read here, 4.5 ms to bring,
    # and the processor computes n tokens of it in n · 0.4 ms: some 12 tokens.
    dense = network(model="llama-2-7b", cpu_bandwidth="64GB", cpu_flops="1T")
    machine, schedule = machine_of(NODE), Schedule(0, 1, "pinned")

    def streamed(tokens: float) -> float:
        return seconds_of(dense.ends(tokens)[1], schedule, machine)

    even, why = break_even(streamed, lambda tokens: sum(dense.cpu_seconds(tokens)))
    assert why == ""
    assert even == pytest.approx(12, abs=2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"model": "llama-2-7b", "only_experts": True}, "has no experts"),
        ({"cached_experts": "4"}, "need `only_experts`"),
        ({"only_experts": True, "cached_experts": "9"}, "the model has 8 per layer"),
        ({"only_experts": True, "hit_rate": "2"}, "`hit_rate` 2"),
        ({"batch": "0"}, "`batch` '0' is not a whole number from 1"),
        ({"context": "1.5"}, "`context` '1.5' is not a whole number"),
        ({"type": "fp5"}, "`type` 'fp5'"),
        ({"cpu_bandwidth": "fast"}, "'fast' is not a size"),
    ],
)
def test_options_that_do_not_hold_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        network(**options)


def test_a_processor_without_rates_asks_for_them() -> None:
    with pytest.raises(InputError, match="performance is unknown; give `cpu_flops`"):
        network().cpu_seconds(1)


def test_a_plan_of_a_network_leaves_room_for_what_is_there_anyway() -> None:
    plan = planned(model="llama-2-70b", type="q4_0", tokens="1")
    described = network(model="llama-2-70b")
    assert plan.unstreamed_bytes == described.always_bytes(1)
    assert plan.device_bytes <= plan.budget_bytes == NODE.gpu(0).memory_bytes - described.always_bytes(1)
    layer = described.whole_bytes[0]
    streamed = (80 - plan.resident) * layer * machine_of(NODE).h2d.copy.long_gap_per_byte_s
    assert plan.predicted_seconds == pytest.approx(streamed, rel=0.05)


def test_resident_layers_hold_all_experts_and_a_pass_brings_those_it_needs() -> None:
    plan = planned_experts(depth="1", resident="16")
    assert plan.device_bytes == pytest.approx(16 * 8 * EXPERT + 2 * EXPERT)
    assert plan.depth == 0  # the router chooses first
    assert plan.parts.copies_seconds == pytest.approx(16 * 2 * EXPERT / 25.8e9, rel=0.01)


def test_experts_of_few_tokens_wait_for_their_router() -> None:
    experts = network(only_experts=True)
    seconds = experts.computed(1).seconds.tolist()
    decoding, prefill = (experts.layers(n, experts.computed(n).seconds.tolist()) for n in (1, 4096))
    assert decoding.routed_seconds > 2 * 1.9e-6 > prefill.routed_seconds == 0.0
    assert (decoding.pieces[0], prefill.pieces[0]) == pytest.approx((2, 8), rel=1e-3)
    machine = machine_of(NODE)
    ahead = seconds_of(decoding, Schedule(0, 4), machine)
    copied = sum(decoding.bytes) * machine.h2d.copy.long_gap_per_byte_s
    assert ahead >= 32 * decoding.routed_seconds + copied + sum(seconds)
    assert seconds_of(decoding, Schedule(0, 0), machine) == ahead


def test_cached_experts_take_memory_whatever_is_resident() -> None:
    plans = [planned_experts(resident="16", cached_experts=count) for count in ("0", "4")]
    assert plans[1].cached_bytes == pytest.approx(16 * 4 * EXPERT)
    alone, cached = (plan.device_bytes - plan.buffer_bytes for plan in plans)
    assert cached - alone == pytest.approx(16 * 4 * EXPERT)
    # A hit rate alone is that of a cache of as many experts, which takes memory, too; with a cache, it is the measured rate.
    by_rate, measured = (
        planned_experts(resident="16", hit_rate="0.5", cached_experts=count) for count in ("0", "2")
    )
    assert by_rate.device_bytes == plans[1].device_bytes and by_rate.cached_bytes == plans[1].cached_bytes
    assert by_rate.predicted_seconds == measured.predicted_seconds == plans[1].predicted_seconds
    assert measured.cached_bytes == plans[1].cached_bytes / 2
    assert "of which cached experts" in " ".join(offload_words(by_rate))
    with pytest.raises(InputError, match=r"cached experts take 26\.3 GB.*fewer .*`cached_experts`"):
        planned_experts(hit_rate="1")
    large = {"model": "gpt-oss-120b", "type": "mxfp4", "cached_experts": "104"}
    for resident in (None, "0"):
        with pytest.raises(InputError, match=r"cached experts take 50\.7 GB"):
            planned_experts(**large, resident=resident)


def test_ranges_hold_what_kernels_may_take_and_measured_times_have_none() -> None:
    options = {"model": "llama-2-7b", "type": "q4_0", "tokens": "4096", "resident": "0", "depth": "1"}
    predicted = planned(**options)
    measured = planned(**options, seconds_per_layer=f"{predicted.parts.kernels_seconds / 32}s")
    assert predicted.predicted_seconds == pytest.approx(measured.predicted_seconds, rel=1e-3)
    above, measured_above = (plan.high_seconds / plan.predicted_seconds for plan in (predicted, measured))
    assert above > 1.5 * measured_above


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"layers": "4"}, "`layers`: `model` already defines it"),
        ({"from_trace": "x.json"}, "`from_trace`, `model`: both define"),
        ({"model": None, "type": "fp8"}, "`type`: needs `model`"),
        (
            {"tokens": "64", "context": "1000000", "batch": "64"},
            "give a smaller type, fewer resident layers, `cached_experts` or sequences",
        ),
    ],
)
def test_a_plan_says_which_options_do_not_go_together(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        planned(**({"model": "llama-2-7b"} | options))


H100 = load_node("h100-sxm")


def gpu_seconds(model: str, tokens: float, type_: str = "fp16", **more: float) -> LayerSeconds:
    return Network(read_model(model), type_, H100, **more).gpu_seconds(tokens)


def test_decoding_reads_the_weights_and_prefilling_computes() -> None:
    model = read_model("llama-3.1-70b")
    single, many = (gpu_seconds("llama-3.1-70b", tokens).seconds for tokens in (1, 4096))
    read = weight_bytes(model, "fp16") / 3.35e12
    assert (single > read).all() and (single < 1.5 * read).all()
    operations = 2 * 4096 * model.layers[0].weights
    share = operations / many[0] / 989e12
    assert 0.4 < share < 0.83


def test_a_layer_of_llama_2_takes_as_long_as_was_measured() -> None:
    # Medians of all its operators but attention on an H100 [microsoft/vidur, Llama-2-7b, one GPU], which takes some
    # microseconds more for few tokens, and 8 % more for 2048.
    for tokens, measured in ((1, 176e-6), (32, 183e-6), (512, 379e-6), (2048, 1.278e-3 * 1.08)):
        predicted = gpu_seconds("llama-2-7b", tokens)
        assert predicted.seconds[0] == pytest.approx(measured, rel=0.25)
        assert predicted.low[0] < measured < predicted.high[0]


def test_quantised_weights_are_read_faster_and_computed_as_fast() -> None:
    model = "llama-3.1-70b"
    decode = [gpu_seconds(model, 1, name).seconds.sum() for name in ("fp16", "q8_0", "q4_0")]
    assert decode[0] > 1.5 * decode[1] > 1.5 * 1.3 * decode[2]
    prefill = [gpu_seconds(model, 8192, name).seconds.sum() for name in ("fp16", "q4_0", "fp8")]
    assert prefill[1] == pytest.approx(prefill[0], rel=0.1)
    assert prefill[2] < 0.7 * prefill[0]


def test_a_long_context_costs_its_cache_and_a_window_only_itself() -> None:
    empty, long = (gpu_seconds("llama-3.1-8b", 32, context=c, batch=32).seconds[0] for c in (0, 32768))
    assert long - empty == pytest.approx(32 * 32768 * 2 * 8 * 128 * 2 / 3.35e12, rel=0.15)
    seconds = gpu_seconds("gpt-oss-20b", 32, context=32768, batch=32).seconds
    assert seconds[0] < 0.5 * seconds[1]


def test_experts_that_are_touched_are_those_that_are_read() -> None:
    assert experts_touched(8, 2, 1) == pytest.approx(2)
    assert experts_touched(128, 8, 1e6) == pytest.approx(128)
    # Drawn: each of 16 tokens takes 8 of 128.
    rng = np.random.default_rng(1)
    drawn = [len({e for _ in range(16) for e in rng.permutation(128)[:8]}) for _ in range(400)]
    assert experts_touched(128, 8, 16) == pytest.approx(np.mean(drawn), rel=0.02)


def test_a_processor_is_bound_by_its_memory_and_then_by_its_operations() -> None:
    model = read_model("llama-2-7b")
    read, weights = weight_bytes(model, "q4_0")[0], model.layers[0].weights
    described = Network(model, "q4_0", H100, cpu_bandwidth=80e9, cpu_flops=1e12)
    single = described.cpu_seconds(1)[0]
    assert single == pytest.approx(read / 80e9, rel=0.01)
    many = described.cpu_seconds(512)[0]
    assert many == pytest.approx(2 * 512 * weights / 1e12, rel=0.05)
    with pytest.raises(InputError, match=r"`cpu_bandwidth` .* and `cpu_flops`"):
        Network(model, "q4_0", load_node("pcie:4x16")).cpu_seconds(1)


def test_what_nobody_measured_has_the_wider_range() -> None:
    def spread(name: str, type_: str, node: str = "h100-sxm", **options: float) -> float:
        estimate = Network(read_model(name), type_, load_node(node), **options).gpu_seconds(64)
        return float(estimate.high[-1] / estimate.low[-1])

    dense = spread("llama-2-7b", "fp16")
    assert dense < 1.5
    assert spread("llama-2-7b", "q4_0") > 2
    assert spread("mixtral-8x7b", "fp16") > 2
    assert spread("llama-2-7b", "fp16", "v100-pcie") > 2
    assert dense < spread("llama-2-7b", "fp16", context=65536, batch=64) < spread("llama-2-7b", "q4_0")


def test_fewer_tokens_than_sequences_are_that_many_sequences() -> None:
    few, equal = (gpu_seconds("llama-2-7b", 4, context=100, batch=batch).seconds for batch in (32, 4))
    assert (few == equal).all()


@pytest.mark.parametrize(("tokens", "context", "batch"), [(0, 0, 1), (1, 0, 0), (1, -1, 1), (1e12, 0, 1)])
def test_what_is_no_pass_is_refused(tokens: float, context: float, batch: float) -> None:
    with pytest.raises(InputError, match="tokens"):
        gpu_seconds("llama-2-7b", tokens, context=context, batch=batch)


def test_a_node_without_gpu_rates_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "box.toml"
    path.write_text(
        'name = "box"\n'
        'component = [{ kind = "memory", name = "m" }, { kind = "cpu", name = "c" }, { kind = "gpu", name = "g" }]\n'
        'link = [{ kind = "memory", between = ["m", "c"] },'
        ' { kind = "pcie", between = ["c", "g"], generation = 4, lanes = 16 }]\n'
    )
    with pytest.raises(InputError, match="memory_bandwidth_bytes_per_s"):
        Network(read_model("llama-2-7b"), "fp16", load_node(str(path))).gpu_seconds(1)
