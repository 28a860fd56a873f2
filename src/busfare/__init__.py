"""busfare: what data pays to ride the bus between CPU and GPU, what it would pay elsewhere, and what to change.

What `busfare.api` has is here, too: `busfare.read("run.sqlite").what_if(pin=True)`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from busfare.api import (
        BusfareError,
        Node,
        Recorder,
        Run,
        compare,
        diff,
        node,
        plan,
        plan_kv,
        plan_offload,
        project,
        read,
        record,
        report,
        what_if,
    )  # fmt: skip

__version__ = "0.1.0"
__all__ = [
    "BusfareError", "Node", "Recorder", "Run", "__version__", "compare", "diff", "node", "plan", "plan_kv", "plan_offload",
    "project", "read", "record", "report", "what_if",
]  # fmt: skip


class _Package(ModuleType):
    """Imports the API when it is first asked for, for the command line does without; and keeps its functions by their
    names, which are those of subpackages, too: importing one of these would put it in their place.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from busfare import api

        return getattr(api, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
