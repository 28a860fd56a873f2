"""Reads pairs.toml: the programs, the pairs and what each change is advised by."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["FILE", "Pair", "Plan", "Program", "read_plan"]

FILE = Path(__file__).with_name("pairs.toml")
_LIBRARIES = {"torch": "PyTorch", "jax": "JAX", "cupy": "CuPy"}


@dataclass(frozen=True)
class Program:
    name: str
    source: str
    variants: tuple[str, ...]
    #: Record `before` once more with the hashes of what it copies, which finding repeated data needs.
    fingerprint: bool = False
    #: Threads that work at once, or by turns, in the measured region.
    threads: int = 1

    @property
    def is_python(self) -> bool:
        return self.source.endswith(".py")

    @property
    def library(self) -> str:
        """What a user would call the program's kind: CUDA, CuPy, JAX or PyTorch."""
        if not self.is_python:
            return "CUDA"
        text = FILE.with_name(self.source).read_text()
        return next(name for module, name in _LIBRARIES.items() if f"import {module}\n" in text)


@dataclass(frozen=True)
class Pair:
    """`change` is empty for combinations; `beyond` is the variant on top of which it gains, where that is not `before`;
    `origin` and `target` name GPUs where the change is the node.
    """

    program: str
    after: str
    options: tuple[str, ...]
    change: str = ""
    beyond: str = ""
    before: str = "before"
    recording: str = "before"
    origin: str = ""
    target: str = ""


@dataclass(frozen=True)
class Plan:
    programs: dict[str, Program]
    pairs: tuple[Pair, ...]
    #: Change → ids of findings that advise it.
    findings: dict[str, tuple[str, ...]]
    #: GPU → the node where its recordings were made; command → the option that says so.
    recorded_on: dict[str, str] = field(default_factory=dict)
    recorded_on_option: dict[str, str] = field(default_factory=dict)


def read_plan(path: Path = FILE) -> Plan:
    """Raises ValueError where a pair names a program, variant, change or GPU that the file does not have."""
    read = tomllib.loads(path.read_text())
    programs = {
        name: Program(
            name,
            said["source"],
            tuple(said["variants"]),
            said.get("fingerprint", False),
            said.get("threads", 1),
        )
        for name, said in read["programs"].items()
    }
    pairs = tuple(
        Pair(
            program=said["program"],
            after=said["after"],
            options=tuple(said["options"]),
            change=said.get("change", ""),
            beyond=said.get("beyond", ""),
            before=said.get("before", "before"),
            recording=said.get("recording", said.get("before", "before")),
            origin=said.get("from", ""),
            target=said.get("to", ""),
        )
        for said in read["pair"]
    )
    plan = Plan(
        programs,
        pairs,
        {change: tuple(ids) for change, ids in read["findings"].items()},
        read.get("recorded-on", {}),
        read.get("recorded-on-option", {}),
    )
    for pair in pairs:
        _check(pair, plan, path)
    return plan


def _check(pair: Pair, plan: Plan, path: Path) -> None:
    where = f"{path.name}: pair {pair.program} {pair.before} → {pair.after}"
    program = plan.programs.get(pair.program)
    if program is None:
        raise ValueError(f"{where}: no such program; add [programs.{pair.program}]")
    for variant in (pair.before, pair.after, pair.beyond or pair.before):
        if variant not in program.variants:
            raise ValueError(f"{where}: {variant} is not among its variants {', '.join(program.variants)}")
    if pair.recording not in recordings(program):
        raise ValueError(f"{where}: recording {pair.recording} is not made; it has {recordings(program)}")
    if pair.change and pair.change not in plan.findings:
        raise ValueError(f"{where}: change {pair.change} is not under [findings]")
    if bool(pair.origin) != bool(pair.target):
        raise ValueError(f"{where}: `from` and `to` come together")
    for gpu in (pair.origin, pair.target):
        if gpu and gpu not in plan.recorded_on:
            raise ValueError(f"{where}: GPU {gpu} is not under [recorded-on]")


def recordings(program: Program) -> tuple[str, ...]:
    """Names of the recordings that a program is made."""
    return ("before", "before-fingerprint") if program.fingerprint else ("before",)
