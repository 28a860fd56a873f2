"""Words looked for in a text (CuPy): the text comes over in blocks, the places of a word in each are counted.

before     blocks and counts in pageable memory
pin        the same in pinned memory, blocking
pin-async  pinned memory, copies without blocking, one wait at the end
"""

from __future__ import annotations

import numpy as np
from measured import Off, Options, Prepared, run

BLOCK, BLOCKS, WORDS = 3 << 20, 24, (b"bus", b"fare", b"abca", b"zz")
ALPHABET = np.frombuffer(b"abcdefgrstuz", np.uint8)

COUNT = r"""
extern "C" __global__ void count(const unsigned char* text, int bytes, const unsigned char* words, const int* begins,
                                 int number, unsigned int* found) {
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < bytes; at += gridDim.x * blockDim.x) {
        for (int word = 0; word < number; ++word) {
            const int length = begins[word + 1] - begins[word];
            if (at + length > bytes) continue;
            int same = 0;
            while (same < length && text[at + same] == words[begins[word] + same]) ++same;
            if (same == length) atomicAdd(found + word, 1u);
        }
    }
}
"""


def on_host(text: bytes) -> list[int]:
    """How often each word begins somewhere in the text."""
    letters = np.frombuffer(text, np.uint8)
    counts = []
    for word in WORDS:
        begins = np.ones(len(letters) - len(word) + 1, bool)
        for place, letter in enumerate(word):
            begins &= letters[place : place + len(begins)] == letter
        counts.append(int(begins.sum()))
    return counts


def reference() -> Off:
    # Words that overlap count each
    error = np.abs(np.subtract(on_host(b"abcabcazzzbusbus"), [2, 0, 2, 2])).max()
    return error, 0


def prepare(options: Options) -> Prepared:
    import cupy
    import cupyx

    empty = cupyx.empty_pinned if options.variant.startswith("pin") else np.empty
    blocking = options.variant != "pin-async"
    random = np.random.default_rng(0)
    blocks = []
    for _ in range(BLOCKS):
        block = empty(BLOCK, np.uint8)
        block[...] = ALPHABET[random.integers(0, len(ALPHABET), BLOCK)]
        blocks.append(block)
    counts = empty((BLOCKS, len(WORDS)), np.uint32)
    counts[...] = 0
    words = cupy.asarray(np.frombuffer(b"".join(WORDS), np.uint8))
    begins = cupy.asarray(np.cumsum([0, *(len(word) for word in WORDS)]).astype(np.int32))
    count = cupy.RawKernel(COUNT, "count")
    text = cupy.empty(BLOCK, np.uint8)
    found = cupy.zeros(len(WORDS), np.uint32)
    stream = cupy.cuda.get_current_stream()

    def region() -> None:
        for _ in range(options.rounds):
            for number, block in enumerate(blocks):
                if blocking:
                    text.set(block)
                else:
                    text.set(block, stream=stream)
                found.fill(0)
                count((264,), (256,), (text, BLOCK, words, begins, len(WORDS), found))
                found.get(out=counts[number], blocking=blocking)

    def check() -> Off:
        wrong = [
            np.abs(counts[number].astype(int) - on_host(blocks[number].tobytes())).max()
            for number in range(0, BLOCKS, 9)
        ]
        return max(wrong), 0

    return region, check


if __name__ == "__main__":
    run("cupy", 3, prepare, reference)
