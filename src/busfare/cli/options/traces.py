"""The options of commands that read traces."""

from busfare.cli.options import (
    FOLDER,
    OF_PART,
    OUTPUT,
    PATH,
    RARE,
    SHOWN,
    Command,
    argument,
    as_json,
    details,
    option,
)

trace_path = argument("trace TRACE", "Nsight Systems, PyTorch, JAX, TensorFlow, nvprof or AMD trace.")
from_node = option("--from recorded_on NODE", "Node of the recording. Default: by the GPU name.")
counted = option("--counters FILE", "Output of `ncu --csv --page raw …`; see docs/kernels.md.", type=PATH)
kernel_times = option(
    "--kernels RULE", "keep, bandwidth, clock, 0.8x or REGEX=0.8x; repeatable.", multiple=True
)
host_times = option("--host RULE", "CPU times: measured (on both nodes), keep or 0.8x.", default="measured")
fingerprinted = option(
    "--fingerprints RECORDING", "The same run recorded with --fingerprint: finds equal bytes.", type=PATH
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
    "Input",
    option("--from --node recorded_on NODE", "Node of the recording. Default: by the GPU name."),
    option("--unrecorded TIME", "Run time without the recorder: 1.5s; gains then refer to that run."),
    OF_PART,
    "Checks",
    option("--baseline FILE", "Compare with an earlier --json of the same program.", type=PATH),
    option(
        "--fail-if LIMIT", "Exit with 1 if 'exposed > 20%', 'iteration > +5%' …; repeatable.", multiple=True
    ),
    "Output",
    details,
    SHOWN,
    RARE,
    fingerprinted,
    option("--jobs N", "Number of traces to read at once. Default for many: one per core."),
    option("--scheduler ADDRESS", "Read traces on the workers of this Dask scheduler."),
)

what_if = Command(
    "what-if",
    "Predict a run or a job after a change, or on another node.",
    "traces.what_if",
    argument("trace TRACE", "As of `busfare report`; for a job, its folder."),
    "What to change",
    option("--pin [REGEX]", "Pin host buffers: all, or of copies that match."),
    option("--async async_ [REGEX]", "Copy to the GPU asynchronously: all, or matching."),
    option("--drop-synchronisations [REGEX]", "Keep only waits after copies to the host."),
    option("--dedupe", "Copy unchanged buffers once.", is_flag=True),
    option("--keep-on-gpu", "Keep data on the GPU that goes out and in again.", is_flag=True),
    option("--pool", "Take device memory from a pool, not anew.", is_flag=True),
    option("--batch-below SIZE", "Pack consecutive copies smaller than this."),
    option("--prefetch", "Prefetch managed memory before kernels need it.", is_flag=True),
    option("--remove WHAT", "Remove h2d, d2h, d2d, p2p, copy, set or migration; repeatable.", multiple=True),
    option("--streams N", "Spread the chunks of one stream over N streams."),
    option("--link LINK", "Use another link: pcie:5 (x16), nvlink:2x3, c2c:1."),
    option("--node --to node NODE", "Run on another node."),
    "What to change in a job",
    option("--rank R", "Change the program on this rank only; repeatable.", multiple=True),
    option("--no-stragglers", "No rank reaches a collective after the median.", is_flag=True),
    option("--overlap-collectives", "Overlap collectives with kernels.", is_flag=True),
    option("--ranks N", "Number of data-parallel ranks; new ones are copies."),
    "Input",
    from_node,
    option("--unrecorded TIME", "Run time without the recorder: 1.5s."),
    OF_PART,
    "Output",
    option("--perfetto FILE", "Write both timelines for ui.perfetto.dev.", type=OUTPUT),
    SHOWN,
    RARE,
    kernel_times,
    host_times,
    fingerprinted,
    option("--collect-below SIZE", "Keep results smaller than this on the GPU to the end."),
    option("--kernel REGEX", "With --streams: only chunks with a matching kernel."),
    option("--copy-speed FACTOR", "Speed up all copies by this factor: 2x."),
    option("--bucket SIZE", "Join or divide all-reduces to this size: 25MB."),
    option("--collective-bytes FACTOR", "Scale the bytes of collectives: 0.5x."),
    option("--model", "Cost model for another node.", default="calibrated"),
)

project = Command(
    "project",
    "Predict the copies and the whole run on another node.",
    "traces.project",
    trace_path,
    "What to change",
    option("--to NODE", "Node to predict for; repeatable.", multiple=True, required=True),
    kernel_times,
    host_times,
    option("--model", "Cost model.", default="calibrated"),
    "Input",
    from_node,
    counted,
    OF_PART,
    "Output",
    details,
    SHOWN,
)

compare = Command(
    "compare",
    "Compare predictions with a trace recorded on the target node. Covers every cost model that applies.",
    "traces.compare",
    argument("predicted TRACE", "The trace to predict from."),
    argument("actual ACTUAL", "A trace of the same program, recorded on the target node."),
    "Input",
    from_node,
    option("--to NODE", "Node of ACTUAL. Default: guessed."),
    option("--model", "Cost model; repeatable. Default: all that apply.", multiple=True),
    counted,
    OF_PART,
    "Output",
    as_json,
)

diff = Command(
    "diff",
    "Explain why one run of a program takes longer than another.",
    "traces.diff",
    argument("before BEFORE", "A trace of a program."),
    argument("after AFTER", "A trace of the changed program."),
    OF_PART,
    "Output",
    details,
    SHOWN,
)

export = Command(
    "export",
    "Write a trace as tables or as a timeline for other tools.",
    "traces.export",
    trace_path,
    OF_PART,
    "Output",
    option(
        "--to",
        "parquet or csv (tables), perfetto (ui.perfetto.dev) or chakra (also of a job).",
        required=True,
    ),
    option("--output -o PATH", "Where to write.", type=FOLDER, required=True),
)

demo = Command(
    "demo",
    "Report an example trace, and project it onto three nodes.",
    "traces.demo",
    option("--output -o FOLDER", "Folder for the page.", type=FOLDER, default="busfare-demo"),
)
