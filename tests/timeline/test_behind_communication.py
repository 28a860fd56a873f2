"""Waits for communication in another stream, where no event of the trace says so."""

import pytest

from busfare.timeline import critical_path_shares, timeline
from busfare.timeline.engine import BEHIND_NS
from tests.traces import call, kernel, made, run

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


@pytest.mark.parametrize(
    ("name", "begins_us", "part"),
    [
        (REDUCE, 1021, "communication"),
        (REDUCE, 1020 + 2 * BEHIND_NS / 1000, "unexplained waits"),
        ("elementwise_kernel", 1021, "unexplained waits"),
    ],
)
def test_what_starts_right_behind_communication_waited_for_it(name: str, begins_us: float, part: str) -> None:
    recorded = run(
        made(kernel(20, 1020, name, stream=9), 0, 1),
        made(kernel(30, 400, "gelu", stream=7), 2, 3),
        made(kernel(begins_us, begins_us + 100, "gemm", stream=7), 4, 6),
        call(7, begins_us + 103, "cudaStreamSynchronize", "stream", stream=7),
    )
    shares = {row.part: row.seconds for row in critical_path_shares(timeline(recorded))}
    assert shares.pop(part) == pytest.approx((begins_us - 400) * 1e-6, rel=0.05)
    assert {"communication", "unexplained waits"} & {p for p, s in shares.items() if s > 2e-6} == set()
