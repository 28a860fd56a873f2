"""What a machine must be able to do to be measured: one verb runs a case, one says what the machine is."""

from __future__ import annotations

from typing import Any, Protocol

from busfare.errors import BusfareError
from busfare.measure.case import Case, Samples

__all__ = ["Device", "StalledError", "UnavailableError", "WrongDataError"]


class UnavailableError(Exception):
    """This case cannot be measured here; the message is the reason, for the list of what was left out."""


class StalledError(BusfareError):
    """The blocking kernel was not released in time: the samples would hold submission gaps."""


class WrongDataError(BusfareError):
    """A copy arrived changed."""


class Device(Protocol):
    """A machine with GPUs: real, or virtual."""

    #: A virtual one is labelled wherever its figures appear.
    virtual: bool

    def facts(self) -> dict[str, Any]:
        """What the machine is: driver, GPUs with their links, NUMA, IOMMU. JSON types only."""

    def state(self, gpu: int) -> dict[str, Any]:
        """What may change while it is measured: clocks, throttle reasons, link, replays, other programs."""

    def run(self, case: Case, repeats: int) -> Samples:
        """Runs `case` that many times.

        Raises UnavailableError where it cannot be run here, StalledError where the blocking kernel gave up,
        and WrongDataError where data arrived changed.
        """

    def close(self) -> None:
        """Gives everything back."""
