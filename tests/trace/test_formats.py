"""A format is a package among the readers, and nothing else: what it declares is used wherever formats matter."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from busfare.errors import InputError
from busfare.trace import is_trace_directory, may_be_trace, read, readers
from busfare.trace.readers import RecordAgain, formats, record_again

PACKAGE = '''
    """A profiler that only this test has."""

    import re

    from busfare.trace.model import Trace
    from busfare.trace.readers import Format, RecordAgain, Source
    from busfare.trace.tables import CALLS, DEVICES, EVENTS, MARKERS, OPERATIONS, STREAMS, empty


    def _read(source: Source) -> Trace:
        with source.unpacked() as place:
            producer = (place / "content" if place.is_dir() else place).read_text().split()[1]
        return Trace(
            path=source.path, format="lines", producer=producer, operations=empty(OPERATIONS), calls=empty(CALLS),
            events=empty(EVENTS), markers=empty(MARKERS), devices=empty(DEVICES), streams=empty(STREAMS),
        )


    FORMATS = (
        Format(
            name="lines",
            title="Lines (.lines)",
            read=_read,
            begins=re.compile(b"LINES "),
            directory=lambda path: (path / "content").is_file(),
            suffixes=(".lines",),
            record_again=RecordAgain(gpu="`lines --gpu`"),
        ),
    )
'''


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package `lines` among the readers."""
    package = tmp_path / "more" / "lines"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(dedent(PACKAGE))
    monkeypatch.setattr(readers, "__path__", [*readers.__path__, str(package.parent)])
    formats.cache_clear()
    yield
    formats.cache_clear()
    sys.modules.pop("busfare.trace.readers.lines", None)


@pytest.mark.usefixtures("added")
def test_a_package_is_all_that_a_format_needs(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("LINES 7.1")
    trace = read(path)
    assert (trace.format, trace.producer) == ("lines", "7.1")
    assert [o.what.rpartition("; ")[2] for o in trace.omissions] == ["record with `lines --gpu`"]
    assert may_be_trace(path)
    (tmp_path / "empty.lines").touch()
    assert may_be_trace(tmp_path / "empty.lines")
    folder = tmp_path / "folder"
    folder.mkdir()
    assert not is_trace_directory(folder)
    path.rename(folder / "content")
    assert is_trace_directory(folder) and read(folder).format == "lines"
    path.write_text("something else")
    with pytest.raises(InputError, match=r"it reads .*Lines \(\.lines\), "):
        read(path)


def test_formats_are_declared_in_order_with_ways_to_record_again() -> None:
    names = [format.name for format in formats()]
    assert names == [
        "kineto", "nsys-sqlite", "nsys-directory", "nvprof", "recorded", "rocpd", "rpd", "rocprofv3-json", "rocprof-csv",
        "rocprof", "xla", "xla",
    ]  # fmt: skip
    assert [format.name for format in formats() if format.any_json] == ["kineto"]
    assert record_again("nsys-directory").allocations == "nsys --cuda-memory-usage=true"
    assert record_again("of a job") == RecordAgain()
