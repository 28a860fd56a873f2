"""Training an image classifier (PyTorch): a small residual network, its batches fed from the host.

before       batches in pageable memory, the loss read at each step
pin          batches in pinned memory, blocking copies
pin-async    batches in pinned memory, copies without blocking
fewer-syncs  pageable batches; the losses stay on the GPU until the end
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run

BATCH, SIDE, CLASSES, BATCHES = 256, 112, 8, 4


def batch_of(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (float32, normalised) whose stripes lie in one of eight directions, and the directions."""
    random = np.random.default_rng(number)
    labels = random.integers(0, CLASSES, BATCH)
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE
    angle = (labels * np.pi / CLASSES)[:, None, None]
    phase = random.uniform(0, 2 * np.pi, (BATCH, 1, 1))
    stripes = np.sin(40 * (x * np.cos(angle) + y * np.sin(angle)) + phase).astype(np.float32)
    noise = random.standard_normal((BATCH, 3, SIDE, SIDE), dtype=np.float32)
    return stripes[:, None] + np.float32(0.3) * noise, labels


def reference() -> Off:
    # The stripes' direction is where the image's spectrum is strongest
    images, labels = batch_of(0)
    spectrum = np.abs(np.fft.fft2(images[:64].mean(1)))[:, :, : SIDE // 2]
    spectrum[:, 0, 0] = 0
    peaks = spectrum.reshape(64, -1).argmax(1)
    y, x = np.divmod(peaks, SIDE // 2)
    angle = np.arctan2(np.where(y > SIDE // 2, y - SIDE, y), x)
    off = np.abs((angle - labels[:64] * np.pi / CLASSES + np.pi / 2) % np.pi - np.pi / 2)
    return off.max(), 0.15


def prepare(options: Options) -> Prepared:
    import torch
    from torch import nn

    arrays = [batch_of(number) for number in range(BATCHES)]
    torch.manual_seed(0)
    pin = options.variant.startswith("pin")
    non_blocking = options.variant == "pin-async"

    class Block(nn.Module):
        def __init__(self, width: int, out: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
                nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out),
            )  # fmt: skip
            self.shortcut = nn.Conv2d(width, out, 1, stride, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.body(x) + self.shortcut(x))

    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, 2, 2, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        Block(16, 32, 2), Block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES),
    ).cuda()  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    batches = []
    for images_of, labels_of in arrays:
        images, labels = torch.from_numpy(images_of), torch.from_numpy(labels_of)
        batches.append((images.pin_memory(), labels.pin_memory()) if pin else (images, labels))
    losses: list[float] = []

    def region() -> None:
        kept = []
        for step in range(options.rounds):
            images, labels = batches[step % BATCHES]
            images = images.to("cuda", non_blocking=non_blocking)
            labels = labels.to("cuda", non_blocking=non_blocking)
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            if options.variant == "fewer-syncs":
                kept.append(loss.detach())
            else:
                losses.append(loss.item())
        if kept:
            losses.extend(torch.stack(kept).tolist())

    def check() -> Off:
        # From ln 8 = 2.08, chance, to well below it.
        return float(np.mean(losses[-4:])), 1.6

    return region, check


if __name__ == "__main__":
    run("torch", 24, prepare, reference)
