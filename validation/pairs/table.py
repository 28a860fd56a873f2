"""Reads pairs.toml and its like: the programs, the pairs, and what each change is advised by.

Of most programs only what they recorded is kept (`results/`); the others, whose source is in this folder, show the method.
"""

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
    """`library`: what a user would call its kind. `fingerprint`: `before` is recorded once more with hashes of what it
    copies; `threads`: and once by an earlier version, which also recorded which thread woke which.
    """

    name: str
    library: str
    fingerprint: bool
    threads: bool = False

    @cached_property
    def source(self) -> Path | None:
        """Where it is kept."""
        return next(iter(sorted(FOLDER.glob(f"{self.name}.*"))), None)

    @cached_property
    def variants(self) -> tuple[str, ...]:
        """Of a program whose source is kept."""
        return variants_of(self.source.read_text("utf-8")) if self.source else ()

    @property
    def recordings(self) -> tuple[str, ...]:
        more = {"before-threads": self.threads, "before-fingerprint": self.fingerprint}
        return ("before", *(name for name, wanted in more.items() if wanted))


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
    """`libraries`: by program. `findings`: change → ids of findings that advise it."""

    pair: tuple[Pair, ...]
    libraries: dict[str, str] = msgspec.field(name="programs")
    findings: dict[str, tuple[str, ...]] = {}
    fingerprinted: frozenset[str] = frozenset()
    threaded: frozenset[str] = frozenset()

    @property
    def programs(self) -> dict[str, Program]:
        return {
            name: Program(name, library, name in self.fingerprinted, name in self.threaded)
            for name, library in self.libraries.items()
        }


def read_plan(name: str) -> Plan:
    """Raises ValueError where a pair names a program, variant, recording or change that is not there."""
    plan = msgspec.toml.decode((FOLDER / name).read_bytes(), type=Plan)
    for pair in plan.pair:
        where = f"{name}: pair {pair.program} {pair.before} → {pair.after}"
        program = plan.programs.get(pair.program)
        if program is None:
            raise ValueError(f"{where}: no such program; add it to programs")
        variants = {pair.before, pair.after, pair.beyond} if program.source else set()
        for variant in variants - set(program.variants):
            raise ValueError(f"{where}: {variant} is not among its variants {', '.join(program.variants)}")
        if pair.recording not in program.recordings:
            raise ValueError(
                f"{where}: recording {pair.recording} is not made; it has {', '.join(program.recordings)}"
            )
        if pair.change and pair.change not in plan.findings:
            raise ValueError(f"{where}: change {pair.change} is not under [findings]")
    return plan
