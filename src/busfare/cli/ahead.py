"""What a command will need, imported while its file is read."""

from __future__ import annotations

from importlib import import_module
from threading import Thread

__all__ = ["import_ahead"]


def import_ahead(*modules: str) -> None:
    """Imports modules in another thread, in this order. Whoever imports one meanwhile waits for it, as ever.

    Readers let others run while native code reads. Should one fail to import, whoever needs it is told.
    """

    def imported() -> None:
        for module in modules:
            try:
                import_module(module)
            except Exception:
                return

    if modules:
        Thread(target=imported, name="import ahead").start()
