"""One word of the user's → a node: a catalogue name, a TOML file, or a link in short."""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from pathlib import Path

from busfare.errors import InputError
from busfare.nodes.file import MOST_BYTES, catalogue_names, catalogue_text, decode
from busfare.nodes.gpus import bare_node, gpu_names, gpu_of_device_name, node_of_gpu
from busfare.nodes.graph import Node
from busfare.nodes.link import FORMS, link_in_short
from busfare.nodes.toml import read_text

__all__ = ["ALIASES", "load_node"]

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


def load_node(text: str | Node) -> Node:
    """The node that `text` names: a name of the catalogue or alias, a link in short (`pcie:4x16`), a TOML file at that path,
    or a GPU (`rtx-3060-laptop`).

    Raises InputError with the nearest names, or with the file, line, key and mend.
    """
    if isinstance(text, Node):  # as Python may give it where the command line gives words
        return text
    name = _canonical(text)
    if name in catalogue_names():
        return _of_catalogue(name)
    if (link := link_in_short(text.strip())) is not None:
        return bare_node(link)
    if text.endswith(".toml") or "/" in text:
        return decode(read_text(text, "node file", MOST_BYTES), text)
    if (gpu := gpu_of_device_name(text)) is not None:
        return _of_catalogue(gpu.node) if gpu.node else node_of_gpu(gpu)
    if _is_there(text):
        found = "a folder" if Path(text).is_dir() else "a file whose name does not end in .toml"
        raise InputError(
            f"node {text[:80]!r}: {found}; give a node file (.toml), or a name that `busfare nodes` lists"
        )
    near = _suggestions(name)
    mend = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(catalogue_names())}"
    raise InputError(
        f"node {text[:80]!r}: not in the catalogue, no .toml file, no link in short ({FORMS}); {mend}"
    )


def _is_there(path: str) -> bool:
    try:
        return bool(path) and Path(path).exists()
    except (OSError, ValueError):  # too long for a name, or not one
        return False


@lru_cache(maxsize=64)
def _of_catalogue(name: str) -> Node:
    return decode(catalogue_text(name), f"{name}.toml")


def _canonical(text: str) -> str:
    """`text` as names are written: small letters, `-` for blanks and `_`, aliases replaced."""
    name = re.sub(r"[\s_]+", "-", text.strip().lower())
    return ALIASES.get(name, name)


def _suggestions(name: str, most: int = 3) -> list[str]:
    """The names that are nearest to an unknown one, those of the same maker first; empty where none is near."""
    names = ALIASES | {known: known for known in (*catalogue_names(), *gpu_names())}
    near = difflib.get_close_matches(name, names, 3 * most, 0.6)
    near.sort(key=lambda one: bool(_AMD.match(names[one])) != bool(_AMD.match(name)))
    return list(dict.fromkeys(names[one] for one in near))[:most]
