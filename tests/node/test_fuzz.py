"""Mutated node files: a `Node` or an `InputError`, never anything else."""

from hypothesis import given, settings
from hypothesis import strategies as st

from busfare.errors import InputError
from busfare.nodes import Node
from busfare.nodes.file import decode


def outcome(text: str) -> None:
    try:
        node = decode(text, "fuzz.toml")
    except InputError as error:
        assert str(error)
        assert "\n" not in str(error).strip()
    else:
        assert isinstance(node, Node)
        assert node.gpus()


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
