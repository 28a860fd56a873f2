"""The file: what is written is read, wherever it is cut, and whatever is changed in it."""

import random
import re
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from busfare.errors import InputError
from busfare.show.words import text
from busfare.trace import read
from busfare.trace.readers.recorded import file as layout
from busfare.trace.readers.recorded import is_recording
from busfare.trace.readers.recorded.file import HEADER_BYTES, RETIRED, TABLES, Recording, read_recording

from .conftest import Built, Recorded

HEADER = struct.pack("<8sIIQQQ", b"\x89BFREC\r\n", 1, 64, 4242, 10**18, 5000).ljust(60, b"\0")
HEADER += struct.pack("<I", zlib.crc32(HEADER))


def chunk(table: int, columns: list[tuple[int, int, int, bytes]], rows: int, sequence: int = 0) -> bytes:
    """A chunk by hand, from the documented layout: (column, width, base, bytes) of each column."""
    directory, body = b"", b""
    for number, width, base, data in columns:
        directory += struct.pack("<HBBIQ", number, width, 0, 16 * len(columns) + len(body), base)
        body += data + bytes(-len(data) % 8)
    payload = directory + body
    numbers = (table, len(columns), rows, sequence, len(payload), zlib.crc32(payload))
    head = struct.pack("<4sHHIIQI", b"BFCK", *numbers)
    return head + struct.pack("<I", zlib.crc32(head)) + payload


def chunk_ends(data: bytes) -> list[int]:
    """Where each chunk ends, by the lengths in their headers."""
    ends, at = [], HEADER_BYTES
    while at < len(data):
        at += layout.CHUNK.size + struct.unpack_from("<Q", data, at + 16)[0]
        ends.append(at)
    return ends


def rows(recording: Recording) -> dict[str, int]:
    return {name: len(table) for name, table in recording.tables.items() if len(table)}


@pytest.fixture
def everything(recorded: Recorded) -> bytes:
    return recorded("everything").files[0].read_bytes()


def test_the_documented_layout_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(
        HEADER
        + chunk(21, [(0, 0, 2, b""), (1, 8, 2**63, struct.pack("<2Q", 1, 2)), (2, 1, 100, b"\x00\xff")], 2)
        + chunk(21, [(0, 2, 1, struct.pack("<H", 2)), (2, 4, 0, struct.pack("<I", 7))], 1, 1)
    )
    recording = read_recording(path)
    losses = recording.table("losses")
    assert losses["loss"].tolist() == [2, 2, 3]
    assert losses["time"].tolist() == [2**63 + 1, 2**63 + 2, 0]  # the second chunk has no such column
    assert losses["count"].tolist() == [100, 355, 7]
    assert (recording.process, recording.wall_clock_ns, recording.trace_clock_ns) == (4242, 10**18, 5000)
    assert not recording.complete and not recording.header_damaged


def test_values_wrap_around_so_that_negative_ones_keep_narrow_columns(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(HEADER + chunk(9, [(2, 1, 2**64 - 5, b"\x00\x05")], 2))
    assert read_recording(path).table("streams").signed("priority").tolist() == [-5, 0]


def test_an_unknown_table_and_an_unknown_column_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "x"
    column = [(0, 0, 1, b"")]
    path.write_bytes(HEADER + chunk(999, column, 5) + chunk(21, [*column, (77, 0, 3, b"")], 4, 1))
    recording = read_recording(path)
    assert recording.unknown_chunks == 1
    assert rows(recording) == {"losses": 4}


def test_tables_of_earlier_versions_are_passed_over_and_counted(everything: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.bf"
    retired = [chunk(number, [(0, 0, 1, b"")], 5, 1) for number in RETIRED]
    numbers = (0, 8, 0, struct.pack("<2Q", 901, 902)), (1, 8, 0, struct.pack("<2Q", 5, 8))
    names = [*numbers, (2, 255, 13, b"futexMPI_Send")]
    waits = chunk(26, [(3, 8, 0, struct.pack("<3Q", 901, 902, 901))], 3, 1)
    path.write_bytes(everything + b"".join(retired) + chunk(1, names, 2, 1) + waits)
    assert not {*RETIRED} & {*TABLES}
    (omission,) = (omission for omission in read(path).omissions if omission.id == "retired-tables")
    assert omission.count == 5 * len(RETIRED) + 2
    assert all(name in text(omission.what) for name in [*RETIRED.values(), "waits of threads"])


def test_everything_recorded_is_read_back(recorded: Recorded) -> None:
    recording = recorded("everything").only
    assert recording.complete
    assert rows(recording) == {
        "strings": len(recording.strings), "facts": 8, "kernels": 2, "copies": 3, "sets": 1, "calls": 8, "waits": 3,
        "events": 1, "streams": 1, "contexts": 1, "devices": 1, "pcie_links": 1, "nvlinks": 1, "managed": 2,
        "markers": 2, "overheads": 1, "allocations": 3, "copy_addresses": 2, "demangled": 1, "end": 1,
        "windows": 2,
    }  # fmt: skip
    copies = recording.table("copies")
    assert copies["bytes"].tolist() == [1024, 1024, 4096]
    assert copies["copy_kind"].tolist() == [1, 2, 10]
    assert copies["destination_device"].tolist() == [0, 0, 1]
    kernels = recording.table("kernels")
    assert [recording.strings[name] for name in kernels["name"].tolist()] == ["_Z5scalePfi"] * 2
    assert kernels["graph_node"].tolist() == [0, 21]
    assert recording.table("nvlinks")["bandwidth_bytes_per_s"].tolist() == [26562500000]
    assert recording.table("waits")["event_sync"].tolist() == [1, 0, 0]
    assert int(recording.table("end")["rows"][0]) == sum(rows(recording).values()) - 1


def test_records_of_cuda_12_are_read_alike(recorded: Recorded) -> None:
    new = recorded("everything", calls="both").only
    old = recorded("everything", calls="both", extra={"FAKE_CUPTI_VERSION": "18"}).only
    for name in ("kernels", "copies", "sets", "calls", "allocations", "devices"):
        for column in TABLES[next(number for number, (table, _) in TABLES.items() if table == name)][1]:
            if column in ("name", "source", "destination", "address"):
                continue
            assert np.array_equal(old.table(name)[column], new.table(name)[column]), (name, column)
    # What CUDA 12.0 does not say is none, not rubbish.
    assert old.table("events")["event_sync"].tolist() == [0]
    assert old.table("copies")["copy_count"].tolist() == [1, 1, 1]


def test_cut_at_every_byte_the_whole_chunks_before_the_cut_remain(everything: bytes, tmp_path: Path) -> None:
    ends = chunk_ends(everything)
    assert ends[-1] == len(everything)
    path = tmp_path / "cut"
    counts = []
    for length in range(HEADER_BYTES, len(everything) + 1):
        path.write_bytes(everything[:length])
        recording = read_recording(path)
        whole = [end for end in ends if end <= length]
        assert recording.torn_bytes == length - (whole[-1] if whole else HEADER_BYTES)
        assert recording.damaged_chunks == recording.missing_chunks == 0
        assert recording.complete == (length == len(everything))
        counts.append(sum(rows(recording).values()))
    assert counts == sorted(counts)
    for length in range(HEADER_BYTES):
        path.write_bytes(everything[:length])
        with pytest.raises(InputError):
            read_recording(path)


def test_a_changed_byte_costs_only_its_chunk(everything: bytes, tmp_path: Path) -> None:
    path = tmp_path / "changed"
    ends = chunk_ends(everything)
    for at in range(HEADER_BYTES, len(everything)):
        changed = bytearray(everything)
        changed[at] ^= 0x40
        path.write_bytes(changed)
        recording = read_recording(path)
        last = at >= ends[-2]
        assert recording.damaged_chunks + (recording.torn_bytes > 0) == 1, at
        assert recording.complete == (not last), at
        assert recording.missing_chunks == (0 if last else 1), at


def test_a_changed_header_is_reported(everything: bytes, tmp_path: Path) -> None:
    path = tmp_path / "changed"
    path.write_bytes(everything[:20] + bytes([everything[20] ^ 1]) + everything[21:])
    assert read_recording(path).header_damaged


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
@given(seed=st.integers(0, 2**32))
def test_no_rubbish_makes_the_reader_fail(everything: bytes, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(everything)
    for _ in range(chance.randint(1, 40)):
        at = chance.randrange(8, len(data))
        data[at : at + chance.randint(0, 30)] = chance.randbytes(chance.randint(0, 30))
    path = tmp_path / "rubbish"
    path.write_bytes(data)
    try:
        recording = read_recording(path)
    except InputError:
        return
    for name, columns in TABLES.values():
        for column in columns:
            assert len(recording.table(name)[column]) == len(recording.table(name))


def test_foreign_files_are_refused_in_a_single_line(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for content in (b"", b"SQLite format 3\0", HEADER[:8] + struct.pack("<I", 9) + HEADER[12:]):
        path.write_bytes(content)
        assert is_recording(path) == content.startswith(b"\x89BFREC")
        with pytest.raises(InputError) as error:
            read_recording(path)
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="cannot be read"):
        read_recording(tmp_path / "nothing")


@pytest.mark.parametrize("name", ["chunk_test", "buffer_pool_test", "note_test"])
def test_in_c(built: Built, name: str) -> None:
    done = subprocess.run([built.folder / "testing" / name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_documentation_names_every_table_and_column() -> None:
    text = (Path(__file__).parents[2] / "docs" / "recording-format.md").read_text()
    documented: dict[int, tuple[str, tuple[str, ...]]] = {}
    for section in text.split("\n### ")[1:]:
        number, name = section.split("\n")[0].split()
        columns = re.search(r"^`.+?\.$", section, re.M | re.S)
        assert columns is not None, name
        named = re.findall(r"\w+", re.sub(r"\([^)]*\)", "", columns[0]))
        documented[int(number)] = (name.strip("`"), tuple(named))
    assert documented == TABLES
    retired = re.findall(r"(\d+) `(\w+)`", text.partition("## Retired tables")[2])
    assert {int(number): name for number, name in retired} == {**RETIRED}
    assert not RETIRED.keys() & TABLES.keys()


def test_the_reader_in_the_documentation_reads(everything: bytes) -> None:
    text = (Path(__file__).parents[2] / "docs" / "recording-format.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    scope: dict[str, Callable[[bytes], Iterator[tuple[int, dict[int, np.ndarray]]]]] = {}
    exec(code, scope)
    tables = dict(scope["chunks"](everything))
    assert tables[4][2].tolist() == [1024, 1024, 4096]
    assert len(tables) == 21
