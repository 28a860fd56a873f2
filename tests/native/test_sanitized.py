"""No mutated trace and no random timeline makes native code touch memory not its own, overflow, or break a rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.sanitized import build, build_timelines, complaints, timeline_complaints


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="session")
def timelines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_timelines(tmp_path_factory.mktemp("native"))


def test_mutated_traces_under_the_sanitizers(program: Path) -> None:
    assert list(complaints(program, 0, 250, 7)) == []


def test_random_timelines_under_the_sanitizers(timelines: Path) -> None:
    assert timeline_complaints(timelines, 0, 3000) == []


def test_the_drivers_are_sanitized(program: Path, timelines: Path) -> None:
    for driver in (program, timelines):
        assert b"__asan_" in driver.read_bytes()
        assert b"__ubsan_" in driver.read_bytes()
