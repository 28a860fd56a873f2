"""The kernels of `kernels.cu`, compiled for one GPU, and a plain way to launch them."""

from __future__ import annotations

import ctypes
from importlib import resources
from typing import Any

from busfare.measure.cuda.compiled import compiled
from busfare.measure.cuda.driver import checked, driver

__all__ = ["Kernels"]

_NAMES = ("block", "fill", "poison", "check", "differ", "read16", "copy16", "stream16", "pack16", "nothing")


class Kernels:
    """The compiled kernels of the current context."""

    def __init__(self, capability: tuple[int, int], multiprocessors: int) -> None:
        self._module = checked(driver.cuModuleLoadData(_compiled(capability)), "cuModuleLoadData")
        self._functions = {
            name: checked(driver.cuModuleGetFunction(self._module, name.encode()), "cuModuleGetFunction")
            for name in _NAMES
        }
        self.processors = multiprocessors

    def launch(
        self,
        name: str,
        stream: Any,
        values: tuple[Any, ...] = (),
        kinds: tuple[Any, ...] = (),
        blocks: int = 1,
        threads: int = 1,
    ) -> None:
        """Launches kernel `name` with its arguments and their ctypes."""
        arguments = (values, kinds) if values else 0
        function = self._functions[name]
        checked(
            driver.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, 0),
            f"cuLaunchKernel({name})",
        )

    def launch_wide(self, name: str, stream: Any, values: tuple[Any, ...], kinds: tuple[Any, ...]) -> None:
        """The same on the whole GPU."""
        self.launch(name, stream, values, kinds, 4 * self.processors, 256)

    def on_bytes(self, name: str, stream: Any, address: int, *sizes: int) -> None:
        """Launches a kernel of (pointer, sizes …) on the whole GPU."""
        kinds = (ctypes.c_void_p, *(ctypes.c_ulonglong for _ in sizes))
        self.launch_wide(name, stream, (address, *sizes), kinds)


def _compiled(capability: tuple[int, int]) -> bytes:
    source = resources.files("busfare.measure.cuda").joinpath("kernels.cu").read_text("utf-8")
    return compiled(source, "kernels.cu", capability)
