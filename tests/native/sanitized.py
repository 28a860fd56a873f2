"""Native code under sanitizers: scanner and table reader over the fuzzer's own inputs, the replay over random timelines.

python -m tests.native.sanitized --count 10000
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.corpus import CORPUS
from tests.fuzz.run import input_number

__all__ = ["DRIVERS", "Driver"]

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "native"
REPLAY = ("check", "dependencies", "explain", "links", "flows", "simulate", "critical_path")
SCANNER = ("event_scanner", "decimal", "unescape", "bracket_blocks", "bracket_blocks_avx2")
#: The machine that compiles is the one that runs.
X86 = platform.machine() in ("x86_64", "AMD64")
FILES_A_RUN = 100


@dataclass(frozen=True)
class Driver:
    """A program that calls native code, with the sanitizers that it is compiled with. `formats`: the corpora of files that
    it reads; none: it takes seeds.
    """

    sources: tuple[Path, ...]
    sanitizers: str
    formats: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    def build(self, folder: Path) -> Path:
        """Raises CalledProcessError if it does not compile."""
        program = folder / f"{self.sources[0].stem}-{self.sanitizers}"
        flags = ["-std=c++20", "-O1", "-g1", "-Wall", "-Wextra", *self.flags, f"-fsanitize={self.sanitizers}"]
        flags += ["-fno-sanitize-recover=all", f"-I{self.sources[-1].parent}", "-pthread"]
        compiler = os.environ.get("CXX", "c++")
        subprocess.run([compiler, *flags, *map(str, self.sources), "-o", str(program)], check=True)
        return program

    def complaints(self, program: Path, count: int, seed: int) -> Iterator[str]:
        """What the program or a sanitizer says of `count` inputs: made from number `seed` on; of files, the sound ones
        and mutations of them.
        """
        if not self.formats:
            yield from _complaints(program, [str(seed), str(count)])
            return
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            sound = folder / "corpus"
            sound.mkdir()
            if "nsys" in self.formats:
                first = NATIVE / "sqlite" / "testing" / "first_inputs.py"
                subprocess.run([sys.executable, first, sound], check=True)
            for format_ in self.formats:
                CORPUS[format_](sound)
            corpus = sorted(file for file in sound.iterdir() if file.suffix not in (".gz", ".zst"))
            yield from _complaints(program, corpus)
            for start in range(0, count, FILES_A_RUN):
                numbers = range(start, min(start + FILES_A_RUN, count))
                made = ((number, input_number(number, seed, corpus, folder)) for number in numbers)
                mutated = [file.rename(folder / f"{number}{file.suffix}") for number, file in made]
                yield from _complaints(program, mutated)
                for file in mutated:
                    file.unlink()


def _complaints(program: Path, inputs: Sequence[Path | str]) -> Iterator[str]:
    ran = subprocess.run([program, *inputs], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        yield f"{[str(path) for path in inputs]}: {ran.stdout}{ran.stderr}"


def _of(library: str, *names: str) -> tuple[Path, ...]:
    return tuple(NATIVE / library / f"{name}.cpp" for name in names)


MEMORY = "address,undefined,float-cast-overflow"
_TABLES = (
    *_of("sqlite/testing", "read_files", "read_every_table"),
    *(path for path in (NATIVE / "sqlite").glob("*.cpp") if path.stem not in ("module", "file_source")),
)
DRIVERS = {
    "events": Driver(
        (HERE / "scan_files.cpp", *_of("kineto", *SCANNER)),
        MEMORY,
        ("kineto",),
        ("-mavx2", "-mpclmul", "-mpopcnt") if X86 else (),
    ),
    "columns": Driver((HERE / "random_columns.cpp", *_of("columns", "intervals", "pairs")), MEMORY),
    "timelines": Driver((HERE / "random_timelines.cpp", *_of("replay", *REPLAY)), MEMORY),
    # Errors of threads cannot be looked for together with those of memory.
    **{
        f"tables, {sanitizers}": Driver(
            _TABLES, sanitizers, ("nsys", "nvprof", "rocpd", "rpd"), ("-Wpedantic",)
        )
        for sanitizers in ("address,undefined", "thread")
    },
}


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--count", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        complaints = [
            f"{what}: {complaint}"
            for what, driver in DRIVERS.items()
            for complaint in driver.complaints(driver.build(Path(name)), given.count, given.seed)
        ]
    print("\n".join(complaints) or f"{given.count} inputs of seed {given.seed} each: no complaint")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
