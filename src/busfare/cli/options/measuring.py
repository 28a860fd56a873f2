"""The options of commands that measure this machine: probe, record, bench. `bench ft|mg` pass theirs to the runner of
`hybrid/`, an independent project.
"""

import click

from busfare.cli.options import OUTPUT, PATH, SHOWN, Command, argument, option

probe = Command(
    "probe",
    "Measure this machine's GPUs and links, and write a node file.",
    "measuring.probe",
    option("--only PART", "One part: copies, kernels (peak rates) or collectives (NCCL)."),
    option("--collectives", "Also measure NCCL operations among all GPUs: 30 seconds.", is_flag=True),
    option("--quick", "13 seconds per GPU instead of 40.", is_flag=True),
    option("--virtual NODE", "Simulate a node instead of measuring one."),
    option("--from from_ FILE", "Refit the raw samples of an earlier run.", type=PATH),
    "Output",
    option("--output -o FILE", "Write the node file here.", type=OUTPUT),
    option("--raw FILE", "Write all raw samples here (.json, .json.gz).", type=OUTPUT),
    SHOWN,
)

record = Command(
    "record",
    "Record the GPU work of any CUDA program. The exit status is that of the program.\n\n"
    "On AMD's GPUs, rocprofv3 records it.",
    "programs.record",
    argument("command -- PROGRAM [ARGUMENTS]", "The program to run.", type=str, nargs=-1, required=True),
    option("--duration S", "Record for this many seconds; 0: to the end.", default="0"),
    option("--delay S", "Start after this many seconds.", default="0"),
    option("--capture", "whole, or profiler-calls (cudaProfilerStart to Stop).", default="whole"),
    option("--nvtx RANGE", "Record only inside the NVTX range with this name."),
    option("--kinds KIND,…", "Kinds of events; see docs/recorder.md."),
    option("--calls", "API calls: driver, both (runtime and driver) or none.", default="driver"),
    option("--fingerprint/--no-fingerprint", "Hash each copied buffer to find repeated copies."),
    option("--stacks/--no-stacks", "Record call stacks: the report then names source lines."),
    "Output",
    option("--output -o PATH", "A directory; or a file: %p process, %h host, %r rank.", required=True),
    option("--flush-every S", "Write at least this often.", default="1"),
)

try_ = Command(
    "try",
    "Apply the advised changes to a program without editing it, and measure the speedup.\n\n"
    "Alternates runs with and without each change, and compares the outputs. If standard input is a file, "
    "each run reads it. The exit status is 1 if a change alters the output or makes the program fail or time out.",
    "programs.try_",
    argument("command -- PROGRAM [ARGUMENTS]", "The program to run.", type=str, nargs=-1, required=True),
    option(
        "--change CHANGE",
        "Try pin; pin,async; prefetch; spin; block; NAME=VALUE (environment); or numactl, taskset with options. Repeatable.",
        multiple=True,
    ),
    option("--runs N", "Maximum number of rounds, 3 or more.", default="10"),
    option("--compare FILE", "Compare this output file, too. Repeatable.", type=PATH, multiple=True),
    option("--timeout S", "Time limit for each run in seconds."),
    option("--from recorded_on NODE", "Node of this machine, for predictions. Default: from the GPU name."),
    "Output",
    option("--keep FILE", "Append the result to this file as one line of JSON.", type=OUTPUT),
    SHOWN,
    context_settings={"allow_interspersed_args": False},
)

predicted_by = (
    option("--node NODE", "Predict with this node. Default: probe this machine first."),
    option("--quick", "Fewer cases and repeats: 15 seconds.", is_flag=True),
)
played = (
    option("--virtual NODE", "Simulate a node instead of measuring one."),
    option("--from from_ FILE", "Show the result of an earlier --json.", type=PATH),
)
methods = Command(
    "methods",
    "Compare pageable, pinned, managed, zero-copy, registered and batched memory over a whole program.",
    "measuring.methods",
    predicted_by,
    option("--largest N", "Ints of the longest vector, 1048576 to 268435456.", default="268435456"),
    played,
    "Output",
    SHOWN,
)
strategies = Command(
    "strategies",
    "Compare explicit copies, mapped memory, streams, hybrid, graphs and batches on several kernels.",
    "measuring.strategies",
    predicted_by,
    played,
    "Output",
    SHOWN,
)
ft, mg = (
    Command(
        name,
        help,
        "programs.run_nas",
        option("--class CLASS", "S, W, A, B, C, D or E. Default: C with a GPU, otherwise A."),
        option("--ranks N,…", "Numbers of ranks. Default: from the machine."),
        option("--modes MODE,…", "cpu, single, multiple, multiple-mps, funneled. Default: all."),
        option("--launch WORDS", "What starts ranks: srun, or 'mpirun --hostfile FILE'. Default: mpirun."),
        option("--timeout S", "Time limit of a run in seconds. Default: 600.", type=float),
        option("--build DIR", "The folder with the programs of hybrid/.", type=PATH),
        option("--from FILE", "Show the result of an earlier --json.", type=PATH),
        option("--node NODE", "Compute the limit from this node. Default: measure this GPU."),
        option("--runner DIR", "nas_bench of hybrid/; else $BUSFARE_NAS_RUNNER.", type=PATH),
        "Output",
        SHOWN,
    )
    for name, help in (
        ("ft", "Run NAS FT: MPI ranks that share a GPU in several ways, or on CPUs; show where time goes."),
        ("mg", "Run NAS MG: the same, with small kernels and ghost cells instead of large copies."),
    )
)
bench = click.Group(
    "bench", [methods, strategies, ft, mg], help="Run benchmarks, and compare them with predictions."
)
