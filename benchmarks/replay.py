"""Replay: operations a second; against SimPy on the same timeline; against the critical path of Holistic Trace Analysis.

    python -m benchmarks.replay [TRACE] [--runs N] [--json FILE]

Three comparisons, each in turn with its rival on the same machine:
- the core alone: one thread that launches operations into four streams and waits for the device every 64, an eighth of
  them on two engines, against the goal of 10 million operations a second;
- SimPy playing the same timeline (20,000 operations), where both must find the same makespan;
- reading a Kineto trace, and building its critical path, against Holistic Trace Analysis, which makes a graph of all host
  events where busfare plays the outermost GPU calls and the GPU work. The trace is by default the largest of the
  published set (BUSFARE_SHARED, or ../shared) on which it succeeds, otherwise the largest example.

The rivals run in a virtual environment of their own, out/rivals-replay, made at the first run. Beside the wall time stands
the processor's own, which a busy machine stretches less; the load average is recorded.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.runs import large_trace, lines_of, options_of, rival_python, spread, timed, write
from busfare.timeline import _core
from busfare.timeline.model import WAIT, at_rest

# Its critical path needs the pandas of its time.
RIVAL_PACKAGES = ["HolisticTraceAnalysis==0.5.0", "pandas<3", "simpy==4.1.2"]
SIZES = (100_000, 1_000_000, 4_000_000)
SIMPY_OPERATIONS = 20_000
GOAL = 10e6
STREAMS, SYNCHRONISE_EVERY, ENGINES, ON_ENGINE_EVERY = 4, 64, 2, 8
GAP, CALL, LAUNCH_LAG, ORDER_LAG, WAKE_UP = 1000, 3000, 4000, 1000, 2000

SIMPY = """
import sys, time
import simpy

count, streams, every, engines, on_engine, GAP, CALL, LAUNCH, ORDER, WAKE_UP = map(int, sys.argv[1:])


def run():
    env = simpy.Environment()
    engine = [simpy.PriorityResource(env, 1) for _ in range(engines)]
    left_at = [-ORDER] * engines
    last = [None] * streams

    def operation(row, before, done):
        called = env.now
        ready = called + LAUNCH
        if before is not None:
            if not before.processed:
                yield before
            ready = max(ready, before.value + ORDER)
        if ready > env.now:
            yield env.timeout(ready - env.now)
        duration = 2000 + row * 7919 % 7000
        if row % on_engine == 0:
            number = row // on_engine % engines
            with engine[number].request(priority=row) as mine:
                yield mine
                turn = left_at[number] + ORDER
                if turn > env.now:
                    yield env.timeout(turn - env.now)
                yield env.timeout(duration)
                left_at[number] = env.now
        else:
            yield env.timeout(duration)
        done.succeed(env.now)

    def host():
        for row in range(count):
            yield env.timeout(GAP)
            stream = row % streams
            done = env.event()
            env.process(operation(row, last[stream], done))
            last[stream] = done
            yield env.timeout(CALL)
            if row % every == every - 1:
                yield env.timeout(GAP)
                begun = env.now
                waiting = [event for event in last if event is not None and not event.processed]
                yield env.all_of(waiting)
                ends = max(event.value for event in last if event is not None) + WAKE_UP
                yield env.timeout(max(begun + CALL, ends) - env.now)

    env.process(host())
    env.run()
    return env.now


for _ in range(2):
    begun, processor = time.perf_counter(), time.process_time()
    makespan = run()
    print(time.perf_counter() - begun, time.process_time() - processor, makespan)
"""
OURS = """
import sys, time
from busfare.timeline.engine import critical_path_shares
from busfare.timeline.build import timeline
from busfare.trace import read
for _ in range(int(sys.argv[2]) + 1):
    begun = time.perf_counter(), time.process_time()
    trace = read(sys.argv[1])
    read_at = time.perf_counter(), time.process_time()
    path = critical_path_shares(timeline(trace))
    end = time.perf_counter(), time.process_time()
    print(*(b - a for a, b in zip(begun + read_at, read_at + end)), len(path))
"""
THEIRS = """
import logging, sys, time, warnings
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
from hta.trace_analysis import TraceAnalysis
for _ in range(int(sys.argv[2]) + 1):
    begun = time.perf_counter(), time.process_time()
    analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
    read_at = time.perf_counter(), time.process_time()
    graph, found = analysis.critical_path_analysis(rank=0, annotation="", instance_id=0)
    end = time.perf_counter(), time.process_time()
    assert found
    print(*(b - a for a, b in zip(begun + read_at, read_at + end)), len(graph.nodes))
"""


def main(arguments: list[str] | None = None) -> int:
    parser = options_of(__doc__, 5)
    parser.add_argument("trace", nargs="?", type=Path, default=large_trace())
    options = parser.parse_args(arguments)
    rival = rival_python("rivals-replay", *RIVAL_PACKAGES)
    load = [os.getloadavg()[0]]
    alone = {count: _plays(count, options.runs)[0] for count in SIZES}
    print(f"{'':34}{'median (least – most) seconds':>30}{'million operations/s':>24}{'goal':>6}")
    for count, times in alone.items():
        wall = [run[0] for run in times]
        print(
            f"{count:>10,} operations played      {spread(wall, 4):>30}{count / statistics.median(wall) / 1e6:14.1f}"
            f" (best {count / min(wall) / 1e6:.1f}){GOAL / 1e6:4.0f}"
        )
    ours, simpy = [], []
    for _ in range(3):  # in turn, so that a busy moment of the machine does not hit one side only
        times, makespan = _plays(SIMPY_OPERATIONS, options.runs)
        ours += times
        for wall, processor, theirs in _simpy(rival):
            if theirs != makespan:
                raise SystemExit(
                    f"SimPy's makespan is {theirs} ns, busfare's {makespan} ns: not the same work"
                )
            simpy.append((wall, processor))
    mine, hta = [], []
    for _ in range(3):
        # Wall and processor seconds of reading, then of the critical path, then its size; the first run warms up.
        mine += lines_of(sys.executable, OURS, options.trace, options.runs)[1:]
        hta += lines_of(rival, THEIRS, options.trace, 1)[1:]
    load.append(os.getloadavg()[0])
    print(
        f"{'median (least – most) seconds':34}{'busfare':>30}{'the rival':>30}{'ratio':>9}{'of processor':>14}"
    )
    compared = {
        f"SimPy, {SIMPY_OPERATIONS:,} operations": (ours, simpy),
        "HTA reads the trace": ([run[:2] for run in mine], [run[:2] for run in hta]),
        "HTA builds the critical path": ([run[2:4] for run in mine], [run[2:4] for run in hta]),
    }
    for what, (a, b) in compared.items():
        wall, processor = (
            statistics.median(run[k] for run in b) / statistics.median(run[k] for run in a) for k in (0, 1)
        )
        print(
            f"{what:34}{spread([run[0] for run in a], 4):>30}{spread([run[0] for run in b], 4):>30}"
            f"{wall:8.1f}×{processor:13.1f}×"
        )
    raw = {
        "load_average_before_and_after": load,
        "rivals": RIVAL_PACKAGES,
        "trace": options.trace.name,
        "path_steps_and_rival_graph_nodes": [mine[0][4], hta[0][4]],
        "play_wall_and_processor_seconds": alone,
        "wall_and_processor_seconds": {what: {"busfare": a, "rival": b} for what, (a, b) in compared.items()},
    }
    write(options, "replay", raw)
    return 0


def _plays(count: int, runs: int) -> tuple[list[tuple[float, float]], int]:
    """Wall and processor seconds of each play after one that warms up, and the makespan in nanoseconds."""
    columns = _columns(count)
    return timed(lambda: _core.play(columns), runs), int(_core.play(columns)["makespan"])


def _columns(count: int) -> dict[str, np.ndarray[Any, Any]]:
    calls, row = count + count // SYNCHRONISE_EVERY, np.arange(count)
    waits = np.arange(calls) % (SYNCHRONISE_EVERY + 1) == SYNCHRONISE_EVERY
    return at_rest(
        calls,
        count,
        STREAMS,
        call_gap=np.full(calls, GAP),
        call_own=np.full(calls, CALL),
        call_wait=np.where(waits, WAIT["device"], WAIT["none"]),
        call_wait_key=np.zeros(calls),
        call_wait_lag=np.full(calls, WAKE_UP),
        operation_call=np.flatnonzero(~waits)[:count],
        operation_launched=np.ones(count),
        operation_stream=row % STREAMS,
        operation_engine=np.where(row % ON_ENGINE_EVERY == 0, row // ON_ENGINE_EVERY % ENGINES, -1),
        operation_duration=2000 + row * 7919 % 7000,
        operation_launch_lag=np.full(count, LAUNCH_LAG),
        operation_order_lag=np.full(count, ORDER_LAG),
        operation_turn=row,
        engine_slots=np.ones(ENGINES),
    )


def _simpy(python: Path) -> list[tuple[float, float, int]]:
    shape = (
        SIMPY_OPERATIONS, STREAMS, SYNCHRONISE_EVERY, ENGINES, ON_ENGINE_EVERY,
        GAP, CALL, LAUNCH_LAG, ORDER_LAG, WAKE_UP,
    )  # fmt: skip
    done = subprocess.run([python, "-c", SIMPY, *map(str, shape)], capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    return [(float(wall), float(processor), int(makespan)) for wall, processor, makespan in lines]


if __name__ == "__main__":
    sys.exit(main())
