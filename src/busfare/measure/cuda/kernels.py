"""CUDA source compiled at run time (NVRTC needs no toolkit on the user's machine), and a plain way to launch it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib import resources
from typing import Any

from cuda.bindings import nvrtc

from busfare.errors import BusfareError, InputError
from busfare.measure.cuda.driver import checked, driver

__all__ = ["LONG", "POINTER", "Kernels", "compiled"]

POINTER, LONG = ctypes.c_void_p, ctypes.c_ulonglong
_NAMES = ("block", "fill", "poison", "check", "differ", "read16", "copy16", "stream16", "nothing")
#: A compiler that stumbles once tends to go on; what comes first says what is wrong.
_MOST_LOG = 1500


class Kernels:
    """The compiled kernels of `kernels.cu` in the current context."""

    def __init__(self, capability: tuple[int, int], multiprocessors: int) -> None:
        source = resources.files("busfare.measure.cuda").joinpath("kernels.cu").read_text("utf-8")
        code = compiled(source, "kernels.cu", capability)
        self._module = checked(driver.cuModuleLoadData(code), "cuModuleLoadData")
        self._functions = {
            name: checked(driver.cuModuleGetFunction(self._module, name.encode()), "cuModuleGetFunction")
            for name in _NAMES
        }
        self.multiprocessors = multiprocessors

    def launch(
        self, name: str, stream: Any, values: Sequence[Any] = (), kinds: Sequence[Any] = (),
        blocks: int = 1, threads: int = 1,
    ) -> None:  # fmt: skip
        """Launches kernel `name` with its arguments and their ctypes."""
        arguments = (tuple(values), tuple(kinds)) if values else 0
        function = self._functions[name]
        answer = driver.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, 0)
        checked(answer, f"cuLaunchKernel({name})")

    def launch_wide(self, name: str, stream: Any, values: Sequence[Any], kinds: Sequence[Any]) -> None:
        """The same on the whole GPU."""
        self.launch(name, stream, values, kinds, 4 * self.multiprocessors, 256)

    def on_bytes(self, name: str, stream: Any, address: int, *sizes: int) -> None:
        """Launches a kernel of (pointer, sizes …) on the whole GPU."""
        self.launch_wide(name, stream, (address, *sizes), (POINTER, *(LONG for _ in sizes)))


def compiled(source: str, name: str, capability: tuple[int, int], options: Sequence[str] = ()) -> bytes:
    """The machine code of `source` for a compute capability.

    Raises InputError with the compiler's log where it refuses the source, and BusfareError where it cannot start.
    """
    code, program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise BusfareError(f"NVRTC could not start ({code.name}); install the nvidia-cuda-nvrtc package")
    flags = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}".encode(), *(o.encode() for o in options)]
    try:
        (code,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise InputError(f"{name}: NVRTC refused it ({code.name}): {_log(program)}")
        _, size = nvrtc.nvrtcGetCUBINSize(program)
        cubin: bytes = b" " * size
        nvrtc.nvrtcGetCUBIN(program, cubin)
        return cubin
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _log(program: object) -> str:
    """The compiler's log, a '|' between its lines: an error of ours is one line."""
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    lines = [line.strip() for line in log.rstrip(b"\0").decode(errors="replace").splitlines()]
    text = " | ".join(line for line in lines if line)
    return text if len(text) <= _MOST_LOG else f"{text[:_MOST_LOG]} …"
