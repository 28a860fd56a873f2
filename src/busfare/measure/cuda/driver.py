"""The driver API with its return codes turned into exceptions."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from busfare.errors import BusfareError

__all__ = ["CudaError", "checked", "driver"]


class CudaError(BusfareError):
    """A CUDA call failed; `code` is the name of the driver's result."""

    def __init__(self, code: str, call: str) -> None:
        super().__init__(f"CUDA call {call} failed with {code}; see the driver's log (dmesg)")
        self.code = code


def checked(answer: tuple[Any, ...], call: str = "") -> Any:
    """What a driver call returned besides its code: None, a value or a tuple. Raises CudaError."""
    code, *rest = answer
    if code != driver.CUresult.CUDA_SUCCESS:
        raise CudaError(code.name, call)
    if not rest:
        return None
    return rest[0] if len(rest) == 1 else tuple(rest)
