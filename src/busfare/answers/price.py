"""The result of `price`: a copy, copies of several GPUs at once, a collective, or a kernel that was recorded elsewhere."""

from math import prod

import numpy as np
from msgspec import Struct, field

from busfare import cost, questions
from busfare.advise.amounts import Ranged, Timed
from busfare.answers.report import rows_of
from busfare.cost.collectives import Fabric, price_collectives
from busfare.cost.copies import of_node
from busfare.cost.kernels.price import price_kernel
from busfare.cost.models import to_untouched, with_call
from busfare.cost.ranges import seconds_between
from busfare.errors import InputError
from busfare.nodes import Node, load_node
from busfare.statements import Words
from busfare.timeline.build.links import copy_seconds_at_once


class Priced(Timed, kw_only=True):
    model: str


class Price(Priced, kw_only=True):
    bytes_per_second: float | None


class Trusted(Struct):
    model: str
    why: Words


class Seen(Timed, kw_only=True):
    """The time of a copy as a program sees it, and the basis of that time."""

    why: Words


class OfBytes(Struct, kw_only=True):
    node: str
    bytes: int


class Prices(OfBytes, tag_field="schema", tag="busfare.price/1", kw_only=True):
    """`prices`: of the time on the device. Of the trusted model, `with_call`: until the program knows that the copy is over;
    `untouched`: a copy back to pageable memory that nobody wrote yet. None where they do not apply.
    """

    direction: str
    memory: str
    prices: list[Price]
    trust: Trusted | None
    with_call: Seen | None = None
    untouched: Seen | None = None


class CopyAtOnce(Timed, kw_only=True):
    """One of several copies that begin together; alone it takes `alone_seconds`."""

    gpu: int
    direction: str
    alone_seconds: float


class CopiesAtOnce(OfBytes, tag_field="schema", tag="busfare.price/1", kw_only=True):
    """Pinned copies of several GPUs."""

    at_once: list[CopyAtOnce]


class KernelPrice(Ranged, kw_only=True):
    """One kernel by one rung: from the data sheets (`class`), by what both nodes measured (`probed`) or counted bytes."""

    seconds: float | None


class KernelPrices(Struct, tag_field="schema", tag="busfare.price/1"):
    """The best rung first."""

    recorded_on: str = field(name="from")
    node: str
    kind: str = field(name="kernel")
    recorded_seconds: float
    prices: list[KernelPrice]


class CollectivePrice(Priced, kw_only=True):
    """One collective by what the node's file measured (`measured`) or by NCCL's model of its links (`nccl`)."""

    bus_bytes_per_second: float
    algorithm: str | None
    protocol: str | None


class CollectivePrices(OfBytes, tag_field="schema", tag="busfare.price/1", kw_only=True):
    """The best rung first. `links`: what lies between the GPUs of a node."""

    collective: str
    ranks: int
    hosts: int
    links: str
    prices: list[CollectivePrice]


def answer_price(question: questions.Price) -> Prices | CopiesAtOnce | KernelPrices | CollectivePrices:
    """A copy by every model that applies, or what else is asked for. Raises InputError for what the node cannot price."""
    if question.node is None:
        raise InputError("price: give `node`, the machine to price for")
    node = load_node(question.node, question.link)
    if question.collective:
        return _collective(node, question.collective, question)
    if question.kernel:
        return _kernel(node, question.kernel, question)
    if question.gpus:
        return _at_once(node, question.gpus, question)
    assert question.bytes is not None
    memory = question.memory or ("device" if question.direction in ("d2d", "p2p") else "pinned")
    latency_from = None if question.latency_from is None else load_node(question.latency_from)
    if latency_from and of_node(latency_from).measured(question.direction, memory) is None:
        raise InputError(
            f"`latency_from` {latency_from.name}: nobody measured L+o of {question.direction} copies there; give a probed "
            "node, such as h100-probed, or leave it out"
        )
    rows = cost.price(node, question.direction, memory, question.bytes, latency_from)
    if not rows:
        gpus = len(node.gpus())
        alone = question.direction == "p2p" and gpus == 1
        why = "it has one GPU" if alone else "it has no rate for such a path"
        raise InputError(
            f"`direction` {question.direction} from or to {memory} memory cannot be priced on {node.name}: {why}; give a "
            "node that has such a path (`busfare nodes`), or another direction or memory"
        )
    trust = cost.trusted(node, question.direction, memory, rows, latency_from)
    trusted = Trusted(*trust) if trust else None
    row = next((row for row in rows if trusted and row["model"] == trusted.model), None)
    called = with_call(node, question.direction, memory, row) if row else None
    to_host = (question.direction, memory) == ("d2h", "pageable")
    untouched = to_untouched(question.bytes) if to_host and not node.gpu(0).unified_memory else None
    return Prices(
        node=node.name,
        bytes=question.bytes,
        direction=question.direction,
        memory=memory,
        prices=rows_of(Price, rows),
        trust=trusted,
        with_call=Seen(**called._asdict()) if called else None,
        untouched=Seen(**untouched._asdict()) if untouched else None,
    )


def _at_once(node: Node, gpus: int, question: questions.Price) -> CopiesAtOnce:
    assert question.bytes is not None
    if gpus > len(node.gpus()):
        raise InputError(f"`gpus` {gpus}: {node.name} has {len(node.gpus())}; give a number from 1 to that")
    flows = [(d, gpu) for gpu in range(gpus) for d in dict.fromkeys(question.direction.split("+"))]
    together = copy_seconds_at_once(node, flows, question.bytes)
    rows = [
        CopyAtOnce(
            gpu=gpu,
            direction=direction,
            seconds=float(seconds),
            alone_seconds=float(copy_seconds_at_once(node, [(direction, gpu)], question.bytes)[0]),
            **seconds_between(None, None, None),
        )
        for (direction, gpu), seconds in zip(flows, together, strict=True)
    ]
    return CopiesAtOnce(node=node.name, bytes=question.bytes, at_once=rows)


def _kernel(node: Node, kernel: str, question: questions.Price) -> KernelPrices:
    assert question.recorded_on is not None
    assert question.seconds is not None
    recorded_on = load_node(question.recorded_on)
    rows = price_kernel(
        recorded_on,
        node,
        kernel,
        question.seconds,
        question.type,
        question.shape,
        flops=question.flops,
        bytes=question.bytes,
        blocks=prod(question.grid) if question.grid else None,
        threads=prod(question.block) if question.block else None,
        registers=question.registers,
        shared_bytes=question.shared_bytes,
    )
    return KernelPrices(recorded_on.name, node.name, kernel, question.seconds, rows_of(KernelPrice, rows))


def _collective(node: Node, kind: str, question: questions.Price) -> CollectivePrices:
    assert question.bytes is not None
    assert question.ranks is not None
    fabric = Fabric.of(node, question.ranks, question.hosts, question.nvls or None)
    size = np.array([float(question.bytes)])
    by = {name: price_collectives(fabric, [kind], size, name == "measured") for name in ("measured", "nccl")}
    rows = [
        CollectivePrice(
            model=name,
            seconds=float(priced.seconds[0]),
            bus_bytes_per_second=float(priced.bus_bytes_per_second[0]),
            algorithm=priced.algorithm[0],
            protocol=priced.protocol[0],
            **seconds_between(float(priced.low_seconds[0]), float(priced.high_seconds[0]), priced.rung),
        )
        for name, priced in by.items()
        if name == "nccl" or priced.rung == "probed"
    ]
    return CollectivePrices(
        node=node.name,
        bytes=question.bytes,
        collective=kind,
        ranks=question.ranks,
        hosts=question.hosts,
        links=fabric.through,
        prices=rows,
    )
