"""No mutated trace makes the scanner touch memory not its own, or overflow, or depend on how text is cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.sanitized import build, complaints


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("native"))


def test_mutated_traces_under_the_sanitizers(program: Path) -> None:
    assert list(complaints(program, 0, 250, 7)) == []


def test_the_driver_is_sanitized(program: Path) -> None:
    assert b"__asan_" in program.read_bytes()
    assert b"__ubsan_" in program.read_bytes()
