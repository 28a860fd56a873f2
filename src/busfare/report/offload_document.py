"""Documents of `plan offload` and `bench offload`."""

from __future__ import annotations

from busfare.advise.amounts import size, time
from busfare.measure.offload_results import OffloadResult
from busfare.report.document import Document, Table, numbers, words

__all__ = ["bench_offload_document"]


def bench_offload_document(result: OffloadResult) -> Document:
    """Every schedule, measured beside predicted."""
    rows = [
        (
            cell.memory,
            f"{cell.layers} × {size(cell.layer_bytes)}",
            str(cell.tokens),
            str(cell.resident),
            str(cell.depth),
            time(cell.measured_seconds),
            time(cell.predicted_seconds or 0.0),
            f"{cell.error_percent or 0.0:+.1f} %",
        )
        for cell in result.cells
    ]
    head = words("memory", "layers") + numbers(
        "tokens", "resident", "depth", result.seen, "predicted", "error"
    )
    return Document("busfare bench offload", result.gpu or "", "", [Table(head, rows)], "")
