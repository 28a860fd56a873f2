"""A training step with a data loader: ResNet-18 on 224×224 images made at random, loss read every step.

The batches leave the loader in pageable memory, as PyTorch's do by default; `--pin` asks for pinned ones and copies
without blocking.
"""

from __future__ import annotations

import profiled
import torch
import torchvision


class RandomImages(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        return torch.rand(3, 224, 224, generator=generator), index % 1000


def main() -> None:
    parser = profiled.arguments("Train ResNet-18 for a few steps and record them.")
    parser.add_argument("--pin", action="store_true", help="pinned batches, copied without blocking")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()

    torch.manual_seed(0)
    model = torchvision.models.resnet18().cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = torch.utils.data.DataLoader(
        RandomImages(), batch_size=options.batch, num_workers=4, pin_memory=options.pin, prefetch_factor=4
    )
    batches = iter(loader)

    def step() -> float:
        with torch.profiler.record_function("load"):
            images, labels = next(batches)
        images = images.cuda(non_blocking=options.pin)
        labels = labels.cuda(non_blocking=options.pin)
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    for _ in range(4):
        step()
    losses: list[float] = []
    profiled.profile_to(options.out, lambda: losses.extend(step() for _ in range(options.steps)))
    if not all(0 < loss < 20 for loss in losses):
        raise SystemExit(f"the training went wrong: losses {losses}")


if __name__ == "__main__":
    main()
