"""What the pages of `bench methods` and `bench strategies` share."""

from __future__ import annotations

from html import escape
from typing import Any

from busfare.report.document import section, table

__all__ = ["MEASURED", "OTHERS", "PREDICTED", "heading", "left_out", "machine", "words"]

#: Colours of the bars, apart in lightness too.
MEASURED, PREDICTED, OTHERS = "#0072b2", "#e69f00", "#8c8c8c"
_WORDS = (
    "Measured: by events on the GPU (strategies) or the host's clock (methods), the middle or mean of several runs, "
    "every result checked. Predicted: by plan, from the node's parameters and the kernel's time alone."
)
_VIRTUAL = "VIRTUAL: a node was played; nothing was measured and nothing was checked. 'Measured' is what was played. "


def heading(what: str, result: dict[str, Any]) -> str:
    """What it is, of which machine, predicted by what."""
    label = "VIRTUAL: played, not measured. " if result["virtual"] else ""
    node = result["node"]
    said = f"predicted by the parameters of {node['name']} ({node['source']}) · {result['date']} · {result['command']}"
    return f"<h1>{escape(label)}{escape(what)} on {escape(str(result['gpu']))}</h1><p class='dim'>{escape(said)}</p>"


def words(result: dict[str, Any]) -> str:
    """What measured and predicted mean on the page."""
    return (_VIRTUAL if result["virtual"] else "") + _WORDS


def left_out(result: dict[str, Any]) -> str:
    """What could not be run, and what disturbed the run."""
    lines = "".join(f"<li><b>disturbed</b>: {escape(sentence)}</li>" for sentence in result["disturbances"])
    lines += "".join(f"<li>{escape(row['case'])}: {escape(row['why'])}</li>" for row in result["left_out"])
    return section("Left out, or disturbed", f"<ul>{lines}</ul>" if lines else "<p>Nothing.</p>")


def machine(result: dict[str, Any]) -> str:
    """What the system says of itself."""
    rows = [(key, str(value)) for key, value in result["facts"].items() if key != "gpus"]
    rows += [
        (f"GPU {n} {key}", str(value))
        for n, gpu in enumerate(result["facts"]["gpus"])
        for key, value in gpu.items()
    ]
    return section("The machine", table(("", ""), rows, 2))
