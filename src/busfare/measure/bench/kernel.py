"""The kernels that strategies are judged on: source, arrays, what an element reads, and the same in float64 on the
CPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

import numpy as np

from busfare.errors import InputError
from busfare.measure.bench import reference
from busfare.node.arrays import FloatArray

#: What of the inputs an element needs besides its own place: the level above, or the uppermost level.
Reach = Literal["above", "surface"]
#: Given the inputs of all levels and the number of one level: its outputs.
Reference = Callable[[Sequence[FloatArray], int], list[FloatArray]]

MOST_ARRAYS = 16
_DECLARED = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(')


@dataclass(frozen=True)
class Kernel:
    """A kernel on arrays of doubles. `function` is its name in `source`, or in `kernels.cu` where that is empty.

    `accesses_in`: how often an input element crosses the link where it stays in mapped memory. `flops` and `work`
    are of one element; `work` is what the source knows as WORK. `reference` is None for a kernel of the user's own.
    """

    name: str
    title: str
    function: str
    inputs: int
    outputs: int
    flops: float
    reaches: tuple[Reach, ...] = ()
    accesses_in: float = 1.0
    work: int = 1
    source: str = ""
    reference: Reference | None = None


def _state(inputs: Sequence[FloatArray], k: int) -> list[FloatArray]:
    t, s = (array[k] for array in inputs)
    return list(reference.derivatives(t, s, reference.pressure(np.asarray(float(k)))))


def _buoydiff(inputs: Sequence[FloatArray], k: int) -> list[FloatArray]:
    p = reference.pressure(np.asarray(float(k)))
    own, surface, above = (reference.density(inputs[0][j], inputs[1][j], p) for j in (k, 0, max(k - 1, 0)))
    return [reference.buoyancy(own, surface), reference.buoyancy(own, above)]


def _compute(work: int) -> Reference:
    def of_level(inputs: Sequence[FloatArray], k: int) -> list[FloatArray]:
        # x ← 0.999 x + 0.0005 has a closed form, which does not take `work` passes.
        kept = 0.999**work
        return [inputs[0][k] * kept + 0.5 * (1.0 - kept)]

    return of_level


def _computing(name: str, title: str, work: int) -> Kernel:
    return Kernel(name, title, "compute", 1, 1, 2.0 * work, work=work, reference=_compute(work))


#: By name, the two of W14 first.
KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel(
            "state", "density of sea water and its two derivatives", "state", 2, 3, 90.0, reference=_state
        ),
        Kernel(
            "buoydiff", "buoyancy differences of levels 1, k-1 and k", "buoydiff", 2, 2, 150.0,
            ("above", "surface"), 3.0, reference=_buoydiff,
        ),
        Kernel("scale", "a product", "scale", 1, 1, 1.0, reference=lambda i, k: [1.5 * i[0][k]]),
        _computing("compute-balanced", "2000 multiply-adds an element", 2000),
        _computing("compute-heavy", "8000 multiply-adds an element", 8000),
        Kernel(
            "reread", "each element read three times", "reread", 1, 1, 3.0, accesses_in=3.0, work=3,
            reference=lambda i, k: [3.0 * i[0][k]],
        ),
        Kernel(
            "gather", "three arrays in, one out", "gather", 3, 1, 4.0,
            reference=lambda i, k: [i[0][k] + 2.0 * i[1][k] + 3.0 * i[2][k]],
        ),
        Kernel(
            "spread", "one array in, three out", "spread", 1, 3, 3.0,
            reference=lambda i, k: [i[0][k] + 1.0, 2.0 * i[0][k], i[0][k] * i[0][k]],
        ),
    )
}  # fmt: skip


def source_text(kernel: Kernel) -> str:
    """The CUDA source that holds `kernel`."""
    return kernel.source or resources.files("busfare.measure.bench").joinpath("kernels.cu").read_text("utf-8")


def user_kernel(path: Path, inputs: int, outputs: int, function: str | None = None) -> Kernel:
    """A kernel of the user's own, from a CUDA file. Raises InputError where the file holds none that can be meant.

    Its signature: `extern "C" __global__ void NAME(const double* in, …, double* out, …, unsigned long long first,
    unsigned long long count, unsigned long long level)`; thread i of the launch computes element `first + i`.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise InputError(f"{path}: {why}; give a CUDA file with the kernel") from None
    for option, count in (("--in", inputs), ("--out", outputs)):
        if not 1 <= count <= MOST_ARRAYS:
            raise InputError(f"{option} {count}: a kernel has 1 to {MOST_ARRAYS} arrays each way")
    found = _DECLARED.findall(text)
    if function is None and len(set(found)) != 1:
        said = f"{len(set(found))} kernels ({', '.join(sorted(set(found)))})" if found else "no kernel"
        raise InputError(
            f'{path}: {said} declared as `extern "C" __global__ void NAME(`; declare one, or choose with --function'
        )
    if function is not None and function not in found:
        said = f"it has {', '.join(sorted(set(found)))}" if found else "it has none"
        raise InputError(
            f'{path}: no kernel {function[:80]!r} declared as `extern "C" __global__ void`; {said}'
        )
    return Kernel(
        function or found[0],
        f"{path.name}, the user's own",
        function or found[0],
        inputs,
        outputs,
        0.0,
        source=text,
    )
