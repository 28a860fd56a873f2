"""What the commands do that read traces."""

from functools import partial
from pathlib import Path
from typing import Any

from busfare import api
from busfare.answers.diff import read_report
from busfare.answers.limits import check, parse_limit
from busfare.cli.output import answer
from busfare.errors import InputError
from busfare.files import write_file
from busfare.jobs.chakra import export_chakra
from busfare.printable import note, warn
from busfare.questions import Part
from busfare.show.demo import run_demo
from busfare.show.notebook import Answer
from busfare.show.progress import reading, warned
from busfare.show.words import text, worded
from busfare.trace import read
from busfare.trace.window import part_of
from busfare.trace.write import check_export, perfetto_of_pair
from busfare.trace.write import export as write_trace


def report(
    traces: tuple[Path, ...], fail_if: tuple[str, ...], baseline: Path | None, json: bool, html: Path | None, **given: Any
) -> None:  # fmt: skip
    limits = [parse_limit(text) for text in fail_if]
    if baseline is None and any(limit.grows for limit in limits):
        raise InputError("`fail_if` NAME > +VALUE%: needs a baseline; name it with `baseline` FILE")
    before = read_report(baseline) if baseline else None
    result = api.report(list(traces), baseline=before, **given)
    try:
        answer(result, partial(Answer.document, page=bool(html)), json, html)
    finally:  # even where nobody reads on to the end
        if limits:
            check(result, limits, before)


def what_if(trace: Path, perfetto: Path | None, json: bool, html: Path | None, **given: Any) -> None:
    result = api.what_if(trace, **given)
    if perfetto:
        if result.runs is None:
            raise InputError("`perfetto` applies to one run: give it with one trace")
        write_file(perfetto, perfetto_of_pair(*result.runs))
    answer(result, partial(Answer.document, page=bool(html)), json, html)


def project(trace: Path, json: bool, html: Path | None, **given: Any) -> None:
    answer(api.project(trace, **given), Answer.document, json, html)


def compare(predicted: Path, actual: Path, json: bool, **given: Any) -> None:
    answer(api.compare(predicted, actual, **given), Answer.document, json)


def diff(before: Path, after: Path, json: bool, html: Path | None, **given: Any) -> None:
    answer(api.diff(before, after, **given), Answer.document, json, html)


def export(trace: Path, to: str, output: Path, **given: Any) -> None:
    part = Part.of(**given).part()
    if to == "chakra":
        if part:
            raise InputError(f"`{next(iter(part))}`: chakra takes whole traces; leave it out")
        for left_out in export_chakra(trace, output):
            warn(f"{left_out.count} {text(left_out.what)}")
    else:
        check_export(to, output)
        with reading(trace):
            recorded = part_of(warned(read(trace, launches=to != "perfetto")), **part)
        recorded.omissions = worded(recorded.omissions)
        write_trace(recorded, to, output)
    note(f"{output} written")


def demo(output: Path) -> None:
    print(f"\nOpen this page: {run_demo(output).resolve()}")
