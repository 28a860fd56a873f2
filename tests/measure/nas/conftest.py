"""The programs of `hybrid/`, built without CUDA where the documented build is not there."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def build() -> Path:
    """The folder that holds `nas_ft` and `nas_mg`."""
    missing = [name for name in ("mpirun", "cmake") if shutil.which(name) is None]
    assert not missing, f"{missing} missing: apt-get install libopenmpi-dev openmpi-bin libfftw3-dev cmake"
    documented = ROOT / "build" / "hybrid"
    if all((documented / name).is_file() for name in ("nas_ft", "nas_mg")):
        return documented
    own = ROOT / "build" / "hybrid-cpu"
    own.mkdir(parents=True, exist_ok=True)
    with (own / "lock").open("w") as lock:  # other processes of this test run want it too
        fcntl.flock(lock, fcntl.LOCK_EX)
        configure = [
            "cmake",
            "-S",
            str(ROOT / "hybrid"),
            "-B",
            str(own),
            "-DHYBRID_CUDA=OFF",
            "-DBUILD_TESTING=OFF",
        ]
        subprocess.run(configure, check=True, capture_output=True)
        targets = ["--target", "nas_ft", "nas_mg"]
        subprocess.run(
            ["cmake", "--build", str(own), "--parallel", *targets], check=True, capture_output=True
        )
    return own
