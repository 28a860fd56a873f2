"""W14 as published beside the plan's own times, and data that every chunk needs."""

import pytest

from busfare import questions
from busfare.answers.plan import PlanResult, answer_plan
from busfare.errors import InputError
from busfare.nodes import load_node
from busfare.planning import Problem, machine_of
from busfare.planning.published import as_published
from busfare.planning.strategies import program_of

#: W14 table I (GTX Titan): L+o, G, g into the GPU and out of it; table II, explicit-mapped on PCIe 3.0.
INTO, OUT = (9.42e-6, 8.318392e-11, 2.503e-6), (9.023e-6, 7.924734e-11, 2.674e-6)
WITH_MAPPED_WRITES = 1.193386e-10, 1.480396e-10
STATE = Problem("state", 704_643_072, 352_321_536, 2e-3)


def planned(**given: object) -> PlanResult:
    return answer_plan(questions.Plan.of(**given))


@pytest.mark.parametrize(("node", "equation", "by_hand"), [("k20", 5, 117.4), ("gtx-680", 2, 62.2)])
def test_numbers_of_streams_are_those_of_the_paper(node: str, equation: int, by_hand: float) -> None:
    """By hand from table I, for 100 MB in, 300 MB out and 20 ms: √((B_hd·G_hd + t_E)/g) of eq 5, √(t_E/2g) of eq 2."""
    streams = planned(node=node, h2d="100MB", d2h="300MB", kernel="20ms").streams
    assert streams.equation == equation
    assert streams.formula == pytest.approx(by_hand, abs=0.05)


def test_explicit_and_hybrid_are_those_of_the_paper() -> None:
    titan = machine_of(load_node("gtx-titan"))
    explicit = INTO[0] + STATE.h2d_bytes * INTO[1] + 2e-3 + OUT[0] + STATE.d2h_bytes * OUT[1]
    assert as_published(STATE, titan, "explicit", 1) == pytest.approx(explicit, rel=1e-3)
    into, out = STATE.h2d_bytes * WITH_MAPPED_WRITES[0], STATE.d2h_bytes * WITH_MAPPED_WRITES[1]
    hybrid = INTO[0] + into + 41 * INTO[2] + 2e-3 / 42 + OUT[0] + out / 42  # eq 5: copies in are the longest
    assert as_published(STATE, titan, "hybrid", 42) == pytest.approx(hybrid, rel=2e-3)
    assert as_published(STATE, titan, "three-streams", 42) is None


def test_bytes_that_every_chunk_needs_are_copied_first() -> None:
    machine = machine_of(load_node("h100-sxm"))
    rest = Problem("rest", 64e6, 64e6, 4e-3)
    whole = Problem("whole", 128e6, 64e6, 4e-3, shared_bytes=64e6)
    first = machine.h2d.copy.seconds(64e6)
    for strategy in ("streams", "three-streams", "hybrid"):
        apart, together = (program_of(p, machine, strategy, 16).play().seconds for p in (rest, whole))
        assert together == pytest.approx(apart + first, rel=0.02)
    plain = program_of(Problem("plain", 128e6, 64e6, 4e-3), machine, "explicit").play().seconds
    assert program_of(whole, machine, "explicit").play().seconds == pytest.approx(plain)


def test_more_shared_bytes_than_bytes_are_refused() -> None:
    with pytest.raises(InputError, match="h2d_shared"):
        planned(node="h100-sxm", h2d="1MB", h2d_shared="2MB", d2h="1MB", kernel="1ms")
