"""Networks as layers: published sizes, shapes worked out by hand, and files that are none."""

import json
from pathlib import Path

import pytest

from busfare.errors import InputError
from busfare.planning.offload.shapes import (
    Model,
    _table,
    kv_bytes_per_token,
    model_of,
    number_type,
    read_model,
    shape_names,
    weight_bytes,
)


@pytest.mark.parametrize("name", shape_names())
def test_parameters_are_those_that_were_published(name: str) -> None:
    assert parameters(read_model(name)) == pytest.approx(_table()["model"][name]["parameters"], rel=0.01)


def parameters(model: Model) -> int:
    of_layers = sum(layer.weights + layer.vectors for layer in model.layers)
    return of_layers + model.embedding + model.head + model.hidden


def test_parameters_are_those_of_the_checkpoints_to_the_digit() -> None:
    # As the safetensors index of each repository counts them: norms, biases, routers and all.
    counted = {
        "llama-3.1-8b": 8_030_261_248, "llama-3.1-405b": 405_853_388_800, "qwen2.5-7b": 7_615_616_512,
        "qwen3-30b-a3b": 30_532_122_624, "mixtral-8x7b": 46_702_792_704, "deepseek-v2-lite": 15_706_484_224,
    }  # fmt: skip
    assert {name: parameters(read_model(name)) for name in counted} == counted


@pytest.mark.parametrize(
    ("name", "active"),
    [("mixtral-8x7b", 12.9e9), ("qwen3-30b-a3b", 3.3e9), ("qwen3-235b-a22b", 22e9), ("deepseek-v3", 37e9)],
)
def test_a_token_meets_as_many_as_was_published(name: str, active: float) -> None:
    model = read_model(name)
    idle = sum((layer.experts - layer.experts_used) * layer.expert_weights for layer in model.layers)
    assert parameters(model) - idle == pytest.approx(active, rel=0.02)


def test_caches_of_grouped_and_of_latent_attention() -> None:
    # 2 · 32 layers · 8 heads · 128 · 2 B; MLA: 61 layers · (512 + 64) · 2 B.
    assert kv_bytes_per_token(read_model("llama-3.1-8b")) == 131072
    assert kv_bytes_per_token(read_model("deepseek-v3"), "bf16") == 70272
    assert kv_bytes_per_token(read_model("llama-2-7b"), "fp32") == 2 * 32 * 4096 * 4


def test_weights_by_layer_have_the_scales_of_their_type() -> None:
    model = read_model("llama-2-7b")
    matrices, vectors = 4 * 4096**2 + 3 * 4096 * 11008, 2 * 4096
    assert weight_bytes(model, "fp16") == pytest.approx([2 * (matrices + vectors)] * 32)
    assert weight_bytes(model, "q4_0") == pytest.approx([matrices * 18 / 32 + 2 * vectors] * 32)
    # llama.cpp counts 3.56 GiB for the file, whose embedding and head are of 4.5 and 6.6 bits.
    file = weight_bytes(model, "q4_0").sum() + model.embedding * 18 / 32 + model.head * 210 / 256
    assert file / 2**30 == pytest.approx(3.56, rel=0.003)


def test_the_first_layers_of_a_mixture_may_have_no_experts() -> None:
    layers = read_model("deepseek-v3").layers
    assert [layer.experts for layer in layers[:4]] == [0, 0, 0, 256]
    assert layers[3].expert_weights == 3 * 7168 * 2048


def test_layers_that_see_a_window_alternate() -> None:
    assert [layer.window for layer in read_model("gpt-oss-20b").layers[:3]] == [128, 0, 128]


def test_a_config_file_gives_what_the_name_gives(tmp_path: Path) -> None:
    row = {key: value for key, value in _table()["model"]["qwen3-30b-a3b"].items() if key != "source"}
    (tmp_path / "config.json").write_text(json.dumps(row))
    named, read = read_model("qwen3-30b-a3b"), read_model(str(tmp_path))
    assert (read.layers, parameters(read)) == (named.layers, parameters(named))


def test_older_networks_have_positions_biases_and_a_tied_head() -> None:
    gpt2 = {
        "model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "n_inner": None,
        "vocab_size": 50257,
    }  # fmt: skip
    assert parameters(model_of(gpt2, "gpt2")) == pytest.approx(124_439_808, rel=1e-5)
    opt = {
        "model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "ffn_dim": 4096,
        "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 512,
    }  # fmt: skip
    assert parameters(model_of(opt, "opt-350m")) == pytest.approx(331_196_416, rel=1e-4)


LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "vocab_size": 1000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"model_type": "lla', "not JSON"),
        ("[1, 2]", "not a JSON object"),
        ("[" * 100_000, "config.json: "),
        ("{}", "model_type: is missing; add it"),
        (json.dumps(LLAMA | {"model_type": "mamba"}), "model_type: 'mamba' is unknown"),
        (json.dumps(LLAMA | {"model_type": ["llama"]}), "model_type"),
        (json.dumps({**LLAMA, "hidden_size": None}), "hidden_size: is missing; add it"),
        (json.dumps(LLAMA | {"num_hidden_layers": 10**9}), "num_hidden_layers: 1000000000 is not a whole number"),
        (json.dumps(LLAMA | {"num_hidden_layers": True}), "num_hidden_layers"),
        (json.dumps(LLAMA | {"hidden_size": "\x1b[31m"}), "hidden_size"),
        (json.dumps(LLAMA | {"num_key_value_heads": 3}), "num_key_value_heads: 3 does not divide 4 heads"),
        (json.dumps(LLAMA | {"num_attention_heads": 5, "head_dim": None}), "num_attention_heads: 5 does not divide 64"),
        (json.dumps(LLAMA | {"tie_word_embeddings": 1}), "tie_word_embeddings: neither true nor false"),
        (" " * (1 << 21), "over 1048576 bytes"),
        (json.dumps(LLAMA | {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 8}), "from 1 to 4"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_in_a_single_line(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(InputError) as refused:
        read_model(str(path))
    assert says in str(refused.value)
    assert "config.json" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "\x1b" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lama-3.1-8b", "did you mean 'llama-3.1-8b'"),
        ("no/such/config.json", "not there"),
        ("x" * 5000, "neither a known shape"),
        ("\0", "neither a known shape"),
    ],
)
def test_an_unknown_name_is_refused(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_model(name)


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(InputError, match="`type` 'int3': unknown; choose one of fp32"):
        number_type("int3")
