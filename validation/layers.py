"""Layers of published networks, predicted by `plan offload` from data sheets, beside what their operators took together.

Run `BUSFARE_SHARED=… python validation/layers.py`: by GPU and network, predicted over measured by tokens. The operators were
timed by others (microsoft/vidur) in fp16 on A40, A100 and H100, 1 to 4096 tokens, all but attention. The constants of
products were chosen on six of the eight networks on A40 and A100 (`kernels.py`): only the others, and the H100's, make
ranges. Attention, mixtures and quantised weights are not judged by this data.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import polars as pl
from claims import Truth, table
from operators import GPUS, JUDGED, VIDUR
from published import SHARED

from busfare.nodes import load_node
from busfare.planning.offload.network import Network
from busfare.planning.offload.shapes import model_of

#: Operators of a layer; a residual is added twice.
OPERATORS = (
    "input_layernorm", "attn_pre_proj", "attn_rope", "attn_post_proj", "post_attention_layernorm", "mlp_up_proj", "mlp_act",
    "mlp_down_proj", "add", "add",
)  # fmt: skip
#: Edges of the table's columns, tokens.
TOKENS = (1, 2, 17, 65, 257, 1025, 4097)


def truths() -> Iterator[Truth]:
    """Those held out. A group is a network on a GPU."""
    return (truth for truth in _all() if truth.group.endswith("h100") or truth.group.startswith(JUDGED))


def _all() -> Iterator[Truth]:
    frame = pl.read_parquet(SHARED / VIDUR).filter(pl.col("num_tensor_parallel_workers") == 1)
    times = [pl.col(f"time_stats.{name}.median").fill_null(0) for name in OPERATORS]
    sides = ("n_head", "n_kv_head", "n_embd", "n_expanded_embd", "use_gated_mlp", "vocab_size")
    frame = frame.with_columns(seconds=pl.sum_horizontal(times) * 1e-3)
    for (gpu, name), rows in frame.group_by("gpu", "model", maintain_order=True):
        shape = rows.row(0, named=True)
        keys = ("num_attention_heads", "num_key_value_heads", "hidden_size", "intermediate_size")
        config = dict(zip(keys, (shape[side] for side in sides), strict=False))
        config |= {"model_type": "llama" if shape["use_gated_mlp"] else "opt", "num_hidden_layers": 1}
        model, node = (
            model_of(config | {"vocab_size": shape["vocab_size"]}, str(name)),
            load_node(GPUS[str(gpu)]),
        )
        for tokens, seconds in (
            rows.group_by("num_tokens").agg(pl.col("seconds").median()).sort("num_tokens").iter_rows()
        ):
            predicted = Network(model, "fp16", node).operator_seconds(tokens)[0, 0]
            yield Truth(
                "datasheet", "any", "layer", int(tokens), f"{name} on {gpu}", float(predicted), seconds
            )


def main() -> None:
    groups: dict[str, list[Truth]] = {}
    for truth in _all():
        groups.setdefault(truth.group, []).append(truth)
    rows = []
    for name, measured in groups.items():
        tokens = np.array([row.bytes for row in measured])
        ratio = np.array([row.predicted / row.actual for row in measured])
        rows.append((name, *(np.median(ratio[(tokens >= a) & (tokens < b)]) for a, b in pairwise(TOKENS))))
    table("predicted over measured, tokens|" + "|".join(f"{low}…:.2f" for low in TOKENS[:-1]), rows)


if __name__ == "__main__":
    main()
