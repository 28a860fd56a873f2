"""No mutated file and no random input makes native code touch memory not its own, overflow, race, or break a rule."""

from pathlib import Path

import pytest

from tests.native.sanitized import DRIVERS

#: How many inputs, and their seed; of what is made the first number.
INPUTS = {
    "events": (150, 7),
    "columns": (3000, 0),
    "timelines": (600, 0),
    "tables, address,undefined": (60, 7),
    "tables, thread": (60, 7),
}


@pytest.mark.sanitized
@pytest.mark.parametrize("name", DRIVERS)
def test_inputs_under_the_sanitizers(name: str, tmp_path: Path) -> None:
    driver = DRIVERS[name]
    program = driver.build(tmp_path)
    marks = {"address": b"__asan_", "undefined": b"__ubsan_", "thread": b"__tsan_"}
    assert all(marks[name] in program.read_bytes() for name in driver.sanitizers.split(",") if name in marks)
    assert list(driver.complaints(program, *INPUTS[name])) == []
