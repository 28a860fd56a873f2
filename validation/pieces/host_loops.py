"""What a library takes to start the kernels of some hundred steps, nothing copied or waited for: the host alone.

`python validation/pieces/host_loops.py torch|cupy` says `ready`; then a line `measure` on standard input is one region.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

#: Steps without a wait: their kernels fit into the GPU's queue.
STEPS = {"torch": 25, "cupy": 15}
ROUNDS = 20


def torch_steps() -> tuple[Callable[[int], object], Callable[[], object]]:
    """Steps of validation/pairs/generate_letters.py without their copies, and the wait."""
    import torch

    embedding = torch.nn.Embedding(96, 512).cuda()
    cell, output = torch.nn.GRUCell(512, 512).cuda(), torch.nn.Linear(512, 96, bias=False).cuda()
    first, begin = torch.randint(0, 96, (64,)).cuda(), torch.zeros(64, 512, device="cuda")

    @torch.inference_mode()
    def steps(count: int) -> None:
        letters, state = first, begin
        for _ in range(count):
            state = cell(embedding(letters), state)
            letters = output(state).argmax(dim=1)

    return steps, torch.cuda.synchronize


def cupy_steps() -> tuple[Callable[[int], object], Callable[[], object]]:
    """Iterations of validation/pairs/kmeans.py over few points without their copies, and the wait."""
    import cupy

    data, centres = cupy.zeros((4096, 16), cupy.float32), cupy.ones((12, 16), cupy.float32)
    clusters = cupy.arange(12)[:, None]

    def steps(count: int) -> None:
        for _ in range(count):
            nearest = ((centres * centres).sum(axis=1) - data @ (2 * centres).T).argmin(axis=1)
            members = (nearest[None, :] == clusters).astype(cupy.float32)
            sizes = members.sum(axis=1)
            centres[...] = cupy.where(
                sizes[:, None] > 0, members @ data / cupy.maximum(sizes, 1)[:, None], centres
            )

    return steps, cupy.cuda.runtime.deviceSynchronize


def main() -> int:
    library = sys.argv[1]
    steps, wait = {"torch": torch_steps, "cupy": cupy_steps}[library]()

    def region() -> float:
        total = 0.0
        for _ in range(ROUNDS):
            wait()
            before = time.perf_counter()
            steps(STEPS[library])
            total += time.perf_counter() - before
        wait()
        return total

    region(), region()
    print("ready", flush=True)
    for line in sys.stdin:
        took = region()
        print(json.dumps({"region": took if line.strip() == "measure" else 0.0}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
