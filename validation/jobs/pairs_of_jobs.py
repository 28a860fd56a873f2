"""The pairs of `jobs.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Pair:
    """A job and what changes in it, as words of `what-if`. `steps`: of a measured region. `unseen`: see `jobs.toml`."""

    name: str
    change: tuple[str, ...]
    steps: int
    over: str = "nccl"
    unseen: bool = False


PAIRS = {
    name: Pair(name, tuple(keys.pop("change")), **keys)
    for name, keys in tomllib.loads(Path(__file__).with_name("jobs.toml").read_text("utf-8")).items()
}
