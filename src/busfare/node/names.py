"""Names of nodes as people write them, and short forms for many components: `gpu[0-7]` stands for gpu0 to gpu7."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

__all__ = ["ALIASES", "MOST_COMPONENTS", "canonical", "expand", "suggestions"]

#: What people call a GPU → the node that has it, in its usual form.
ALIASES = {
    "p100": "dgx-1-p100",
    "v100": "dgx-1-v100",
    "a100": "dgx-a100",
    "a100-sxm": "dgx-a100",
    "h100": "h100-sxm",
    "h200": "h200-sxm",
    "b200": "dgx-b200",
    "grace-hopper": "gh200",
    "680": "gtx-680",
    "2080-ti": "rtx-2080-ti",
    "2080ti": "rtx-2080-ti",
    "3090": "rtx-3090",
    "4090": "rtx-4090",
    "5090": "rtx-5090",
    "7900-xtx": "rx-7900-xtx",
    "mi250": "mi250x",
    "mi300": "mi300x",
    "frontier": "mi250x",
}
_AMD = re.compile(r"mi\d|rx|vega|radeon|instinct|amd|gfx")

#: More than any node has; a file that asks for more is wrong or hostile.
MOST_COMPONENTS = 256

_RANGE = re.compile(r"^([^\[\]]*)\[(\d{1,4})-(\d{1,4})\]([^\[\]]*)$")


def canonical(text: str) -> str:
    """`text` as names are written: small letters, `-` for blanks and `_`, aliases replaced."""
    name = re.sub(r"[\s_]+", "-", text.strip().lower())
    return ALIASES.get(name, name)


def suggestions(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The names of `known` that are nearest to an unknown one, those of the same maker first; empty where none is near."""
    names = {alias: node for alias, node in ALIASES.items() if node in set(known)} | {n: n for n in known}
    near = difflib.get_close_matches(name, names, 3 * most, 0.5)
    near.sort(key=lambda one: bool(_AMD.match(names[one])) != bool(_AMD.match(name)))
    return list(dict.fromkeys(names[one] for one in near))[:most]


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
