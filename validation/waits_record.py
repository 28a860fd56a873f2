"""Looks into hybrids on an NVIDIA GPU: `python validation/waits_record.py FILE.json.gz [SECONDS]`.

Each program runs as in `busfare bench strategies` (`samples_seconds`), with its copies or kernels alone beside it. Then
it runs with kernels that note when their first and last blocks ran, by the GPU's own clock, while another kernel looks
when the first and the last element of each copy arrive in GPU memory (`looked_into`, in ns): nothing stands between a copy
and its kernel that the kernel would wait for. Where kernels write, what that one reads is late by the length of their
queue. `validation/waits.py` reads it.
"""

from __future__ import annotations

import ctypes
import gzip
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from busfare.measure.bench import program as programs
from busfare.measure.bench.kernel import KERNELS, source_text
from busfare.measure.bench.program import Operation, Program
from busfare.measure.bench.work import Work
from busfare.measure.cuda.compiled import compiled
from busfare.measure.cuda.driver import checked, driver
from busfare.measure.cuda.issue import spaced
from busfare.measure.cuda.strategies import CudaStrategies, held_seconds

#: Every kernel of the benchmark, with a stamp at the start and the end of each block.
_STAMP = """
__device__ unsigned long long* stamps;
__device__ __forceinline__ unsigned long long now() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t) :: "memory");
    return t;
}
struct Stamp {
    unsigned long long at;
    __device__ Stamp(unsigned long long first) {
        at = ((first >> 5) + blockIdx.x * 8ull) * 2;
        if (threadIdx.x == 0 && stamps) stamps[at] = now();
    }
    __device__ ~Stamp() {
        if (threadIdx.x == 0 && stamps) stamps[at + 1] = now();
    }
};
"""
_STAMPED = _STAMP + source_text(KERNELS["scale"]).replace(
    "#define ELEMENT ", "#define ELEMENT Stamp stamp(first); ", 1
)
#: Each thread looks at one word, which has all bits set until something arrives.
_WATCH = """
extern "C" __global__ void watch(const unsigned long long* const* at, unsigned long long* when, unsigned n,
                                 unsigned long long limit) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long began, t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(began));
    t = began;
    const volatile unsigned long long* word = at[i];
    while (*word == ~0ull && t - began < limit) asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    when[i] = t;
}
"""
_LIMIT_NS, _WORDS, _THREADS, _BLOCK = 2_000_000_000, 1 << 20, 256, 256
_RUNS, _LOOKS = 5, 3
KIB = 1 << 10
#: Kernel, levels and their elements; numbers of chunks to run, to look into, and to look into in one stream of copies.
CELLS: tuple[tuple[str, int, int, Sequence[int], Sequence[int], Sequence[int]], ...] = (
    ("scale", 42, 512 * KIB, (32, 42, 64, 100, 128, 148, 160, 256), (42, 64, 100, 148, 160, 256), (42, 100)),
    ("reread", 42, 512 * KIB, (42, 100, 133), (42, 133), ()),
    ("buoydiff", 42, 512 * 512, (42, 64, 105), (42, 105), ()),
    ("state", 42, 65536, (8, 26, 42, 64), (8, 26, 42), (26,)),
    ("compute-balanced", 42, 512 * KIB, (42, 62, 96), (42, 96), (96,)),
    ("scale", 16, 8 * KIB, (1, 8, 42), (8,), (8,)),
    ("spread", 42, 512 * KIB, (42, 88, 111), (42, 88), ()),
    ("state", 42, 1024 * KIB, (42, 256), (256,), ()),
    ("gather", 42, 512 * KIB, (42,), (42,), ()),
)


class Looking:
    """One GPU, and what it takes to look into its programs."""

    def __init__(self) -> None:
        checked(driver.cuInit(0), "cuInit")
        self.device = CudaStrategies(1)
        self.gpu = self.device._gpu(0)
        module = checked(
            driver.cuModuleLoadData(compiled(_WATCH, "watch.cu", self.gpu.board.capability)), "load"
        )
        self.watch = checked(driver.cuModuleGetFunction(module, b"watch"), "cuModuleGetFunction")
        self.stream = checked(
            driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value), "cuStreamCreate"
        )
        self.at, self.when = (int(checked(driver.cuMemAlloc(_WORDS), "cuMemAlloc")) for _ in range(2))
        self.stamps, self.room = 0, 0
        self._start(0)

    def load(self, work: Work) -> None:
        """Arrays of what the kernels can compute with; room for stamps where the kernel has them."""
        self.device.load(work)
        self.gpu.board.enter()
        for n, array in enumerate(self.device.inputs()):
            array[:] = 10.0 + 25.0 * n
        if not work.kernel.source:
            return
        need = (work.elements // 32 + 64) * 16
        if self.room < need:
            if self.stamps:
                checked(driver.cuMemFree(self.stamps), "cuMemFree")
            self.stamps, self.room = int(checked(driver.cuMemAlloc(need), "cuMemAlloc")), need
        pointer, _ = checked(driver.cuModuleGetGlobal(self.gpu._module, b"stamps"), "cuModuleGetGlobal")
        word = ctypes.c_uint64(self.stamps)
        checked(driver.cuMemcpyHtoD(int(pointer), ctypes.addressof(word), 8), "cuMemcpyHtoD")

    def look(self, work: Work, program: Program) -> dict[str, Any]:
        """One run: its seconds, when each copy's first and last element came, and each kernel's blocks ran."""
        copies = [op for op in program.operations if op.kind == "h2d"]
        kernels = [op for op in program.operations if op.kind == "kernel"]
        base, step = self.device._device[0], spaced(work.array_bytes)
        ends = [(op.arrays[0] * step + 8 * e) for op in copies for e in (op.part.first, op.part.end - 1)]
        listed = np.array([base + end for end in ends], np.uint64)
        issue = self.device._issue(0, program)
        try:
            self.gpu.clear(work.kernel.inputs * step)
            checked(driver.cuMemsetD8(self.stamps, 0, self.room), "cuMemsetD8")
            checked(driver.cuMemcpyHtoD(self.at, listed.ctypes.data, listed.nbytes), "cuMemcpyHtoD")
            checked(driver.cuCtxSynchronize(), "cuCtxSynchronize")
            self._start(len(listed))
            seconds = held_seconds([issue])
        finally:
            issue.close()
        came = self._read(self.when, len(listed)).reshape(-1, work.kernel.inputs, 2)
        stamps = self._read(self.stamps, (work.elements // 32 + 64) * 2)
        ran = np.array([self._ran(stamps, op) for op in kernels])
        began = min(int(came.min()), int(ran.min()))
        return {
            "chunks": len(kernels),
            "seconds": seconds,
            "copies_ns": (came - began).tolist(),
            "kernels_ns": (ran - began).tolist(),
        }

    @staticmethod
    def _ran(stamps: np.ndarray, op: Operation) -> list[int]:
        """When the first block of a kernel began, when the first ended and when the last did."""
        blocks = math.ceil(op.part.count / _BLOCK)
        own = stamps[2 * ((op.part.first >> 5) + 8 * np.arange(blocks))[:, None] + np.arange(2)]
        return [int(own[:, 0].min()), int(own[:, 1].min()), int(own[:, 1].max())]

    def _start(self, words: int) -> None:
        values = (self.at, self.when, words, _LIMIT_NS)
        kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_ulonglong)
        blocks = max(1, math.ceil(words / _THREADS))
        answer = driver.cuLaunchKernel(
            self.watch, blocks, 1, 1, _THREADS, 1, 1, 0, self.stream, (values, kinds), 0
        )
        checked(answer, "cuLaunchKernel(watch)")

    @staticmethod
    def _read(address: int, count: int) -> np.ndarray:
        found = np.empty(count, np.uint64)
        checked(driver.cuMemcpyDtoH(found.ctypes.data, address, found.nbytes), "cuMemcpyDtoH")
        return found.astype(np.int64)


def only(program: Program, kind: str) -> Program:
    """The operations of one kind."""
    kept = [n for n, op in enumerate(program.operations) if op.kind == kind]
    place = {n: at for at, n in enumerate(kept)}
    operations = tuple(
        replace(op, after=tuple(place[a] for a in op.after if a in place))
        for op in (program.operations[n] for n in kept)
    )
    return replace(program, strategy=kind, operations=operations)


def in_order(work: Work, count: int) -> Program:
    """A hybrid whose copies go through one stream; each kernel has its own."""
    cut, arrays = work.cut(count), work.kernel.inputs
    operations = [Operation("h2d", 0, part, (array,)) for part in cut for array in range(arrays)]
    operations += [
        Operation("kernel", 1 + n, part, after=((n + 1) * arrays - 1,)) for n, part in enumerate(cut)
    ]
    return Program("in-order", count + 1, tuple(operations), mapped_out=True)


def main() -> int:
    if len(sys.argv) < 2:
        print("usage: python validation/waits_record.py FILE.json.gz [SECONDS]", file=sys.stderr)
        return 2
    until = time.monotonic() + float(sys.argv[2] if len(sys.argv) > 2 else 60)
    looking, cells = Looking(), []
    for name, levels, level, numbers, looked, ordered in CELLS:
        if time.monotonic() > until:
            print(f"{name} {levels}×{level} is left out: no time", file=sys.stderr)
            continue
        work = Work(KERNELS[name], levels, level)
        looking.load(work)
        samples = {}
        for n in numbers:
            hybrid = programs.hybrid(work, n)
            told = {"hybrid": hybrid, "copies": only(hybrid, "h2d"), "kernels": only(hybrid, "kernel")}
            for key, program in told.items():
                samples[f"{key} {n}"] = [looking.device.run((program,), _RUNS).device_s for _ in range(2)]
        stamped = Work(replace(KERNELS[name], source=_STAMPED), levels, level)
        looking.load(stamped)
        chosen = [("hybrid", n, programs.hybrid(stamped, n)) for n in looked]
        chosen += [("in-order", n, in_order(stamped, n)) for n in ordered]
        into = [
            {"program": key, **looking.look(stamped, program)}
            for key, _, program in chosen
            for _ in range(_LOOKS)
        ]
        cells.append(
            {"kernel": name, "levels": levels, "level_elements": level, "samples_seconds": samples,
             "looked_into": into}
        )  # fmt: skip
    facts = looking.device.facts()
    result = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": facts["gpus"][0]["name"],
        "driver": facts["driver"],
        "command": "python validation/waits_record.py",
        "cells": cells,
    }
    Path(sys.argv[1]).write_bytes(
        gzip.compress(json.dumps(result, separators=(",", ":")).encode(), 9, mtime=0)
    )
    looking.device.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
