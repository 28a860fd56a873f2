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
from busfare.plan.ask import KEYS, problem_of, with_options
from busfare.plan.file import read_plan_file
from busfare.plan.prediction import range_beside
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
    "streams": "Cut the data into {streams} chunks, one a stream: cudaMemcpyAsync in for all, then the kernels, "
    "then cudaMemcpyAsync out, from pinned buffers.",
    "hybrid": "Copy in with {streams} streams, and let each kernel write its results to mapped host memory.",
    "managed": "Managed memory as it is does; nothing need be copied.",
    "managed-prefetch": "Keep managed memory, and call cudaMemPrefetchAsync before and after the kernel.",
    "batched": "Hand all arrays of a direction to one cudaMemcpyBatchAsync, or pack them into one buffer.",
    "graph": "Capture the copies and kernels of {streams} streams once as a CUDA graph and launch that.",
    "explicit-pageable": "Leave the copies as they are.",
    "streams-pageable": "Use {streams} streams even without pinning; kernels hide behind the staging of later chunks.",
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
    machine = machine_of(node)
    answers = plans(problems, machine)
    first = answers[0]
    result = {
        "schema": SCHEMA,
        "node": node.name,
        **_answer(first),
        "device": {"category": machine.category, "gpu": machine.gpu.title},
        "basis": [basis.row() for basis in machine.basis],
        "roofline": _roofline(first),
        "words": _words(first),
    }
    if len(answers) > 1:
        result["kernels"] = [_answer(answer) for answer in answers]
    if to:
        result["nodes"] = [_on_node(first.problem, machine_of(other)) for other in (node, *to)]
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
    whole = sum(parts.values())
    dominant = answer.dominant
    said = [
        f"{PARTS[dominant]} dominate{'s' if dominant == 'kernel' else ''}: "
        f"{amounts.time(parts[dominant])} of {amounts.time(whole)} if nothing overlaps, by the predicted parts."
    ]
    explicit = answer.bounds.no_overlap
    gain = explicit / best.seconds
    streams = f" with {best.streams} streams" if best.streams > 1 else ""
    line = f"Best: {best.strategy}{streams}, predicted {amounts.time(best.seconds)}"
    if best.strategy != "explicit":
        line += f", {gain:.2f} times as fast as explicit copies ({amounts.time(explicit)})"
    if answer.ranking[1].seconds > best.seconds * (1 + TIE):
        after = answer.ranking[1]
        line += f"; next {after.strategy}, {after.seconds / best.seconds - 1:.0%} longer"
    equal = [p.strategy for p in answer.ranking[1:] if p.seconds <= best.seconds * (1 + TIE)]
    said.append(line + ".")
    if equal:
        said.append(f"Within 1 % of it, so no worse as far as a model can tell: {', '.join(equal)}.")
    said.append(DO[best.strategy].format(streams=best.streams))
    problem = answer.problem
    if best.strategy == "mapped" and problem.accesses_in == problem.accesses_out == 1:
        said.append(
            "That takes each element to cross the bus once. A kernel that reads neighbours again pays again: say so "
            "with --accesses-in and --accesses-out."
        )
    if answer.problem.memory == "pageable" and not best.strategy.endswith("pageable"):
        said.append(
            "The data is pageable now: pin the buffers first (cudaHostRegister, or cudaMallocHost once)."
        )
    cut = best.strategy if best.strategy in answer.useful else "streams"
    few, many = answer.useful[cut]
    if many > 1 and not answer.problem.chunks:
        said.append(
            f"Number of streams ({cut}): {few} come within 1 % of the least time"
            + (f"; more than {many} are predicted to cost." if many < answer.problem.most_streams else ".")
        )
    return [*said, _rests_on(answer)]


def _rests_on(answer: Plan) -> str:
    by_kind: dict[str, list[str]] = {}
    for basis in answer.machine.basis:
        by_kind.setdefault(basis.kind, []).append(basis.parameter)
    return "Rests on: " + "; ".join(f"{kind}: {', '.join(names)}" for kind, names in by_kind.items()) + "."
