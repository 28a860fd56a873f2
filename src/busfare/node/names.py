"""Short forms for many of a kind: `gpu[0-7]` stands for gpu0 to gpu7."""

from __future__ import annotations

import re

__all__ = ["MOST_COMPONENTS", "expand"]

#: More than any node has; a file that asks for more is wrong or hostile.
MOST_COMPONENTS = 256

_RANGE = re.compile(r"^([^\[\]]*)\[(\d{1,4})-(\d{1,4})\]([^\[\]]*)$")


def expand(name: str) -> list[str]:
    """The names that `name` stands for: itself, or one a number of its range. Raises ValueError with the
    mend.
    """
    found = _RANGE.match(name)
    if found is None:
        if "[" in name or "]" in name:
            raise ValueError(f"{name!r} is no range; write gpu[0-7] for gpu0 to gpu7")
        return [name]
    before, first, last, after = found[1], int(found[2]), int(found[3]), found[4]
    if last < first:
        raise ValueError(f"{name!r} runs backwards; write the smaller number first")
    if last - first >= MOST_COMPONENTS:
        raise ValueError(f"{name!r} is over the limit of {MOST_COMPONENTS} components")
    return [f"{before}{n}{after}" for n in range(first, last + 1)]
