"""Commands that measure this machine: probe, record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from busfare.output import AsJson, Html, print_json, say_page, write_file

__all__ = ["probe", "record"]


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
    calls: Annotated[
        str,
        typer.Option(help="Whose calls: driver, both (the program's own, of runtime and driver) or none."),
    ] = "driver",
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
        calls=calls,
        fingerprint=fingerprint,
    )
    raise typer.Exit(status)
