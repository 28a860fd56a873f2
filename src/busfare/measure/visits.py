"""Which case is visited when: more often where it scatters and costs little, each one at times all over the run."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from busfare.measure.case import Case, Samples
from busfare.measure.middle import spread
from busfare.measure.plan import MATTERS, OTHER_WAY, matters
from busfare.measure.raw import Measurement, Moment

__all__ = ["Visited", "visits"]

#: A case is settled when the interval of the median of its visits is this narrow, either way, …
SETTLED = 0.002
#: … and it has been visited this often: visits of one moment share what disturbs them.
LEAST_VISITS = 6
#: More visits than this say nothing new.
MOST_VISITS = 24
#: What parameters are fitted to, and what they are judged on, is visited in every window until it has been visited this
#: often: of two or three visits, one slow moment is the middle.
ENOUGH_VISITS = 6
#: Of what takes so long a visit (buffers of hundreds of megabytes, by the processor), fewer: they would leave others none.
LONG_VISIT_S, ENOUGH_LONG_VISITS = 0.04, 3
#: Where a visit takes less than this, so many more are due in each window: the time of short copies is one of a few,
#: from visit to visit, and only many of them find the middle.
CHEAP_S, CHEAP_MORE = 0.0016, 4
#: Copies of megabytes take longer and wait for the host's memory, which is quiet for moments only; those of pageable
#: memory are held to a wider goal.
CHEAP_SINGLE_S, CHEAP_PAGEABLE_S = 0.006, 0.0036
#: What moves data both ways at once is due so many more, and twice as many where all of it are copies: it waits for the
#: host's memory, which is quiet for moments only.
BOTH_WAYS_MORE = 2
#: A visit is about this long, so that every case is seen at many times of the run, …
VISIT_S = 0.002
#: … of so many samples at least and at most, besides the first; what moves data both ways has two at least.
LEAST_REPEATS, MOST_REPEATS, BOTH_WAYS_REPEATS = 1, 5, 2
#: The first sample finds caches and address translation as the case before left them: it is not counted. Where one
#: takes this long, what it finds does not matter (0.1 % of a pinned copy of 4 ms), and it is counted: then a visit is
#: one sample, and there are more visits. The processor's caches, which pageable copies go through, take longer to fill.
LONG_S, LONG_BY_HOST_S = 0.006, 0.02
#: Before that is known, this many bytes are long.
LONG_BYTES = 1 << 28
#: nvbandwidth takes the median of 3 samples in a row; here each is a visit of its own, for a moment may be slow.
AGAIN_VISITS = 5
#: Scatter from visit to visit: what is assumed before it is known, and the bounds of what is believed.
_SCATTER, _LEAST_SCATTER, _MOST_SCATTER = 0.01, 0.002, 0.05


@dataclass
class Visited:
    """A case and what was seen of it so far."""

    case: Case
    samples: Samples = field(default_factory=lambda: Samples((), ()))
    visits: list[int] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    stopped: str = ""
    #: Seconds of the run that one sample costs, with all that goes with it.
    sample_s: float = math.inf

    @property
    def measurement(self) -> Measurement:
        """What the record holds of it."""
        return Measurement(self.case, self.samples, tuple(self.visits), self.stopped, tuple(self.moments))

    def next_repeats(self) -> tuple[int, int]:
        """Samples of the next visit, and how many go before them untimed."""
        # Pageable memory that the processor has just written is copied as in a program: once, after other work.
        if self.case.mode == "again" or (self.case.memory, self.case.mode) == ("pageable", "written"):
            return 1, 0
        if not self.visits:
            return 1, int(self.case.total_bytes < LONG_BYTES)
        by_host = self.case.memory in ("pageable", "managed")
        if self.sample_s > (LONG_BY_HOST_S if by_host else LONG_S):
            return 1, 0
        least = BOTH_WAYS_REPEATS if self.case.mode in OTHER_WAY else LEAST_REPEATS
        return min(max(int(VISIT_S / self.sample_s) - 1, least), MOST_REPEATS), 1

    def add(self, taken: Samples, moment: Moment) -> None:
        """One visit's samples; says why this case needs no more, if it does not."""
        untimed = moment.first_s is not None
        self.samples += taken
        self.visits.append(len(taken.api_s))
        self.moments.append(moment)
        self.sample_s = min(self.sample_s, max(moment.took_s, 1e-6) / (len(taken.api_s) + untimed))
        if len(self.visits) >= self.most_visits:
            self.stopped = "enough"
        elif len(self.visits) >= LEAST_VISITS and spread(self.measurement.of_visits) <= SETTLED:
            self.stopped = "settled"

    @property
    def most_visits(self) -> int:
        """More visits than these are not made."""
        return AGAIN_VISITS if self.case.mode == "again" else MOST_VISITS

    @property
    def least(self) -> int:
        """How many visits it is due in every window, however little time that leaves to others. nvbandwidth's method is
        due one: it is what the others are judged by.
        """
        if self.case.mode == "again":
            return 1
        if matters(self.case) < MATTERS:
            return 0
        more = BOTH_WAYS_MORE * ((self.case.mode in OTHER_WAY) + (self.case.mode == "both"))
        more = more or CHEAP_MORE * (self.cost_s < self.cheap_s)
        enough = ENOUGH_VISITS if self.cost_s < LONG_VISIT_S else ENOUGH_LONG_VISITS
        return more + (more > 0 or len(self.visits) < enough)

    @property
    def cheap_s(self) -> float:
        """Up to here a visit is cheap."""
        if self.case.memory == "pageable":
            return CHEAP_PAGEABLE_S
        single = self.case.memory == "pinned" and self.case.mode == "copies" and self.case.count == 1
        return CHEAP_SINGLE_S if single else CHEAP_S

    @property
    def cost_s(self) -> float:
        """Seconds of the run that the next visit takes."""
        return self.sample_s * sum(self.next_repeats())

    @property
    def need(self) -> float:
        """How much another second spent here is worth: visits are due in proportion (Neyman's allocation: scatter
        over the root of the cost).
        """
        seen = self.measurement.of_visits
        scatter = _SCATTER
        if len(seen) > 2:
            ordered = sorted(seen)
            # Half the distance of the quartiles over the median, as a standard deviation.
            quarter = len(seen) // 4
            scatter = (ordered[-1 - quarter] - ordered[quarter]) / 1.35 / max(ordered[len(seen) // 2], 1e-12)
        scatter = min(max(scatter, _LEAST_SCATTER), _MOST_SCATTER)
        return matters(self.case) * scatter / math.sqrt(self.cost_s)


def visits(
    all_: Sequence[Visited], window_s: float, drawn: random.Random, at_least_one: bool = False
) -> list[Visited]:
    """The visits of the next `window_s` seconds, in their order: each case's own are spread over the whole window, at
    random within equal parts of it.
    """
    open_ = [v for v in all_ if not v.stopped]
    due = _due(open_, window_s, at_least_one)
    timed = []
    for visited, count in zip(open_, due, strict=True):
        whole = int(count + drawn.random())
        timed += [((n + drawn.random()) / whole, visited) for n in range(whole)]
    return [visited for _, visited in sorted(timed, key=lambda pair: pair[0])]


def _due(open_: Sequence[Visited], window_s: float, at_least_one: bool) -> list[float]:
    """How many visits each is due, in proportion to its need, as many as the window holds."""
    costs = [v.cost_s for v in open_]
    needs = [v.need for v in open_]
    room = [v.most_visits - len(v.visits) for v in open_]
    # What is shown as it is and takes long has its second visit, and no third one while others wait.
    least = [
        float(max(v.least, at_least_one and (len(v.visits) < 2 or v.cost_s < LONG_VISIT_S))) for v in open_
    ]

    def with_(factor: float) -> list[float]:
        return [min(max(factor * n, few), most) for n, few, most in zip(needs, least, room, strict=True)]

    low, high = 0.0, MOST_VISITS / min(needs, default=1.0)
    for _ in range(40):
        factor = (low + high) / 2
        spent = sum(n * cost for n, cost in zip(with_(factor), costs, strict=True))
        low, high = (factor, high) if spent < window_s else (low, factor)
    return with_(low)
