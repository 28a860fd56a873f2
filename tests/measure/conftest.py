"""The stand-in driver, for all tests of what is measured on GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.measure.stand_in_driver import StandIn

STATE = {
    "sm_clock_hz": None, "sm_clock_most_hz": None, "throttle_reasons": 0x40, "link_replays": None, "other_processes": 0,
}  # fmt: skip


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """Two GPUs that are not there; whatever was made on them must be given back."""
    from busfare.measure.cuda.host import CudaHost
    from busfare.measure.cuda.strategies import CudaStrategies
    from tests.measure.stand_in_driver import StandIn

    made = StandIn(gpus=2)
    made.install(monkeypatch)
    gpus = [{"name": "stand-in"}] * 2
    monkeypatch.setattr(CudaHost, "facts", lambda self: {"gpus": gpus[: self.gpus], "driver": "none"})
    monkeypatch.setattr(CudaHost, "state", lambda self, gpu: dict(STATE))
    real = CudaStrategies.load

    def load(self: CudaStrategies, work: Any) -> None:
        # Of one without a reference a test says what computes it.
        made.work = work if work.kernel.reference else made.work
        real(self, work)

    monkeypatch.setattr(CudaStrategies, "load", load)
    yield made
    assert not made.blocks, "memory was not given back"
    assert not made.streams, "streams were not destroyed"
