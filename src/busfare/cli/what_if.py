"""The command `what-if`: on one trace, or on all ranks of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from busfare.cli.answer import answer, option, optional_node, read_trace
from busfare.cli.traces import from_node, trace_path
from busfare.errors import InputError
from busfare.output import OUTPUT, as_html, as_json, write_file


class WithChanges(click.Command):
    """A command that also takes the option of every change that a run or a job knows; those are read when it is called."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        from busfare.job.changes import JOB_OPTIONS
        from busfare.timeline.changes import OPTIONS

        made: list[click.Parameter] = [
            click.Option(
                [option.name, *option.aliases, option.key],
                metavar=option.metavar,
                help=option.help,
                is_flag=option.metavar is None,
                multiple=option.multiple,
                default=option.default,
                show_default=bool(option.default),
                type=int if option.read is int else None,
            )
            for option in (*OPTIONS, *JOB_OPTIONS)
        ]
        own = super().get_params(ctx)
        return [*own[:1], *made, *own[1:]]


@click.command(cls=WithChanges)
@trace_path
@option(
    "--unrecorded TIME", "How long the run takes when it is not recorded: 1.5s; the rest is the recorder's."
)
@from_node
@option("--model", "Cost model for another node.", default="calibrated")
@option("--perfetto FILE", "Write the recorded and the predicted time line for ui.perfetto.dev.", type=OUTPUT)
@as_json
@as_html
def what_if(
    trace: Path,
    unrecorded: str | None,
    from_: str | None,
    model: str,
    perfetto: Path | None,
    json: bool,
    html: Path | None,
    **asked: Any,
) -> None:
    """What a change to the program, or another node, would make of the whole run; or of a job, whose folder is given."""
    from busfare.advise import guess_node
    from busfare.job import one_trace
    from busfare.job.changes import asks_for_job
    from busfare.quantities import parse_seconds
    from busfare.report.lanes import lanes_of
    from busfare.report.prediction_documents import what_if_document
    from busfare.report.what_ifs import answer_what_if, predicted_trace
    from busfare.timeline.changes import Setting, changes_of

    of_job = asks_for_job(asked)
    changes_of(asked, None, check_only=True, others=of_job)
    bare = parse_seconds(unrecorded) if unrecorded else None
    one = one_trace([trace])
    if one is None or of_job:
        if bare is not None or perfetto:
            raise InputError("--unrecorded and --perfetto are of one run: give them with one trace")
        _of_job(trace, asked, from_, model, json, html)
        return
    read = read_trace(one, launches=asked.get("node") is not None)
    recorded_on = optional_node(from_) or guess_node(read)
    changes, setting = changes_of(asked, recorded_on), Setting(recorded_on, model)
    result, played = answer_what_if(read, changes, setting, from_ is None, bare)
    predicted = predicted_trace(played) if perfetto or html else None
    if perfetto and predicted:
        from busfare.report.export import perfetto_beside

        write_file(perfetto, perfetto_beside(read, predicted))
    lanes = (lanes_of(read), lanes_of(predicted, predicted=True)) if html and predicted else ()
    answer(result, lambda: what_if_document(result, *lanes), json, html)


def _of_job(
    path: Path, asked: dict[str, Any], from_: str | None, model: str, json: bool, html: Path | None
) -> None:
    """The same of all ranks whose traces lie in a folder, or in one trace."""
    from busfare.advise import guess_node
    from busfare.job.changes import job_changes_of
    from busfare.job.parts import trace_paths
    from busfare.job.timeline import job_timeline
    from busfare.report.prediction_documents import what_if_document
    from busfare.report.what_ifs import answer_job_what_if
    from busfare.timeline.changes import Setting

    paths = trace_paths(path)
    traces = [read_trace(each, launches=asked.get("node") is not None) for each in paths]
    recorded_on = optional_node(from_) or guess_node(traces[0])
    job = job_timeline(traces, recorded_on, paths)
    setting = Setting(recorded_on, model)
    changes = job_changes_of(asked, job, setting)
    result = answer_job_what_if(job, str(path), changes, setting, from_ is None)
    answer(result, lambda: what_if_document(result), json, html)
