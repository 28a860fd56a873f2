"""The answers of `plan offload`: what was asked, what is fastest in the same memory, and what cannot be used."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from busfare.answers.offload import answer_offload
from busfare.cli import app
from busfare.errors import InputError
from busfare.show.page import page
from busfare.show.plan_words import offload_words
from busfare.show.plans import offload_document

ASKED = {"node": "h100-probed", "layers": "16", "bytes_per_layer": "67108864", "seconds_per_layer": "1ms"}


def test_the_keys_that_scripts_rely_on() -> None:
    asked = ["plan", "offload", "--json", "--resident", "4", "--depth", "2", "--memory", "pinned"]
    asked += [f"--{key.replace('_', '-')}={value}" for key, value in ASKED.items()]
    found = json.loads(CliRunner().invoke(app, asked, catch_exceptions=False).output)
    assert next(iter(found)) == "schema"
    assert (found["resident"], found["depth"], found["memory"]) == (4, 2, "pinned")
    assert found["low_seconds"] <= found["predicted_seconds"] <= found["high_seconds"]
    assert found["rung"] == "probed"
    assert 0.9 < found["share_hidden"] <= 1.0
    assert found["break_even_tokens"] is None
    assert "--cpu-seconds-per-layer" in found["break_even_reason"]
    times = [row["predicted_seconds"] for row in found["ranking"]]
    assert times == sorted(times)
    assert {row["memory"] for row in found["ranking"]} == {"pinned", "pageable", "mapped", "managed"}
    # Whatever is ranked fits in what the asked schedule takes.
    assert max(row["device_bytes"] for row in found["ranking"]) <= found["device_bytes"] == 7 * 67108864


def test_a_budget_is_filled_with_what_is_fastest() -> None:
    few, many = (answer_offload(ASKED | {"budget": budget}) for budget in ("400MB", "900MB"))
    assert few.device_bytes <= 400e6 < many.device_bytes <= 900e6
    assert few.resident < many.resident
    assert many.predicted_seconds < few.predicted_seconds
    everything = answer_offload(ASKED | {"seconds_per_layer": "0.1ms"})
    assert (everything.resident, everything.limited_by) == (16, "nothing is streamed")
    assert everything.predicted_seconds == pytest.approx(1.6e-3)
    # Where the kernels hide the copies, what streams takes no longer and leaves memory free.
    hidden = answer_offload(ASKED | {"seconds_per_layer": "2ms"})
    assert hidden.resident < 16
    assert hidden.predicted_seconds == pytest.approx(32e-3, rel=0.011)


def test_a_proposal_that_is_not_the_fastest_says_why() -> None:
    asked = {"node": "rtx-4090", "model": "llama-3.1-70b", "type": "q4_0", "tokens": "512"}
    found = answer_offload(asked)
    fastest = found.ranking[0]
    assert (found.resident, found.depth) != (fastest.resident, fastest.depth)
    assert found.predicted_seconds <= fastest.predicted_seconds * 1.01
    told = f"within 1 % of the fastest, {fastest.resident} resident, depth {fastest.depth}, pinned memory"
    assert any(told in words and "needs fewer buffers" in words for words in offload_words(found))
    assert not any("within 1 %" in words for words in offload_words(answer_offload(asked | {"depth": "4"})))


def test_tokens_say_from_where_streaming_pays() -> None:
    """A layer takes 1.21 ms to copy; on the processor 0.1 ms a token, on the GPU 1 ms a thousand tokens."""
    found = answer_offload(
        ASKED
        | {
            "seconds_per_layer": "1=20us,1000=1ms,10000=10ms",
            "cpu_seconds_per_layer": "1=0.1ms,1000=100ms",
            "tokens": "1", "resident": "0", "depth": "1",
        }
    )  # fmt: skip
    assert found.limited_by == "link"
    assert found.break_even_tokens == pytest.approx(12.2, rel=0.03)
    assert found.hidden_from_tokens == pytest.approx(1215, rel=0.03)
    assert [p.resident for p in found.by_resident][:2] == [0, 2]
    seconds = [point.predicted_seconds for point in found.by_resident]
    assert seconds == sorted(seconds, reverse=True)
    first = found.by_tokens[0]
    assert first.cpu_seconds is not None
    assert first.streamed_seconds > first.cpu_seconds
    shown = page(offload_document(found))
    assert "From 12 tokens a pass on, streaming is faster than the processor." in shown


def test_a_page_shows_a_network_of_which_nothing_is_streamed() -> None:
    asked = {"node": "h100-sxm", "layers": "4", "bytes_per_layer": "1MB", "seconds_per_layer": "1ms"}
    shown = page(offload_document(answer_offload(asked | {"resident": "4"})))
    assert "nothing is streamed" in shown and 'id="resident"' in shown


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"layers": "0"}, "--layers 0: no whole number from 1 to 4096"),
        ({"layers": None}, "--layers: how many layers"),
        ({"bytes_per_layer": "1MB,2MB"}, "--bytes-per-layer: 2 values for 16 layers"),
        ({"seconds_per_layer": "1=1ms,2ms"}, "--seconds-per-layer '2ms': no point"),
        ({"seconds_per_layer": "1=1ms"}, "--tokens: the times are given by tokens"),
        ({"resident": "17"}, "--resident 17: no whole number from 0 to 16"),
        ({"memory": "tape"}, "--memory 'tape': not known"),
        ({"node": None}, "--node: the machine is not said"),
        ({"budget": "1KB", "depth": "1", "memory": "pinned"}, "--budget"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_names_the_option(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        answer_offload(ASKED | more)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_every_prediction_of_the_answer_has_a_range() -> None:
    found = msgspec.to_builtins(answer_offload(ASKED | {"node": "rtx-3090", "resident": "2", "depth": "1"}))
    for row in (found, *found["ranking"]):
        assert row["low_seconds"] <= row["predicted_seconds"] <= row["high_seconds"]
        assert row["rung"] == "datasheet"
