"""Kernels that show what a GPU reaches: chains of empty ones, streams, pipelines of arithmetic, and cuBLAS's GEMMs. And NCCL
of the system or of PyTorch's wheel, by its C interface: one process, a communicator a GPU, calls in groups.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from busfare.measure.cases import MIB, Case, Samples
from busfare.measure.cuda.board import Board
from busfare.measure.cuda.driver import LONG, POINTER, WORD, Module, record, seconds, source_of, synchronise
from busfare.measure.cuda.timing import captured, sampled
from busfare.measure.kernels import LOOPS, ROW_BYTES, SOFTMAX_ROW_BYTES, TILE_BYTES, gemm_of
from busfare.measure.run import UnavailableError
from busfare.nodes.component import PassKind

#: The first compute capability with each pipeline that not every GPU has. Double-precision tensor cores are in data centres'
#: GPUs alone.
_FIRST = {
    "fp16_tensor": (7, 5), "int8_tensor": (7, 5), "bf16_tensor": (8, 0), "tf32_tensor": (8, 0), "fp64_tensor": (8, 0),
    "fp8_tensor": (8, 9),
}  # fmt: skip
_WITH_FP64_TENSOR = ((8, 0), (9, 0), (10, 0))
_STREAMS = ("stream_read", "stream_write", "stream_copy", "stream_triad")
#: Arrays that a stream reads or writes.
_ARRAYS = {"stream_copy": 2, "stream_triad": 3}
#: Passes by class: their kernel, arrays that it reads and writes, rows a block (0 where its blocks do not depend on rows),
#: and threads of a block.
_PASSES: dict[PassKind, tuple[str, int, int, int]] = {
    "elementwise": ("stream_triad", 3, 0, 256),
    "norm": ("pass_norm", 2, 1, 256),
    "softmax": ("pass_softmax", 2, 4, 128),
    "gather": ("pass_gather", 2, 0, 128),
    "activation": ("pass_activation", 3, 1, 1024),
}
#: By type: cuBLAS's numbers of the operands' type, the result's and the computation, bytes of an operand, and the mask and
#: base of random words (rates.cu).
_TYPES = {
    "fp32": (0, 0, 68, 4, 0x807FFFFF, 0x3F000000),
    "tf32": (0, 0, 77, 4, 0x807FFFFF, 0x3F000000),
    "fp16": (2, 2, 68, 2, 0x83FF83FF, 0x38003800),
    "bf16": (14, 14, 68, 2, 0x807F807F, 0x3F003F00),
    "int8": (3, 10, 72, 1, 0xFFFFFFFF, 0),
    "fp8": (28, 14, 68, 1, 0x87878787, 0x30303030),
}
#: Where weights, tokens and products lie. Each call takes other weights, as a program's layers do: they come from memory.
_WEIGHTS, _TOKENS, _ALL = 512 * MIB, 768 * MIB, 1024 * MIB
_TRANSPOSED, _AS_IT_IS, _ANY = 1, 0, -1
_FAST_ACCUMULATION = 25
NCCL = "libnccl.so.2"
#: ncclFloat32 and ncclSum [nccl.h].
FLOAT, SUM, FLOAT_BYTES = 7, 0, 4
#: Operations behind each other in a sample: of few bytes many, so that its clock's ticks do not count.
MANY, FEW, LONG_BYTES = 20, 4, 1 << 24


@cache
def _kernels(board: Board) -> Module:
    kinds: dict[str, tuple[Any, ...]] = {
        "random_words": (POINTER, LONG, WORD, WORD),
        **dict.fromkeys(_STREAMS, (POINTER, POINTER, POINTER, WORD, WORD)),
        **{name: (POINTER, POINTER, POINTER, WORD) for name, *_ in _PASSES.values() if name not in _STREAMS},
        **{name: (POINTER, WORD) for name in LOOPS if board.capability >= _FIRST.get(name, (0, 0))},
    }
    return Module(source_of("rates.cu"), "rates.cu", board.capability, kinds)


def _chain(case: Case, board: Board, repeats: int) -> Samples:
    """Empty kernels behind each other: launched into a stream, or as a graph."""

    def issue(streams: Any) -> None:
        for _ in range(case.count):
            board.kernels.launch("nothing", streams[0])

    if case.mode == "chain-stream":
        return sampled(board, issue, repeats)
    with captured(board.streams(1), issue) as launch:
        return sampled(board, launch, repeats)


def _stream(case: Case, board: Board, repeats: int) -> Samples:
    """A stream once over its arrays; over a part of L2 many times, by no more blocks than run at once."""
    name = case.mode.replace("-", "_").replace("l2", "stream")
    array_bytes = case.bytes // _ARRAYS.get(name, 1)
    tiles = array_bytes // TILE_BYTES
    source = board.buffer("device", "source", 2 * array_bytes if name == "stream_triad" else array_bytes)
    target = board.buffer("device", "target", array_bytes)
    values = (target, source, source + array_bytes, tiles, tiles * case.count)
    blocks = tiles if case.count == 1 else 8 * board.multiprocessors
    launch = _kernels(board).launch
    return sampled(board, lambda s: launch(name, s[0], values, blocks, 256), repeats)


def _pass(case: Case, board: Board, repeats: int) -> Samples:
    """Kernels of a class, each once over the same arrays, as a graph."""
    kind = cast(PassKind, case.mode.partition("-")[2])
    name, arrays, rows_a_block, threads = _PASSES[kind]
    array_bytes = case.bytes // arrays
    source = board.buffer("device", "source", (arrays - 1 or 1) * array_bytes)
    target = board.buffer("device", "target", array_bytes)
    launch = _kernels(board).launch
    values: tuple[int, ...] = (target, source, source + array_bytes)
    if name in _STREAMS:
        blocks = array_bytes // TILE_BYTES
        values += (blocks, blocks)
    else:
        rows = array_bytes // (SOFTMAX_ROW_BYTES if kind == "softmax" else ROW_BYTES)
        blocks = rows // rows_a_block if rows_a_block else 8 * board.multiprocessors
        values += (rows,)

    def issue(streams: Any) -> None:
        for _ in range(case.count):
            launch(name, streams[0], values, blocks, threads)

    with captured(board.streams(1), issue) as launched:
        return sampled(board, launched, repeats)


def _pipeline(case: Case, board: Board, repeats: int) -> Samples:
    """1,024 threads a multiprocessor that do nothing but one kind of arithmetic."""
    name = case.mode.partition("-")[2]
    version = board.capability
    if version < _FIRST.get(name, (0, 0)) or (name == "fp64_tensor" and version not in _WITH_FP64_TENSOR):
        raise UnavailableError(f"compute capability {version[0]}.{version[1]} has no {name} pipeline")
    values, launch = (board.buffer("device", "target", 16), case.count), _kernels(board).launch
    blocks = 4 * board.multiprocessors
    return sampled(board, lambda s: launch(name, s[0], values, blocks, 256), repeats)


@cache
def _library(name: str) -> Any:
    """cuBLAS or cuBLASLt, of the system, NVIDIA's packages or PyTorch's. Raises UnavailableError where there is none."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return ctypes.CDLL(load_nvidia_dynamic_lib(name).abs_path)
    except (ImportError, RuntimeError, OSError) as error:
        raise UnavailableError(
            f"no {name} available ({type(error).__name__}); GEMMs need the nvidia-cublas package, PyTorch or a CUDA toolkit"
        ) from None


def _call(library: Any, function: str, *values: Any) -> None:
    if status := getattr(library, function)(*values):
        why = "this GPU or version does not support this product"
        raise UnavailableError(f"{function} answered {status}: {why}")


@cache
def _handle(board: Board, name: str) -> ctypes.c_void_p:
    """cuBLAS's state for a GPU, whose work goes to the first stream; freed with the process."""
    handle, library = ctypes.c_void_p(), _library(name)
    _call(library, "cublasLtCreate" if name == "cublasLt" else "cublasCreate_v2", ctypes.byref(handle))
    if name == "cublas":
        _call(library, "cublasSetStream_v2", handle, ctypes.c_void_p(int(board.streams(1)[0])))
    return handle


def _gemm(case: Case, board: Board, repeats: int) -> Samples:
    """Tokens (m × k) by weights (n × k, transposed), as a layer of a network calls it, back to back."""
    gemm = gemm_of(case.mode)
    operand, result, computation, size, mask, base = _TYPES[gemm.type]
    sides = (gemm.batch, gemm.m, gemm.n, gemm.k)
    at, stream = board.buffer("device", "target", _ALL), board.streams(1)[0]
    words = (at, _TOKENS // 4, mask, base)
    _kernels(board).launch("random_words", stream, words, 8 * board.multiprocessors, 256)
    product = (_of_fp8 if gemm.type == "fp8" else _of_cublas)(board, sides, operand, result, computation)
    weights = gemm.batch * gemm.n * gemm.k * size
    apart = [i % (_WEIGHTS // weights) * weights for i in range(case.count)]

    def issue(_: object) -> None:
        for offset in apart:
            product(at + offset, at + _WEIGHTS, at + _TOKENS)

    # The library loads its kernels with the first call, which would wait for the blocking kernel for ever.
    issue(None)
    synchronise(stream)
    return sampled(board, issue, repeats)


Product = Callable[[int, int, int], None]
Sides = tuple[int, int, int, int]


def _of_cublas(board: Board, sides: Sides, operand: int, result: int, computation: int) -> Product:
    """What hands weights, tokens and result to cublasGemmEx, whose matrices are stored by columns; or as many of each as the
    first of `sides` to cublasGemmStridedBatchedEx, weights as they are, as programs multiply activations with each other.
    """
    batch, m, n, k = sides
    handle, library = _handle(board, "cublas"), _library("cublas")
    scalar = ctypes.c_int32 if computation == 72 else ctypes.c_float
    # ctypes takes a plain integer for 32 bits, and addresses have more.
    alpha, beta, pointer = ctypes.byref(scalar(1)), ctypes.byref(scalar(0)), ctypes.c_void_p

    def product(weights: int, tokens: int, to: int) -> None:
        _call(
            library, "cublasGemmEx", handle, _TRANSPOSED, _AS_IT_IS, n, m, k, alpha, pointer(weights), operand, k,
            pointer(tokens), operand, k, beta, pointer(to), result, n, computation, _ANY,
        )  # fmt: skip

    def products(weights: int, tokens: int, to: int) -> None:
        apart = [ctypes.c_int64(elements) for elements in (n * k, m * k, m * n)]
        _call(
            library, "cublasGemmStridedBatchedEx", handle, _AS_IT_IS, _AS_IT_IS, n, m, k, alpha, pointer(weights),
            operand, n, apart[0], pointer(tokens), operand, k, apart[1], beta, pointer(to), result,
            n, apart[2], batch, computation, _ANY,
        )  # fmt: skip

    return products if batch > 1 else product


def _of_fp8(board: Board, sides: Sides, operand: int, result: int, computation: int) -> Product:
    """The same of cublasLtMatmul, which alone takes fp8. Its descriptions are freed with the process."""
    (_, m, n, k), handle, library = sides, _handle(board, "cublasLt"), _library("cublasLt")
    what = ctypes.c_void_p()
    _call(library, "cublasLtMatmulDescCreate", ctypes.byref(what), computation, 0)
    for key, value in ((3, ctypes.c_int32(_TRANSPOSED)), (_FAST_ACCUMULATION, ctypes.c_int8(1))):
        size = ctypes.c_size_t(ctypes.sizeof(value))
        _call(library, "cublasLtMatmulDescSetAttribute", what, key, ctypes.byref(value), size)

    def layout(kind: int, rows: int, columns: int) -> ctypes.c_void_p:
        made, sides = ctypes.c_void_p(), (ctypes.c_uint64(rows), ctypes.c_uint64(columns))
        _call(library, "cublasLtMatrixLayoutCreate", ctypes.byref(made), kind, *sides, ctypes.c_int64(rows))
        return made

    a, b, c = layout(operand, k, n), layout(operand, k, m), layout(result, n, m)
    alpha, beta, pointer = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0)), ctypes.c_void_p
    stream = pointer(int(board.streams(1)[0]))

    def product(weights: int, tokens: int, to: int) -> None:
        _call(
            library, "cublasLtMatmul", handle, what, alpha, pointer(weights), a, pointer(tokens), b, beta, pointer(to), c,
            pointer(to), c, None, None, ctypes.c_size_t(0), stream,
        )  # fmt: skip

    return product


#: What measures each kind of case, by the first word of its mode.
RATES: dict[str, Callable[[Case, Board, int], Samples]] = {
    "chain": _chain,
    "stream": _stream,
    "pass": _pass,
    "l2": _stream,
    "pipeline": _pipeline,
    "gemm": _gemm,
}


def nccl_library() -> ctypes.CDLL:
    """NCCL from the loader's path, else from an installed wheel. Raises UnavailableError where there is none."""
    wheel = find_spec("nvidia.nccl") if find_spec("nvidia") else None
    folders = [Path(folder) / "lib" for folder in (wheel.submodule_search_locations or ())] if wheel else []
    for path in (NCCL, *(str(folder / NCCL) for folder in folders)):
        with suppress(OSError):
            return ctypes.CDLL(path)
    why = "is neither on the library path nor in an installed wheel; pip install nvidia-nccl-cu12"
    raise UnavailableError(f"{NCCL} {why}")


class Communicators:
    """One communicator for each of `boards`. Reductions in the switch (NVLS) are off in this process."""

    def __init__(self, boards: Sequence[Board]) -> None:
        """Raises UnavailableError where there is no NCCL, or it refuses."""
        os.environ["NCCL_NVLS_ENABLE"] = "0"  # NCCL reads it when its first communicator is made
        self.boards, self._nccl = boards, nccl_library()
        self._nccl.ncclGetErrorString.restype = ctypes.c_char_p
        self._seen: set[Case] = set()
        self._made = (ctypes.c_void_p * len(boards))()
        ordinals = (ctypes.c_int * len(boards))(*(board.ordinal for board in boards))
        self._call("ncclCommInitAll", self._made, len(boards), ordinals)

    def _call(self, name: str, *values: Any) -> None:
        code = getattr(self._nccl, name)(*values)
        if code:
            why = self._nccl.ncclGetErrorString(code).decode(errors="replace")
            raise UnavailableError(f"NCCL call {name} failed: {why}; set NCCL_DEBUG=WARN for details")

    def issue(self, kind: str, bytes_: int) -> None:
        """One operation of `bytes_` bytes, as nccl-tests counts them, into the first stream of every GPU."""
        self._call("ncclGroupStart")
        try:
            for rank, board in enumerate(self.boards):
                board.enter()
                self._issue_rank(kind, bytes_, rank, board)
        finally:
            self._call("ncclGroupEnd")

    def _issue_rank(self, kind: str, bytes_: int, rank: int, board: Board) -> None:
        ranks = len(self.boards)
        source, target = (board.buffer("device", role, bytes_) for role in ("source", "target"))
        end = (ctypes.c_void_p(self._made[rank]), ctypes.c_void_p(int(board.streams(1)[0])))
        whole, part = (ctypes.c_size_t(max(n // FLOAT_BYTES, 1)) for n in (bytes_, bytes_ // ranks))
        at, to = ctypes.c_void_p(source), ctypes.c_void_p(target)
        if kind == "all_reduce":
            self._call("ncclAllReduce", at, to, whole, FLOAT, SUM, *end)
        elif kind == "all_gather":
            self._call("ncclAllGather", at, to, part, FLOAT, *end)
        elif kind == "reduce_scatter":
            self._call("ncclReduceScatter", at, to, part, FLOAT, SUM, *end)
        elif kind == "send_receive":
            self._call("ncclSend", at, whole, FLOAT, (rank + 1) % ranks, *end)
            self._call("ncclRecv", to, whole, FLOAT, (rank - 1) % ranks, *end)
        else:
            for peer in range(ranks):
                offset = peer * part.value * FLOAT_BYTES
                self._call("ncclSend", ctypes.c_void_p(source + offset), part, FLOAT, peer, *end)
                self._call("ncclRecv", ctypes.c_void_p(target + offset), part, FLOAT, peer, *end)

    def samples(self, kind: str, case: Case, repeats: int) -> Samples:
        """Seconds an operation, of the GPU that took longest: back to back, held until all are submitted. Raises
        UnavailableError for sizes that do not fit, StalledError where the hold gave up.
        """
        # Below a float a rank the parts would not be of the size that was asked for.
        if case.bytes < FLOAT_BYTES * len(self.boards):
            raise UnavailableError(f"{case.bytes} bytes are no number for each of {len(self.boards)} GPUs")
        if case not in self._seen:  # the first one makes connections, and must not wait for what waits for it
            self.issue(kind, case.bytes)
            self._synchronise()
            self._seen.add(case)
        count = FEW if case.bytes > LONG_BYTES else MANY
        taken = tuple(self._sample(kind, case.bytes, count) for _ in range(repeats))
        return Samples(taken, taken)

    def _sample(self, kind: str, bytes_: int, count: int) -> float:
        try:
            for board in self.boards:
                board.enter()
                board.flags.hold(board.streams(1)[0])
                record(board.events(2)[0], board.streams(1)[0])
            for _ in range(count):
                self.issue(kind, bytes_)
            for board in self.boards:
                board.enter()
                record(board.events(2)[1], board.streams(1)[0])
        finally:
            for board in self.boards:
                board.flags.release()
        self._synchronise()
        taken = []
        for board in self.boards:
            board.enter()
            board.flags.verify()
            taken.append(seconds(*board.events(2)))
        return max(taken) / count

    def _synchronise(self) -> None:
        for board in self.boards:
            board.enter()
            synchronise(board.streams(1)[0])

    def close(self) -> None:
        for made in self._made:
            self._call("ncclCommDestroy", ctypes.c_void_p(made))
