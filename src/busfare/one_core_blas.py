"""numpy without the threads of its linear algebra, which a report has no use for and which take long to start."""

from __future__ import annotations

import os

__all__ = ["import_numpy"]

THREADS = "OPENBLAS_NUM_THREADS"


def import_numpy() -> None:
    """Imports numpy so, if nobody has imported it and the user has not said how many threads to start."""
    if THREADS in os.environ:
        return
    os.environ[THREADS] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[THREADS]  # programs that are started from here are not to hear of it
