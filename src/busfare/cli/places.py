"""Where commands write nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from busfare.errors import InputError
from busfare.files import check_place
from busfare.trace import may_be_trace


def keep_apart(output: Path, folder: bool, inputs: Iterable[Path]) -> None:
    """Raises InputError where nothing can be written at `output`, which may be a `folder`, or where that would change one of
    the `inputs`.
    """
    for source in inputs:
        try:
            touches = _touches(output, source)
        except (OSError, ValueError):  # one of them is not there, and not harmed
            continue
        if touches:
            raise InputError(f"{output}: overlaps the input {source}; name another place")
    check_place(output, folder)


def _touches(output: Path, source: Path) -> bool:
    """Whether writing `output` would change `source`, which may be a folder of tables or of traces."""
    read = source.stat()
    if os.path.samestat(output.stat(), read):
        return True
    real, inside = Path(os.path.realpath(output)), Path(os.path.realpath(source))
    if real.is_dir():
        return inside.is_relative_to(real) or any(os.path.samestat(f.stat(), read) for f in os.scandir(real))
    return inside.is_dir() and real.is_relative_to(inside) and may_be_trace(real)
