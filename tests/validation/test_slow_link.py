"""The preloaded library that makes a link slower, on a CUDA runtime that copies at once and counts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import finished

SOURCES = Path(__file__).parents[2] / "validation" / "slow_link"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slow-link")
    headers = next(p for path in sys.path for p in Path(path or ".").glob("nvidia/cu1*/include"))
    shared, runtime = ["-shared", "-fPIC"], folder / "libcudart.so.13"
    for target, arguments in (
        (runtime, [SOURCES / "counting_runtime.cpp", *shared]),
        (folder / "slow_link.so", [SOURCES / "slow_link.cpp", *shared, "-ldl"]),
        (folder / "program", [SOURCES / "four_copies.cpp", runtime]),
    ):
        subprocess.run(["g++", "-std=c++20", "-O1", "-I", headers, "-o", target, *arguments], check=True)
    return folder


@pytest.mark.parametrize("times", [0, 1, 2, 4, 8])
def test_a_byte_crosses_the_link_k_times(built: Path, times: int) -> None:
    log = built / f"log-{times}"
    given = {"LD_PRELOAD": str(built / "slow_link.so"), "SLOW_LINK": str(times), "SLOW_LINK_LOG": str(log)}
    done = finished([built / "program"], env=os.environ | given)
    assert done.returncode == 0, "the bytes differ"
    size, counted = (9 << 20) + 5, max(times, 1)
    assert done.stdout.splitlines()[0] == "set 12345"
    assert f"in {counted * size + 100} " in done.stdout
    logged = [line.split()[:3] for line in log.read_text("utf-8").splitlines()]
    kinds = ["h2d pageable", "d2h pinned", "d2h pageable", "h2d pinned"]
    assert [" ".join(words[:2]) for words in logged] == kinds
    assert [int(words[2]) for words in logged] == [size, size, size, 100]
