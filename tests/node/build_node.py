"""Node files for tests, of two GPUs before one memory."""

import json
from pathlib import Path
from typing import Any

from busfare.nodes import Node, load_node


def tables(name: str, rows: list[dict[str, Any]]) -> str:
    """An array of tables, as TOML."""
    lines = [[f"[[{name}]]", *(f"{key} = {json.dumps(value)}" for key, value in row.items())] for row in rows]
    return "\n".join([line for table in lines for line in table]) + "\n"


def two_gpus(file: Path, *, generation: int = 3, switched: bool = False, **memory: float) -> Node:
    """A file of two GPUs behind one switch with one uplink, or each on a port of its own; `memory`: its keys, of rates of
    several GPUs at once where they begin with `at_once`.
    """
    at_once = {k.partition(".")[2]: memory.pop(k) for k in list(memory) if k.startswith("at_once.")}
    kinds = {"cpu0": "cpu", "switch0": "switch", "gpu0": "gpu", "gpu1": "gpu"}
    parts = [{"kind": kind, "name": name} for name, kind in kinds.items()]
    text = 'name = "box"\n' + tables("component", [*parts, {"kind": "memory", "name": "memory0", **memory}])
    if at_once:
        text += "[component.at_once]\n" + "".join(f"{key} = {rate}\n" for key, rate in at_once.items())
    port = "switch0" if switched else "cpu0"
    pcie = {"kind": "pcie", "generation": generation, "lanes": 16}
    links = [pcie | {"between": ends} for ends in (["cpu0", "switch0"], [port, "gpu0"], [port, "gpu1"])]
    text += tables("link", [{"kind": "memory", "between": ["memory0", "cpu0"]}, *links])
    file.write_text(text, encoding="utf-8")
    return load_node(str(file))
