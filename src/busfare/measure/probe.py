"""`probe`: a machine → its node, with raw samples, residuals and health. The JSON is `ProbeResult`; keys in docs/json.md.

Seconds, bytes, bytes per second; None is unknown.
"""

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any

import msgspec
from msgspec import Struct

from busfare.errors import InputError
from busfare.measure import cases, kernels, run
from busfare.measure.cases import LeftOut, Measurement, Ranged, Record, interquartile_mean
from busfare.measure.node_file import link_of, most_of, named
from busfare.measure.profile import Residual, profile, residuals
from busfare.measure.run import Device, Progress
from busfare.nodes import CollectiveCurve, Contention, Cost, Curve, Kernels, Node, PcieLink
from busfare.questions import Probe

DEFAULT = Probe()
#: Seconds a GPU of copies, of the goals that the project set itself.
FULL_S, QUICK_S = 30.0, 10.0
#: Of several GPUs, for copies of all together.
AT_ONCE_S, QUICK_AT_ONCE_S = 3.0, 1.0
#: What remains of them after start-up and fit.
_MEASURING_SHARE = 0.88


class Profile(Struct, kw_only=True, rename={"contentions": "contention"}):
    """The node file that a probe writes: what a `Node` has."""

    name: str
    title: str
    components: tuple[Any, ...]
    links: tuple[Any, ...]
    curves: tuple[Curve, ...]
    contentions: tuple[Contention, ...]
    costs: tuple[Cost, ...]
    kernels: tuple[Kernels, ...]
    collectives: tuple[CollectiveCurve, ...]
    sources: dict[str, Any]


class ResidualsOf(Struct):
    """Percent of what was measured."""

    count: int
    median_percent: float | None
    max_percent: float | None


class Residuals(ResidualsOf):
    pageable: ResidualsOf


class ResidualCase(Ranged, kw_only=True):
    """A case that nothing was fitted to: predicted by the parameters, and measured."""

    predicted_seconds: float
    case: str
    measured_seconds: float


class LinkState(Struct):
    """A direction of a GPU's host link, measured and predicted by the data sheet. `verdict`: what is wrong, or empty."""

    gpu: int
    direction: str
    measured_bytes_per_second: float
    predicted_bytes_per_second: float
    sound: bool
    verdict: str


class ProbedCase(Struct, kw_only=True):
    """Interquartile means of the samples, and the interval of their median."""

    direction: str
    memory: str
    mode: str
    bytes: int
    count: int
    gpu: int
    peer: int | None
    samples: int
    stopped: str
    device_seconds: float | None
    api_seconds: float | None
    interval_seconds: tuple[float, float]


class ProbeResult(Struct, tag_field="schema", tag="busfare.probe/1", kw_only=True):
    virtual: bool
    node: Profile
    residuals: Residuals
    residual_cases: list[ResidualCase]
    health: list[LinkState]
    cases: list[ProbedCase]
    disturbances: list[str]
    left_out: list[LeftOut]
    seconds: float
    facts: dict[str, Any]


@dataclass(frozen=True)
class Probed:
    """The node, the samples that it is from, and what is shown of both."""

    node: Node
    record: Record
    result: ProbeResult


def measured(
    device: Device, question: Probe = DEFAULT, progress: Progress | None = None, seed: int | None = None,
    gpus: Sequence[int] | None = None,
) -> Record:  # fmt: skip
    """The samples alone, of all GPUs. Raises InputError if a virtual node has none, NoGpuError for a collective of one."""
    facts = device.facts()
    record = Record(
        virtual=device.virtual,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=run.command_line("probe"),
        facts=facts,
        seed=random.SystemRandom().randrange(2**31) if seed is None else seed,
    )
    chosen = range(len(facts["gpus"])) if gpus is None else gpus
    # Asked for first: with one GPU it is said before anything is measured.
    fast, only = question.quick, question.only
    with_collectives = question.collectives or only == "collectives"
    together = kernels.collective_cases(len(chosen), fast) if with_collectives else ()
    for gpu in chosen:
        if only in (None, "copies"):
            copies = cases.copies(gpu, [peer for peer in chosen if peer != gpu], fast)
            budget = (QUICK_S if fast else FULL_S) * _MEASURING_SHARE
            run.measure(device, copies, record, budget, progress)
        # A node that nobody measured kernels on has none to play.
        plays = facts["gpus"][gpu].get("kernels", True)
        if only == "kernels" and not plays:
            why = "has no kernel rates; name a node whose file has [[kernels]]"
            raise InputError(f"node {facts['plays']}: {why}")
        if only in (None, "kernels") and plays:
            budget = kernels.QUICK_KERNELS_S if fast else kernels.KERNELS_S
            run.measure(device, kernels.kernel_cases(facts["gpus"][gpu], gpu, fast), record, budget, progress)
    if len(chosen) > 1 and only in (None, "copies"):
        run.measure(device, cases.at_once(fast), record, QUICK_AT_ONCE_S if fast else AT_ONCE_S, progress)
    if together:
        budget = kernels.QUICK_COLLECTIVES_S if fast else kernels.COLLECTIVES_S
        run.measure(device, together, record, budget, progress)
    _note_disturbances(record)
    return record


def _note_disturbances(record: Record) -> None:
    seen = run.disturbances(record.states, record.measurements)
    record.disturbances = list(dict.fromkeys([*record.disturbances, *seen]))


def evaluated(record: Record) -> Probed:
    """What the samples of a record say. Raises BusfareError where nothing could be measured."""
    node = named(profile(record), record)
    if not (node.curves or node.kernels or node.collectives):
        raise run.nothing_measured(record.left_out)
    _note_disturbances(record)
    held_out = residuals(node.curves, record)
    pinned, pageable = (_in_all(held_out, memory) for memory in ("pinned", "pageable"))
    result = ProbeResult(
        virtual=record.virtual,
        node=msgspec.convert(node, Profile, from_attributes=True),
        residuals=Residuals(**msgspec.structs.asdict(pinned), pageable=pageable),
        residual_cases=[
            ResidualCase(case=str(r.case), measured_seconds=r.measured_s, predicted_seconds=r.predicted_s)
            for r in held_out
        ],
        health=health(node, record),
        cases=[_probed(m) for m in record.measurements],
        disturbances=record.disturbances,
        left_out=record.left_out,
        seconds=record.seconds,
        facts=record.facts,
    )
    return Probed(node, record, result)


def _probed(m: Measurement) -> ProbedCase:
    return ProbedCase(
        **dataclasses.asdict(m.case),
        samples=len(m.api_ns),
        stopped=m.stopped,
        device_seconds=interquartile_mean(m.device_s) if m.device_ns else None,
        api_seconds=interquartile_mean(m.api_s) if m.api_ns else None,
        interval_seconds=cases.interval(m.seconds),
    )


def _in_all(residuals: Sequence[Residual], memory: str) -> ResidualsOf:
    off = [abs(r.percent) for r in residuals if r.case.memory == memory]
    return ResidualsOf(len(off), median(off), max(off)) if off else ResidualsOf(0, None, None)


def health(node: Node, record: Record) -> list[LinkState]:
    """Each measured pinned direction of a GPU's host link, beside the data sheet at the best PCIe link of both ends."""
    states = []
    for curve in node.curves:
        if curve.memory != "pinned":
            continue
        gpu, rate = curve.gpu or 0, 1 / curve.long_gap_per_byte_s
        best = None if record.virtual else link_of(record, gpu, most=True)
        links = tuple(
            best if best and isinstance(link, PcieLink) and link.between == best.between else link
            for link in node.links
        )
        path = dataclasses.replace(node, links=links).host_path(gpu)
        predicted = path.bandwidth("read" if curve.direction == "h2d" else "write")
        verdict = _verdict(rate / predicted, curve, record)
        states.append(LinkState(gpu, curve.direction, rate, predicted, not verdict, verdict))
    return states


def _verdict(share: float, curve: Curve, record: Record) -> str:
    """What is wrong, in one sentence; empty where nothing is."""
    gpu = curve.gpu or 0
    keys = ("link_width", "link_width_most", "link_generation", "link_generation_most")
    width, most_width, generation, most_generation = (most_of(record, gpu, key) for key in keys)
    if width and most_width and width < most_width:
        part = "half" if 2 * width == most_width else f"{width} of {most_width} lanes"
        return f"GPU {gpu}'s link runs at {part} width (x{width} of x{most_width}): reseat the card or use another slot"
    if generation and most_generation and generation < most_generation:
        return f"GPU {gpu}'s link runs at generation {generation} of {most_generation}: check the slot's BIOS setting"
    if share < run.SOUND:
        return f"GPU {gpu}'s link carries {share:.0%} of its expected rate: look for other traffic on it"
    return ""
