"""A thread bound to the processors next to a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from busfare.measure.device import UnavailableError
from busfare.measure.host import processors

__all__ = ["bound_to"]


@contextmanager
def bound_to(told: str | None) -> Iterator[None]:
    """Within, this thread runs on processors of the list `told` ('0-15,32') alone: it makes and moves memory there.

    Raises UnavailableError where it may not.
    """
    try:
        before = os.sched_getaffinity(0)
        wanted = processors(told) & before
        if not wanted:
            raise UnavailableError(
                f"none of the processors next to the GPU ({told or 'unknown'}) may be used"
            )
        os.sched_setaffinity(0, wanted)
    except (AttributeError, OSError) as error:
        raise UnavailableError(f"this thread cannot be bound to processors ({error})") from None
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
