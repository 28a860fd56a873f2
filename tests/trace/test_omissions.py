"""Omissions add up and keep their order."""

from __future__ import annotations

from busfare.trace import Omission
from busfare.trace.model import Omissions


def test_the_same_omission_found_again_adds_to_its_count() -> None:
    omissions = Omissions()
    omissions.add("untimed", "calls without times", 2)
    omissions.add("truncated", "the file ends in the middle")
    omissions.add("untimed", "calls without times", 3)
    omissions.add("untimed", "operations without times", 1)
    assert omissions.list() == [
        Omission("untimed", 5, "calls without times"),
        Omission("truncated", 0, "the file ends in the middle"),
        Omission("untimed", 1, "operations without times"),
    ]


def test_none_of_something_is_no_omission() -> None:
    omissions = Omissions()
    omissions.add_if(0, "untimed", "calls without times")
    omissions.add_if(4, "unknown-sizes", "copies without size")
    assert [(omission.id, omission.count) for omission in omissions.list()] == [("unknown-sizes", 4)]
