"""Reads pairs.toml and its like: the programs, the pairs, and what each change is advised by."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

import msgspec

FOLDER = Path(__file__).parent


def variants_of(text: str) -> tuple[str, ...]:
    """Those that the comment at the head of a program lists, a line each with two spaces behind it; first `before`."""
    head = text.split('"""')[1] if text.startswith('"""') else text.partition("\n#include")[0]
    return tuple(re.findall(r"^(?:// *)?([a-z0-9-]+) {2,}\S", head, flags=re.M))


class Program(msgspec.Struct, frozen=True, dict=True):
    """`fingerprint`: `before` is recorded once more with hashes of what it copies; `threads`: and once with who woke whom;
    `first_use`: and once with the host's first touches.
    """

    source: str
    fingerprint: bool
    threads: bool = False
    first_use: bool = False

    @cached_property
    def text(self) -> str:
        return (FOLDER / self.source).read_text("utf-8")

    @property
    def variants(self) -> tuple[str, ...]:
        return variants_of(self.text)

    @property
    def recordings(self) -> tuple[str, ...]:
        more = {
            "before-threads": self.threads,
            "before-fingerprint": self.fingerprint,
            "before-first-use": self.first_use,
        }
        return ("before", *(name for name, wanted in more.items() if wanted))

    @property
    def library(self) -> str:
        """What a user would call the program's kind."""
        known = {"import torch\n": "PyTorch", "import jax\n": "JAX", "import cupy\n": "CuPy"}
        return next((name for words, name in known.items() if words in self.text), "CUDA")


class Pair(msgspec.Struct, frozen=True):
    """`change` is empty for combinations; `beyond` is the variant on top of which it gains, where that is not `before`;
    `fingerprints` the recording that tells what copies carry, where the one that is changed does not; `origin` and `target`
    name GPUs where the change is the node.
    """

    program: str
    after: str
    options: tuple[str, ...]
    change: str = ""
    beyond: str = "before"
    before: str = "before"
    recording: str = "before"
    fingerprints: str = ""
    origin: str = msgspec.field(name="from", default="")
    target: str = msgspec.field(name="to", default="")


class Plan(msgspec.Struct, frozen=True):
    """`findings`: change → ids of findings that advise it."""

    pair: tuple[Pair, ...]
    sources: tuple[str, ...] = msgspec.field(name="programs")
    findings: dict[str, tuple[str, ...]] = {}
    fingerprinted: frozenset[str] = frozenset()
    threaded: frozenset[str] = frozenset()
    first_used: frozenset[str] = frozenset()

    @property
    def programs(self) -> dict[str, Program]:
        names = (Path(source).stem for source in self.sources)
        return {
            name: Program(source, name in self.fingerprinted, name in self.threaded, name in self.first_used)
            for name, source in zip(names, self.sources, strict=True)
        }


def read_plan(name: str) -> Plan:
    """Raises ValueError where a pair names a program, variant, recording or change that is not there."""
    plan = msgspec.toml.decode((FOLDER / name).read_bytes(), type=Plan)
    for pair in plan.pair:
        where = f"{name}: pair {pair.program} {pair.before} → {pair.after}"
        program = plan.programs.get(pair.program)
        if program is None:
            raise ValueError(f"{where}: no such program; add its source to programs")
        for variant in {pair.before, pair.after, pair.beyond} - set(program.variants):
            raise ValueError(f"{where}: {variant} is not among its variants {', '.join(program.variants)}")
        if pair.recording not in program.recordings:
            raise ValueError(
                f"{where}: recording {pair.recording} is not made; it has {', '.join(program.recordings)}"
            )
        if pair.change and pair.change not in plan.findings:
            raise ValueError(f"{where}: change {pair.change} is not under [findings]")
    return plan
