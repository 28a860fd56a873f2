"""The event scanner under the address and undefined-behaviour sanitizers, over the fuzzer's own inputs.

python -m tests.native.sanitized --count 10000
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.corpus import CORPUS
from tests.fuzz.run import input_number

__all__ = ["build", "complaints"]

HERE = Path(__file__).parent
SCANNER = HERE.parents[1] / "native/kineto"
FILES_A_RUN = 250


def build(folder: Path) -> Path:
    """Compiles the driver. Raises CalledProcessError if it does not compile."""
    program = folder / "scan_files"
    sources = [
        HERE / "scan_files.cpp",
        *(SCANNER / f"{name}.cpp" for name in ("event_scanner", "decimal", "unescape")),
    ]
    flags = [
        "-std=c++20",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    ]
    compiler = os.environ.get("CXX", "c++")
    subprocess.run([compiler, *flags, f"-I{SCANNER}", *map(str, sources), "-o", str(program)], check=True)
    return program


def complaints(program: Path, first: int, count: int, seed: int) -> Iterator[str]:
    """What the driver or a sanitizer says of plain inputs `first` to `first + count` of the Kineto corpus."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "corpus").mkdir()
        corpus = [file for file in CORPUS["kineto"](folder / "corpus") if file.suffix == ".json"]
        for start in range(first, first + count, FILES_A_RUN):
            inputs = [
                input_number(number, seed, corpus, folder).rename(folder / f"{number}.json")
                for number in range(start, min(start + FILES_A_RUN, first + count))
            ]
            ran = subprocess.run([program, *inputs], capture_output=True, text=True, check=False)
            if ran.returncode != 0:
                yield f"inputs {start} to {start + len(inputs)} of seed {seed}: {ran.stdout}{ran.stderr}"
            for file in inputs:
                file.unlink()


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--count", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = list(complaints(build(Path(name)), 0, given.count, given.seed))
    print("\n".join(found) or f"{given.count} inputs of seed {given.seed}: no complaint")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
