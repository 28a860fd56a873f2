"""What commands about plans and machines do: plan, price, nodes, doctor."""

from pathlib import Path
from typing import Any

import click

from busfare import questions
from busfare.advise.amounts import several
from busfare.answers.doctor import examined
from busfare.answers.kv import answer_kv
from busfare.answers.offload import answer_offload
from busfare.answers.plan import answer_plan
from busfare.answers.price import answer_price
from busfare.cli.output import answer
from busfare.errors import InputError
from busfare.nodes import load_node
from busfare.show.nodes import (
    catalogue,
    doctor_document,
    node_document,
    node_shown,
    nodes_document,
    nodes_with,
    price_document,
)
from busfare.show.plans import kv_document, offload_document, plan_document


def strategies(json: bool, html: Path | None, **given: Any) -> None:
    answer(answer_plan(questions.Plan.of(**given)), plan_document, json, html)


def offload(json: bool, html: Path | None, **given: Any) -> None:
    answer(answer_offload(questions.Offload.of(**given)), offload_document, json, html)


def kv(json: bool, html: Path | None, **given: Any) -> None:
    answer(answer_kv(questions.KvCache.of(**given)), kv_document, json, html)


def price(json: bool, **given: Any) -> None:
    answer(answer_price(questions.Price.of(**given)), price_document, json)


def find(words: tuple[str, ...], json: bool) -> None:
    answer(nodes_with(" ".join(words)) if words else catalogue(), nodes_document, json)


def show(node: str, json: bool) -> None:
    shown = load_node(node)
    answer(node_shown(shown), lambda _: node_document(shown), json)


def check(file: Path) -> None:
    if not file.is_file():
        problem = "a folder" if file.is_dir() else "no such file"
        raise InputError(f"{file}: {problem}; give the path of a node file")
    checked = load_node(str(file))
    print(
        f"{file}: {checked.name} is valid: {several(len(checked.components), 'component')}, "
        f"{several(len(checked.links), 'link')}, {several(len(checked.gpus()), 'GPU')}"
    )


def doctor(json: bool) -> None:
    result = examined()
    answer(result, doctor_document, json)
    if not result.checks[0].works:
        raise click.exceptions.Exit(2)
