"""Plan files: what is read, and the one line that each mistake gets."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busfare.answers.plan import problem_of, read_plan_file
from busfare.errors import InputError
from busfare.nodes import load_node
from busfare.planning import machine_of, plan
from busfare.questions import Kernel

GOOD = """node = "h100-sxm"

[[kernel]]
name = "state"
h2d = "704.6MB"
d2h = "1056.9MB"
kernel = "12ms"
levels = 42
accesses_in = 1
dependent_chunks = true
reallocate = true

[[kernel]]
name = "pipeline"
copies_in = 8
kernel_at = ["8=15ms"]
h2d = "336MB"
kernel = "12ms"

[[kernel]]
name = "unpinned"
memory = "pageable"
d2h = "50MB"
kernel = "4ms"
"""


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "kernels.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_a_good_file_reads(tmp_path: Path) -> None:
    file = read_plan_file(written(tmp_path, GOOD))
    state, pipeline, unpinned = file.problems
    assert file.node == "h100-sxm"
    expected = ("state", 704_600_000, 0.012, 42)
    assert (state.name, state.h2d_bytes, state.kernel_seconds, state.levels) == expected
    assert (state.reads_neighbours, pipeline.reads_neighbours) == (True, False)
    assert state.reallocate and not pipeline.reallocate
    assert pipeline.kernel_at == ((8, 0.015),)
    assert pipeline.d2h_bytes == 0
    assert (unpinned.memory, unpinned.h2d_bytes, unpinned.d2h_bytes) == ("pageable", 0.0, 50e6)


@pytest.mark.parametrize(
    ("good", "bad", "says"),
    [
        ('h2d = "704.6MB"', 'h2d = "-704.6MB"', "negative"),
        ('h2d = "704.6MB"', 'h2d = "704 bananas"', "or a unit"),
        ('h2d = "704.6MB"', 'h2d = "1EB"', "exceeds the largest value that busfare accepts"),
        ('h2d = "704.6MB"', "h2d = nan", "finite"),
        ("levels = 42", "levles = 42", "did you mean 'levels'"),
        ("levels = 42", "levels = 0", "whole number"),
        ("levels = 42", "levels = true", "levels"),
        ("levels = 42", "levels = 4.5", "whole number"),
        ("levels = 42", "levels = 42 42", "not TOML"),
        ("copies_in = 8", 'copies_in = "many"', "not a number"),
        ('memory = "pageable"', 'memory = "paged"', "pinned, pageable"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, good: str, bad: str, says: str) -> None:
    path = written(tmp_path, GOOD.replace(good, bad, 1))
    with pytest.raises(InputError) as caught:
        read_plan_file(path)
    message = str(caught.value)
    assert says in message
    assert "\n" not in message
    line = GOOD[: GOOD.index(good)].count("\n") + 1
    assert abs(int(message.removeprefix(path).split(":")[1]) - line) <= 1, message


@pytest.mark.parametrize(
    "text",
    ["", "kernel = []", "[[kernel]]", '[[kernel]]\nname = "x"', "kernel = 3", 'node = "x"\n[[kernel]]\nname = 3', "\x00"],
)  # fmt: skip
def test_a_file_without_a_usable_kernel_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_plan_file(written(tmp_path, text))
    assert "\n" not in str(caught.value)


#: Values as hands slip: right ones, other units, and nonsense.
words = st.one_of(
    st.sampled_from([
        "12ms", "336MB", "42", "1", "1e3", "0", "-1", "1EB", "1ns", "1B", "999TB", "1e9s", "pageable", "8=15ms",
    ]),
    st.text(max_size=12),
)  # fmt: skip
kernel_options = st.dictionaries(st.sampled_from(sorted(Kernel.names() - {"kernel_at"})), words, max_size=8)


@settings(deadline=None, max_examples=300)
@given(kernel_options, st.sampled_from(["h100-sxm", "gtx-titan", "pcie:3x1", "mi300a"]))
def test_any_options_are_answered_or_refused_in_a_single_line(options: dict[str, str], node: str) -> None:
    try:
        problem = problem_of(Kernel.of(**{"h2d": "1MB", "kernel": "1ms"} | options))
        answer = plan(problem, machine_of(load_node(node)))
    except InputError as error:
        assert "\n" not in str(error) or any("\n" in value for value in options.values())
    else:
        assert 0 < answer.bounds.full_overlap * (1 - 1e-9) <= answer.best.seconds < float("inf")


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_text(text, encoding="utf-8", errors="replace")
    with pytest.raises(InputError):
        read_plan_file(str(file))
