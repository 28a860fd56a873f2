"""What was measured of a program on one machine, what was predicted, and how the two agree."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from pairs.table import Pair, Plan

__all__ = ["GOAL_PERCENT", "Judged", "Machine", "NoAnswerError", "Predicted", "Ranked"]

#: Percent by which a predicted speed-up may be off.
GOAL_PERCENT = 10.0


class NoAnswerError(Exception):
    """A prediction or a measurement that is not there; the message says why."""


@dataclass(frozen=True)
class Machine:
    """What was measured on one GPU. `name`: that of its folder, a kind of GPU and perhaps when it was."""

    name: str
    folder: Path
    times: dict[str, Any]

    @property
    def kind(self) -> str:
        """What machines of the same GPU share: `h100` of `h100-2026-11-22-0055`."""
        return self.name.partition("-")[0]

    def seconds(self, program: str, variant: str) -> float:
        """The median of the unrecorded runs. Raises NoAnswerError where there are none."""
        said = self.times["programs"].get(program)
        if said is None:
            raise NoAnswerError(f"{program} was not run on {self.name}")
        if variant not in said["variants"]:
            raise NoAnswerError(f"{variant} failed: {'; '.join(said['failures']) or 'no reason given'}")
        return float(said["variants"][variant]["median_seconds"])

    def spread(self, program: str, variant: str) -> float:
        return float(self.times["programs"][program]["variants"][variant]["spread"])

    def medians(self, program: str, variant: str) -> list[float]:
        """Of each unrecorded process."""
        return [median(runs) for runs in self.times["programs"][program]["variants"][variant]["seconds"]]

    def node(self, plan: Plan, program: str) -> str:
        """The node file that was probed on the very machine that ran `program`, where there is one; else the catalogue's
        node of its kind.
        """
        probed = self.folder / str(self.times["programs"].get(program, {}).get("node", "node.toml"))
        return str(probed) if probed.exists() else plan.recorded_on.get(self.kind, "")

    def recording(self, program: str, name: str) -> Path:
        """Raises NoAnswerError where the recording is missing."""
        path = self.folder / f"{program}-{name}.bf"
        if not path.exists():
            path = _unpacked(self.folder) / path.name
        if not path.exists():
            raise NoAnswerError(f"no recording {path.name}")
        return path


@lru_cache
def _unpacked(folder: Path) -> Path:
    """Where the recordings of `folder` are that lie packed in it, until this program ends."""
    packed = folder / "recordings.tar.xz"
    if not packed.exists():
        return folder
    place = TemporaryDirectory(prefix="busfare-recordings-")
    _places.append(place)
    with tarfile.open(packed) as archive:
        for member in archive:
            # By its last name alone, whatever path it claims; Python 3.11.2 knows no `filter`.
            if member.isreg() and (data := archive.extractfile(member)):
                (Path(place.name) / Path(member.name).name).write_bytes(data.read())
    return Path(place.name)


#: Removed when the program ends.
_places: list[TemporaryDirectory[str]] = []


@dataclass(frozen=True)
class Predicted:
    baseline_recorded_seconds: float
    baseline_replayed_seconds: float
    seconds: float
    # From no wait that nothing in the trace explains to all of them.
    range_seconds: tuple[float, float]

    @property
    def speed_up(self) -> float:
        return self.baseline_replayed_seconds / self.seconds

    @property
    def range(self) -> tuple[float, float]:
        """The speed-ups of `range_seconds`, least first."""
        least, most = self.range_seconds
        return self.baseline_replayed_seconds / most, self.baseline_replayed_seconds / least


@dataclass(frozen=True)
class Judged:
    """One pair on one machine. `measured` is None where it was not measured, `predicted` where it was not predicted."""

    pair: Pair
    machine: str
    measured: float | None
    predicted: float | None
    before_seconds: float = 0.0
    replayed_seconds: float = 0.0
    why: str = ""
    # The speed-up between the slowest and the fastest process of either program, one way and the other.
    least: float = 0.0
    most: float = 0.0
    # Of the speed-ups that what-if calls possible.
    range: tuple[float, float] = (0.0, 0.0)

    @property
    def error_percent(self) -> float | None:
        """Of the predicted speed-up."""
        if self.measured is None or self.predicted is None:
            return None
        return 100 * (self.predicted / self.measured - 1)

    @property
    def within(self) -> bool:
        return self.error_percent is not None and abs(self.error_percent) <= GOAL_PERCENT

    @property
    def in_range(self) -> bool:
        return self.measured is not None and self.range[0] <= self.measured <= self.range[1]

    @property
    def scattered(self) -> bool:
        """Whether processes differ by more than a prediction may."""
        if self.measured is None:
            return False
        goal = GOAL_PERCENT / 100
        return self.most > (1 + goal) * self.measured or self.least < (1 - goal) * self.measured


@dataclass(frozen=True)
class Ranked:
    """The first advice for one program, and the changes measured, best first: (change, share of the run that it saves)."""

    program: str
    machine: str
    first: str
    gained: tuple[tuple[str, float], ...]
    hit: bool
