"""No mutated database makes the reader of tables touch memory not its own, overflow, or race."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.sanitized_tables import SANITIZERS, build, complaints


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_mutated_databases_under_the_sanitizers(sanitizer: str, tmp_path: Path) -> None:
    program = build(tmp_path, sanitizer)
    assert f"__{sanitizer[0]}san_".encode() in program.read_bytes()
    assert list(complaints(program, 200, 7)) == []
