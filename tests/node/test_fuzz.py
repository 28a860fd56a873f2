"""Mutated node files: a `Node` or an `InputError`, never anything else."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from busfare.errors import InputError
from busfare.nodes import Node, catalogue_names
from busfare.nodes.file import decode
from busfare.nodes.gpus import catalogue_text

SEEDS = [catalogue_text(name) for name in ("gtx-titan", "dgx-1-v100", "gh200", "mi250x", "minsky")]
WORDS = [
    "nan", "inf", "-1", "1e999", "0", "''", "[]", "{}", "[[component]]", "[x", '"gpu[0-99]"', "true", "\n", "=",
    "99999999999999999999",
]  # fmt: skip


def mutated(text: str, dice: random.Random) -> str:
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(text) or 1)
        line_end = text.find("\n", at) % (len(text) + 1)
        value = text.find("= ", at) % (len(text) + 1)
        byte = chr(dice.choice([0, 10, 34, 91, 93, 123, 0xFFFD, dice.randrange(32, 127)]))
        text = dice.choice(
            [
                text[:at],
                text[:at] + byte + text[at + 1 :],
                text[:at] + dice.choice(WORDS) + text[at:],
                text[: text.rfind("\n", 0, at) + 1] + text[line_end:],
                text[:value] + "= " + dice.choice(WORDS) + "\n" + text[value:].partition("\n")[2],
            ]
        )
    return text


def outcome(text: str) -> None:
    try:
        node = decode(text, "fuzz.toml")
    except InputError as error:
        assert str(error)
        assert "\n" not in str(error).strip()
    else:
        assert isinstance(node, Node)
        assert node.gpus()


def test_mutated_catalogue_files() -> None:
    dice = random.Random(20141)
    for _ in range(1500):
        outcome(mutated(dice.choice(SEEDS), dice))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_any_text(text: str) -> None:
    outcome(text)


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.one_of(st.integers(), st.floats(), st.text(max_size=5), st.booleans()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text("abkind", min_size=1), inner, max_size=3)
        ),
        max_leaves=10,
    )
)
def test_any_value_under_a_valid_key(value: object) -> None:
    outcome(f'name = "x"\ncomponent = {str(value).lower()}')


def test_every_seed_is_good_before_it_is_mutated() -> None:
    for name in catalogue_names():
        outcome(catalogue_text(name))
        assert decode(catalogue_text(name), name).name == name
