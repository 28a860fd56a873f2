"""The reader of SQLite tables under sanitizers, over the fuzzer's own inputs of every SQLite format.

python -m tests.native.sanitized_tables --count 10000
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

__all__ = ["SANITIZERS", "build", "complaints"]

READER = Path(__file__).parents[2] / "native/sqlite"
#: Errors of memory and undefined behaviour; and of threads, which cannot be looked for at the same time.
SANITIZERS = ("address,undefined", "thread")
FORMATS = ("nsys", "nvprof", "rocpd", "rpd")
FILES_A_RUN = 100


def build(folder: Path, sanitizer: str) -> Path:
    """Compiles the driver. Raises CalledProcessError if it does not compile."""
    program = folder / f"read_files-{sanitizer}"
    sources = [path for path in READER.glob("*.cpp") if path.stem not in ("module", "file_source")]
    sources += [READER / "testing" / f"{name}.cpp" for name in ("read_every_table", "read_files")]
    sources.append(READER.parent / "columns" / "order.cpp")
    flags = ["-std=c++20", "-O1", "-g1", "-Wall", "-Wextra", "-Wpedantic"]
    flags += [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    compiler = os.environ.get("CXX", "c++")
    subprocess.run([compiler, *flags, *map(str, sources), "-o", str(program), "-pthread"], check=True)
    return program


def complaints(program: Path, count: int, seed: int) -> Iterator[str]:
    """What the driver or a sanitizer says of `count` inputs, sound files and their mutations."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "corpus").mkdir()
        subprocess.run(
            [sys.executable, READER / "testing" / "first_inputs.py", folder / "corpus"], check=True
        )
        for made in FORMATS:
            CORPUS[made](folder / "corpus")
        corpus = sorted((folder / "corpus").iterdir())
        yield from _complaints(program, corpus)
        for start in range(0, count, FILES_A_RUN):
            numbers = range(start, min(start + FILES_A_RUN, count))
            inputs = [input_number(n, seed, corpus, folder).rename(folder / f"{n}.sqlite") for n in numbers]
            yield from _complaints(program, inputs)
            for file in inputs:
                file.unlink()


def _complaints(program: Path, inputs: list[Path]) -> Iterator[str]:
    ran = subprocess.run([program, *inputs], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        yield f"{[path.name for path in inputs]}: {ran.stdout}{ran.stderr}"


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--count", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = [
            complaint
            for sanitizer in SANITIZERS
            for complaint in complaints(build(Path(name), sanitizer), given.count, given.seed)
        ]
    print("\n".join(found) or f"{given.count} inputs of seed {given.seed}: no complaint")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
