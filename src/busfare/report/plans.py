"""The result of `plan`, with its words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType, convert, field
from msgspec.structs import asdict

from busfare.advise import amounts
from busfare.cost.ranges import range_beside
from busfare.errors import InputError
from busfare.node import Node, load_node
from busfare.plan import Machine, Plan, Problem, machine_of, plan, plans
from busfare.plan.ask import KEYS, problem_of, read_plan_file, with_options
from busfare.plan.equations import Roofline, roofline_of
from busfare.plan.machine import Basis
from busfare.plan.rank import break_even
from busfare.plan.recorded import Recorded, as_recorded, recorded_problem
from busfare.plan.sweep import sweep
from busfare.results import Predicted

__all__ = ["Answer", "OnNode", "PlanResult", "Ranked", "Swept", "answer_plan", "plan_result"]

PARTS = {"h2d": "Copies into the GPU", "kernel": "The kernel", "d2h": "Copies out of the GPU"}
#: What to write for each strategy.
DO = {
    "explicit": "Copy in, compute, copy out; nothing more pays here.",
    "mapped": "Let the kernel read and write mapped host memory (cudaHostAlloc with cudaHostAllocMapped): "
    "one thread an element, neighbours beside each other, each element touched once.",
    "streams": "Cut the data into {chunks}, one a stream: cudaMemcpyAsync in for all, then the kernels, "
    "then cudaMemcpyAsync out, from pinned buffers.",
    "three-streams": "Cut the data into {chunks} and use three streams, one for copies in, one for kernels, one for "
    "copies out: chunk by chunk cudaMemcpyAsync in, the kernel and cudaMemcpyAsync out, from pinned buffers, each behind an "
    "event of the step before (cudaStreamWaitEvent).",
    "hybrid": "Copy in with {streams}, and let each kernel write its results to mapped host memory.",
    "managed": "Managed memory as it is does; nothing need be copied.",
    "managed-prefetch": "Keep managed memory, and call cudaMemPrefetchAsync before and after the kernel.",
    "batched": "Hand all arrays of a direction to one cudaMemcpyBatchAsync, or pack them into one buffer.",
    "graph": "Capture the copies and kernels of {streams} once as a CUDA graph and launch that.",
    "explicit-pageable": "Leave the copies as they are.",
    "streams-pageable": "Use {streams} even without pinning; kernels hide behind the staging of later chunks.",
}
#: A strategy this much slower than another is as good: the model cannot tell them apart.
TIE = 0.01


class Ranked(Predicted, kw_only=True):
    """A strategy; `assumes` names what nobody has sentences and is taken as 1."""

    strategy: str
    streams: int
    by: str
    assumes: list[str]


class Parts(Struct):
    """Each alone at its fastest."""

    h2d_seconds: float
    kernel_seconds: float
    d2h_seconds: float


class Bounds(Struct):
    """Nothing beats the first."""

    full_overlap_seconds: float
    no_overlap_seconds: float
    mapped_seconds: float


class UsefulStreams(Struct):
    smallest_useful: int
    largest_useful: int
    equation: int | None
    formula: float | None


class Answer(Struct, kw_only=True):
    """The plan of one kernel."""

    name: str
    ranking: list[Ranked]
    dominant: str
    parts: Parts
    bounds: Bounds
    streams: UsefulStreams


class OnNode(Answer, kw_only=True):
    node: str
    category: str


class Device(Struct):
    category: str
    gpu: str


class SweptPoint(Struct):
    value: float
    best: str
    predicted_seconds: dict[str, float]


class SweptChange(Struct):
    value: float
    before: str = field(name="from")
    after: str = field(name="to")


class Swept(Struct):
    parameter: str
    unit: str
    asked: float
    points: list[SweptPoint]
    changes: list[SweptChange]


class FromTrace(Struct):
    """What a trace says of the kernels."""

    kernels: list[str]
    launches: int
    streams: int
    copies_in: int
    copies_out: int
    span_seconds: float


class PlanResult(Answer, tag_field="schema", tag="busfare.plan/1", kw_only=True):
    """Of the first kernel; what was not asked for is left out."""

    node: str
    node_guessed_from_gpu_name: bool = False
    device: Device
    basis: list[Basis]
    roofline: Roofline | None
    break_even_accesses: float | None
    words: list[str]
    kernels: list[Answer] | UnsetType = UNSET
    nodes: list[OnNode] | UnsetType = UNSET
    sweep: Swept | UnsetType = UNSET
    recorded: FromTrace | UnsetType = UNSET


def plan_result(
    problems: Sequence[Problem],
    node: Node,
    to: Sequence[Node] = (),
    parameter: str | None = None,
    recorded: Recorded | None = None,
) -> PlanResult:
    """Everything that `plan` says of `problems` on `node`, the first at the top.

    `to`: further nodes for the first problem; `parameter`: what to sweep. Raises InputError for an unknown parameter,
    and for a kernel whose time cannot be known.
    """
    machine = machine_of(node) if recorded is None else as_recorded(machine_of(node), recorded)
    answers = plans(problems, machine)
    first = answers[0]
    result = PlanResult(
        **asdict(_answer(first)),
        node=node.name,
        device=Device(machine.category, machine.gpu.title),
        basis=list(machine.basis),
        roofline=roofline_of(first.problem, machine),
        break_even_accesses=_finite(break_even(first)),
        words=_words(first),
    )
    if len(answers) > 1:
        result.kernels = [_answer(answer) for answer in answers]
    if to:
        machines = [machine, *(machine_of(other) for other in to)]
        result.nodes = [_on_node(first.problem, other) for other in machines]
    if parameter:
        swept = sweep(first.problem, machine, parameter)
        points = [SweptPoint(p.value, p.best, p.seconds) for p in swept.points]
        changes = [SweptChange(c.value, c.before, c.after) for c in swept.changes]
        result.sweep = Swept(swept.parameter, swept.unit, swept.asked, points, changes)
    if recorded:
        result.recorded = convert(recorded, FromTrace, from_attributes=True)
    return result


def answer_plan(asked: Mapping[str, Any]) -> PlanResult:
    """The result for the options of the command line by name; those not given are None.

    The kernels come from `file`, from `from_trace` with `kernel_name`, or from the options themselves. Raises
    InputError for what cannot be used.
    """
    sources = {"file": asked.get("file"), "from_trace": asked.get("from_trace")}
    texts = {key: asked[key] for key in KEYS if asked.get(key)}
    if all(sources.values()):
        raise InputError("FILE.toml and --from-trace: both say what to plan; give one of them")
    if asked.get("kernel_name") and not sources["from_trace"]:
        raise InputError("--kernel-name: is for --from-trace TRACE; add that")
    node, recorded, guessed = asked.get("node"), None, False
    if sources["file"]:
        if texts:
            raise InputError(
                f"--{next(iter(texts)).replace('_', '-')}: a plan file says this itself; leave it out"
            )
        file = read_plan_file(str(sources["file"]))
        node, problems = node or file.node, file.problems
    elif sources["from_trace"]:
        recorded, guess = _recorded(sources["from_trace"], asked.get("kernel_name"), texts)
        node, guessed, problems = node or guess, node is None, (recorded.problem,)
    else:
        problems = (problem_of(texts),)
    if node is None:
        raise InputError(
            "--node: the machine is not said; name one, as in --node h100-sxm (see `busfare nodes`)"
        )
    to = [load_node(name) for name in asked.get("to") or ()]
    result = plan_result(problems, load_node(node), to, asked.get("vary"), recorded)
    result.node_guessed_from_gpu_name = guessed
    if guessed:
        result.words.append(f"That it ran on {node} is a guess from the GPU's name; set --node.")
    return result


def _recorded(path: Path, pattern: str | None, texts: Mapping[str, Any]) -> tuple[Recorded, str | None]:
    """What the trace says of the kernels, with the options that are given beside it, and the node it was recorded on."""
    from busfare.advise import guess_node
    from busfare.trace import read

    if not pattern:
        raise InputError("--from-trace: which kernels? name them with --kernel-name REGEX")
    for key in ("h2d", "d2h", "kernel", "chunks"):
        if key in texts:
            raise InputError(f"--{key}: the trace says this; leave it out")
    trace = read(path)
    recorded, guess = recorded_problem(trace, pattern), guess_node(trace)
    return replace(recorded, problem=with_options(recorded.problem, texts)), guess.name if guess else None


def _answer(answer: Plan) -> Answer:
    bounds, streams = answer.bounds, answer.streams
    return Answer(
        name=answer.problem.name,
        ranking=[
            Ranked(
                strategy=p.strategy,
                streams=p.streams,
                predicted_seconds=p.seconds,
                **range_beside(p.strategy, p.seconds, answer.machine.node),
                by=p.by,
                assumes=list(p.assumes),
            )
            for p in answer.ranking
        ],
        dominant=answer.dominant,
        parts=Parts(*(answer.parts[part] for part in ("h2d", "kernel", "d2h"))),
        bounds=Bounds(bounds.full_overlap, bounds.no_overlap, bounds.mapped),
        streams=convert(streams, UsefulStreams, from_attributes=True),
    )


def _on_node(problem: Problem, machine: Machine) -> OnNode:
    answer = plan(problem, machine)
    return OnNode(**asdict(_answer(answer)), node=machine.node.name, category=machine.category)


def _words(answer: Plan) -> list[str]:
    """The answer in sentences: what dominates, what is best, what to do, what it rests on."""
    best, parts = answer.best, answer.parts
    explicit = answer.bounds.no_overlap
    dominant = answer.dominant
    sentences = [
        f"{PARTS[dominant]} dominate{'s' if dominant == 'kernel' else ''}: "
        f"{amounts.time(parts[dominant])} of {amounts.time(explicit)} if nothing overlaps, predicted."
    ]
    gain = explicit / best.seconds
    streams = f" with {best.streams} {_pieces(best.strategy)}" if best.streams > 1 else ""
    line = f"Best: {best.strategy}{streams}, predicted {amounts.time(best.seconds)}"
    if best.strategy != "explicit":
        line += f", {gain:.2f} times as fast as explicit copies ({amounts.time(explicit)})"
    others = [p for p in answer.ranking[1:] if not p.assumes]
    if others and others[0].seconds > best.seconds * (1 + TIE):
        after = others[0]
        line += f"; next {after.strategy}, {after.seconds / best.seconds - 1:.0%} longer"
    equal = [p.strategy for p in others if p.seconds <= best.seconds * (1 + TIE)]
    sentences.append(line + ".")
    if equal:
        sentences.append(f"Within 1 % of it, so no worse as far as a model can tell: {', '.join(equal)}.")
    numbers = {what + "s": amounts.several(best.streams, what) for what in ("stream", "chunk")}
    sentences.append(DO[best.strategy].format(**numbers))
    sentences += _on_an_assumption(answer)
    if answer.problem.memory == "pageable" and not best.strategy.endswith("pageable"):
        sentences.append(
            "The data is pageable now: pin the buffers first (cudaHostRegister, or cudaMallocHost once)."
        )
    cut = best.strategy if best.strategy in answer.useful else "streams"
    few, many = answer.useful[cut]
    if many > 1 and not answer.problem.chunks:
        sentences.append(
            f"Number of {_pieces(cut)} ({cut}): {few} come within 1 % of the least time"
            + (f"; more than {many} are predicted to cost." if many < answer.problem.most_streams else ".")
        )
    return [*sentences, _rests_on(answer)]


def _pieces(strategy: str) -> str:
    return "chunks" if strategy == "three-streams" else "streams"


def _finite(number: float | None) -> float | None:
    return None if number == float("inf") else number


def _on_an_assumption(answer: Plan) -> list[str]:
    """What would be faster if the kernel touched each element once, which nobody has said, and up to how many accesses."""
    accesses = break_even(answer)
    if accesses is None:
        return []
    ahead = min((p for p in answer.ranking if p.assumes), key=lambda p: p.seconds)
    options = " and ".join(f"--{side.replace('_', '-')}" for side in ahead.assumes)
    until = (
        "however often it does" if accesses == float("inf") else f"from {accesses:.3g} accesses on it is not"
    )
    return [
        f"{ahead.strategy} would take {amounts.time(ahead.seconds)} if the kernel touches each element once; {until}. How "
        f"often it does is not known: count, and say so with {options}."
    ]


def _rests_on(answer: Plan) -> str:
    by_kind: dict[str, list[str]] = {}
    for basis in answer.machine.basis:
        by_kind.setdefault(basis.kind, []).append(basis.parameter)
    return "Rests on: " + "; ".join(f"{kind}: {', '.join(names)}" for kind, names in by_kind.items()) + "."
