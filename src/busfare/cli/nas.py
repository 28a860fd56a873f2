"""`busfare bench ft|mg`: hands its options to the runner of `hybrid/`, a project of its own that needs nothing of this."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import busfare
from busfare.cli.answer import option
from busfare.errors import InputError
from busfare.output import PATH, as_html, as_json

if TYPE_CHECKING:
    from busfare.nodes import Node

__all__ = ["nas_command"]

VARIABLE = "BUSFARE_NAS_RUNNER"
#: What the runner's messages begin with.
CALLED = "NAS_BENCH_CALLED"
#: Where `cmake --install` puts the runner, and where it is beside this source.
PLACES = (
    *(Path(prefix, "share/hybrid/run/nas_bench") for prefix in (sys.prefix, "/usr/local", "/usr")),
    *(Path(folder).parents[1] / "hybrid/run/nas_bench" for folder in busfare.__path__),
)


def nas_command(benchmark: str, what: str) -> click.Command:
    """The command of a benchmark, `ft` or `mg`."""

    @click.command(benchmark, help=what)
    @option("--class CLASS", "S, W, A, B, C or D; C with a GPU, else A.")
    @option("--ranks N,…", "Numbers of ranks; else what the machine has.")
    @option("--modes MODE,…", "cpu, single, multiple, multiple-mps, funneled; else all.")
    @option("--build DIR", "Where the programs of hybrid/ are.", type=PATH)
    @option("--timeout S", "A run may take so many seconds; else 600.", type=float)
    @option("--from FILE", "Show what an earlier --json wrote.", type=PATH)
    @option("--node NODE", "Take the limit from its parameters; else this GPU is measured.")
    @option("--runner DIR", f"nas_bench of hybrid/; else ${VARIABLE}.", type=PATH)
    @as_json
    @as_html
    def run(node: str | None, runner: Path | None, json: bool, **given: Any) -> None:
        arguments = [f"--{name}={value}" for name, value in given.items() if value is not None]
        if node:
            from busfare.nodes import load_node

            arguments += [f"--rates={rates(load_node(node))}", f"--rates-source=the parameters of {node}"]
        arguments += ["--json"] if json else []
        os.environ[CALLED] = "busfare"
        # In place of this process: Ctrl-C is the runner's, which ends its programs.
        os.execv(sys.executable, [sys.executable, str(_runner(runner)), benchmark, *arguments])

    return run


def rates(node: Node) -> str:
    """Bytes per second of pinned copies each way beside copies the other way, and of GPU memory: `LINK,MEMORY`."""
    link, both = [], node.contention().both
    for direction, flow in (("h2d", "read"), ("d2h", "write")):
        curve = node.curve(direction, "pinned")
        alone = 1 / curve.long_gap_per_byte_s if curve else node.host_path(0).bandwidth(flow)  # type: ignore[arg-type]
        link.append(alone * both.of(direction))
    memory = node.gpu(0).memory_bandwidth_bytes_per_s
    if memory is None:
        raise InputError(
            f"{node.name}: no memory_bandwidth_bytes_per_s of its GPU, which the kernels' limit needs; add it"
        )
    return f"{min(link)!r},{memory!r}"


def _runner(given: Path | None) -> Path:
    """Raises InputError where there is none."""
    named = given or Path(os.environ.get(VARIABLE, ""))
    places = PLACES if named == Path() else (named,)
    runner = next((place for place in places if (place / "__main__.py").is_file()), None)
    if runner is None:
        raise InputError(
            f"{places[-1]}: no runner of NAS FT and MG; install hybrid/ (hybrid/README.md), or name it by --runner"
        )
    return runner
