"""Where in the program a call is made: the innermost frame of a stack that is the program's own, not a library's."""

from __future__ import annotations

import re

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
#: CUDA's functions, also where the program's own file holds them: linked in, inlined, or the stand-in of a kernel.
LIBRARY_FUNCTIONS = re.compile(
    r"^(\S+ )?_*(cuda|hip|nvtx)[A-Z]\w*(<.*>)?(\(|$)|__device_stub__|__cudart|^_start$|^0x[0-9a-f]+$"
)
#: Longer names of functions, of templates mostly, are cut.
LONGEST = 120
FRAME = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): (?P<function>.+)$", re.DOTALL)
MODULE = re.compile(r"^nn\.Module: (?P<module>.+?)(_\d+)?$", re.DOTALL)


def of_python(frames: str) -> str | None:
    """The site in frames as PyTorch's profiler writes them, innermost first: `train.py(42): load;train.py(60): <module>`.

    None where none is the program's.
    """
    for frame in frames.split(";"):
        found = FRAME.match(frame.strip())
        if found and not is_library(found["file"]):
            return placed(found["function"], found["file"], found["line"])
    return None


def module_of(frame: str) -> str | None:
    """The class of the module that PyTorch's profiler names: `Linear` of `nn.Module: Linear_0`."""
    found = MODULE.match(frame)
    return found and found["module"]


def is_library(file: str) -> bool:
    """Whether a source file is a library's, by its path."""
    return file.startswith(LIBRARY_PACKAGES) or any(part in file for part in LIBRARY_PATHS)


def is_library_module(module: str) -> bool:
    """Whether a program or shared library, by its path, is no part of the program itself."""
    name = _name_of(module)
    return not name or name.startswith(LIBRARY_MODULES) or is_library(module)


def of_native(function: str, module: str, file: str = "", line: int = 0) -> str | None:
    """The site of a frame in a program or library, by its path: `train.cu:42 step()`, or `step() (train)` where no line is
    known. None where it is a library's.
    """
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
