"""The options of commands that read traces."""

from __future__ import annotations

from busfare.cli.options import (
    FOLDER,
    OF_PART,
    OUTPUT,
    PATH,
    SHOWN,
    Command,
    argument,
    as_json,
    details,
    option,
)

trace_path = argument("trace TRACE", "Nsight Systems, PyTorch, JAX, TensorFlow, nvprof or AMD trace.")
from_node = option("--from recorded_on NODE", "Node of the recording. Default: guessed from the GPU name.")
counted = option(
    "--counters FILE",
    "Output of `ncu --csv --page raw --print-units base` for the same program; see docs/kernels.md.",
    type=PATH,
)
kernel_times = option(
    "--kernels RULE",
    "Kernel times: keep, bandwidth, clock, 0.8x or REGEX=0.8x; repeatable.",
    multiple=True,
)
host_times = option(
    "--host RULE",
    "CPU times on another node: measured (from measurements on both nodes), keep, or 0.8x.",
    default="measured",
)
fingerprinted = option(
    "--fingerprints RECORDING",
    "Recording of the same run with fingerprints (record --fingerprint), to find copies of the same bytes.",
    type=PATH,
)


report = Command(
    "report",
    "Show where transfer time goes, and what to change. Give one trace, or all traces of a job.",
    "traces.report",
    argument(
        "traces TRACE...",
        "Nsight Systems, PyTorch, JAX, TensorFlow, nvprof or AMD trace; for a job: several traces, a folder or a "
        "quoted glob.",
        nargs=-1,
        required=True,
    ),
    option("--from --node recorded_on NODE", "Node of the recording. Default: guessed from the GPU name."),
    option(
        "--unrecorded TIME",
        "Run time without the recorder: 1.5s; gains then refer to that run.",
    ),
    fingerprinted,
    option(
        "--fail-if LIMIT",
        "Exit with status 1 beyond this limit: 'exposed > 20%', 'makespan > 3s', 'iteration > +5%' (over the baseline); "
        "repeatable.",
        multiple=True,
    ),
    option("--baseline FILE", "Compare with an earlier --json of the same program.", type=PATH),
    OF_PART,
    details,
    SHOWN,
    option("--jobs N", "Number of traces to read at once. Default for many traces: one per core."),
    option("--scheduler ADDRESS", "Read traces on the workers of this Dask scheduler."),
    option("--resume FOLDER", "Keep results in this folder, and read no trace twice.", type=FOLDER),
)

what_if = Command(
    "what-if",
    "Predict the whole run after a change, or on another node. For a job, give its folder.",
    "traces.what_if",
    trace_path,
    option("--dedupe", "Copy unchanged buffers once.", is_flag=True),
    option("--keep-on-gpu", "Keep data on the GPU that comes back and goes in again.", is_flag=True),
    option(
        "--remove WHAT",
        "Remove h2d, d2h, d2d, p2p, copy, set or migration; repeatable.",
        multiple=True,
    ),
    option("--prefetch", "Prefetch managed memory before kernels need it.", is_flag=True),
    option("--pin [REGEX]", "Pin pageable host buffers: all, or those of matching copies."),
    option("--batch-below SIZE", "Pack consecutive copies smaller than this."),
    option(
        "--collect-below SIZE", "Keep results smaller than this on the GPU, and copy them once at the end."
    ),
    option("--async async_ [REGEX]", "Make copies to the GPU asynchronous: all, or those that match."),
    option(
        "--drop-synchronisations [REGEX]", "Keep only waits after copies to the host, and the last waits."
    ),
    option("--streams N", "Spread the chunks of one stream over N streams and buffers."),
    option("--kernel REGEX", "With --streams: only chunks with a matching kernel."),
    option("--link LINK", "Use another link: pcie:5 (x16), nvlink:2x3, c2c:1."),
    option("--node --to node NODE", "Run on another node."),
    kernel_times,
    host_times,
    option("--copy-speed FACTOR", "Speed up all copies by this factor: 2x."),
    option("--rank R", "For a job: change the program on this rank only; repeatable.", multiple=True),
    option(
        "--no-stragglers", "For a job: no rank arrives at a collective later than the median.", is_flag=True
    ),
    option(
        "--overlap-collectives",
        "For a job, or one of its ranks: overlap collectives with kernels.",
        is_flag=True,
    ),
    option("--bucket SIZE", "For a job: join or divide all-reduces to this size: 25MB."),
    option("--collective-bytes FACTOR", "For a job: scale the bytes of collectives: 0.5x."),
    option("--ranks N", "For a data-parallel job: number of ranks; new ranks copy recorded ones."),
    option(
        "--unrecorded TIME",
        "Run time without the recorder: 1.5s; the difference is recorder overhead.",
    ),
    fingerprinted,
    from_node,
    option("--model", "Cost model for another node.", default="calibrated"),
    option("--perfetto FILE", "Write the recorded and predicted timelines for ui.perfetto.dev.", type=OUTPUT),
    OF_PART,
    SHOWN,
)

project = Command(
    "project",
    "Predict the copies and the whole run on another node.",
    "traces.project",
    trace_path,
    option("--to NODE", "Node to predict for; repeatable.", multiple=True, required=True),
    from_node,
    option("--model", "Cost model.", default="calibrated"),
    kernel_times,
    counted,
    host_times,
    OF_PART,
    details,
    SHOWN,
)

compare = Command(
    "compare",
    "Compare predictions with a trace recorded on the target node. Covers every cost model that applies.",
    "traces.compare",
    argument("predicted TRACE", "The trace to predict from."),
    argument("actual ACTUAL", "A trace of the same program, recorded on the target node."),
    from_node,
    option("--to NODE", "Node of ACTUAL. Default: guessed."),
    option("--model", "Cost model; repeatable. Default: all that apply.", multiple=True),
    counted,
    OF_PART,
    as_json,
)

diff = Command(
    "diff",
    "Explain why one run of a program takes longer than another.",
    "traces.diff",
    argument("before BEFORE", "A trace of a program."),
    argument("after AFTER", "A trace of the changed program."),
    OF_PART,
    details,
    SHOWN,
)

export = Command(
    "export",
    "Write a trace as tables or as a timeline for other tools.",
    "traces.export",
    trace_path,
    option(
        "--to",
        "parquet or csv (a directory of tables), perfetto (a timeline for ui.perfetto.dev) or chakra (also for a job's "
        "directory).",
        required=True,
    ),
    OF_PART,
    option("--output -o PATH", "Where to write.", type=FOLDER, required=True),
)

demo = Command(
    "demo",
    "Report an example trace, and project it onto three nodes.",
    "traces.demo",
    option("--output -o FOLDER", "Folder for the page.", type=FOLDER, default="busfare-demo"),
)
