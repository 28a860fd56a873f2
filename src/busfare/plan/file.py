"""A plan file: TOML tables `[[kernel]]` with the keys of the command line → problems."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from busfare.node.toml import WrongError, decoded, read_text, unknown_key
from busfare.plan.ask import problem_of
from busfare.plan.problem import Problem

__all__ = ["PlanFile", "read_plan_file"]

#: 10,000 kernels are about a megabyte.
MOST_BYTES = 16 << 20
MOST_KERNELS = 100_000
Said = str | int | float


class _Step(msgspec.Struct, forbid_unknown_fields=True):
    kernel: Said | None = None
    h2d: Said | None = None
    d2h: Said | None = None


class _Kernel(msgspec.Struct, forbid_unknown_fields=True):
    """One `[[kernel]]`; the values are read by `problem_of`, as those of the command line are."""

    name: str
    h2d: Said | None = None
    d2h: Said | None = None
    kernel: Said | None = None
    flops: Said | None = None
    device_bytes: Said | None = None
    accesses_in: Said | None = None
    accesses_out: Said | None = None
    access_bytes: Said | None = None
    streams: Said | None = None
    levels: Said | None = None
    memory: str | None = None
    copies_in: Said | None = None
    copies_out: Said | None = None
    kernel_at: list[str] | None = None
    chunks: list[Said] | None = None
    queues: Said | None = None
    concurrent_kernels: Said | None = None
    launch: Said | None = None
    step: list[_Step] | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    kernel: list[_Kernel]
    node: str | None = None


class PlanFile(msgspec.Struct, frozen=True):
    """The problems of a file, and the node that it names."""

    problems: tuple[Problem, ...]
    node: str | None


def read_plan_file(path: str) -> PlanFile:
    """The problems of the TOML file at `path`. Raises InputError with file, line, key and mend."""
    return decoded(
        read_text(path, "plan file", MOST_BYTES), path, _File, _build, _explain, MOST_BYTES, "plan file"
    )


def _build(file: _File) -> PlanFile:
    if not file.kernel:
        raise WrongError("$.kernel", "no kernel; add a [[kernel]] table")
    if len(file.kernel) > MOST_KERNELS:
        raise WrongError("$.kernel", f"over the limit of {MOST_KERNELS} kernels")
    return PlanFile(tuple(_problem(n, kernel) for n, kernel in enumerate(file.kernel)), file.node)


def _problem(n: int, kernel: _Kernel) -> Problem:
    said = {key: value for key in kernel.__struct_fields__ if (value := getattr(kernel, key)) is not None}
    if kernel.step:
        said["step"] = [
            {key: getattr(step, key) for key in step.__struct_fields__ if getattr(step, key) is not None}
            for step in kernel.step
        ]
    return problem_of(said, lambda key, what: WrongError(f"$.kernel[{n}].{key}", what))


def _explain(what: str, path: str, raw: dict[str, Any]) -> tuple[str, str] | None:
    unknown = re.search(r"unknown field `(.*)`", what)
    if not unknown:
        return None
    owner: type[msgspec.Struct] = _Step if ".step" in path else _Kernel if ".kernel" in path else _File
    return unknown_key(unknown[1], list(owner.__struct_fields__)), f"{path}.{unknown[1]}"
