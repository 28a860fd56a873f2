"""Answers as Python and notebooks have them: a command's result, which shows itself as its tables, or as its page."""

from collections.abc import Callable
from dataclasses import replace
from html import escape
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, TypeVar

import msgspec
import numpy as np
import polars as pl

from busfare.answers.compare import Compared as _Comparison
from busfare.answers.job import JobReport as _JobReport
from busfare.answers.kv import PlanKvResult as _KvPlan
from busfare.answers.offload import PlanOffloadResult as _OffloadPlan
from busfare.answers.plan import PlanResult as _Plan
from busfare.answers.project import Projected as _Projection
from busfare.answers.report import Diff as _Diff
from busfare.answers.report import Report as _Report
from busfare.answers.trial import Try as _Try
from busfare.answers.what_if import WhatIf as _WhatIf
from busfare.errors import InputError
from busfare.files import write_file
from busfare.show.document import Document
from busfare.show.page import page as as_page
from busfare.show.terminal import render
from busfare.show.words import worded
from busfare.timeline import Timeline, play
from busfare.trace import Trace

#: Of a page in a notebook, in pixels.
HEIGHT = 640
Kind = TypeVar("Kind", bound="Answer")


class Answer:
    """What every answer can do. Its figures are its fields, named as the keys of the command's JSON, with units."""

    _document: Callable[[bool], Document]

    def document(self, page: bool = True) -> Document:
        """Its texts, tables and figures; with those that only a page has room for."""
        return self._document(page)

    def to_json(self) -> str:
        """The same object as the command's `--json`."""
        return msgspec.json.encode(self).decode()

    def save(self, path: str | Path) -> None:
        """Writes its page (.html) or its JSON (.json). Raises InputError for another ending, or where it cannot."""
        written = {".html": lambda: as_page(self.document()), ".json": self.to_json}
        ending = Path(path).suffix.lower()
        if ending not in written:
            raise InputError(f"{path}: give a name that ends in .html or .json")
        write_file(Path(path), written[ending]())

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that neither it nor the notebook touches the other."""
        style = f"width:100%;height:{HEIGHT}px;border:0"
        text = escape(as_page(self.document()))
        return f'<iframe sandbox="allow-scripts" title="busfare" style="{style}" srcdoc="{text}"></iframe>'

    def __repr__(self) -> str:
        width = get_terminal_size((100, 0)).columns
        return "\n".join(line for line, _ in render(self.document(page=False), width))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """IPython lays Structs out by their fields otherwise."""
        printer.text(repr(self))


class Report(Answer, _Report, dict=True, repr_omit_defaults=True):
    """Of `busfare.report` on one run."""


class JobReport(Answer, _JobReport, dict=True):
    """Of `busfare.report` on the traces of a job."""


class _Replayed(Answer):
    """An answer about a run that was changed; `changed`, both of them, is None of a job."""

    changed: tuple[Trace, Timeline] | None = None

    @property
    def runs(self) -> tuple[Trace, Trace] | None:
        """The recorded run, and the run as it is predicted with all changes; None of a job."""
        return self.changed and (self.changed[0], predicted_trace(self.changed[1]))


class WhatIf(_Replayed, _WhatIf, dict=True):
    """Of `busfare.what_if`."""


class Projection(Answer, _Projection, dict=True):
    """Of `busfare.project`."""


class Comparison(Answer, _Comparison, dict=True):
    """Of `busfare.compare`."""


class Diff(Answer, _Diff, dict=True):
    """Of `busfare.diff`."""


class Plan(Answer, _Plan, dict=True):
    """Of `busfare.plan`."""


class OffloadPlan(Answer, _OffloadPlan, dict=True):
    """Of `busfare.plan_offload`."""


class KvPlan(Answer, _KvPlan, dict=True):
    """Of `busfare.plan_kv`."""


class Try(Answer, _Try, dict=True):
    """Of `busfare.try_`."""


def answer(kind: type[Kind], result: Any, document: Callable[[bool], Document]) -> Kind:
    """`result` as one of the kinds above; `document` makes its document, with what only a page shows or without."""
    result = worded(result)
    made = kind(**{name: getattr(result, name) for name in result.__struct_fields__})
    made._document = document
    return made


def predicted_trace(run: Timeline) -> Trace:
    """The run as predicted, as a trace that can be exported beside the recorded one."""
    played = play(run)
    # Streams that the recording does not have get numbers above all that it has.
    number, recorded = run.columns["operation_stream"].astype(np.int64), run.operations["stream_number"]
    most = run.operations.select(pl.max("stream")).item() or 0
    new = np.where(number != recorded.to_numpy(), most + 1 + number, -1)
    operations = run.operations.with_columns(
        start_ns=pl.Series(played.operation_start + run.origin_ns),
        end_ns=pl.Series(played.operation_end + run.origin_ns),
        stream=pl.coalesce(pl.Series(new).replace(-1, None), "stream"),
    ).drop("row", "call", "launched", "stream_number", strict=False)
    calls = run.calls.with_columns(
        start_ns=pl.Series(played.call_start - run.columns["call_startup"] + run.origin_ns),
        end_ns=pl.Series(played.call_end + run.origin_ns),
    ).select(run.trace.calls.columns)
    return replace(run.trace, operations=operations, calls=calls)
