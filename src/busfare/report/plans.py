"""The result of `plan` as one dictionary, with its words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from busfare.advise import amounts
from busfare.errors import InputError
from busfare.node import Node, load_node
from busfare.plan import Machine, Plan, Problem, machine_of, plan, plans
from busfare.plan.ask import KEYS, problem_of, read_plan_file, with_options
from busfare.plan.prediction import range_beside
from busfare.plan.rank import break_even
from busfare.plan.roofline import roofline_of
from busfare.plan.sweep import Sweep, sweep

__all__ = ["answer_plan", "plan_result"]

if TYPE_CHECKING:
    from busfare.plan.recorded import Recorded

SCHEMA = "busfare.plan/1"
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


def plan_result(
    problems: Sequence[Problem],
    node: Node,
    to: Sequence[Node] = (),
    parameter: str | None = None,
    recorded: Recorded | None = None,
) -> dict[str, Any]:
    """Everything that `plan` says of `problems` on `node`, the first at the top; keys are in docs/json.md.

    `to`: further nodes for the first problem; `parameter`: what to sweep. Raises InputError for an unknown parameter,
    and for a kernel whose time cannot be known.
    """
    machine = machine_of(node) if recorded is None else _recorded_on(node, recorded)
    answers = plans(problems, machine)
    first = answers[0]
    result = {
        "schema": SCHEMA,
        "node": node.name,
        **_answer(first),
        "device": {"category": machine.category, "gpu": machine.gpu.title},
        "basis": [basis.row() for basis in machine.basis],
        "roofline": _roofline(first),
        "break_even_accesses": _finite(break_even(first)),
        "words": _words(first),
    }
    if len(answers) > 1:
        result["kernels"] = [_answer(answer) for answer in answers]
    if to:
        machines = [machine, *(machine_of(other) for other in to)]
        result["nodes"] = [_on_node(first.problem, other) for other in machines]
    if parameter:
        result["sweep"] = _sweep(sweep(first.problem, machine, parameter))
    if recorded:
        result["recorded"] = {
            "kernels": list(recorded.kernels),
            "launches": recorded.launches,
            "streams": recorded.streams,
            "copies_in": recorded.copies_in,
            "copies_out": recorded.copies_out,
            "span_seconds": recorded.span_seconds,
        }
    return result


def answer_plan(said: Mapping[str, Any]) -> dict[str, Any]:
    """The result for the options of the command line by name; those not given are None.

    The kernels come from `file`, from `from_trace` with `kernel_name`, or from the options themselves. Raises
    InputError for what cannot be used.
    """
    sources = {"file": said.get("file"), "from_trace": said.get("from_trace")}
    texts = {key: said[key] for key in KEYS if said.get(key)}
    if all(sources.values()):
        raise InputError("FILE.toml and --from-trace: both say what to plan; give one of them")
    if said.get("kernel_name") and not sources["from_trace"]:
        raise InputError("--kernel-name: is for --from-trace TRACE; add that")
    node, recorded, guessed = said.get("node"), None, False
    if sources["file"]:
        if texts:
            raise InputError(
                f"--{next(iter(texts)).replace('_', '-')}: a plan file says this itself; leave it out"
            )
        file = read_plan_file(str(sources["file"]))
        node, problems = node or file.node, file.problems
    elif sources["from_trace"]:
        recorded, guess = _recorded(sources["from_trace"], said.get("kernel_name"), texts)
        node, guessed, problems = node or guess, node is None, (recorded.problem,)
    else:
        problems = (problem_of(texts),)
    if node is None:
        raise InputError(
            "--node: the machine is not said; name one, as in --node h100-sxm (see `busfare nodes`)"
        )
    to = [load_node(name) for name in said.get("to") or ()]
    result = plan_result(problems, load_node(node), to, said.get("vary"), recorded)
    if guessed:
        result["words"].append(f"That it ran on {node} is a guess from the GPU's name; set --node.")
    return result | {"node_guessed_from_gpu_name": guessed}


def _recorded(path: Path, pattern: str | None, texts: Mapping[str, Any]) -> tuple[Recorded, str | None]:
    """What the trace says of the kernels, with the options that are given beside it, and the node it was recorded on."""
    from busfare.advise import guess_node
    from busfare.plan.recorded import recorded_problem
    from busfare.trace import read

    if not pattern:
        raise InputError("--from-trace: which kernels? name them with --kernel-name REGEX")
    for key in ("h2d", "d2h", "kernel", "chunks"):
        if key in texts:
            raise InputError(f"--{key}: the trace says this; leave it out")
    trace = read(path)
    found = recorded_problem(trace, pattern)
    guess = guess_node(trace)
    return replace(found, problem=with_options(found.problem, texts)), guess.name if guess else None


def _answer(answer: Plan) -> dict[str, Any]:
    return {
        "name": answer.problem.name,
        "ranking": [
            {
                "strategy": p.strategy,
                "streams": p.streams,
                "predicted_seconds": p.seconds,
                **range_beside(p.strategy, p.seconds, answer.machine.node),
                "by": p.by,
                "assumes": list(p.assumes),
            }
            for p in answer.ranking
        ],
        "dominant": answer.dominant,
        "parts": {f"{part}_seconds": seconds for part, seconds in answer.parts.items()},
        "bounds": {
            "full_overlap_seconds": answer.bounds.full_overlap,
            "no_overlap_seconds": answer.bounds.no_overlap,
            "mapped_seconds": answer.bounds.mapped,
        },
        "streams": {
            "smallest_useful": answer.streams.smallest_useful,
            "largest_useful": answer.streams.largest_useful,
            "equation": answer.streams.equation,
            "formula": answer.streams.formula,
        },
    }


def _roofline(answer: Plan) -> dict[str, float] | None:
    found = roofline_of(answer.problem, answer.machine)
    return found.row() if found else None


def _on_node(problem: Problem, machine: Machine) -> dict[str, Any]:
    answer = plan(problem, machine)
    return {"node": machine.node.name, "category": machine.category, **_answer(answer)}


def _sweep(found: Sweep) -> dict[str, Any]:
    return {
        "parameter": found.parameter,
        "unit": found.unit,
        "asked": found.asked,
        "points": [{"value": p.value, "best": p.best, "predicted_seconds": p.seconds} for p in found.points],
        "changes": [{"value": c.value, "from": c.before, "to": c.after} for c in found.changes],
    }


def _words(answer: Plan) -> list[str]:
    """The answer in sentences: what dominates, what is best, what to do, what it rests on."""
    best, parts = answer.best, answer.parts
    explicit = answer.bounds.no_overlap
    dominant = answer.dominant
    said = [
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
    said.append(line + ".")
    if equal:
        said.append(f"Within 1 % of it, so no worse as far as a model can tell: {', '.join(equal)}.")
    numbers = {what + "s": amounts.several(best.streams, what) for what in ("stream", "chunk")}
    said.append(DO[best.strategy].format(**numbers))
    said += _on_an_assumption(answer)
    if answer.problem.memory == "pageable" and not best.strategy.endswith("pageable"):
        said.append(
            "The data is pageable now: pin the buffers first (cudaHostRegister, or cudaMallocHost once)."
        )
    cut = best.strategy if best.strategy in answer.useful else "streams"
    few, many = answer.useful[cut]
    if many > 1 and not answer.problem.chunks:
        said.append(
            f"Number of {_pieces(cut)} ({cut}): {few} come within 1 % of the least time"
            + (f"; more than {many} are predicted to cost." if many < answer.problem.most_streams else ".")
        )
    return [*said, _rests_on(answer)]


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


def _recorded_on(node: Node, recorded: Recorded) -> Machine:
    from busfare.plan.recorded import as_recorded

    return as_recorded(machine_of(node), recorded)


def _rests_on(answer: Plan) -> str:
    by_kind: dict[str, list[str]] = {}
    for basis in answer.machine.basis:
        by_kind.setdefault(basis.kind, []).append(basis.parameter)
    return "Rests on: " + "; ".join(f"{kind}: {', '.join(names)}" for kind, names in by_kind.items()) + "."
