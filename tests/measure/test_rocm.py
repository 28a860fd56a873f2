"""Recording on a machine of AMD's, where a stand-in for rocprofv3 behaves as its documentation says."""

import os
import sys
from pathlib import Path

import pytest

from busfare.errors import InputError, NoGpuError
from busfare.measure import record as recorder
from busfare.measure.record import record
from busfare.questions import Record
from busfare.trace import read
from tests.conftest import Ask
from tests.trace.build_rocprof import small_process, write_rocpd

#: Takes the options that rocprofv3 documents, writes a database under the name that it documents, and runs the program.
STAND_IN = """#!{python}
import argparse, os, pathlib, shutil, subprocess, sys
options = argparse.ArgumentParser()
options.add_argument("-r", "--runtime-trace", action="store_true")
options.add_argument("-f", "--output-format", choices=["csv", "json", "pftrace", "otf2", "rocpd"])
options.add_argument("-d", "--output-directory")
options.add_argument("-o", "--output-file", default="%hostname%/%pid%")
at = sys.argv.index("--")
given = options.parse_args(sys.argv[1:at])
program = subprocess.Popen(sys.argv[at + 1 :])
status = program.wait()
name = given.output_file.replace("%hostname%", "host").replace("%pid%", "77").replace("%rank%", "3")
target = pathlib.Path(given.output_directory, name + "_results.db")
target.parent.mkdir(parents=True, exist_ok=True)
if given.runtime_trace and given.output_format == "rocpd":
    shutil.copyfile("{database}", target)
sys.exit(status)
"""


@pytest.fixture
def amd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to record into, on a machine without NVIDIA's driver and with the stand-in."""
    database = write_rocpd(tmp_path / "recorded.db", small_process())
    tool = tmp_path / "bin" / "rocprofv3"
    tool.parent.mkdir()
    tool.write_text(STAND_IN.format(python=sys.executable, database=database))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(recorder, "shared_library", lambda name: None)
    return tmp_path / "run.bf"


PROGRAM = [sys.executable, "-c", "import sys; sys.exit(7)"]


def test_what_rocprofv3_records_is_what_busfare_reads(amd: Path, ask: Ask) -> None:
    assert record(PROGRAM, str(amd), Record()) == 7
    assert [str(file.relative_to(amd)) for file in amd.rglob("*.db")] == ["host-77_results.db"]
    assert read(amd / "host-77_results.db").operations.height == 3
    assert ask("report", amd)["kernels"]["count"] == 1


def test_names_of_outputs_are_in_its_words(amd: Path) -> None:
    record(PROGRAM, str(amd / "run-%r-%p"), Record())
    assert [file.name for file in amd.iterdir()] == ["run-3-77_results.db"]


def test_options_of_the_recorder_are_refused(amd: Path) -> None:
    with pytest.raises(InputError, match="`kinds`, `stacks`: not available on AMD GPUs"):
        record(PROGRAM, str(amd), Record.of(stacks=True, kinds=["copies"], delay=0.0))


def test_without_rocprofv3_a_gpu_is_missing(amd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("ROCM_PATH", str(amd / "nowhere"))
    with pytest.raises(NoGpuError, match="or use ROCm's rocprofv3"):
        record(PROGRAM, str(amd), Record())
    monkeypatch.setenv("ROCM_PATH", str(amd.parent))
    assert record(PROGRAM, str(amd), Record()) == 7
