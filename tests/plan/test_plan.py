"""A plan's ranking: what must hold of any problem on any machine, and what is known of single ones."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from busfare.errors import InputError
from busfare.nodes import Cost, catalogue_names, load_node
from busfare.planning import Plan, Prediction, Problem, machine_of, plan, plans
from busfare.planning.machine import HostCurves, Machine
from busfare.planning.problem import ACCESSES
from busfare.planning.rank import break_even, ranked
from busfare.planning.strategies import STRATEGIES, program_of
from busfare.planning.streams import allocation_of, closed, cut_of, played

NODES = (*catalogue_names(), "pcie:4x16", "pcie:5", "nvlink:2x3", "c2c:1")
MACHINES = {name: machine_of(load_node(name)) for name in NODES}
machines = st.sampled_from(NODES).map(MACHINES.__getitem__)
sizes = st.floats(1e3, 1e10)
problems = st.builds(
    Problem,
    h2d_bytes=sizes,
    d2h_bytes=sizes,
    kernel_seconds=st.floats(1e-6, 10),
    accesses_in=st.floats(1, 8),
    accesses_out=st.floats(1, 4),
    levels=st.integers(1, 64),
)


#: What the engine rounds: a nanosecond an operation.
NANOSECONDS = 1e-6


def seconds(answer: Plan, strategy: str) -> float:
    return next(p.seconds for p in answer.ranking if p.strategy == strategy)


any_sizes = st.just(0.0) | st.floats(1, 1e11)
any_problems = st.builds(
    Problem,
    h2d_bytes=st.floats(1, 1e11),
    d2h_bytes=any_sizes,
    kernel_seconds=st.floats(1e-7, 10),
    accesses_in=st.floats(1, 8),
    levels=st.integers(1, 64),
    memory=st.sampled_from(["pinned", "pageable"]),
    copies_in=st.integers(1, 4),
    copies_out=st.integers(1, 4),
    kernel_at=st.sampled_from([(), ((64, 1e-3),)]),
    assumed=st.sampled_from([(), ACCESSES]),
)


@settings(deadline=None, max_examples=60)
@given(any_problems, st.sampled_from(sorted(MACHINES)))
@example(Problem("x", 336e6, 0.0, 1e-3), "h100-probed")
@example(Problem("x", 336e6, 504e6, 1e-6), "h200-probed")
def test_full_overlap_is_the_longest_part_and_beaten_by_nothing(problem: Problem, name: str) -> None:
    answer = plan(problem, MACHINES[name])
    full = answer.bounds.full_overlap * (1 - 1e-9) - NANOSECONDS
    assert full <= max(msgspec.structs.astuple(answer.parts)) <= answer.bounds.full_overlap
    assert full <= answer.bounds.no_overlap
    assert [p.strategy for p in answer.ranking if p.seconds < full] == []


def test_three_streams_stand_before_streams_that_no_model_tells_apart() -> None:
    def place(streams: float, in_order: float) -> list[str]:
        predictions = [Prediction("hybrid", 8, 1.005, ""), Prediction("streams", 8, streams, "")]
        return [p.strategy for p in ranked([*predictions, Prediction("three-streams", 8, in_order, "")])]

    assert place(1.0, 1.009) == ["three-streams", "streams", "hybrid"]
    assert place(1.0, 1.011) == ["streams", "hybrid", "three-streams"]
    assert place(1.0, 0.9) == ["three-streams", "streams", "hybrid"]


@settings(deadline=None, max_examples=60)
@given(any_problems, st.sampled_from(sorted(MACHINES)))
def test_nothing_is_best_on_an_assumption(problem: Problem, name: str) -> None:
    complete = plan(replace(problem, assumed=()), MACHINES[name])
    answer = plan(replace(problem, assumed=ACCESSES), MACHINES[name])
    assert not answer.best.assumes
    assert break_even(complete) is None
    ranked_seconds = [{p.strategy: p.seconds for p in whole.ranking} for whole in (complete, answer)]
    assert ranked_seconds[0] == ranked_seconds[1]
    unsure = {p.strategy for p in answer.ranking if p.assumes}
    assert unsure <= {"mapped", "hybrid", "managed"}
    ahead = any(p.assumes and p.seconds < answer.best.seconds for p in answer.ranking)
    assert (break_even(answer) is not None) == ahead


def test_from_break_even_on_unmapped_strategies_are_faster() -> None:
    machine = MACHINES["gtx-titan"]
    problem = Problem("x", 336e6, 336e6, 1e-3, levels=8, assumed=ACCESSES)
    answer = plan(problem, machine)
    accesses = break_even(answer)
    for times, faster in ((0.98, True), (1.02, False)):
        counted = replace(problem, accesses_in=accesses * times, accesses_out=accesses * times, assumed=())
        assert (seconds(plan(counted, machine), "mapped") < answer.best.seconds) == faster
    # Where CPU and GPU share one memory nothing crosses a bus, however often it is read.
    shared = plan(problem, MACHINES["mi300a"])
    assert (shared.best.strategy, shared.best.assumes) == ("managed", ())


def faster_link(machine: Machine, factor: float) -> Machine:
    """`machine` with a host link `factor` times as fast in both directions; faults and staging beyond it cost the same."""

    def faster(curves: HostCurves) -> HostCurves:
        now = curves.copy.long_gap_per_byte_s
        then = now / factor
        scaled = {name: getattr(curves, name).scaled(1 / factor) for name in ("copy", "mapped", "prefetched")}
        faulted = tuple(max(0.0, gap - now) + then for gap in curves.faulted.gap_per_byte_s)
        pageable = tuple(max(then, gap if gap > now else 0.0) for gap in curves.pageable.gap_per_byte_s)
        scaled["faulted"] = structs.replace(curves.faulted, gap_per_byte_s=faulted)
        scaled["pageable"] = structs.replace(curves.pageable, gap_per_byte_s=pageable)
        return curves._replace(**scaled)

    return replace(machine, h2d=faster(machine.h2d), d2h=faster(machine.d2h))


@settings(deadline=None)
@given(problems, machines, st.floats(1, 32))
def test_more_link_bandwidth_never_hurts(problem: Problem, machine: Machine, factor: float) -> None:
    slow, fast = plan(problem, machine), plan(problem, faster_link(machine, factor))
    for p in slow.ranking:
        assert seconds(fast, p.strategy) <= p.seconds * (1 + 1e-9) + NANOSECONDS, p.strategy


@settings(deadline=None)
@given(problems, machines)
def test_a_single_stream_is_explicit(problem: Problem, machine: Machine) -> None:
    answer = plan(replace(problem, streams=1), machine)
    assert seconds(answer, "streams") == pytest.approx(seconds(answer, "explicit"), abs=NANOSECONDS)


@settings(deadline=None, max_examples=10)
@given(problems, machines)
def test_the_useful_streams_are_those_of_brute_force(problem: Problem, machine: Machine) -> None:
    cuts = [replace(problem, streams=n) for n in range(1, problem.most_streams + 1)]
    tried = [seconds(plan(cut, machine), "streams") for cut in cuts]
    useful = plan(problem, machine).streams
    assert tried[useful.largest_useful - 1] <= min(tried) * 1.02 + NANOSECONDS
    assert tried[useful.smallest_useful - 1] <= min(tried) * 1.03 + NANOSECONDS


def test_streams_a_chunk_keep_less_of_a_duplex_link_than_streams_an_engine() -> None:
    machine = machine_of(load_node("h100-sxm"))
    kept = machine.contention.across_streams
    whole = msgspec.structs.replace(machine.contention, across_streams=1.0)
    for d2h, least, most in ((1e9, 1 + 0.8 * (1 / kept - 1), 1 / kept), (0.0, 1.0, 1.0)):
        problem = Problem("x", 1e9, d2h, 1e-6)
        links = (machine, replace(machine, contention=whole))
        in_part, in_full = (played(problem, link, "streams", 32) for link in links)
        assert least <= in_part / in_full <= most
        assert played(problem, machine, "three-streams", 32) <= in_part


PROBED = sorted(name for name in catalogue_names() if name.endswith("probed"))


@pytest.mark.parametrize("name", PROBED)
@pytest.mark.parametrize("strategy", [s for s in STRATEGIES if not s.endswith("pageable") and s != "graph"])
@pytest.mark.parametrize("into", [64e6, 512e6])
@pytest.mark.parametrize("out", [64e6, 768e6])
def test_equations_and_engine_agree_to_a_percent(name: str, strategy: str, into: float, out: float) -> None:
    machine = MACHINES[name]
    for kernel in (1e-4, 5e-3, 1e-1):
        problem = Problem("x", into, out, kernel, copies_in=2)
        numbers = [1, 2, 8, 42] if STRATEGIES[strategy].over != "one" else [1]
        cut = cut_of([problem], machine, strategy, np.array(numbers, np.float64))
        by_equation = closed(cut, strategy, machine.category)[0][0]
        by_engine = [played(problem, machine, strategy, n) for n in numbers]
        # What a stream waits for another shifts the gaps of one direction against the other's, which the equation averages.
        within = {"hybrid": 0.02, "three-streams": 0.015}.get(strategy, 0.01)
        assert by_engine == pytest.approx(list(by_equation), rel=within), kernel


def test_many_problems_at_once_are_answered_as_if_alone() -> None:
    several = [Problem(str(n), 1e6 * n, 2e6 * n, 1e-4 * n) for n in range(1, 100)]
    for name in ("h100-sxm", "gtx-680", "gtx-titan", "h200-probed"):
        machine = MACHINES[name]
        for answer in plans(several, machine)[::20]:
            alone = plan(answer.problem, machine)
            for p in answer.ranking:
                by_itself = seconds(alone, p.strategy)
                if p.strategy == "hybrid":  # played alone; the equation bounds it
                    assert p.seconds >= 0.97 * by_itself, (name, p)
                else:
                    assert p.seconds == pytest.approx(by_itself, rel=0.03, abs=2e-5), (name, p)


def test_w14s_state_on_its_titan() -> None:
    elements = 1024 * 1024 * 42 * 8
    state = Problem("state", 2 * elements, 3 * elements, 0.03, streams=42, levels=42)
    answer = plan(state, MACHINES["gtx-titan"])
    assert answer.best.strategy == "mapped"
    assert answer.best.seconds == pytest.approx(9.42e-6 + 9.023e-6 + 3 * elements * 7.924734e-11, rel=0.2)
    assert answer.parts.dominant == "d2h"


def test_reading_again_makes_mapped_memory_pay_again() -> None:
    once = Problem("once", 336e6, 504e6, 12e-3, levels=42)
    thrice = replace(once, accesses_in=3.0)
    machine = MACHINES["h100-sxm"]
    assert seconds(plan(thrice, machine), "mapped") > 1.4 * seconds(plan(once, machine), "mapped")
    assert seconds(plan(thrice, machine), "streams") == seconds(plan(once, machine), "streams")


def test_small_accesses_cost_separate_packets() -> None:
    machine = MACHINES["h100-sxm"]
    small, tiny = (machine.access_cost("read", size) for size in (32.0, 8.0))
    # A completion of 32 bytes has 20 of overhead and an acknowledgement of 8; one of 256 has as much.
    assert small == pytest.approx((60 / 32) / (284 / 256), rel=0.01)
    assert tiny == pytest.approx(4 * small)


def test_a_coherent_node_reads_in_place() -> None:
    shared = plan(Problem("x", 336e6, 504e6, 12e-3), MACHINES["mi300a"])
    assert seconds(shared, "managed") == seconds(shared, "mapped")
    # Published of a GH200: managed memory that both sides touch moves at 18 to 29 GB/s; pageable memory is read in place.
    coherent = plan(Problem("x", 336e6, 504e6, 12e-3), MACHINES["gh200"])
    assert 840e6 / 29e9 < seconds(coherent, "managed") < 12e-3 + 840e6 / 18e9
    assert seconds(coherent, "mapped") < 12.1e-3
    pcie = plan(Problem("x", 336e6, 504e6, 12e-3), MACHINES["h100-sxm"])
    assert seconds(pcie, "managed") > seconds(pcie, "managed-prefetch") > seconds(pcie, "streams")


@settings(deadline=None, max_examples=30)
@given(any_problems, st.sampled_from(sorted(MACHINES)), st.integers(1, 64))
def test_chunks_that_need_their_neighbours_take_no_less(problem: Problem, name: str, count: int) -> None:
    machine, dependent = MACHINES[name], replace(problem, reads_neighbours=True)
    alone, waiting = (played(p, machine, "three-streams", count) for p in (problem, dependent))
    # One copy engine takes copies in the order of their issue, which differs, and may be the shorter.
    if machine.category == "two-copy-engines":
        assert waiting >= alone * (1 - NANOSECONDS)
    best = [min(p.seconds for p in plan(p, machine).ranking) for p in (dependent, problem)]
    assert best[0] >= best[1] * 0.99


@pytest.mark.parametrize("strategy", ["three-streams", "streams", "hybrid"])
def test_a_kernel_waits_for_the_copy_of_the_next_chunk(strategy: str) -> None:
    problem, count = Problem("x", 8e8, 8e8, 1e-3, reads_neighbours=True), 8
    program = program_of(problem, MACHINES["h100-probed"], strategy, count)
    kinds, times = [operation.kind for operation in program._operations], program.play()
    arrived, started = (times.end[np.array(kinds) == "h2d"], times.start[np.array(kinds) == "kernel"])
    assert len(arrived) == len(started) == count
    assert (started[:-1] >= arrived[1:]).all() and started[0] < arrived[2]


def test_pageable_copies_never_overlap() -> None:
    answer = plan(Problem("x", 1e9, 1e9, 1e-2, memory="pageable"), MACHINES["h100-sxm"])
    staged, cut = seconds(answer, "explicit-pageable"), seconds(answer, "streams-pageable")
    # Only the kernel can hide; both directions keep the host busy.
    assert staged - 1.1e-2 <= cut <= staged
    assert answer.best.seconds < 0.3 * staged


def test_a_graph_is_launched_once() -> None:
    problem = Problem("x", 1e6, 1e6, 1e-4, streams=32, levels=32, launch_seconds=5e-6)
    answer = plan(problem, MACHINES["h100-sxm"])
    # 96 calls of 5 µs bound the streams; a graph is one.
    assert seconds(answer, "streams") >= 96 * 5e-6
    assert seconds(answer, "graph") < 0.6 * seconds(answer, "streams")


def test_a_kernel_that_splits_badly_wants_fewer_chunks() -> None:
    free = Problem("x", 1e8, 1e8, 1e-2, levels=64)
    worse = replace(free, kernel_at=((64, 4e-2),))
    machine = MACHINES["h100-sxm"]
    in_order = [plan(problem, machine).useful["three-streams"][1] for problem in (worse, free)]
    assert in_order[0] < in_order[1]
    # In streams of their own, small kernels fill the GPU together.
    apart = [seconds(plan(replace(p, streams=64), machine), "streams") for p in (worse, free)]
    assert apart[0] == pytest.approx(apart[1])


@pytest.mark.parametrize(
    ("name", "type_", "slower"),
    [
        ("gtx-680", "fp64", 24),
        ("h100-sxm", "fp64", 67 / 34),
        ("h100-sxm", "fp16", 67 / 989.5),
        ("p40", "fp16", 64),
        ("dgx-1-p100", "fp16", 0.5),
    ],
)
def test_numbers_of_a_type_go_by_the_rate_of_that_type(name: str, type_: str, slower: float) -> None:
    machine = machine_of(load_node(name))
    single, typed = (
        plan(Problem("x", 1e6, flops=1e12, type=kind), machine).parts.kernel for kind in ("fp32", type_)
    )
    assert typed == pytest.approx(slower * single)
    assumed = machine.flops_basis(None)
    assert (assumed.parameter, assumed.kind) == ("operations fp32", "assumed")


def test_a_type_without_a_rate_is_refused() -> None:
    with pytest.raises(InputError, match="`type` int8: its operations per second on gtx-680 are unknown"):
        plan(Problem("x", 1e6, flops=1e12, type="int8"), machine_of(load_node("gtx-680")))


@pytest.mark.parametrize("name", ["gtx-680", "k20", "m60"])
def test_fp16_is_refused_on_gpus_without_such_units(name: str) -> None:
    with pytest.raises(InputError, match=f"`type` fp16: {name} cannot compute in fp16 .*; give fp32"):
        plan(Problem("x", 1e6, flops=1e12, type="fp16"), machine_of(load_node(name)))


def test_a_kernel_time_can_come_from_the_roofline() -> None:
    problem = Problem("x", 1e8, 1e8, flops=6.7e13 * 1e-3, device_bytes=1e6)
    assert plan(problem, MACHINES["h100-sxm"]).parts.kernel == pytest.approx(1e-3)
    with pytest.raises(InputError, match="kernel time is missing"):
        plan(problem, MACHINES["pcie:4x16"])


def test_parameters_state_their_basis() -> None:
    kinds = {b.parameter: b.kind for b in MACHINES["gtx-titan"].basis}
    assert kinds["G h2d"] == kinds["L+o d2h"] == kinds["g h2d"] == "measured"
    kinds = {b.parameter: b.kind for b in MACHINES["h100-sxm"].basis}
    assert kinds["G h2d"] == "data-sheet"
    assert kinds["L+o h2d"] == "estimated"
    assert kinds["h2d beside a copy"] != "data-sheet"


def test_the_devices_of_w14_are_in_its_categories() -> None:
    categories = {name: MACHINES[name].category for name in ("c2050", "gtx-680", "gtx-titan", "k20")}
    assert categories == {
        "c2050": "implicit-synchronization", "gtx-680": "implicit-synchronization",
        "gtx-titan": "one-copy-engine", "k20": "two-copy-engines",
    }  # fmt: skip


def test_an_h100s_prefetches_are_predicted_as_they_were_measured() -> None:
    """64 MiB prefetched took 1.6 ms in and 6.5 out on an H100."""
    answer = plan(Problem("both", 64 << 20, 64 << 20, 1e-5), MACHINES["h100-probed"])
    assert seconds(answer, "managed-prefetch") == pytest.approx(8.1e-3, rel=0.15)


def test_mapped_memory_of_a_data_sheet_is_slower_than_copies_by_what_is_typical() -> None:
    machine = MACHINES["h100-sxm"]
    typical = machine.contention
    assert typical.rung == "typical"
    ratio = machine.h2d.copy.long_gap_per_byte_s / machine.h2d.mapped.long_gap_per_byte_s
    assert ratio == pytest.approx(typical.mapped.h2d)
    assert 0.5 < typical.mapped.h2d < 1


def test_iterations_that_allocate_pay_for_the_device_buffers_of_a_strategy() -> None:
    cost = Cost(call="allocate-device", call_s=1e-4, call_per_byte_s=1e-12, wait_per_byte_s=2e-12)
    machine = machine_of(replace(load_node("h200-probed"), costs=(cost,)))
    problem = Problem(h2d_bytes=8e8, d2h_bytes=4e8, kernel_seconds=3e-4, copies_in=2)
    once, again = plan(problem, machine), plan(replace(problem, reallocate=True), machine)
    # Three buffers of 400 MB; clearing them takes longer than the calls.
    added = {p.strategy: p.seconds - seconds(once, p.strategy) for p in again.ranking}
    for strategy in ("explicit", "streams", "three-streams"):
        assert added[strategy] == pytest.approx(1.2e9 * 3e-12, rel=1e-6)
    assert added["hybrid"] == pytest.approx(0.8e9 * 3e-12, rel=1e-3)
    assert added["mapped"] == added["managed"] == 0
    assert (once.best.strategy, again.best.strategy) == ("three-streams", "mapped")
    # Results alone: nothing is copied to the GPU that waits. Small buffers are cleared during the calls.
    for few in (Problem(d2h_bytes=4e8), Problem(h2d_bytes=1e5)):
        size = few.h2d_bytes + few.d2h_bytes
        assert allocation_of(few, machine, "explicit") == (size, 1e-4 + size * 1e-12, 0)
    many = plans([replace(problem, reallocate=True)] * 40, machine)
    assert seconds(many[0], "explicit") == pytest.approx(seconds(again, "explicit"), rel=1e-3)
    with pytest.raises(InputError, match="h100-sxm lacks the cost of device allocations"):
        plan(replace(problem, reallocate=True), MACHINES["h100-sxm"])
