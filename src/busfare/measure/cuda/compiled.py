"""CUDA source compiled at run time, for one GPU: NVRTC needs no toolkit on the user's machine."""

from __future__ import annotations

from collections.abc import Sequence

from cuda.bindings import nvrtc

from busfare.errors import BusfareError, InputError

__all__ = ["compiled"]

#: A compiler that stumbles once tends to go on; what comes first says what is wrong.
_MOST_LOG = 1500


def compiled(source: str, name: str, capability: tuple[int, int], options: Sequence[str] = ()) -> bytes:
    """The machine code of `source` for a compute capability.

    Raises InputError with the compiler's log where it refuses the source, and BusfareError where it cannot start.
    """
    code, program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise BusfareError(f"NVRTC could not start ({code.name}); install the nvidia-cuda-nvrtc package")
    said = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}".encode(), *(o.encode() for o in options)]
    try:
        (code,) = nvrtc.nvrtcCompileProgram(program, len(said), said)
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
