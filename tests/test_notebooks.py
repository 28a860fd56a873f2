"""The notebooks of docs/, run from their first cell to their last."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"
#: What must be among the texts that a notebook prints, each from its own recorded or predicted figures.
PRINTED = {
    "first-report": (
        "saves 34 ms of 166 ms",
        "1.26 times as fast",
        "12 copies (231 MB), from h2d pageable → device to h2d pinned",
    ),
    "choosing-a-node": ("recorded 17.05 ms",),
    "planning-overlap": ("three-streams with 256: 12.1 ms", "layers stay"),
}


def test_every_notebook_is_run_here() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(PRINTED)


@pytest.mark.parametrize("name", PRINTED)
def test_a_notebook_runs_to_its_end_and_shows_answers(name: str, tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # outputs are not kept
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output.get("text", "") for output in outputs)
    for text in PRINTED[name]:
        assert text in printed
    pages = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert sum("<iframe sandbox" in page for page in pages) >= 2
    # What a reader without HTML sees: tables as in a terminal.
    assert all(output["data"]["text/plain"] for output in outputs if "data" in output)
