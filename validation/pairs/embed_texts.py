"""Embeddings of texts for a search (PyTorch): a transformer encoder; each token's vector is kept by the host.

before     tokens and vectors in pageable memory, blocking copies
pin        the same in pinned memory
async      pageable memory, copies asked for without blocking
pin-async  pinned memory, copies without blocking, one wait at the end
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run

WORDS, WIDTH, HEADS, BATCH, LENGTH, SLOTS, CHECKED = 8192, 256, 4, 64, 128, 32, 2


def attention_on_host(queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Scaled dot-product attention of one head: (length, width) each."""
    scores = queries @ keys.T / np.sqrt(queries.shape[1])
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True) @ values


def normal_on_host(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    mean, variance = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * weight + bias


def layer_on_host(weights: dict[str, np.ndarray], x: np.ndarray, heads: int) -> np.ndarray:
    """One encoder layer (normalised after each part, ReLU) over a text: (length, width)."""
    parts = np.split(x @ weights["self_attn.in_proj_weight"].T + weights["self_attn.in_proj_bias"], 3, axis=1)
    split = [np.split(part, heads, axis=1) for part in parts]
    attended = np.concatenate([attention_on_host(*head) for head in zip(*split, strict=True)], axis=1)
    attended = attended @ weights["self_attn.out_proj.weight"].T + weights["self_attn.out_proj.bias"]
    x = normal_on_host(x + attended, weights["norm1.weight"], weights["norm1.bias"])
    inner = np.maximum(x @ weights["linear1.weight"].T + weights["linear1.bias"], 0)
    inner = inner @ weights["linear2.weight"].T + weights["linear2.bias"]
    return normal_on_host(x + inner, weights["norm2.weight"], weights["norm2.bias"])


def reference() -> Off:
    # Equal keys: the mean of the values; and a normalised row has mean 0 and variance 1
    values = np.arange(12.0).reshape(4, 3)
    error = np.abs(attention_on_host(np.ones((4, 3)), np.ones((4, 3)), values) - values.mean(axis=0)).max()
    row = normal_on_host(values, np.ones(3), np.zeros(3))
    return error + abs(row.mean()) + abs(row.var() - 1), 1e-4


def prepare(options: Options) -> Prepared:
    import torch
    from torch import nn

    torch.manual_seed(0)
    pin = options.variant.startswith("pin")
    non_blocking = options.variant.endswith("async")
    embedding = nn.Embedding(WORDS, WIDTH).cuda()
    layers = nn.ModuleList(
        nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(2)
    ).cuda()
    layers.eval()
    slots = min(options.rounds, SLOTS)
    tokens = torch.randint(0, WORDS, (slots, BATCH, LENGTH))
    vectors = torch.zeros(slots, BATCH, LENGTH, WIDTH)
    if pin:
        tokens, vectors = tokens.pin_memory(), vectors.pin_memory()

    @torch.inference_mode()
    def region() -> None:
        for step in range(options.rounds):
            slot = step % slots
            x = embedding(tokens[slot].to("cuda", non_blocking=non_blocking))
            for layer in layers:
                x = layer(x)
            vectors[slot].copy_(x, non_blocking=non_blocking)

    def check() -> Off:
        table = embedding.weight.detach().cpu().numpy().astype(float)
        weights = [
            {name: value.detach().cpu().numpy().astype(float) for name, value in layer.named_parameters()}
            for layer in layers
        ]
        error = 0.0
        for slot in range(0, slots, max(1, slots // CHECKED)):
            known = table[tokens[slot, 5].numpy()]
            for layer_weights in weights:
                known = layer_on_host(layer_weights, known, HEADS)
            error = max(error, float(np.abs(vectors[slot, 5].numpy() - known).max()))
        return error, 3e-2

    return region, check


if __name__ == "__main__":
    run("torch", 160, prepare, reference)
