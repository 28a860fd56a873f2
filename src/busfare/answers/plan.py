"""The kernels that `plan` is asked about, by options or as tables of a TOML file, and its result."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from msgspec import UNSET, Struct, UnsetType, defstruct
from msgspec.structs import asdict

from busfare import questions
from busfare.advise import guess_node
from busfare.advise.amounts import Predicted
from busfare.cost.models import to_untouched
from busfare.cost.ranges import strategy_range
from busfare.errors import FieldError, InputError
from busfare.nodes import load_node
from busfare.nodes.toml import WrongError, decoded, read_text
from busfare.planning import Machine, Plan, Problem, machine_of, plan, plans
from busfare.planning.machine import Basis
from busfare.planning.problem import ACCESSES, FromTrace, Recorded, as_recorded, recorded_problem
from busfare.planning.published import as_published
from busfare.planning.rank import Bounds, Parts, break_even
from busfare.planning.strategies import Roofline, roofline_of
from busfare.planning.streams import StreamRange, allocation_of
from busfare.questions import Kernel
from busfare.statements import Words, statement
from busfare.trace import read
from busfare.trace.window import part_of

#: A strategy this much slower than another is as good: the model cannot tell them apart.
TIE = 0.01
#: Of a plan file: 10,000 kernels are about a megabyte.
MOST_BYTES, MOST_KERNELS = 16 << 20, 100_000
#: Fields of a problem that are named otherwise in a question.
NAMED = {
    "h2d": "h2d_bytes", "d2h": "d2h_bytes", "kernel": "kernel_seconds", "launch": "launch_seconds",
    "h2d_shared": "shared_bytes", "dependent_chunks": "reads_neighbours",
}  # fmt: skip


class Ranked(Predicted, kw_only=True):
    """A strategy; `assumes` names what nobody has said and is taken as 1; `published`: by W14's equations alone."""

    strategy: str
    streams: int
    by: str
    assumes: Sequence[str]
    published_seconds: float | None


class Answer(Struct, kw_only=True):
    """The plan of one kernel."""

    name: str
    ranking: list[Ranked]
    dominant: str
    parts: Parts
    bounds: Bounds
    streams: StreamRange


class OnNode(Answer, kw_only=True):
    node: str
    category: str


class Device(Struct):
    category: str
    gpu: str


class PlanResult(Answer, tag_field="schema", tag="busfare.plan/1", kw_only=True):
    """Of the first kernel; what was not asked for is left out."""

    node: str
    node_guessed_from_gpu_name: bool = False
    device: Device
    basis: Sequence[Basis]
    roofline: Roofline | None
    break_even_accesses: float | None
    words: list[Words]
    kernels: list[Answer] | UnsetType = UNSET
    nodes: list[OnNode] | UnsetType = UNSET
    recorded: FromTrace | UnsetType = UNSET


def answer_plan(question: questions.Plan) -> PlanResult:
    """The plan of the first kernel, and of all; they come from a file, a trace, or the question itself. Raises InputError
    for what cannot be used, and for a kernel whose time cannot be known.
    """
    problems, where, recorded = _question(question)
    machine = machine_named(where, question.link)
    to = [load_node(node) for n, node in enumerate(question.to) if node not in question.to[:n]]
    if recorded and not question.link:
        machine = as_recorded(machine, recorded)
    answers = plans(problems, machine)
    first = answers[0]
    accesses = break_even(first)
    result = PlanResult(
        **asdict(_answer(first)),
        node=machine.node.name,
        device=Device(machine.category, machine.gpu.title),
        basis=_basis(first),
        roofline=roofline_of(first.problem, machine),
        break_even_accesses=None if accesses == math.inf else accesses,
        words=_words(first, accesses),
    )
    if len(answers) > 1:
        result.kernels = [*map(_answer, answers)]
    if to:
        result.nodes = [
            OnNode(
                **asdict(_answer(plan(first.problem, there))), node=there.node.name, category=there.category
            )
            for there in (machine, *map(machine_of, to))
        ]
    if not recorded and first.problem.memory == "pageable" and not machine.gpu.unified_memory:
        result.words += _untouched(first)
    if recorded:
        result.recorded = recorded.kernels
        result.node_guessed_from_gpu_name = question.node is None
    if result.node_guessed_from_gpu_name:
        result.words.append(statement("plan.guessed", node=machine.node.name))
    return result


def machine_named(where: questions.Where | None, link: str | None = None) -> Machine:
    """The machine of a node, its GPUs on another `link`. Raises InputError where none is named, or it is not known."""
    if not where:
        raise InputError(
            "`node`: the machine is missing; name one, as in `node` h100-sxm (see `busfare nodes`)"
        )
    return machine_of(load_node(where, link))


def _question(question: questions.Plan) -> tuple[Sequence[Problem], questions.Where | None, Recorded | None]:
    """The kernels, the node, and what a trace says of them."""
    if question.file:
        file = read_plan_file(str(question.file))
        return file.problems, question.node or file.node, None
    if not question.from_trace:
        return (problem_of(question),), question.node, None
    trace = part_of(read(question.from_trace), **question.part())
    recorded = recorded_problem(trace, question.kernel_name)
    recorded = recorded._replace(problem=with_options(recorded.problem, question))
    return (recorded.problem,), question.node or guess_node(trace), recorded


def _answer(answer: Plan) -> Answer:
    ranking = [
        Ranked(
            strategy=p.strategy,
            streams=p.streams,
            predicted_seconds=p.seconds,
            by=p.by,
            assumes=p.assumes,
            published_seconds=as_published(answer.problem, answer.machine, p.strategy, p.streams),
            **strategy_range(p.strategy, p.seconds, answer.machine.node),
        )
        for p in answer.ranking
    ]
    return Answer(
        name=answer.problem.name,
        ranking=ranking,
        dominant=answer.parts.dominant,
        parts=answer.parts,
        bounds=answer.bounds,
        streams=answer.streams,
    )


def _words(answer: Plan, accesses: float | None) -> list[Words]:
    """The answer in statements: what dominates, what is best, what to do, what it rests on."""
    best, explicit, dominant = answer.best, answer.bounds.no_overlap, answer.parts.dominant
    parts: list[Words] = [
        statement(
            f"plan.best{'-of-many' * (best.streams > 1)}",
            strategy=best.strategy,
            seconds=best.seconds,
            count=best.streams,
            pieces=_pieces(best.strategy),
        )
    ]
    if best.strategy != "explicit":
        parts.append(statement("plan.gain", speedup=explicit / best.seconds, seconds=explicit))
    runners_up = [p for p in answer.ranking[1:] if not p.assumes]
    line = statement("common.clauses", parts=tuple(parts))
    if runners_up and runners_up[0].seconds > best.seconds * (1 + TIE):
        more = runners_up[0].seconds / best.seconds - 1
        line = statement("plan.next", best=line, strategy=runners_up[0].strategy, more=more)
    words = [
        statement("plan.line", best=line),
        statement(
            f"plan.dominant-{dominant}", seconds=getattr(answer.parts, dominant), explicit_seconds=explicit
        ),
    ]
    if equal := [p.strategy for p in runners_up if p.seconds <= best.seconds * (1 + TIE)]:
        words.append(statement("plan.equal", strategies=tuple(equal)))
    # Such a GPU reads the host's pageable memory where it is, as fast as it reads mapped memory.
    coherent = answer.machine.gpu.unified_memory or answer.machine.node.host_path(0).is_c2c
    in_place = best.strategy == "mapped" and coherent
    words.append(statement(f"plan.do-{best.strategy}{'-in-place' * in_place}", count=best.streams))
    if accesses is not None:
        words.append(_on_an_assumption(answer, accesses))
    if answer.machine.node.call_cost("allocate-device"):
        again = answer.problem.reallocate
        allocated = allocation_of(answer.problem, answer.machine, "explicit" if again else best.strategy)
        if allocated.bytes:
            words.append(statement(f"plan.{'reallocated' if again else 'allocated'}", **allocated._asdict()))
    unpinned = in_place or best.strategy.startswith("managed") or best.strategy.endswith("pageable")
    if answer.problem.memory == "pageable" and not unpinned:
        words.append(statement("plan.pin-first"))
    few, _ = answer.useful.get(best.strategy, (best.streams, None))
    if few < best.streams:
        words.append(
            statement("plan.useful", pieces=_pieces(best.strategy), strategy=best.strategy, smallest=few)
        )
    by_kind: dict[str, list[str]] = {}
    for basis in _basis(answer):
        by_kind.setdefault(basis.kind, []).append(basis.parameter)
    kinds = (statement("plan.of-kind", kind=kind, names=tuple(names)) for kind, names in by_kind.items())
    return [*words, statement("plan.rests-on", kinds=tuple(kinds))]


def _untouched(answer: Plan) -> list[Words]:
    """The time to copy results to pageable memory that nothing has written to yet."""
    size = answer.problem.d2h_bytes
    if not size:
        return []
    usual, untouched = float(answer.machine.d2h.pageable.seconds(size)), to_untouched(round(size))
    ends = {"least": untouched.low_seconds, "most": untouched.high_seconds}
    return [statement("plan.untouched", seconds=untouched.seconds, usual=usual, **ends)]


def _basis(answer: Plan) -> tuple[Basis, ...]:
    rate = answer.machine.flops_basis(answer.problem.type) if answer.problem.flops else None
    return (*answer.machine.basis, *([rate] if rate else []))


def _pieces(strategy: str) -> str:
    return "chunks" if strategy == "three-streams" else "streams"


def _on_an_assumption(answer: Plan, accesses: float) -> Words:
    """What would be faster if the kernel touched each element once, which nobody has said, and up to how many accesses."""
    ahead = min((p for p in answer.ranking if p.assumes), key=lambda p: p.seconds)
    until = statement(f"plan.{'always' if accesses == math.inf else 'until'}", accesses=min(accesses, 1e300))
    return statement(
        "plan.if-touched-once",
        strategy=ahead.strategy,
        seconds=ahead.seconds,
        until=until,
        fields=ahead.assumes,
    )


def problem_of(kernel: Kernel, name: str = "kernel") -> Problem:
    """The problem of a kernel. Raises FieldError where it is none."""
    problem = with_options(Problem(name=name, assumed=ACCESSES), kernel)
    if not problem.h2d_bytes and not problem.d2h_bytes:
        raise FieldError("h2d", ": nothing crosses the bus; give `h2d` or `d2h`, as in `h2d` 336MB")
    if problem.shared_bytes > problem.h2d_bytes:
        raise FieldError(
            "h2d_shared", ": more than all bytes of `h2d`; give the part of them that every chunk needs"
        )
    return problem


def with_options(problem: Problem, kernel: Kernel) -> Problem:
    """`problem` with what is given of the `kernel` in place of its own."""
    given = {NAMED.get(name, name): value for name, value in kernel.given().items() if name in Kernel.names()}
    return replace(problem, **given, assumed=tuple(side for side in problem.assumed if side not in given))


_Given = str | int | float
_FLAGS = dict.fromkeys(("dependent_chunks", "reallocate"), bool)
_TYPES = _FLAGS | {"memory": str, "type": str, "kernel_at": list[str]}
#: One `[[kernel]]`.
_Kernel = defstruct(
    "_Kernel",
    [("name", str), *((key, _TYPES.get(key, _Given) | None, None) for key in sorted(Kernel.names()))],
    forbid_unknown_fields=True,
)


class _File(Struct, forbid_unknown_fields=True):
    kernel: list[_Kernel]  # type: ignore[valid-type]
    node: str | None = None


class PlanFile(Struct, frozen=True):
    """The problems of a file, and the node that it names."""

    problems: tuple[Problem, ...]
    node: str | None


def read_plan_file(path: str) -> PlanFile:
    """The problems of the TOML file at `path`. Raises InputError with file, line, key and fix."""
    return decoded(read_text(path, "plan file", MOST_BYTES), path, _File, _build, MOST_BYTES, "plan file")


def _build(file: _File) -> PlanFile:
    if not file.kernel:
        raise WrongError("$.kernel", "the file has no kernel; add a [[kernel]] table")
    if len(file.kernel) > MOST_KERNELS:
        raise WrongError("$.kernel", f"over the limit of {MOST_KERNELS} kernels")
    return PlanFile(tuple(_problem(n, kernel) for n, kernel in enumerate(file.kernel)), file.node)


def _problem(n: int, table: Any) -> Problem:
    keys = asdict(table)
    name = keys.pop("name")
    try:
        return problem_of(Kernel.of(**keys), name or "kernel")
    except FieldError as error:
        raise WrongError(f"$.kernel[{n}].{error.field}", error.what) from None
