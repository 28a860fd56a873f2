"""busfare: what transfers between CPU and GPU cost, what they would cost elsewhere, and what to change.

What `busfare.api` has is here, too: `busfare.read("run.sqlite").what_if(pin=True)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from busfare.api import *  # noqa: F403

__version__ = "0.1.0"
__all__ = [  # noqa: F405
    "BusfareError", "Node", "Recorder", "Run", "__version__", "compare", "diff", "node", "plan", "plan_kv", "plan_offload",
    "project", "read", "record", "report", "try_", "what_if",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Imports the API when a name of it is first used: the command line starts without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from busfare import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted(__all__)
