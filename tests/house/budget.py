"""The size of the project, counted: `python -m tests.house.budget` prints each figure beside its ceiling."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from inspect import get_annotations
from pathlib import Path
from pkgutil import walk_packages
from statistics import median
from typing import Any, get_args

import click
import msgspec
from msgspec.structs import fields

import busfare
from busfare.cli import app
from busfare.cli.about import every_command

ROOT = Path(__file__).parents[2]
CEILINGS = Path(__file__).with_name("budget.toml")
#: Options that mean the same in every command that takes them.
SHARED_OPTIONS = {
    "--json", "--html", "--wide", "--help", "--help-all", "--version", "--window", "--range", "--iteration",
}  # fmt: skip


def tracked(*patterns: str) -> list[Path]:
    """Files that git tracks and that are there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def lines(paths: list[Path]) -> int:
    """Physical lines."""
    return sum(path.read_bytes().count(b"\n") for path in paths)


def options_of(app: click.Group) -> set[tuple[str, str]]:
    """Each option by its command; those that commands share once, without one."""
    counted = set()
    for context in every_command(app):
        for param in context.command.get_params(context):
            if isinstance(param, click.Option) and not param.hidden:
                name = max(param.opts, key=len)
                counted.add(("" if name in SHARED_OPTIONS else context.command_path, name))
    return counted


def json_keys() -> int:
    """Keys of the Structs that commands answer with, and of those inside them; each counts where it is declared.

    Node files and what a measurement writes are files of their own, and not counted; JSON has statements in words.
    """
    import_everything()
    waiting = [s for s in _subclasses(msgspec.Struct) if str(s.__struct_config__.tag).startswith("busfare.")]
    structs: set[type] = set()
    while waiting:
        for struct in waiting.pop().__mro__:
            if struct in structs or not struct.__module__.startswith("busfare."):
                continue
            if struct.__module__.startswith(("busfare.nodes", "busfare.measure", "busfare.statements")):
                continue
            structs.add(struct)
            if issubclass(struct, msgspec.Struct):
                waiting += [inner for field in fields(struct) for inner in _structs(field.type)]
    return sum(len(get_annotations(struct)) for struct in structs if issubclass(struct, msgspec.Struct))


def _subclasses(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for inner in struct.__subclasses__():
        yield inner
        yield from _subclasses(inner)


def _structs(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    """The Structs that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for part in get_args(annotation):
        yield from _structs(part)


def import_everything() -> None:
    """Imports all of busfare, so that its types are known."""
    for module in walk_packages(busfare.__path__, "busfare."):
        if not module.name.endswith("__main__") and "libbusfare" not in module.name:
            import_module(module.name)


def figures() -> dict[str, float]:
    """What the budget bounds."""
    modules = tracked("src/busfare/**/*.py", "src/busfare/*.py")
    native = tracked("native")
    testing = [path for path in native if "testing" in path.parts]
    sources = [p for p in native if p not in testing and p.suffix in (".cpp", ".hpp", ".h", ".c", ".cu")]
    lengths = [lines([path]) for path in modules]
    ranges = tomllib.loads((ROOT / "src/busfare/cost/ranges.toml").read_text("utf-8"))
    return {
        "src_lines": sum(lengths),
        "src_modules": len(modules),
        "src_longest_module": max(lengths),
        "src_median_module": median(lengths),
        "src_toml_lines": lines(tracked("src/**/*.toml")),
        "src_javascript_lines": lines(tracked("src/**/*.js")),
        "native_lines": lines(sources),
        "tests_lines": lines(
            [*tracked("tests/**/*.py", "tests/*.py"), *(p for p in testing if p.suffix != ".txt")]
        ),
        "validation_lines": lines(tracked("validation/**/*.py", "validation/*.py")),
        "options": len(options_of(app)),
        "json_keys": json_keys(),
        "ranges": len(ranges["range"]),
    }


def ceilings() -> Iterator[tuple[str, float, float, float]]:
    """Each figure with its ceiling today and the target: (name, figure, ceiling, target)."""
    bounds = tomllib.loads(CEILINGS.read_text("utf-8"))
    for name, figure in figures().items():
        yield name, figure, bounds[name]["ceiling"], bounds[name]["target"]


def main() -> int:
    """Prints the budget; 1 where a ceiling is passed."""
    passed = False
    for name, figure, ceiling, target in ceilings():
        over = figure > ceiling if name != "src_median_module" else figure < ceiling
        passed = passed or over
        print(
            f"{name:22} {figure:8,g}   ceiling {ceiling:8,g}   target {target:8,g}{'   PASSED' if over else ''}"
        )
    return 1 if passed else 0


if __name__ == "__main__":
    sys.exit(main())
