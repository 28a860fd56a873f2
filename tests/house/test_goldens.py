"""Commands on the traces that ship with busfare answer what they answered before."""

import pytest

from tests.house.goldens import answer, cases, differences, stored_goldens

#: One trace of each profiler's kind, and what needs no trace; `python -m tests.house.goldens compare` looks at all.
HERE = {
    name: arguments
    for name, arguments in cases().items()
    if name.startswith(
        ("plan", "price", "nodes", "shipped/compare", "shipped/diff", "shipped/train-images-h100")
    )
}


#: Reports of the published traces and of the small cases beside them.
PUBLISHED = {
    name: arguments
    for name, arguments in cases().items()
    if name.startswith(("shared/", "job/", "case/")) and arguments[0] == "report"
}


@pytest.mark.parametrize("name", HERE)
def test_ids_and_figures_are_the_stored_ones(name: str) -> None:
    assert differences(stored_goldens()[name], answer(HERE[name])) == []


@pytest.mark.conformance
@pytest.mark.parametrize("name", PUBLISHED)
def test_reports_of_published_traces_are_the_stored_ones(name: str) -> None:
    assert differences(stored_goldens()[name], answer(PUBLISHED[name])) == []
