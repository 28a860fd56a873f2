"""Steps of eight PyTorch programs as its profiler records them: `python validation/torch_steps.py FOLDER`, on a GPU.

Training and inference of a residual network, a decoder, an LSTM and a perceptron in fp32, tf32, fp16 and bf16, three steps
each with shapes, one file a program; standard output has what a step takes when it is not recorded.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

GPU, VOCABULARY, STEPS = "cuda", 32000, 3
Step = Callable[[], Any]


class Block(nn.Module):
    """Two convolutions and what goes round them."""

    def __init__(self, old: int, new: int, stride: int = 1) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(old, new, 3, stride, 1, bias=False), nn.BatchNorm2d(new), nn.ReLU(),
            nn.Conv2d(new, new, 3, 1, 1, bias=False), nn.BatchNorm2d(new),
        )  # fmt: skip
        self.round = nn.Identity() if old == new else nn.Conv2d(old, new, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.path(x) + self.round(x))


def residual() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        Block(64, 64), Block(64, 128, 2), Block(128, 256, 2), Block(256, 512, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000),
    )  # fmt: skip


class Layer(nn.Module):
    """Attention and a perceptron, each behind a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        parts = self.project(self.before(x)).view(batch, tokens, 3, 16, width // 16).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.wide(self.after(x))


def decoder(layers: int, width: int) -> nn.Module:
    return nn.Sequential(
        nn.Embedding(VOCABULARY, width), *(Layer(width) for _ in range(layers)), nn.LayerNorm(width),
        nn.Linear(width, VOCABULARY, bias=False),
    )  # fmt: skip


def images(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    pixels = torch.randn(count, 3, 224, 224).pin_memory().to(GPU, non_blocking=True)
    return pixels, torch.randint(0, 1000, (count,)).to(GPU)


def words(batch: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    def some() -> torch.Tensor:
        return torch.randint(0, VOCABULARY, (batch, tokens))

    return some().pin_memory().to(GPU, non_blocking=True), some().to(GPU)


def likelihood(out: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(out.float().view(-1, out.shape[-1]), truth.view(-1))


def training(model: nn.Module, data: Step, loss: Callable[..., torch.Tensor], numbers: torch.dtype) -> Step:
    model = model.to(GPU)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        given, truth = data()
        with torch.autocast(GPU, dtype=numbers, enabled=numbers != torch.float32):
            error = loss(model(given), truth)
        optimizer.zero_grad(set_to_none=True)
        error.backward()
        optimizer.step()

    return step


def inference(model: nn.Module, data: Step, numbers: torch.dtype) -> Step:
    model = model.to(GPU).to(numbers).eval()

    def step() -> None:
        with torch.no_grad():
            model(data())

    return step


def sequences() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(128, 64, 512, device=GPU), torch.randn(128, 64, 512, device=GPU)


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(4096, 8192), nn.ReLU(), nn.LayerNorm(8192), nn.Linear(8192, 8192), nn.Softmax(-1),
        nn.Linear(8192, 1024),
    )  # fmt: skip


PROGRAMS: dict[str, Callable[[], Step]] = {
    "resnet_train_fp32": lambda: training(residual(), lambda: images(64), likelihood, torch.float32),
    "resnet_train_bf16": lambda: training(residual(), lambda: images(128), likelihood, torch.bfloat16),
    "gpt_train_bf16": lambda: training(decoder(6, 1024), lambda: words(8, 1024), likelihood, torch.bfloat16),
    "gpt_train_fp32": lambda: training(decoder(2, 1024), lambda: words(4, 512), likelihood, torch.float32),
    "gpt_prefill_fp16": lambda: inference(decoder(12, 2048), lambda: words(4, 1024)[0], torch.float16),
    "gpt_decode_fp16": lambda: inference(decoder(12, 2048), lambda: words(16, 1)[0], torch.float16),
    "lstm_train_fp32": lambda: training(
        nn.LSTM(512, 512, 2), sequences, lambda out, truth: functional.mse_loss(out[0], truth), torch.float32
    ),
    "mlp_infer_tf32": lambda: inference(
        perceptron(), lambda: torch.randn(2048, 4096, device=GPU), torch.float32
    ),
}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for name, make in PROGRAMS.items():
        torch.backends.cuda.matmul.allow_tf32 = "tf32" in name
        step = make()
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
        seconds = (time.perf_counter() - began) / STEPS
        with profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True
        ) as recorded:
            for _ in range(STEPS):
                step()
            torch.cuda.synchronize()
        recorded.export_chrome_trace(str(folder / f"{name}.json"))
        print(f"{name}: {seconds:.6f} s a step", flush=True)
        del step, recorded
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
