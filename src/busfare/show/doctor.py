"""The document of `doctor`."""

from __future__ import annotations

from busfare.answers.doctor import Doctor
from busfare.show.document import Block, Document, Items, Text, table


def doctor_document(result: Doctor) -> Document:
    """What works here, and what to do for the rest."""
    missing = [check for check in result.checks if not check.works]
    facts = f"Python {result.python} · {result.machine}"
    checks = table(
        result.checks,
        "",
        {
            "": lambda check: "works" if check.works else "missing",
            "what": "what",
            "needed for": "needed_for",
            "what is there": "is_there",
        },
    )
    change = [f"{check.what} (for {check.needed_for}): {check.change}" for check in missing]
    last: Block = Items(change, "What to do for the rest") if missing else Text("Everything works here.")
    return Document("busfare: this machine", f"busfare {result.version}", facts, [checks, last])
