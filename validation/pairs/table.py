"""Reads pairs.toml and unseen.toml: the programs, the pairs, and what each change is advised by."""

from __future__ import annotations

from pathlib import Path

import msgspec

FOLDER = Path(__file__).parent
_LIBRARIES = {"torch": "PyTorch", "jax": "JAX", "cupy": "CuPy"}


class Program(msgspec.Struct, frozen=True):
    """`fingerprint`: `before` is recorded once more with hashes of what it copies. `threads` that work in the region."""

    source: str
    variants: tuple[str, ...]
    fingerprint: bool = False
    threads: int = 1

    @property
    def recordings(self) -> tuple[str, ...]:
        return ("before", "before-fingerprint") if self.fingerprint else ("before",)

    @property
    def library(self) -> str:
        """What a user would call the program's kind: CUDA, CuPy, JAX or PyTorch."""
        if not self.source.endswith(".py"):
            return "CUDA"
        text = (FOLDER / self.source).read_text("utf-8")
        return next(name for module, name in _LIBRARIES.items() if f"import {module}\n" in text)


class Pair(msgspec.Struct, frozen=True):
    """`change` is empty for combinations; `beyond` is the variant on top of which it gains, where that is not `before`;
    `origin` and `target` name GPUs where the change is the node.
    """

    program: str
    after: str
    options: tuple[str, ...]
    change: str = ""
    beyond: str = "before"
    before: str = "before"
    recording: str = "before"
    origin: str = msgspec.field(name="from", default="")
    target: str = msgspec.field(name="to", default="")


class Plan(msgspec.Struct, frozen=True):
    """`findings`: change → ids of findings that advise it."""

    programs: dict[str, Program]
    pair: tuple[Pair, ...]
    findings: dict[str, tuple[str, ...]]


def read_plan(name: str) -> Plan:
    """Raises ValueError where a pair names a program, variant, recording or change that the file does not have."""
    plan = msgspec.toml.decode((FOLDER / name).read_bytes(), type=Plan)
    for pair in plan.pair:
        where = f"{name}: pair {pair.program} {pair.before} → {pair.after}"
        program = plan.programs.get(pair.program)
        if program is None:
            raise ValueError(f"{where}: no such program; add [programs.{pair.program}]")
        for variant in {pair.before, pair.after, pair.beyond} - set(program.variants):
            raise ValueError(f"{where}: {variant} is not among its variants {', '.join(program.variants)}")
        if pair.recording not in program.recordings:
            raise ValueError(
                f"{where}: recording {pair.recording} is not made; it has {', '.join(program.recordings)}"
            )
        if pair.change and pair.change not in plan.findings:
            raise ValueError(f"{where}: change {pair.change} is not under [findings]")
    return plan
