"""Layers of recorded programs: those of small runs that are known, and of a published shape that was recorded."""

from dataclasses import replace

import polars as pl
import pytest

from busfare.answers.offload import answer_offload
from busfare.errors import InputError
from busfare.planning.problem import layers_from_trace
from busfare.questions import Offload
from busfare.show.plan_words import offload_words
from busfare.show.plans import offload_document
from busfare.trace import read
from tests.streamed_programs import SIZE, Written, single_stream, two_streams
from tests.traces import trace
from validation.stored import unpacked

UNSEEN = "unseen/h100-2026-11-23-0426"


def test_layers_are_identified_by_repeated_kernels_and_copies() -> None:
    layers, recorded = layers_from_trace(single_stream(layers=6, passes=4, memory="pageable"))
    assert layers.bytes == (SIZE,) * 6
    assert layers.seconds == pytest.approx((300e-6,) * 6)
    assert (recorded.passes, recorded.resident, recorded.memory) == (4, (), {"pageable": 24 * SIZE})
    assert (recorded.confidence, recorded.left_out_seconds, recorded.left_out_bytes) == (1.0, 0.0, 0)
    assert layers.back_bytes == (), "a result a pass is no layer's"


def test_layers_without_a_copy_are_resident() -> None:
    layers, recorded = layers_from_trace(single_stream(layers=8, passes=3, resident=2))
    streamed = layers.bytes
    # Resident layers before the first copy of the trace belong to no pass that is whole.
    assert len(streamed) == 8 and sorted(streamed) == [0, 0] + [SIZE] * 6
    assert len(recorded.resident) == 2


def test_a_copy_that_was_sent_ahead_belongs_to_the_layer_that_waits_for_it() -> None:
    run = Written()
    run.copy_us = 100.0
    run.event("wait", 8, 99)
    for number in range(3):  # all sent before any is computed
        run.copy(8, size=SIZE * (number + 1))
        run.event("record", 8, number)
    for number in range(3):
        run.event("wait", 7, number)
        run.compute(700.0)
    layers, _ = layers_from_trace(run.trace())
    assert layers.bytes == (SIZE, 2 * SIZE, 3 * SIZE)


def test_two_streams_are_a_single_pass_without_evidence_of_more() -> None:
    layers, recorded = layers_from_trace(two_streams(layers=5, passes=2))
    assert len(layers) == 10 and set(layers.bytes) == {SIZE}
    assert "count as one pass" in recorded.notes[0]


@pytest.mark.parametrize("name", ["layer.", "transformer.h.block_"])
def test_ranges_name_layers_that_no_pattern_shows(name: str) -> None:
    layers, recorded = layers_from_trace(single_stream(layers=4, passes=3, names=(name,)))
    assert (len(layers), recorded.passes) == (4, 3)
    assert recorded.identified_by == f"ranges {name}#"


def test_numbered_steps_are_no_layers() -> None:
    with pytest.raises(InputError, match=r"no NVTX ranges name layers.*`bytes_per_layer`"):
        layers_from_trace(single_stream(layers=4, passes=3, names=("step ", "batch.")))


def test_prologue_and_epilogue_stay_out() -> None:
    run = Written()
    run.copy(7, size=SIZE // 4)
    run.compute(names=("embed", "norm"))
    for _ in range(6):
        run.copy(7)
        run.compute()
    run.compute(names=("norm", "head"))
    run.result()
    layers, recorded = layers_from_trace(run.trace())
    assert layers.bytes == (SIZE,) * 6
    assert recorded.left_out_bytes == SIZE // 4
    assert recorded.left_out_seconds == pytest.approx(600e-6)


def test_refused_without_copies_calls_or_anything_that_repeats() -> None:
    streamed = single_stream()
    with pytest.raises(InputError, match="without API calls"):
        layers_from_trace(replace(streamed, calls=trace().calls))
    with pytest.raises(InputError, match="nothing is copied"):
        layers_from_trace(
            replace(streamed, operations=streamed.operations.filter(pl.col("kind") == "kernel"))
        )
    run = Written()
    for number in range(5):
        run.copy()
        run.compute(names=(f"a{number}", f"b{number}"))
    with pytest.raises(InputError, match="no pattern"):
        layers_from_trace(run.trace())


def test_a_recorded_network() -> None:
    layers, recorded = layers_from_trace(read(unpacked(UNSEEN) / "offload_weights-before.bf"))
    matrices = 2 * 1024 * 4096 + 1024 + 4096  # of program offload_weights: 6 layers, 8 rounds
    assert layers.bytes == (4 * matrices,) * 6
    assert (recorded.passes, recorded.confidence) == (8, 1.0)
    assert all(100e-6 < seconds < 200e-6 for seconds in layers.seconds)


def test_plan_offload_takes_the_layers_of_a_trace() -> None:
    held = unpacked(UNSEEN)
    options = {"node": str(held / "node.toml"), "from_trace": held / "offload_weights-before.bf"}
    result = answer_offload(Offload.of(**{**options, "resident": 0, "depth": 1, "memory": "pinned"}))
    assert result.from_trace and (result.layers, result.from_trace.passes) == (6, 8)
    # Six copies of 33.6 MB at the probed rate of the link, and the last layer's kernels.
    assert 3.5e-3 < result.predicted_seconds < 4.2e-3
    assert "pattern of 5 kernels" in offload_words(result)[0]
    assert "does not contain the number of tokens per pass" in offload_words(result)[1]
    tokens = answer_offload(Offload.of(**{**options, "resident": 0, "depth": 1, "tokens": 4096}))
    assert not any("does not contain" in words for words in offload_words(tokens))
    assert result.tokens is None
    assert "token" not in offload_document(result).facts
    with pytest.raises(InputError, match="`layers`: `from_trace` already defines it"):
        answer_offload(Offload.of(**{**options, "layers": "6"}))
