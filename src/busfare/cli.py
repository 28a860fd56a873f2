"""The command line: one short function a command, and no logic. Whatever is heavy is imported where it is used."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from busfare.bench_cli import bench_app
from busfare.errors import BusfareError, InputError
from busfare.one_core_blas import import_numpy
from busfare.output import AsJson, Html, print_json, say_page, write_file

if TYPE_CHECKING:
    from busfare.job import How
    from busfare.node import Node
    from busfare.trace import Trace

__all__ = ["app", "main"]

app = typer.Typer(
    help="What your data pays to ride the bus between CPU and GPU, what it would pay elsewhere, and what to change.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
nodes_app = typer.Typer(
    help="The catalogue of nodes; show one, or check a node file of your own.", rich_markup_mode=None
)
app.add_typer(nodes_app, name="nodes")
app.add_typer(bench_app, name="bench")

TracePath = Annotated[
    Path, typer.Argument(metavar="TRACE", help="Nsight Systems, PyTorch, nvprof, rocpd or RPD trace.")
]
RecordedOn = Annotated[
    str | None,
    typer.Option(
        "--node", metavar="NODE", help="Where it was recorded; guessed from the GPU's name otherwise."
    ),
]
FromNode = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="NODE", help="Where it was recorded; guessed from the GPU's name otherwise."
    ),
]
KernelRules = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RULE", help="Kernel times: keep, bandwidth, clock, 0.8x or REGEX=0.8x; may be repeated."
    ),
]


@app.command()
def report(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACE...",
            help="Nsight Systems, PyTorch, nvprof, rocpd or RPD trace; or the traces of a job: several, "
            "a folder, a quoted glob.",
        ),
    ],
    node: RecordedOn = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="LIMIT",
            help="Exit with status 1 if it is passed: 'exposed > 20%', 'makespan > 3s'; may be repeated.",
        ),
    ] = None,
    json: AsJson = False,
    html: Html = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", help="Read so many traces at once, or in so many Slurm jobs.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Read them on the workers of this Dask scheduler.")
    ] = None,
    slurm: Annotated[
        str | None,
        typer.Option(
            metavar="OPTIONS", help="Read them in Slurm jobs: queue=gpu,cores=4,memory=8GB,walltime=00:30:00."
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep what is read here, and read nothing twice."),
    ] = None,
) -> None:
    """Where transfer time goes in a trace, or in all traces of a job, and what to do about it."""
    import_numpy()
    from busfare.job import How, one_trace
    from busfare.node import load_node
    from busfare.report.limits import check, parse_limit
    from busfare.report.summary import REPLAYED_ROWS, UNUSED, summarise

    limits = [parse_limit(text) for text in fail_if or ()]
    how = How(jobs, scheduler, slurm, resume)
    how.check()
    one = None if how.asked else one_trace(traces)
    if one is None:
        check(_report_job(traces, node, how, json, html), limits)
        return
    recorded_on = load_node(node) if node else None
    read = _read(one, frozenset() if html else UNUSED, REPLAYED_ROWS)
    result = summarise(read, recorded_on)
    if html:
        from busfare.report.page import report_page

        write_file(html, report_page(result, read))
    if json:
        print_json(result)
    else:
        from busfare.report.terminal import show_report

        show_report(result)
    say_page(html)
    check(result, limits)


@app.command("what-if")
def what_if(
    trace: TracePath,
    pin: Annotated[
        str | None,
        typer.Option(
            metavar="[REGEX]", help="Pageable host buffers become pinned; all, or those of matching copies."
        ),
    ] = None,
    async_: Annotated[
        str | None,
        typer.Option(
            "--async",
            metavar="[REGEX]",
            help="Copies to the GPU, or all that match, no longer hold the host up.",
        ),
    ] = None,
    drop_synchronisations: Annotated[
        str | None,
        typer.Option(metavar="[REGEX]", help="Only waits behind copies to the host, and last ones, stay."),
    ] = None,
    batch_below: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Pack copies smaller than this that follow each other.")
    ] = None,
    collect_below: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Results smaller than this stay on the GPU and come back once, at the end."
        ),
    ] = None,
    streams: Annotated[
        int | None, typer.Option(metavar="N", help="Spread chunks of one stream over N streams and buffers.")
    ] = None,
    kernel: Annotated[
        str, typer.Option(metavar="REGEX", help="With --streams: only chunks with such a kernel.")
    ] = "",
    dedupe: Annotated[bool, typer.Option("--dedupe", help="Send unchanged buffers once.")] = False,
    prefetch: Annotated[
        bool, typer.Option("--prefetch", help="Send managed memory before kernels need it.")
    ] = False,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT", help="Do without h2d, d2h, d2d, p2p, copy, set or migration; may be repeated."
        ),
    ] = None,
    link: Annotated[
        str | None, typer.Option(metavar="LINK", help="Another link: pcie:5, nvlink:2x3, c2c:1.")
    ] = None,
    node: Annotated[str | None, typer.Option("--node", metavar="NODE", help="Run on another node.")] = None,
    kernels: KernelRules = None,
    copy_speed: Annotated[
        str | None, typer.Option(metavar="FACTOR", help="All copies so many times as fast: 2x.")
    ] = None,
    from_: FromNode = None,
    model: Annotated[str, typer.Option(help="Cost model for another node.")] = "calibrated",
    perfetto: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the recorded and the predicted time line for ui.perfetto.dev."
        ),
    ] = None,
    json: AsJson = False,
    html: Html = None,
) -> None:
    """What a change to the program, or another node, would make of the whole run."""
    from busfare.advise import guess_node
    from busfare.node import load_node
    from busfare.replay.changes import Setting
    from busfare.replay.options import Options, changes_of
    from busfare.report.what_ifs import answer_what_if, predicted_trace, show_what_if

    options = Options(
        pin=pin,
        asynchronous=async_,
        drop_synchronisations=drop_synchronisations,
        batch_below=batch_below,
        collect_below=collect_below,
        streams=streams,
        kernel=kernel,
        dedupe=dedupe,
        prefetch=prefetch,
        remove=tuple(remove or ()),
        link=link,
        node=node,
        kernels=tuple(kernels or ()),
        copy_speed=copy_speed,
    )
    changes_of(options, None, check_only=True)
    read = _read(trace)
    recorded_on = load_node(from_) if from_ else guess_node(read)
    setting = Setting(recorded_on, model)
    result, found = answer_what_if(read, changes_of(options, recorded_on), setting, from_ is None)
    if perfetto:
        from busfare.report.export import perfetto_beside

        write_file(perfetto, perfetto_beside(read, predicted_trace(found.together.played)).decode())
    if html:
        from busfare.report.what_if_page import what_if_page

        write_file(html, what_if_page(result, read, predicted_trace(found.together.played)))
    if json:
        print_json(result)
    else:
        show_what_if(result)
    say_page(html)


def _report_job(
    traces: list[Path], node: str | None, how: How, json: bool, html: Path | None
) -> dict[str, Any]:
    from busfare.job import run_job
    from busfare.node import load_node
    from busfare.report.job_progress import job_progress
    from busfare.report.job_result import job_result

    recorded_on = load_node(node) if node else None
    with job_progress() as shown:
        result = job_result(run_job(traces, recorded_on, how, shown))
    if html:
        from busfare.report.job_page import job_page

        write_file(html, job_page(result, recorded_on))
    if json:
        print_json(result)
    else:
        from busfare.report.jobs import show_job

        show_job(result)
    say_page(html)
    return result


@app.command()
def project(
    trace: TracePath,
    to: Annotated[
        list[str], typer.Option("--to", metavar="NODE", help="Node to predict for; may be repeated.")
    ],
    from_: FromNode = None,
    model: Annotated[str, typer.Option(help="Cost model.")] = "calibrated",
    kernels: KernelRules = None,
    json: AsJson = False,
    html: Html = None,
) -> None:
    """What the copies and the whole run would take on another node."""
    from busfare.node import load_node
    from busfare.project import project as project_trace
    from busfare.replay import timeline
    from busfare.report.projections import projection_result

    targets = [load_node(text) for text in to]
    read = _read(trace)
    recorded_on = _recorded_on(read, from_, "--from")
    rebuilt, rules = timeline(read, recorded_on), tuple(kernels or ())
    projections = [project_trace(read, recorded_on, target, model, rules, rebuilt) for target in targets]
    result = projection_result(projections, guessed=from_ is None)
    if html:
        from busfare.report.page import projection_page

        write_file(html, projection_page(result, read))
    if json:
        print_json(result)
    else:
        from busfare.report.terminal import show_projection

        show_projection(result)
    say_page(html)


@app.command()
def compare(
    predicted: Annotated[Path, typer.Argument(metavar="TRACE", help="The trace to predict from.")],
    actual: Annotated[
        Path,
        typer.Argument(
            metavar="ACTUAL", help="A trace of the same program, recorded on the node predicted for."
        ),
    ],
    from_: FromNode = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="NODE", help="Where ACTUAL was recorded; guessed otherwise.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Cost model; may be repeated. All that apply otherwise.")
    ] = None,
    json: AsJson = False,
) -> None:
    """How far predictions for a node are from a trace recorded there, by every cost model."""
    from busfare.report.projections import compared

    first, second = _read(predicted), _read(actual)
    recorded_on, target = _recorded_on(first, from_, "--from"), _recorded_on(second, to, "--to")
    result = compared(first, second, recorded_on, target, model)
    if json:
        print_json(result)
    else:
        from busfare.report.terminal import show_comparison

        show_comparison(result)


@app.command()
def price(
    node: Annotated[
        str,
        typer.Option(
            "--node", metavar="NODE", help="Catalogue name, TOML file, or a link such as pcie:4x16."
        ),
    ],
    bytes_: Annotated[
        str, typer.Option("--bytes", metavar="N", help="Size of the copy: 4096, 64KiB, 1.5GB.")
    ],
    direction: Annotated[str, typer.Option(help="h2d, d2h, d2d or p2p.")] = "h2d",
    memory: Annotated[str, typer.Option(help="pageable, pinned, managed, mapped or device.")] = "pinned",
    latency_from: Annotated[
        str | None, typer.Option("--latency-from", metavar="NODE", help="Node whose measured L+o to take.")
    ] = None,
    json: AsJson = False,
) -> None:
    """What one copy costs on a node, by every model that applies."""
    from busfare import cost
    from busfare.node import load_node
    from busfare.quantities import parse_bytes

    size = parse_bytes(bytes_)
    target = load_node(node)
    prices = cost.price(target, direction, memory, size, load_node(latency_from) if latency_from else None)
    result = {
        "schema": "busfare.price/1",
        "node": target.name,
        "direction": direction,
        "memory": memory,
        "bytes": size,
        "prices": prices,
    }
    if json:
        print_json(result)
    else:
        from busfare.report.terminal import show_prices

        show_prices(result)


@app.command()
def plan(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE.toml", help="Kernels to plan, one a [[kernel]] table.")
    ] = None,
    h2d: Annotated[str | None, typer.Option(metavar="SIZE", help="Copied to the GPU: 336MB.")] = None,
    d2h: Annotated[str | None, typer.Option(metavar="SIZE", help="Copied back: 504MB.")] = None,
    kernel: Annotated[
        str | None, typer.Option(metavar="TIME", help="The kernel, its data on the GPU: 12ms.")
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(
            "--node", metavar="NODE", help="Catalogue name, TOML file, or a link such as pcie:4x16."
        ),
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="NODE", help="Compare with another node; may be repeated."),
    ] = None,
    flops: Annotated[str | None, typer.Option(metavar="N", help="Of the kernel: 12G.")] = None,
    device_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What it reads and writes in GPU memory.")
    ] = None,
    accesses_in: Annotated[
        str | None, typer.Option(metavar="N", help="How often it reads each input element.")
    ] = None,
    accesses_out: Annotated[
        str | None, typer.Option(metavar="N", help="How often it writes each output element.")
    ] = None,
    access_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What neighbouring threads touch at once: 32B.")
    ] = None,
    streams: Annotated[str | None, typer.Option(metavar="N", help="This many streams, not the best.")] = None,
    levels: Annotated[
        str | None, typer.Option(metavar="N", help="Into how many chunks the data can be cut.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="KIND", help="The host buffers now: pinned or pageable.")
    ] = None,
    copies_in: Annotated[str | None, typer.Option(metavar="N", help="Separate arrays copied in.")] = None,
    copies_out: Annotated[str | None, typer.Option(metavar="N", help="Separate arrays copied back.")] = None,
    chunks: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Shares of unequal chunks: 1,2,2,1.")
    ] = None,
    kernel_at: Annotated[
        list[str] | None,
        typer.Option(metavar="N=TIME", help="All kernels together when cut into N; may be repeated."),
    ] = None,
    queues: Annotated[
        str | None, typer.Option(metavar="N", help="Hardware queues; one a stream otherwise.")
    ] = None,
    concurrent_kernels: Annotated[
        str | None, typer.Option(metavar="N", help="Kernels that run side by side without slowing down.")
    ] = None,
    launch: Annotated[
        str | None, typer.Option(metavar="TIME", help="The host's time for each call: 4us.")
    ] = None,
    from_trace: Annotated[
        Path | None, typer.Option("--from-trace", metavar="TRACE", help="Take bytes and times from a trace.")
    ] = None,
    kernel_name: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Which kernels of the trace.")
    ] = None,
    vary: Annotated[
        str | None, typer.Option("--sweep", metavar="WHAT", help="Vary link, streams, bytes or kernel.")
    ] = None,
    json: AsJson = False,
    html: Html = None,
) -> None:
    """Which overlap strategy is fastest for a kernel, and with how many streams."""
    said = dict(locals())
    from busfare.report.plans import answer_plan, show_plan

    result = answer_plan(said)
    if html:
        from busfare.report.plan_page import plan_page

        write_file(html, plan_page(result))
    if json:
        print_json(result)
    else:
        show_plan(result)
    say_page(html)


@nodes_app.callback(invoke_without_command=True)
def nodes(context: typer.Context, json: AsJson = False) -> None:
    """The catalogue of nodes; show one, or check a node file of your own."""
    if context.invoked_subcommand:
        return
    from busfare.report.nodes import catalogue_result

    result = catalogue_result()
    if json:
        print_json(result)
    else:
        from busfare.report.terminal import show_nodes

        show_nodes(result)


@nodes_app.command("show")
def nodes_show(
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="Catalogue name, TOML file, or a link such as pcie:4x16.")
    ],
    json: AsJson = False,
) -> None:
    """One node, with a drawing of its graph."""
    from busfare.node import load_node
    from busfare.node.drawing import draw
    from busfare.report.nodes import node_result

    shown = load_node(node)
    if json:
        print_json({"schema": "busfare.nodes/1", **node_result(shown)})
    else:
        print(draw(shown))


@nodes_app.command("check")
def nodes_check(file: Annotated[Path, typer.Argument(metavar="FILE", help="A node file (TOML).")]) -> None:
    """Whether a node file is right; if not, the key, the line and the mend."""
    from busfare.node import load_node

    if not file.is_file():
        raise InputError(f"{file}: no such file; give the path of a node file")
    checked = load_node(str(file))
    print(
        f"{file}: {checked.name} is right: {len(checked.components)} components, {len(checked.links)} "
        f"links, {len(checked.gpus())} GPUs"
    )


@app.command()
def export(
    trace: TracePath,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="parquet (a directory of tables), perfetto (a time line for ui.perfetto.dev) or nsys-sqlite.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="PATH", help="Where to write.")],
) -> None:
    """Write a trace as tables or as a time line for others' tools."""
    from busfare.report.export import export as write

    write(_read(trace), to, output)
    print(f"{output} written", file=sys.stderr)


@app.command(context_settings={"allow_interspersed_args": False})
def record(
    command: Annotated[
        list[str], typer.Argument(metavar="-- PROGRAM [ARGUMENTS]", help="The program to run.")
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="A directory; or one process's file, with %p process, %h host, %r rank.",
        ),
    ],
    duration: Annotated[
        float, typer.Option(metavar="S", help="Record for so many seconds; 0: to the end.")
    ] = 0.0,
    delay: Annotated[float, typer.Option(metavar="S", help="Begin after so many seconds.")] = 0.0,
    capture: Annotated[
        str, typer.Option(help="whole, or profiler-calls (cudaProfilerStart to Stop).")
    ] = "whole",
    nvtx: Annotated[
        str, typer.Option(metavar="RANGE", help="Record only inside the NVTX range of this name.")
    ] = "",
    flush_every: Annotated[float, typer.Option(metavar="S", help="Write at least this often.")] = 1.0,
    kinds: Annotated[str, typer.Option(metavar="KIND,…", help="What to record; see docs/recorder.md.")] = "",
    fingerprint: Annotated[
        bool, typer.Option(help="Hash each copied buffer, to find what is sent twice.")
    ] = False,
) -> None:
    """Run any CUDA program and record its GPU work; returns the program's exit status."""
    from busfare.measure.record import record as run

    status = run(
        command,
        output,
        duration=duration,
        delay=delay,
        capture=capture,
        nvtx=nvtx,
        flush_every=flush_every,
        kinds=[kind for kind in kinds.split(",") if kind],
        fingerprint=fingerprint,
    )
    raise typer.Exit(status)


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the pages go.")
    ] = Path("busfare-demo"),
) -> None:
    """Report a real trace that comes with busfare, and project it onto three other nodes."""
    from busfare.report.demo import run_demo

    page = run_demo(output)
    print(f"\nThe page to open: {page.resolve()}")


@app.command()
def probe(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where the node file goes.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="10 seconds a GPU in place of 30.")] = False,
    virtual: Annotated[
        str | None, typer.Option("--virtual", metavar="NODE", help="Play a node in place of measuring one.")
    ] = None,
    fault: Annotated[
        list[str] | None, typer.Option(help="With --virtual: a fault to play; may be repeated.")
    ] = None,
    raw: Annotated[
        Path | None, typer.Option("--raw", metavar="FILE", help="Where all raw samples go (.json, .json.gz).")
    ] = None,
    from_: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Fit raw samples of an earlier run anew.")
    ] = None,
    json: AsJson = False,
    html: Html = None,
) -> None:
    """Measure this machine's GPUs and links, and write the node file that describes them."""
    from busfare.measure import probe as probing
    from busfare.measure.node_file import encode
    from busfare.measure.raw import write
    from busfare.report.probe_progress import progress

    # What will show the result is loaded first: a broken installation says so before half a minute of measuring.
    if html:
        from busfare.report.probe_page import probe_page
    if not json:
        from busfare.report.probes import show_probe
    if from_:
        probed = probing.again(from_)
    else:
        device = probing.open_device(virtual, faults=fault or ())
        try:
            with progress() as shown:
                record, knees = probing.measured(device, quick, shown)
            # On file before anything is fitted or shown: what was measured cannot be had again.
            if raw:
                write(record, raw)
        finally:
            device.close()
        probed = probing.evaluated(record, knees)
    if output:
        write_file(output, encode(probed.node))
    if raw and from_:
        write(probed.record, raw)
    result = probing.result(probed)
    if html:
        write_file(html, probe_page(result))
    if json:
        print_json(result)
    else:
        show_probe(result)
    say_page(html)


def _read(path: Path, unused: frozenset[str] = frozenset(), above: int = 0) -> Trace:
    """The trace at `path` (`busfare.trace.read`), with a sign of life on a terminal while it is read."""
    from busfare.trace import read

    if not sys.stderr.isatty():
        return read(path, unused, above)
    from rich.console import Console

    with Console(stderr=True).status(f"reading {path.name}", spinner="dots"):
        return read(path, unused, above)


def _recorded_on(trace: Trace, node: str | None, option: str) -> Node:
    """The node named with `option`, or the one whose GPU the trace names."""
    from busfare.advise import guess_node
    from busfare.node import load_node

    found = load_node(node) if node else guess_node(trace)
    if found is None:
        raise InputError(
            f"{trace.path}: the trace does not name a GPU of the catalogue; say where it was recorded with {option} NODE"
        )
    return found


def _one_line(message: str) -> str:
    return " ".join(message.split())


#: Options of `what-if` whose value may be left out.
VALUE_MAY_LACK = ("--pin", "--async", "--drop-synchronisations")


def _with_empty_values(arguments: list[str]) -> list[str]:
    """`--pin` without a value as `--pin=`; the trace itself is no value, so it may stand behind it."""
    if arguments[:1] != ["what-if"]:
        return arguments
    made: list[str] = []
    for at, text in enumerate(arguments):
        following = arguments[at + 1] if at + 1 < len(arguments) else "-"
        lacks = text in VALUE_MAY_LACK and (following.startswith("-") or Path(following).exists())
        made.append(f"{text}=" if lacks else text)
    return made


def main() -> None:
    """Runs the command line and exits with its status: 0 done, 1 a limit passed, 2 unusable input, 3 no GPU."""
    # Imports make many objects and no garbage: looking for it among them takes a tenth of the start.
    gc.set_threshold(100_000, 50, 50)
    command = typer.main.get_command(app)
    try:
        status = command.main(_with_empty_values(sys.argv[1:]), standalone_mode=False, prog_name="busfare")
        sys.stdout.flush()
    except BusfareError as error:
        print(f"busfare: {_one_line(str(error))}", file=sys.stderr)
        status = error.exit_status
    except typer.Exit as done:
        status = done.exit_code
    except typer.TyperException as error:
        print(f"busfare: {_one_line(error.format_message())} Try `busfare --help`.", file=sys.stderr)
        status = 2
    except SystemExit as stop:
        # Typer answers a broken pipe with exit(1): whoever read our output has had enough.
        status = 0 if stop.code == 1 else stop.code
    except BrokenPipeError:
        # Whoever read our output has had enough; keep the interpreter from complaining about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except MemoryError:
        print(
            "busfare: not enough memory for this trace; use a machine with more, or export a shorter part of it",
            file=sys.stderr,
        )
        status = 2
    except (KeyboardInterrupt, typer.Abort):
        print("busfare: stopped", file=sys.stderr)
        status = 130
    sys.exit(status if isinstance(status, int) else 0)
