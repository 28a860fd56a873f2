"""Reports of Nsight Systems, by a stand-in for `nsys` that does and says what the real one does."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from busfare.trace import read
from busfare.trace.readers import nsys as nsys_reader
from tests.trace.build_kineto import gzipped
from tests.trace.build_nsys import small_export
from tests.trace.test_detect import refused

#: As 2022.4 and 2025.6 write them, with nothing between begin and end.
REPORT = b"NVIDIA Tegra Profiler Report 1.\n\x0bLocal (CLI)\x12\x04\x08\x0c\x08{" + bytes(99) + b"U3w[END]"
LATER = REPORT.replace(b"Report 1.", b"Report 2025@6@1@190-256136895201v0.")
#: `nsys export --type sqlite --force-overwrite true --output FILE REPORT` of versions 2022 to 2026.
NSYS = """#!/bin/sh
[ "$1" = --version ] && { echo "NVIDIA Nsight Systems version 2022.4.2.1-df9881f"; exit 0; }
echo "$@" >> LOG
[ "$1 $2 $3 $4 $5 $6" = "export --type sqlite --force-overwrite true --output" ] || exit 7
if grep -q 2025 "$8"; then
    echo '[libprotobuf ERROR message_lite.cc:122] Cannot parse' >&2
    echo 'Exportation error: Version number is invalid: 2025@6@1@190-256136895201v0' >&2
    exit 1
fi
printf 'Exporting 2933 events: [1%%  ]\\rExporting 2933 events: [100%%  ]'
cp EXPORT "$7"
"""
Nsys = Callable[[], list[str]]


@pytest.fixture
def nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nsys:
    """Puts the stand-in on the PATH; gives what it was called with."""
    export, log, program = tmp_path / "of-nsys", tmp_path / "log", tmp_path / "bin" / "nsys"
    small_export().write(export)
    program.parent.mkdir()
    program.write_text(NSYS.replace("LOG", str(log)).replace("EXPORT", str(export)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(nsys_reader, "PLACES", ())
    return lambda: log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "the run.nsys-rep"
    path.write_bytes(REPORT)
    return path


def test_a_report_is_exported_once_and_read(nsys: Nsys, report: Path, tmp_path: Path) -> None:
    before = report.read_bytes()
    for _ in range(2):
        trace = read(report)
        assert (trace.path, trace.format) == (report, "nsys-sqlite")
        assert trace.operations.height == 4
    assert len(nsys()) == 1 and nsys()[0].endswith(str(report))
    kept = list((tmp_path / "cache").rglob("*"))
    assert [file.suffix for file in kept if file.is_file()] == [".sqlite"]
    assert report.read_bytes() == before and not report.with_suffix(".sqlite").exists()
    report.write_bytes(REPORT + b"[END]")  # another run of that name
    read(report)
    assert len(nsys()) == 2


@pytest.mark.parametrize("name", ["run.qdrep", "run", "run.nsys-rep.gz"])
def test_a_report_is_detected_by_its_content(name: str, nsys: Nsys, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(gzipped(REPORT) if name.endswith(".gz") else REPORT)
    assert read(path).operations.height == 4
    assert len(nsys()) == 1


def test_a_sibling_export_is_taken_unless_it_is_older(nsys: Nsys, report: Path) -> None:
    export = small_export()
    export.kernel("one more", 1000, 1005, 100)
    sibling = export.write(report.with_suffix(".sqlite"))
    assert read(report).operations.height == 5
    os.utime(sibling, (1, 1))
    assert read(report).operations.height == 4
    assert len(nsys()) == 1


def test_exports_that_nobody_reads_go(nsys: Nsys, report: Path, tmp_path: Path) -> None:
    read(report)
    (kept,) = (tmp_path / "cache").rglob("*.sqlite")
    month_ago = time.time() - nsys_reader.KEPT_S - 60
    os.utime(kept, (month_ago, month_ago))
    report.write_bytes(REPORT + b"[END]")
    read(report)
    assert not kept.exists()


def test_a_missing_nsys_is_named(report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(nsys_reader, "PLACES", ())
    assert "this machine has no `nsys`" in (message := refused(report))
    assert "`nsys export --type sqlite the run.nsys-rep`" in message
    report.write_bytes(LATER)
    assert "an Nsight Systems report of version 2025.6.1, and this machine has no `nsys`" in refused(report)


def test_a_report_that_nsys_cannot_read_is_refused_and_why(nsys: Nsys, report: Path, tmp_path: Path) -> None:
    report.write_bytes(LATER)
    message = refused(report)
    assert "of version 2025.6.1: NVIDIA Nsight Systems version 2022.4.2.1-df9881f cannot export it" in message
    assert "(Exportation error: Version number is invalid" in message and "later Nsight Systems" in message
    report.write_bytes(REPORT[:-3])
    assert "the report is truncated" in refused(report)
    assert len(nsys()) == 1
    assert not [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]


def test_a_cache_that_cannot_be_written_is_an_error(
    nsys: Nsys, report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "name another folder with XDG_CACHE_HOME" in refused(report)
    assert nsys() == []


def test_a_newer_nsys_is_tried_where_the_first_fails(
    nsys: Nsys, report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = tmp_path / "nsight" / "2026.1.2" / "bin" / "nsys"
    later.parent.mkdir(parents=True)
    later.write_text((tmp_path / "bin" / "nsys").read_text().replace("grep -q 2025", "grep -q 2027"))
    later.chmod(0o755)
    monkeypatch.setattr(nsys_reader, "PLACES", ((str(tmp_path / "nsight"), "*/bin/nsys"),))
    report.write_bytes(LATER)
    assert read(report).operations.height == 4
    assert len(nsys()) == 2
