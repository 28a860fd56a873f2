"""Inference by a CUDA graph (PyTorch): frames come over, a network captured once is launched, its scores go back.

before     frames and scores in pageable memory, blocking copies
pin        the same in pinned memory
pin-async  pinned memory, copies without blocking, one wait at the end
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run

SIDE, FRAMES, CHANNELS, CLASSES, SLOTS = 96, 48, 16, 1000, 6


def convolved(frames: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Each second place of frames (n, channels, side, side) with weights (out, channels, 3, 3), 0 beyond the edge."""
    padded = np.pad(frames, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    return np.einsum("ncyxij,ocij->noyx", windows, weights, optimize=True)


def on_host(frames: np.ndarray, convolutions: list[np.ndarray], last: np.ndarray) -> np.ndarray:
    """Scores: what two convolutions leave, averaged over the places, times `last`."""
    for weights in convolutions:
        frames = np.maximum(convolved(frames, weights), 0)
    return frames.mean(axis=(2, 3)) @ last.T


def reference() -> Off:
    # A window of ones over ones counts its places: nine of them, but at the edges
    counted = convolved(np.ones((1, 1, 4, 4)), np.ones((1, 1, 3, 3)))[0, 0]
    return np.abs(counted - [[4, 6], [6, 9]]).max(), 0


def prepare(options: Options) -> Prepared:
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = False
    pin = options.variant.startswith("pin")
    non_blocking = options.variant == "pin-async"
    network = nn.Sequential(
        nn.Conv2d(3, CHANNELS, 3, stride=2, padding=1, bias=False), nn.ReLU(),
        nn.Conv2d(CHANNELS, 2 * CHANNELS, 3, stride=2, padding=1, bias=False), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * CHANNELS, CLASSES, bias=False),
    ).cuda().eval()  # fmt: skip
    frames = torch.rand(SLOTS, FRAMES, 3, SIDE, SIDE)
    scores = torch.zeros(SLOTS, FRAMES, CLASSES)
    if pin:
        frames, scores = frames.pin_memory(), scores.pin_memory()
    with torch.inference_mode():
        inside = torch.zeros(FRAMES, 3, SIDE, SIDE, device="cuda")
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # libraries choose their kernels before the capture
            for _ in range(3):
                network(inside)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outside = network(inside)

    @torch.inference_mode()
    def region() -> None:
        for step in range(options.rounds):
            inside.copy_(frames[step % SLOTS], non_blocking=non_blocking)
            graph.replay()
            scores[step % SLOTS].copy_(outside, non_blocking=non_blocking)

    def check() -> Off:
        weights = [value.detach().cpu().numpy().astype(float) for value in network.parameters()]
        error = 0.0
        for slot in range(0, min(SLOTS, options.rounds), 3):
            known = on_host(frames[slot, :4].numpy().astype(float), weights[:2], weights[2])
            error = max(error, float(np.abs(scores[slot, :4].numpy() - known).max()))
        return error, 1e-3

    return region, check


if __name__ == "__main__":
    run("torch", 60, prepare, reference)
