"""The native scanner: the same events whatever the pieces that the text arrives in."""

import numpy as np
import pytest

from busfare.trace._kineto_events import MISSING, EventScanner
from tests.trace.build_kineto import copy, document, kernel, small_events

TEXT = document(
    [*small_events(), kernel(r"esc\"aped \\ \u00e9", 70, 1, 6), copy("Memcpy HtoD (Pinned -> Device)", 1, 80, 2, 7)],
    {"deviceProperties": [{"id": 0, "name": 'a "quoted" name'}]},
).encode()  # fmt: skip


def scanned(*pieces: bytes) -> EventScanner:
    scanner = EventScanner(launches=True)
    for piece in pieces:
        scanner.feed(piece)
    scanner.finish()
    return scanner


def same(left: EventScanner, right: EventScanner) -> bool:
    columns = all(np.array_equal(left.columns[name], right.columns[name]) for name in left.columns)
    columns &= all(np.array_equal(left.operators[name], right.operators[name]) for name in left.operators)
    columns &= left.signatures == right.signatures
    return columns and (left.names, left.header, left.events, left.unusable, left.error, left.truncated) == (
        *(right.names, right.header, right.events, right.unusable, right.error, right.truncated),
    )


def test_a_cut_at_any_byte_changes_nothing() -> None:
    whole = scanned(TEXT)
    assert (whole.events, whole.error, whole.truncated) == (17, "", False)
    for at in range(len(TEXT) + 1):
        assert same(whole, scanned(TEXT[:at], TEXT[at:])), at


def test_arguments_of_an_operator_that_are_malformed_leave_columns_of_equal_length() -> None:
    event = b'{"ph":"X","cat":"cpu_op","name":"aten::x","ts":1,"dur":1,"args":{"External id":1%s}}'
    scanner = scanned(b"[" + event % b"" + b"," + event % b",5" + b"]")
    assert scanner.error
    assert {len(column) for column in scanner.operators.values()} == {1}


def test_without_launches_the_remaining_columns_are_the_same() -> None:
    plain = EventScanner()
    plain.feed(TEXT)
    plain.finish()
    whole = scanned(TEXT)
    more = {f"{what}_{side}" for what in ("grid", "block") for side in "xyz"}
    assert whole.columns.keys() - plain.columns.keys() == more | {"registers", "shared_bytes", "external"}
    assert all(np.array_equal(values, whole.columns[name]) for name, values in plain.columns.items())
    assert (plain.names, plain.signatures, len(plain.operators["start_ns"])) == (whole.names, [], 0)
    assert len(whole.operators["start_ns"]) == 1 and len(whole.signatures) == 1


@pytest.mark.parametrize("size", [1, 2, 3, 7, 15, 16, 17, 31, 33])
def test_pieces_of_equal_size_change_nothing(size: int) -> None:
    pieces = [TEXT[i : i + size] for i in range(0, len(TEXT), size)]
    assert same(scanned(TEXT), scanned(b"", *pieces[:3], b"", b"", *pieces[3:], b""))


#: Times as events spell them, and as nanoseconds.
TIMES = {
    "0": 0, "-0": 0, "1": 1000, "-1": -1000, "1.5": 1500, "1.0004": 1000, "1.0005": 1001, "-1.0005": -1001, "0.000499999": 0,
    "1e3": 1000000, "1.5E+2": 150000, "25e-1": 2500, '"12.25"': 12250, "4000000000000000": 4000000000000000000,
    "1727000000000000.123": 1727000000000000123,
}  # fmt: skip
NO_TIMES = [
    "9223372036854775807", "1" * 400, "1e400", "1e", "1.", ".5", "+1", "--1", "-", "1x", "0x10", "NaN", "Infinity", "null",
    "true", "[1]", '""',
]  # fmt: skip


@pytest.mark.parametrize(
    ("spelled", "nanoseconds"), [*TIMES.items(), *((text, MISSING) for text in NO_TIMES)]
)
def test_times_are_read_exactly_or_not_at_all(spelled: str, nanoseconds: int) -> None:
    scanner = scanned(f'[{{"ph":"X","cat":"kernel","ts":0,"dur":{spelled} }}]'.encode())
    assert scanner.columns["duration_ns"].tolist() == [nanoseconds]


def test_a_time_that_is_an_open_quote_swallows_the_rest_of_the_file() -> None:
    assert scanned(b'[{"ph":"X","cat":"kernel","ts":0,"dur":" }]').truncated


def test_an_endless_event_is_refused_with_bounded_memory() -> None:
    scanner = EventScanner()
    scanner.feed(b'{"traceEvents":[{"name":"')
    piece = b"x" * (8 << 20)
    for _ in range(8):
        scanner.feed(piece)
    scanner.finish()
    assert scanner.error == "an event of more than 64 MiB"
    assert not scanner.truncated


def test_nothing_is_taken_after_an_error() -> None:
    scanner = scanned(b'{"traceEvents":[{"ph" 1}', b',{"ph":"X","cat":"kernel","ts":0,"dur":1}]}')
    assert scanner.error == "a ':' was expected"
    assert scanner.columns["start_ns"].tolist() == []


def test_the_place_of_damage_is_counted_from_the_files_start() -> None:
    text = b'{"traceEvents":[' + b'{"ph":"M"},' * 1000 + b"}"
    pieces = [text[i : i + 100] for i in range(0, len(text), 100)]
    assert scanned(*pieces).error_position == scanned(text).error_position == len(text) - 1


def test_a_long_header_field_is_passed_over() -> None:
    scanner = scanned(b'{"packages":"' + b"x" * 70_000 + b'","cupti_version":22,"traceEvents":[]}')
    assert scanner.header == {b"cupti_version": b"22"}
    assert scanner.saw_events


def test_many_header_fields_take_bounded_memory() -> None:
    fields = b",".join(b'"k%d":"%s"' % (n, b"x" * 60_000) for n in range(40))
    scanner = scanned(b"{" + fields + b',"traceEvents":[]}')
    assert sum(len(value) for value in scanner.header.values()) <= 1 << 20
    assert scanner.saw_events


def test_columns_outlive_their_scanner() -> None:
    assert scanned(TEXT).columns["correlation"].tolist().count(1) == 2
