"""Which differences in the output of a changed program count as altered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busfare.measure.outputs import MOST_COMPARED, Reference, compared

SEQUENCE = b"1\n2\n3\n4\n5\n"
LOG = b"epoch 1 loss 2.301\nepoch 2 loss 1.998\nTime: 0.31 s\nchecksum 7f3a\n"


def verdict(unchanged: list[bytes], changed: bytes) -> str:
    return compared([Reference("standard output", unchanged)], [changed])[0]


@pytest.mark.parametrize(
    ("unchanged", "changed", "expected"),
    [
        ([LOG, LOG], LOG, "identical"),
        ([LOG], LOG.replace(b"0.31", b"0.12"), "same"),  # a time
        ([b"GFLOP/s 31\n"], b"GFLOP/s 44\n", "same"),
        ([b"copied at 11.2 GB/s\n"], b"copied at 44 GB/s\n", "same"),
        ([b"ran for 12ms\n"], b"ran for 4ms\n", "same"),
        ([LOG, LOG], LOG.replace(b"2.301", b"2.302"), "altered"),
        ([LOG, LOG], LOG.replace(b"7f3a", b"7f3b"), "altered"),
        ([LOG, LOG], LOG + b"error\n", "altered"),
        ([LOG, LOG], b"", "altered"),
        ([LOG, LOG], LOG.replace(b"epoch 2", b"epoch 3"), "altered"),
        # Numbers that vary between unchanged runs, in all lines with the same text.
        ([b"a 1 x 5\n", b"a 2 x 5\n"], b"a 3 x 5\n", "same"),
        ([b"a 1 x 5\n", b"a 2 x 5\n"], b"a 3 x 6\n", "altered"),
        ([b"s 1 in 3\ns 2 in 3\n", b"s 1 in 3\ns 2 in 4\n"], b"s 1 in 9\ns 2 in 9\n", "same"),
        # A number that varies in few of the lines with its text is compared in the others.
        ([SEQUENCE + b"71", SEQUENCE + b"72"], SEQUENCE + b"73", "same"),
        ([SEQUENCE + b"71", SEQUENCE + b"72"], SEQUENCE.replace(b"4", b"5") + b"73", "altered"),
        ([SEQUENCE + b"1.00001", SEQUENCE + b"1.00002"], SEQUENCE.replace(b"4", b"4.00001") + b"1", "same"),
        # Lines that are new in each unchanged run.
        ([b"file /tmp/ab\nsum 5\n", b"file /tmp/cd\nsum 5\n"], b"file /tmp/ef\nsum 5\n", "same"),
        ([b"file /tmp/ab\nsum 5\n", b"file /tmp/cd\nsum 5\n"], b"file /tmp/ef\nsum 5\nError\n", "altered"),
        ([b"file /tmp/ab\nsum 5\n", b"file /tmp/cd\nsum 5\n"], b"file /tmp/ef\nsum 6\n", "altered"),
        ([b"took 1.02 s\n"], b"took 980 ms\n", "same"),  # another unit
        ([b"elapsedTime= 00:00:12\n"], b"elapsedTime= 00:01:02\n", "same"),
        ([b"12.5 \xc2\xb5s, 31 samples/second\n"], b"9 \xc2\xb5s, 44 samples/second\n", "same"),
        ([b"min: -1.5\n"], b"min: -999\n", "altered"),  # not minutes
        ([b"S = 3.25, velocity 12.5 m/s\n"], b"S = 3.25, velocity 99.9 m/s\n", "altered"),
        ([b"\x01 1 2\n", b"\x01 1 2\n"], b"\x01  1 2\n", "altered"),  # no text
        ([b"\x01 1 2\n", b"\x01 1 3\n"], b"\x01 1 4\n", "not-compared"),
        ([b"Time (s): 0.12\n"], b"Time (s): 0.09\n", "same"),
        ([b"1/9 50ms/step\r9/9 52ms/step loss 3\n"], b"9/9 950us/step loss 3\n", "same"),  # progress
        (
            [b"\x1b[1m1.2\x1b[0m s, sum \x1b[1m5\x1b[0m\n"],
            b"\x1b[1m0.9\x1b[0m s, sum \x1b[1m6\x1b[0m\n",
            "altered",
        ),
        ([b"E 1.234567\n", b"E 1.234568\n"], b"E 1.234560\n", "same"),  # rounding
        ([b"E 1.234567\n", b"E 1.234568\n"], b"E 0.0\n", "altered"),
        ([b"3 max 17 min\n"], b"3 max 18 min\n", "altered"),
        ([b"r 0 sum 5\nr 1 sum 6\n", b"r 1 sum 6\nr 0 sum 5\n"], b"r 1 sum 5\nr 0 sum 5\n", "altered"),
        ([b"at 0x1a\nloss 0.5\n", b"at 0x2b\nloss 0.6\n"], b"at 0x3c\nloss nan\n", "altered"),
        # Lines in a different order: lines common to all unchanged runs must be present.
        ([b"rank a\nrank b\nsum 9\n", b"rank b\nrank a\nsum 9\n"], b"rank b\nrank a\nsum 9\n", "identical"),
        ([b"rank a\nrank b\nsum 9\n", b"rank b\nrank a\nsum 9\n"], b"rank b\nrank a\nfailed\n", "altered"),
        ([b"rank a\nsum 9\n", b"sum 9\nrank a\n"], b"sum 8\nrank a\n", "altered"),
        ([b"rank a\nrank b\na\na\n", b"rank b\nrank a\na\na\n"], b"rank b\nrank a\na\n", "altered"),
        ([b"rank a\nrank b\n", b"rank b\nrank a\n"], b"rank b\nrank a\nERROR\n", "altered"),
        ([b"time 0.5 residual 1e-9\n"], b"time 0.4 residual 999\n", "altered"),
        ([b"t = 3 # of 4, 0.25 sec\n"], b"t = 3 # of 4, 0.12 sec\n", "same"),
        ([b"t = 3 # of 4, 0.25 sec\n"], b"t = 3 # of 5, 0.12 sec\n", "altered"),
        ([b"\xff\x00\x01", b"\xff\x00\x01"], b"\xff\x00\x02", "altered"),
        ([b"at 0x1a sum 5\n", b"at 0x2b sum 5\n"], b"at 0x3c sum \x02\n", "altered"),  # no longer text
        ([b"9 \xce\xbcs, 5 Mcells per second\n"], b"8 ns, 6 Mcells per second\n", "same"),
        ([b"sum -4611686018427387905\n"] * 2, b"sum -4611686018427387904\n", "altered"),
        ([b"[108.17 ms]\n"], b"[ 97.00 ms]\n", "same"),  # padding
        ([b"alive\nalive\nsum 5\n", b"alive\nsum 5\n"], b"alive\nalive\nalive\nsum 5\n", "same"),
        ([b"alive\nalive\nalive\nb\n", b"alive\nalive\nb\n"], b"alive\nb\n", "same"),
    ],
)
def test_differences_between_unchanged_runs_are_ignored(
    unchanged: list[bytes], changed: bytes, expected: str
) -> None:
    assert verdict(unchanged, changed) == expected


def test_the_first_altered_line_is_reported() -> None:
    _, difference = compared([Reference("out.dat", [LOG])], [LOG.replace(b"1.998", b"nan")])
    assert difference is not None
    assert (difference.output, difference.line) == ("out.dat", 2)
    assert (difference.unchanged, difference.changed) == ("epoch 2 loss 1.998", "epoch 2 loss nan")


def test_numbers_that_are_not_compared_are_counted() -> None:
    def left_out(*unchanged: bytes) -> int:
        reference = Reference("", unchanged)
        reference.difference(b"another\n")
        return reference.left_out

    assert left_out(LOG) == 1
    assert left_out(b"a 1\n", b"a 2\n") == 1
    assert left_out(b"a 1\n", b"a 1\n") == 0


def test_a_late_difference_in_a_long_line_is_shown() -> None:
    _, difference = compared([Reference("", [b"a" * 5000 + b"b"])], [b"a" * 5000 + b"c"])
    assert difference is not None
    assert (difference.unchanged[-1], difference.changed[-1]) == ("b", "c")


def test_long_outputs_must_be_identical() -> None:
    long = bytes(MOST_COMPARED + 1)
    assert verdict([long], long) == "identical"
    assert verdict([long], long[:-1] + b"1") == "altered"


def test_every_output_is_compared() -> None:
    references = [Reference("standard output", [LOG]), Reference("out.dat", [b"1 2 3"])]
    assert compared(references, [LOG, b"1 2 4"])[0] == "altered"
    assert compared(references, [LOG, b"1 2 3"])[0] == "identical"


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_the_output_of_an_unchanged_run_is_never_altered(runs: list[bytes]) -> None:
    assert all(verdict(runs, run) == "identical" for run in runs)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=8), st.integers(0, 7))
def test_a_changed_stable_number_is_always_detected(numbers: list[int], place: int) -> None:
    text = " ".join(f"v{n} {number}" for n, number in enumerate(numbers)).encode()
    changed = [*numbers]
    changed[place % len(numbers)] += 1
    altered = " ".join(f"v{n} {number}" for n, number in enumerate(changed)).encode()
    assert verdict([text, text], altered) == "altered"
