"""Native code under the address and undefined-behaviour sanitizers.

The event scanner over the fuzzer's own inputs, and the replay over random timelines, good and bad:

python -m tests.native.sanitized --count 10000
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.fuzz.corpus import CORPUS
from tests.fuzz.run import input_number

__all__ = ["build", "build_timelines", "complaints", "timeline_complaints"]

HERE = Path(__file__).parent
SCANNER = HERE.parents[1] / "native/kineto"
REPLAY = HERE.parents[1] / "native/replay"
FILES_A_RUN = 250
#: The machine that compiles is the one that runs.
X86 = platform.machine() in ("x86_64", "AMD64")


def build(folder: Path) -> Path:
    """Compiles the scanner's driver. Raises CalledProcessError if it does not compile."""
    parts = ("event_scanner", "decimal", "unescape", "bracket_blocks", "bracket_blocks_avx2")
    return _build(folder / "scan_files", SCANNER, parts, ["-mavx2", "-mpclmul", "-mpopcnt"] if X86 else [])


def build_timelines(folder: Path) -> Path:
    """Compiles the replay's driver. Raises CalledProcessError if it does not compile."""
    parts = ("check", "dependencies", "explain", "links", "flows", "simulate", "critical_path")
    return _build(folder / "random_timelines", REPLAY, parts)


def _build(program: Path, library: Path, parts: tuple[str, ...], more: Sequence[str] = ()) -> Path:
    sources = [HERE / f"{program.name}.cpp", *(library / f"{part}.cpp" for part in parts)]
    flags = [
        "-std=c++20",
        "-O1",
        "-g1",
        "-Wall",
        "-Wextra",
        "-fsanitize=address,undefined,float-cast-overflow",
        "-fno-sanitize-recover=all",
    ]
    compiler = os.environ.get("CXX", "c++")
    subprocess.run(
        [compiler, *flags, *more, f"-I{library}", *map(str, sources), "-o", str(program)], check=True
    )
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


def timeline_complaints(program: Path, first: int, count: int) -> list[str]:
    """What the driver or a sanitizer says of random timelines `first` to `first + count`."""
    ran = subprocess.run([program, str(first), str(count)], capture_output=True, text=True, check=False)
    return [ran.stdout + ran.stderr] if ran.returncode else []


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--count", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = list(complaints(build(folder), 0, given.count, given.seed))
        found += timeline_complaints(build_timelines(folder), given.seed, given.count)
    print("\n".join(found) or f"{given.count} traces and timelines of seed {given.seed}: no complaint")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
