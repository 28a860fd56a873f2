"""What copies carry, told by another recording of the same run."""

from __future__ import annotations

from typing import Any

import pytest

from busfare.errors import InputError
from busfare.timeline import timeline
from busfare.timeline.changes import Setting, apply_all, changes_of
from busfare.timeline.changes.removal import repeated_copies, returned_copies
from busfare.trace import Trace
from busfare.trace.attach import with_fingerprints_of
from tests.traces import copy, kernel, trace

MIB = 1 << 20


def sent(at: float, size: int = MIB, direction: str = "h2d", **more: Any) -> dict[str, Any]:
    return copy(at, at + 5, size, direction, **more)


def hashed(*prints: int | None) -> Trace:
    """As many copies in, an hour later."""
    hour = 3_600_000_000
    return trace(*[sent(hour + 20 * at, fingerprint=one) for at, one in enumerate(prints)])


def test_each_copy_carries_what_the_same_one_of_its_size_and_direction_carried() -> None:
    # The other recording has the same copies in another order of sizes, and kernels elsewhere.
    other = trace(
        sent(0, fingerprint=11, process=7), sent(10, 2 * MIB, fingerprint=33, process=7), kernel(15, 60),
        sent(70, fingerprint=22, process=7), sent(80, direction="d2h", fingerprint=22, process=7),
    )  # fmt: skip
    told = with_fingerprints_of(
        trace(sent(0), kernel(6, 9), sent(10), sent(20, direction="d2h"), sent(30, 2 * MIB)), other
    )
    assert told.operations["fingerprint"].to_list() == [11, None, 22, 22, 33]


def test_changes_by_what_copies_carry_find_them_then() -> None:
    plain = trace(sent(0), sent(20), sent(40))
    assert repeated_copies(plain.operations) is None
    repeated = repeated_copies(with_fingerprints_of(plain, hashed(5, 6, 5)).operations)
    assert repeated is not None and repeated.again.tolist() == [False, False, True]
    back = trace(sent(0, direction="d2h"), sent(400_000))  # the host had time to write it anew
    other = trace(sent(0, direction="d2h", fingerprint=9), sent(400_000, fingerprint=9))
    assert not returned_copies(back.operations, None)[0].any()
    assert returned_copies(with_fingerprints_of(back, other).operations, None)[0].all()


def test_what_stays_on_the_gpu_is_found_before_copies_go_for_another_reason() -> None:
    """The copy back goes by --remove, too; the one that takes its bytes in again goes only where both are there."""
    moved = trace(sent(0, direction="d2h", fingerprint=9), sent(400, fingerprint=9), sent(800, fingerprint=4))
    changes = changes_of({"remove": ("d2h",), "keep_on_gpu": True}, None)
    left = apply_all(timeline(moved), changes, Setting()).timeline.operations
    assert left["fingerprint"].to_list() == [4]


def test_fingerprints_of_its_own_give_way() -> None:
    told = with_fingerprints_of(hashed(1, 2), hashed(3, None))
    assert told.operations["fingerprint"].to_list() == [3, None]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (hashed(None, None), "holds no fingerprints"),
        (hashed(1, 2, 3), r"2 copies h2d of 1048576 bytes, and 3 in .*not two recordings of the same work"),
        (trace(sent(0, direction="d2h", fingerprint=1)), "0 copies d2h of 1048576 bytes, and 1 in"),
    ],
    ids=["none", "more", "elsewhere"],
)
def test_what_is_no_recording_of_the_same_work_is_refused(other: Trace, why: str) -> None:
    with pytest.raises(InputError, match=why):
        with_fingerprints_of(trace(sent(0), sent(20)), other)
