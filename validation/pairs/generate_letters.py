"""Text from a recurrent network (PyTorch): letter by letter, each read back by the host as it is written.

before     each step's letters are copied back into pageable memory, and waited for
pin        the same into pinned memory
batch      letters stay on the GPU, and are copied at the end, all at once
pin-async  letters go to pinned memory without blocking; the host waits at the end
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run

LETTERS, HIDDEN, BATCH, CHECKED = 96, 512, 64, 3


def step_on_host(
    weights: dict[str, np.ndarray], letters: np.ndarray, state: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the next letters (batch, letters) and the new state (batch, hidden): a gated recurrent unit."""
    inputs = weights["embedding"][letters] @ weights["weight_ih"].T + weights["bias_ih"]
    past = state @ weights["weight_hh"].T + weights["bias_hh"]
    reset_in, update_in, new_in = np.split(inputs, 3, axis=1)
    reset_past, update_past, new_past = np.split(past, 3, axis=1)
    reset = 1 / (1 + np.exp(-(reset_in + reset_past)))
    update = 1 / (1 + np.exp(-(update_in + update_past)))
    new = np.tanh(new_in + reset * new_past)
    state = (1 - update) * new + update * state
    return state @ weights["output"].T, state


def reference() -> Off:
    # Without weights a state halves at each step
    nothing = {
        "embedding": np.zeros((4, 2)), "weight_ih": np.zeros((6, 2)), "bias_ih": np.zeros(6),
        "weight_hh": np.zeros((6, 2)), "bias_hh": np.zeros(6), "output": np.eye(2),
    }  # fmt: skip
    scores, state = step_on_host(nothing, np.zeros(1, int), np.array([[1.0, -2.0]]))
    return np.abs(scores - [[0.5, -1.0]]).max() + np.abs(state - scores).max(), 0


def prepare(options: Options) -> Prepared:
    import torch

    torch.manual_seed(0)
    embedding = torch.nn.Embedding(LETTERS, HIDDEN).cuda()
    cell = torch.nn.GRUCell(HIDDEN, HIDDEN).cuda()
    output = torch.nn.Linear(HIDDEN, LETTERS, bias=False).cuda()
    first = torch.randint(0, LETTERS, (BATCH,)).cuda()
    written = torch.zeros(options.rounds, BATCH, dtype=torch.int64)
    if options.variant.startswith("pin"):
        written = written.pin_memory()

    @torch.inference_mode()
    def region() -> None:
        letters, state, kept = first, torch.zeros(BATCH, HIDDEN, device="cuda"), []
        for step in range(options.rounds):
            state = cell(embedding(letters), state)
            letters = output(state).argmax(dim=1)
            if options.variant == "batch":
                kept.append(letters)
            else:
                written[step].copy_(letters, non_blocking=options.variant == "pin-async")
        if kept:
            written.copy_(torch.stack(kept))

    def check() -> Off:
        names = {"embedding": embedding.weight, "output": output.weight}
        names |= {name: getattr(cell, name) for name in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")}
        weights = {name: value.detach().cpu().numpy().astype(float) for name, value in names.items()}
        # The first letters, each from what was written before it: a letter whose score is the best, or as good as that.
        letters, state, error = first.cpu().numpy(), np.zeros((BATCH, HIDDEN)), 0.0
        for step in range(min(CHECKED, options.rounds)):
            scores, state = step_on_host(weights, letters, state)
            letters = written[step].numpy()
            error = max(error, float((scores.max(axis=1) - scores[np.arange(BATCH), letters]).max()))
        return error, 1e-3

    return region, check


if __name__ == "__main__":
    run("torch", 500, prepare, reference)
