"""A network as layers: the weights, experts and cached keys and values of each, by the keys of its config.json."""

import difflib
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from busfare.errors import InputError
from busfare.nodes import FloatArray
from busfare.nodes.toml import read_text
from busfare.printable import printable
from busfare.questions import MOST_LAYERS

Result = TypeVar("Result")
FILE = Path(__file__).with_suffix(".toml")
#: A config.json is a page or two.
MOST_BYTES = 1 << 20
#: Beyond any side, vocabulary or number of experts of a network.
MOST = 1 << 24
_GATED = {"llama", "mistral", "mixtral", "qwen2", "qwen3", "phi3"}
_MIXTURES = {"qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "kimi_k2", "gpt_oss", "glm4_moe"}
_PLAIN = {"opt", "gpt2"}
_LATENT = {"deepseek_v2", "deepseek_v3", "kimi_k2"}
_TYPES = sorted(_GATED | _MIXTURES | _PLAIN)


class Matrix(msgspec.Struct, frozen=True):
    """Weights that `outputs` × `inputs` numbers hold."""

    outputs: int
    inputs: int

    @property
    def weights(self) -> int:
        """How many."""
        return self.outputs * self.inputs


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One layer. `mlp`: what every token goes through, of a mixture its router and shared experts; `expert`: one of the
    `experts`, of which each token takes `experts_used`. `vectors`: elements of norms and biases.

    Attention has `heads`, whose queries and keys hold `key_size` numbers and values `value_size`; a token leaves
    `kv_elements` in the cache, and sees at most `window` tokens (0: all). `latent_size`: of latent attention, the numbers of
    a head's query, key and value where they are not unpacked.
    """

    attention: tuple[Matrix, ...]
    mlp: tuple[Matrix, ...]
    expert: tuple[Matrix, ...] = ()
    experts: int = 0
    experts_used: int = 0
    vectors: int = 0
    heads: int
    key_size: int
    value_size: int
    kv_elements: int
    latent_size: int = 0
    window: int = 0

    @property
    def always_weights(self) -> int:
        """Weights that every token meets."""
        return sum(matrix.weights for matrix in (*self.attention, *self.mlp))

    @property
    def expert_weights(self) -> int:
        """Weights of one expert."""
        return sum(matrix.weights for matrix in self.expert)

    @property
    def weights(self) -> int:
        """All matrices of the layer."""
        return self.always_weights + self.experts * self.expert_weights


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A network. `embedding` and `head` in weights; a `head` tied to the embedding is none of its own."""

    name: str
    hidden: int
    layers: tuple[Layer, ...]
    embedding: int
    head: int

    def by_layer(self, of: Callable[[Layer], Result]) -> list[Result]:
        """What `of` says of each layer, asked once of those that are one and the same."""
        kinds = {id(layer): layer for layer in self.layers}
        results = {key: of(layer) for key, layer in kinds.items()}
        return [results[id(layer)] for layer in self.layers]


class NumberType(msgspec.Struct, frozen=True):
    """A block of `weights` numbers in `bytes`, with its scales; products run in `computes`, into which they are unpacked."""

    bytes: int
    weights: int
    computes: str

    @property
    def weight_size(self) -> float:
        """Bytes of one weight, its share of the scales with it."""
        return self.bytes / self.weights

    @property
    def activation_bytes(self) -> int:
        """Bytes of an activation."""
        return 4 if self.computes == "fp32" else 2


@cache
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(FILE.read_text("utf-8"))


def shape_names() -> list[str]:
    """The networks whose shape is known."""
    return list(_table()["model"])


@cache
def number_type(name: str) -> NumberType:
    """The type called `name` (fp16, int4, q4_0 …). Raises InputError for another."""
    row = _table()["type"].get(name.lower())
    if row is None:
        raise InputError(
            f"`type` {printable(name[:40])!r}: unknown; choose one of {', '.join(_table()['type'])}"
        )
    return msgspec.convert(row, NumberType)


def read_model(text: str) -> Model:
    """The network called `text`, or that of the config.json (or the folder that holds it) at path `text`. Raises InputError
    with file, key and what to do, where it is neither, or no network whose layers are known.
    """
    row = _table()["model"].get(text.lower())
    if row is not None:
        return model_of(row, text.lower(), row["source"])
    path = Path(text)
    try:
        if path.is_dir():
            path /= "config.json"
        there = path.suffix == ".json" or path.exists()
    except (OSError, ValueError):
        there = False
    if not there:
        near = difflib.get_close_matches(text.lower(), shape_names(), 1)
        fix = f"did you mean {near[0]!r}?" if near else f"the names are {', '.join(shape_names())}"
        raise InputError(f"`model` {printable(text[:80])!r}: neither a known shape nor a file; {fix}")
    name = printable(str(path))
    content = read_text(str(path), "model file", MOST_BYTES)
    if len(content) > MOST_BYTES:
        raise InputError(f"{name}: over {MOST_BYTES} bytes; give the model's config.json")
    try:
        config = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{name}: not JSON ({error}); give the model's config.json") from None
    if not isinstance(config, dict):
        raise InputError(f"{name}: not a JSON object; give the model's config.json")
    return model_of(config, path.parent.resolve().name or path.stem, name)


def weight_bytes(model: Model, type_: str) -> FloatArray:
    """Bytes of each layer in numbers of `type_`; shape (layers,). Norms and biases stay in 2 bytes, or in 4 beside fp32."""
    kind = number_type(type_)
    return np.array(
        model.by_layer(lambda layer: layer.weights * kind.weight_size + layer.vectors * kind.activation_bytes)
    )


def kv_bytes_per_token(model: Model, type_: str = "fp16") -> float:
    """Bytes that a token leaves in the cache: 2 · layers · kv_heads · head_dim · bytes; of latent attention (MLA)
    layers · (kv_lora_rank + qk_rope_head_dim) · bytes [DeepSeek-V2 §2.1].
    """
    return sum(layer.kv_elements for layer in model.layers) * number_type(type_).weight_size


class _Config:
    """A config.json whose values are checked when they are asked for."""

    def __init__(self, values: dict[str, Any], name: str) -> None:
        self.values, self.name = values, name

    def refuse(self, key: str, what: str) -> InputError:
        return InputError(f"{self.name}: {key}: {what}")

    def whole(
        self, keys: str | Sequence[str], default: int | None = None, least: int = 1, most: int = MOST
    ) -> int:
        """A whole number under the first of `keys` that is there and not null."""
        names = [keys] if isinstance(keys, str) else keys
        for key in names:
            value = self.values.get(key)
            if value is None:
                continue
            if type(value) is not int or not least <= value <= most:
                raise self.refuse(
                    key,
                    f"{printable(repr(value))[:40]} is not a whole number from {least} to {most}; correct it",
                )
            return value
        if default is None:
            raise self.refuse(names[0], "is missing; add it, or give the model's whole config.json")
        return default

    def yes(self, key: str, default: bool) -> bool:
        value = self.values.get(key)
        if value is None:
            return default
        if type(value) is not bool:
            raise self.refuse(key, "neither true nor false; correct it")
        return value


def model_of(values: dict[str, Any], name: str, source: str = "") -> Model:
    """The network whose config.json holds `values`. Raises InputError with `source` and the key that is wrong."""
    config = _Config(values, source or name)
    inner = config.values.get("text_config")
    if isinstance(inner, dict):
        config = _Config(inner, config.name)
    kind = config.values.get("model_type")
    if kind is None:
        raise config.refuse("model_type", "is missing; add it, or give the model's whole config.json")
    if kind not in _TYPES:
        raise config.refuse(
            "model_type", f"{printable(repr(kind))[:40]} is unknown; choose one of {', '.join(_TYPES)}"
        )
    hidden = config.whole(("hidden_size", "n_embd"))
    vocabulary = config.whole("vocab_size")
    count = config.whole(("num_hidden_layers", "n_layer"), most=MOST_LAYERS)
    windows = _windows(config, kind, count)
    dense = _dense(config, kind, count)
    built = {
        key: _layer(config, kind, hidden, *key)
        for key in dict.fromkeys(zip(windows, dense, strict=True))
    }  # fmt: skip
    # Of the smallest OPT, and none else, embeddings are narrower than layers.
    width = config.whole("word_embed_proj_dim", hidden)
    embedding = vocabulary * width + 2 * width * hidden * (width != hidden)
    if kind in _PLAIN:
        embedding += hidden * config.whole(("max_position_embeddings", "n_positions"), 2048)
    tied = config.yes("tie_word_embeddings", kind in _PLAIN)
    return Model(
        name=name,
        hidden=hidden,
        layers=tuple(built[key] for key in zip(windows, dense, strict=True)),
        embedding=embedding,
        head=0 if tied else vocabulary * hidden,
    )


def _windows(config: _Config, kind: str, count: int) -> list[int]:
    """How many tokens each layer sees, 0 for all."""
    window = config.whole("sliding_window", 0, least=0)
    kinds = config.values.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == count:
        return [window if layer_type == "sliding_attention" else 0 for layer_type in kinds]
    if kind == "gpt_oss":
        return [window * (place % 2 == 0) for place in range(count)]
    if kind in ("mistral", "mixtral", "phi3"):
        return [window] * count
    if not config.yes("use_sliding_window", False):
        return [0] * count
    full = config.whole("max_window_layers", count, least=0)
    return [window * (place >= full) for place in range(count)]


def _dense(config: _Config, kind: str, count: int) -> list[bool]:
    """Which layers have no experts."""
    if kind in ("mixtral", "gpt_oss"):
        return [False] * count
    if kind not in _MIXTURES:
        return [True] * count
    if kind in ("qwen2_moe", "qwen3_moe"):
        step, plain = config.whole("decoder_sparse_step", 1), config.values.get("mlp_only_layers") or []
        if not isinstance(plain, list):
            raise config.refuse("mlp_only_layers", "not a list of layers; correct it")
        return [place in plain or (place + 1) % step != 0 for place in range(count)]
    first, step = config.whole("first_k_dense_replace", 0, least=0), config.whole("moe_layer_freq", 1)
    return [place < first or place % step != 0 for place in range(count)]


def _layer(config: _Config, kind: str, hidden: int, window: int, dense: bool) -> Layer:
    heads = config.whole(("num_attention_heads", "n_head"))
    attention, sizes, vectors = (_latent if kind in _LATENT else _grouped)(config, kind, hidden, heads)
    mlp: tuple[Matrix, ...]
    expert: tuple[Matrix, ...] = ()
    experts = used = 0
    vectors += 2 * hidden
    if dense:
        usual = 4 * hidden if kind == "gpt2" else None
        inner = config.whole(("intermediate_size", "ffn_dim", "n_inner"), usual)
        mlp = _mlp(hidden, inner, gated=kind not in _PLAIN)
        if kind in _PLAIN:
            # Both norms have a bias too, as have all products.
            vectors += 2 * hidden + inner + hidden
    else:
        experts = config.whole(("num_local_experts", "num_experts", "n_routed_experts"))
        used = config.whole(("num_experts_per_tok", "experts_per_token"), most=experts)
        key = "intermediate_size" if kind in ("mixtral", "gpt_oss") else "moe_intermediate_size"
        inner = config.whole(key)
        expert = _mlp(hidden, inner)
        shared = config.whole("shared_expert_intermediate_size", 0, least=0)
        shared += inner * config.whole("n_shared_experts", 0, least=0)
        mlp = (Matrix(experts, hidden), *(_mlp(hidden, shared) if shared else ()))
        if kind == "gpt_oss":
            vectors += experts * (2 * inner + hidden + 1) + heads
        elif kind == "qwen2_moe":
            vectors += hidden
    return Layer(
        attention=attention, mlp=mlp, expert=expert, experts=experts, experts_used=used, vectors=vectors, heads=heads,
        window=window, **sizes,
    )  # fmt: skip


def _mlp(hidden: int, inner: int, gated: bool = True) -> tuple[Matrix, ...]:
    """Up, with its gate in one product where there is one, and down."""
    return Matrix(inner * (1 + gated), hidden), Matrix(hidden, inner)


def _grouped(
    config: _Config, kind: str, hidden: int, heads: int
) -> tuple[tuple[Matrix, ...], dict[str, int], int]:
    """Attention whose heads share keys and values in groups (GQA), or not: matrices, sizes and elements of vectors."""
    kv_heads = config.whole("num_key_value_heads", heads, most=heads)
    if heads % kv_heads:
        raise config.refuse("num_key_value_heads", f"{kv_heads} does not divide {heads} heads; correct it")
    size = config.whole("head_dim", 0, least=0)
    if not size and hidden % heads:
        raise config.refuse(
            "num_attention_heads", f"{heads} does not divide {hidden} and there is no head_dim; correct it"
        )
    size = size or hidden // heads
    projected = (heads + 2 * kv_heads) * size
    all_biased = kind in (*_PLAIN, "gpt_oss") or config.yes("attention_bias", False)
    biased = all_biased or kind in ("qwen2", "qwen2_moe")
    vectors = projected * biased + hidden * all_biased + 2 * size * (kind in ("qwen3", "qwen3_moe"))
    matrices = Matrix(projected, hidden), Matrix(hidden, heads * size)
    return matrices, {"key_size": size, "value_size": size, "kv_elements": 2 * kv_heads * size}, vectors


def _latent(
    config: _Config, kind: str, hidden: int, heads: int
) -> tuple[tuple[Matrix, ...], dict[str, int], int]:
    """Latent attention [DeepSeek-V2 §2.1]: keys and values unpacked from one vector of `kv_lora_rank`."""
    rank, query = config.whole("kv_lora_rank"), config.whole("q_lora_rank", 0, least=0)
    plain, turned = config.whole("qk_nope_head_dim"), config.whole("qk_rope_head_dim")
    value = config.whole("v_head_dim")
    key = plain + turned
    queries = (Matrix(query, hidden), Matrix(heads * key, query)) if query else (Matrix(heads * key, hidden),)
    matrices = (
        *queries, Matrix(rank + turned, hidden), Matrix(heads * (plain + value), rank), Matrix(hidden, heads * value),
    )  # fmt: skip
    sizes = {
        "key_size": key,
        "value_size": value,
        "kv_elements": rank + turned,
        "latent_size": 2 * rank + turned,
    }
    return matrices, sizes, rank + query
