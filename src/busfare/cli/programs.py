"""What the commands do that start other programs: record, try, and bench ft|mg, which hand their options to the runner of
`hybrid/`, a project that needs nothing of this.
"""

import os
import sys
from pathlib import Path
from typing import Any

import click

import busfare
from busfare import api, questions
from busfare.cli.output import answer
from busfare.errors import InputError
from busfare.measure.record import record as run_recorded
from busfare.nodes import Node, load_node
from busfare.show.notebook import Answer

VARIABLE = "BUSFARE_NAS_RUNNER"
#: What the runner's messages begin with.
CALLED = "NAS_BENCH_CALLED"
#: Where `cmake --install` puts the runner, and where it is beside this source.
PLACES = (
    *(Path(prefix, "share/hybrid/run/nas_bench") for prefix in (sys.prefix, "/usr/local", "/usr")),
    *(Path(folder).parents[1] / "hybrid/run/nas_bench" for folder in busfare.__path__),
)


def record(command: tuple[str, ...], output: str, **given: Any) -> None:
    raise click.exceptions.Exit(run_recorded(command, output, questions.Record.of(**given)))


def try_(command: tuple[str, ...], keep: Path | None, json: bool, html: Path | None, **given: Any) -> None:
    result = api.try_(command, **given)
    if keep:
        with keep.open("a") as lines:
            lines.write(result.to_json() + "\n")
    answer(result, Answer.document, json, html)
    if result.interrupted or result.altered:
        raise click.exceptions.Exit(130 if result.interrupted else 1)


def run_nas(node: str | None, runner: Path | None, json: bool, **given: Any) -> None:
    arguments = [f"--{name}={value}" for name, value in given.items() if value is not None]
    if node:
        arguments += [f"--rates={rates(load_node(node))}", f"--rates-source=the parameters of {node}"]
    arguments += ["--json"] if json else []
    os.environ[CALLED] = "busfare"
    benchmark = str(click.get_current_context().command.name)
    # In place of this process: Ctrl-C is the runner's, which ends its programs.
    os.execv(sys.executable, [sys.executable, str(_runner(runner)), benchmark, *arguments])


def rates(node: Node) -> str:
    """Bytes per second of pinned copies each way beside copies the other way, and of GPU memory: `LINK,MEMORY`."""
    link, duplex = [], node.contention().both
    for direction, flow in (("h2d", "read"), ("d2h", "write")):
        curve = node.curve(direction, "pinned")
        alone = 1 / curve.long_gap_per_byte_s if curve else node.host_path(0).bandwidth(flow)  # type: ignore[arg-type]
        link.append(alone * duplex.of(direction))
    memory = node.gpu(0).memory_bandwidth_bytes_per_s
    if memory is None:
        raise InputError(
            f"{node.name}: memory_bandwidth_bytes_per_s of its GPU is missing, but the kernel limit needs it; add it"
        )
    return f"{min(link)!r},{memory!r}"


def _runner(given: Path | None) -> Path:
    """Raises InputError where there is none."""
    named = given or Path(os.environ.get(VARIABLE, ""))
    places = PLACES if named == Path() else (named,)
    runner = next((place for place in places if (place / "__main__.py").is_file()), None)
    if runner is None:
        raise InputError(
            f"{places[-1]}: no runner of NAS FT and MG; install hybrid/ (hybrid/README.md), or name it with --runner"
        )
    return runner
