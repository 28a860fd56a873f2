"""Where in the program a call is made: the spans of its thread around it, and the program's innermost frame of a stack."""

import re
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from busfare.trace.columns import numbered

#: What is in the paths of Python's and CUDA's files, wherever they are installed.
LIBRARY_PATHS = (
    *("site-packages/", "dist-packages/", "lib/python3", "lib64/python3", "<frozen", "<string>", "<built-in", "<__array"),
    *("/usr/include/", "/cuda/include/", "/targets/x86_64-linux/include/", "/targets/sbsa-linux/include/", "/nvidia/cu"),
)  # fmt: skip
#: How the paths of packages begin, where a profiler has cut the folder off, and of files of Python's own that call what
#: they were given.
LIBRARY_PACKAGES = (
    *("torch/", "torchvision/", "torchaudio/", "triton/", "apex/", "numpy/", "cupy/", "jax/", "jaxlib/", "numba/", "PIL/"),
    *("transformers/", "diffusers/", "accelerate/", "lightning/", "pytorch_lightning/", "deepspeed/", "datasets/", "timm/"),
    *("pandas/", "scipy/", "sklearn/", "tqdm/", "IPython/", "ipykernel/", "tornado/", "traitlets/", "click/"),
    *("asyncio/", "collections/", "concurrent/", "encodings/", "importlib/", "json/", "logging/", "multiprocessing/", "re/"),
    *("_bootlocale.py", "abc.py", "ast.py", "codecs.py", "contextlib.py", "copyreg.py", "dataclasses.py", "enum.py"),
    *("functools.py", "inspect.py", "os.py", "pickle.py", "posixpath.py", "random.py", "re.py", "runpy.py", "selectors.py"),
    *("socket.py", "tempfile.py", "threading.py", "types.py", "typing.py", "warnings.py", "weakref.py"),
)  # fmt: skip
#: How the names of libraries begin that are no part of a program: of CUDA, profilers, C, C++, MPI, Python, PyTorch.
LIBRARY_MODULES = (
    *("libcuda", "libcudart", "libcupti", "libcublas", "libcudnn", "libcufft", "libcurand", "libcusolver", "libcusparse"),
    *("libnv", "libnccl", "libToolsInjection", "libInjection", "libbusfare_", "libhip", "libamdhip", "libhsa", "librccl"),
    *("libc.", "libc-", "libpthread", "libdl", "libm.", "libm-", "librt", "ld-", "ld64", "libgcc_s", "libstdc++", "libgomp"),
    *("libmpi", "libopen-", "libucp", "libucs", "libuct", "libpython", "python", "libtorch", "libc10", "libcupy", "[vdso]"),
)  # fmt: skip
#: Functions of the standard library and of CUDA, even in the program's own file: linked in, inlined, or kernel stubs.
LIBRARY_FUNCTIONS = re.compile(
    r"^(\S+ )?((std|__gnu_cxx)::|_*(cuda|hip|nvtx)[A-Z]\w*(<.*>)?(\(|$))|__device_stub__|__cudart|^_start$|^0x[0-9a-f]+$"
)
#: Longer names of functions, of templates mostly, are cut.
LONGEST = 120
FRAME = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)$", re.DOTALL)
MODULE = re.compile(r"^nn\.Module: (?P<module>.+?)(_\d+)?$", re.DOTALL)


def of_python(frames: str) -> str | None:
    """The site in PyTorch's frames, innermost first: `train.py(42): load;train.py(60): <module>`; None: no program's."""
    for frame in frames.split(";"):
        match = FRAME.match(frame.strip())
        if match and not is_library(match["file"]):
            return placed(match["function"], match["file"], match["line"])
    return None


def first_frame(frames: str) -> str | None:
    """The innermost of frames as in `of_python`, from any module; None if it belongs to no file."""
    frame = FRAME.match(frames.partition(";")[0].strip())
    return frame and placed(frame["function"], frame["file"], frame["line"])


def module_of(frame: str) -> str | None:
    """The class of the module that PyTorch's profiler names: `Linear` of `nn.Module: Linear_0`."""
    match = MODULE.match(frame)
    return match and match["module"]


def is_library(file: str) -> bool:
    """Whether a source file is a library's, by its path."""
    return file.startswith(LIBRARY_PACKAGES) or any(part in file for part in LIBRARY_PATHS)


def is_library_module(module: str) -> bool:
    """Whether a program or shared library, by its path, is no part of the program itself."""
    name = _name_of(module)
    return not name or name.startswith(LIBRARY_MODULES) or is_library(module)


def of_native(function: str, module: str, file: str = "", line: int = 0) -> str | None:
    """The site of a frame: `train.cu:42 step()`, or `step() (train)` without a line. None where it is a library's."""
    if is_library_module(module) or LIBRARY_FUNCTIONS.search(function) or is_library(file):
        return None
    return placed(function, file, line) if line else f"{_cut(function)} ({_name_of(module)})"


def placed(function: str, file: str, line: str | int) -> str:
    """`train.py:42 load_batch`."""
    return f"{file}:{line} {_cut(function)}"


def _name_of(module: str) -> str:
    return module.replace("\\", "/").rpartition("/")[2]


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


PLACE = ("process", "thread")
#: Of spans within one another, so many of the innermost are named.
MOST_NAMED = 16


def innermost(spans: pl.DataFrame, points: pl.DataFrame) -> pl.Series:
    """Of each point the row of the innermost span around it on its thread; null where there is none. Spans: process, thread,
    start_ns, end_ns; those of a thread lie within one another or apart. Points: process, thread, start_ns.
    """
    swept = _swept(spans, points.select(*PLACE, "start_ns"))
    return swept.filter(pl.col("order") == 2).sort("point").select(_open_span()).to_series()


def _open_span() -> pl.Expr:
    """The span that is open at a row of what `_swept` gives; null where none is."""
    return pl.when((pl.col("depth") > 0) & (pl.col("start_ns") < pl.col("end_ns"))).then("span")


def _swept(spans: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Beginnings of spans (order 1) and points (order 2) thread by thread in order of time, each with the `depth` in spans,
    and row and end of the last span that began as deep there.
    """
    at = pl.col("start_ns")
    spans = spans.select(*PLACE, "start_ns", "end_ns").with_row_index("span").filter(at < pl.col("end_ns"))
    edges = (
        spans.select(*PLACE, start_ns="end_ns", order=0, deeper=-1),
        spans.with_columns(order=1, deeper=1),
        points.with_columns(order=2, deeper=0).with_row_index("point"),
    )
    # The spans of a thread that are as deep lie apart: the last that has begun is the one. Each thread comes to a depth by
    # beginning a span there, so that none is another thread's.
    return (
        pl.concat(edges, how="diagonal_relaxed")
        .sort([*PLACE, "start_ns", "order", -pl.col("end_ns")])
        .with_columns(depth=pl.col("deeper").cum_sum())
        .filter(pl.col("order") > 0)
        .with_columns(pl.col("span", "end_ns").forward_fill().over("depth"))
    )


def parents(begun: pl.DataFrame) -> pl.DataFrame:
    """Of spans in order of start on their threads, with `depth`: `span`, and `parent`, the last begun one level above."""
    begun = begun.select("span", "depth").with_row_index("at")
    above = begun.select("at", pl.col("depth") + 1, parent="span")
    return begun.join_asof(above, on="at", by="depth", check_sortedness=False).select("span", "parent")


def around_calls(spans: pl.DataFrame, calls: pl.DataFrame, rows: NDArray[np.signedinteger[Any]]) -> pl.Series:
    """Of these rows of `calls` the row of the innermost span around each; null for row -1."""
    present = rows >= 0
    points = calls.select("process", "thread", "start_ns")[rows[present]]
    nearest = np.full(len(rows), -1, np.int64)
    nearest[present] = innermost(spans, points).cast(pl.Int64).fill_null(-1).to_numpy()
    return pl.Series(nearest).replace(-1, None).cast(pl.UInt32)


def stacks(
    spans: pl.DataFrame, points: pl.DataFrame, name: NDArray[np.int64]
) -> tuple[list[tuple[int, ...]], NDArray[np.uint32]]:
    """The names of the spans around points: different stacks, outermost first, and which one each point has. Spans and
    points as for `innermost`; `name` is the number of each span's name. A stack has its `MOST_NAMED` innermost.
    """
    swept = _swept(spans, points.select(*PLACE, "start_ns"))
    inner = swept.filter(pl.col("order") == 2).sort("point").select(_open_span()).to_series()
    row = inner.cast(pl.Int64).fill_null(-1).to_numpy()
    inside = parents(swept.filter(pl.col("order") == 1)).drop_nulls()
    span, parent = (inside[column].to_numpy() for column in ("span", "parent"))
    lasts = spans["start_ns"].to_numpy()[span] < spans["end_ns"].to_numpy()[parent]
    # The last: of row -1.
    name, outer = np.append(name, -1), np.full(spans.height + 1, -1, np.int64)
    outer[span[lasts]] = parent[lasts]
    levels = [name[row]]
    while len(levels) < MOST_NAMED and (row >= 0).any():
        row = outer[row]
        levels.append(name[row])
    number, first = numbered(levels)
    return [tuple(int(level[at]) for level in reversed(levels) if level[at] >= 0) for at in first], number
