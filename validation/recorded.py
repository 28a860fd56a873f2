"""Programs of `validation/pairs` as they were measured and recorded on one machine."""

from __future__ import annotations

import gc
import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from stored import RESULTS, node_file, unpacked

from busfare.cli import main

__all__ = ["Machine", "NoAnswerError", "busfare", "machines"]


class NoAnswerError(Exception):
    """A prediction or a measurement that is not there; the message says why."""


@dataclass(frozen=True)
class Machine:
    """One GPU and its host: `archive` of `results/`, as `pairs/h100`."""

    archive: str

    @property
    def name(self) -> str:
        return Path(self.archive).name

    @property
    def gpu(self) -> str:
        """`h100` of `h100-2026-11-23-0426`."""
        return self.name.partition("-")[0]

    @cached_property
    def times(self) -> dict[str, Any]:
        return dict(json.loads((unpacked(self.archive) / "times.json").read_text("utf-8")))

    @property
    def node(self) -> str:
        """The file of the node that was probed there just before."""
        probe = self.times["probe"]
        return node_file(probe) if probe else str(unpacked(self.archive) / "node.toml")

    def processes(self, program: str, variant: str) -> list[float]:
        """Seconds of the measured region, unrecorded: the median of each process. Raises NoAnswerError for none."""
        told = self.times["programs"].get(program)
        if told is None:
            raise NoAnswerError(f"{program} was not run on {self.name}")
        if variant not in told["variants"]:
            raise NoAnswerError(f"{variant} failed: {'; '.join(told['failures']) or 'no reason given'}")
        return [median(process) for process in told["variants"][variant]["seconds"]]

    def seconds(self, program: str, variant: str) -> float:
        """The median of all its regions. Raises NoAnswerError where there are none."""
        self.processes(program, variant)
        return float(self.times["programs"][program]["variants"][variant]["median_seconds"])

    def recording(self, program: str, name: str) -> Path:
        """Raises NoAnswerError where it is missing."""
        path = unpacked(self.archive) / f"{program}-{name}.bf"
        if not path.exists():
            raise NoAnswerError(f"no recording {path.name}")
        return path


def machines(folder: str) -> list[Machine]:
    """Those of `results/FOLDER`."""
    return [
        Machine(f"{folder}/{path.name.removesuffix('.tar.xz')}")
        for path in sorted((RESULTS / folder).glob("*.tar.xz"))
    ]


def busfare(*arguments: str) -> dict[str, Any]:
    """What a command of busfare answers with --json. Raises NoAnswerError where it fails."""
    out, errors, status = io.StringIO(), io.StringIO(), 0
    given = ["busfare", *arguments, "--json"]
    with patch.object(sys, "argv", given), redirect_stdout(out), redirect_stderr(errors):
        try:
            main()
        except SystemExit as stop:
            status = stop.code
    gc.unfreeze()
    if status:
        raise NoAnswerError(f"busfare {arguments[0]}: {' '.join(errors.getvalue().split())[-300:]}")
    return dict(json.loads(out.getvalue()))
