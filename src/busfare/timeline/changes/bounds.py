"""The most that a change can gain: `what-if` and the findings of a report limit their gains in the same manner."""

import numpy as np

from busfare.timeline.changes.fewer_copies import without
from busfare.timeline.edit import Applied
from busfare.timeline.engine import play
from busfare.timeline.model import Mask, Timeline
from busfare.trace.lanes import Union

NS = 1e-9
#: Changes that give operations and calls other durations, and move nothing.
DURATIONS = ("copy_speed", "kernels", "host")


class Bounds:
    """Bounds of the gains of changes of one run, which takes `seconds` unchanged."""

    def __init__(self, run: Timeline, seconds: float) -> None:
        self.run, self.seconds = run, seconds
        self._without: dict[bytes, float] = {}

    def most(self, applied: Applied) -> float:
        """The most seconds that a change gains: the gain without the copies that it touches, and without all migrations if
        it touches some, or the time in which anything that it touches was under way, whichever is less. If it touches no
        copies, the run still takes as long as the work of the busiest GPU.
        """
        touched = np.isin(self.run.operations["row"].to_numpy(), applied.scope.ids)
        removed: Mask = touched & (self.run.among("kind", "copy") | self.run.among("kind", "set"))
        migrations = self.run.among("kind", "migration")
        removed |= migrations & (touched & migrations).any()
        bound = self._gain_without(removed) if removed.any() else self.seconds - self._longest_work()
        return max(
            0.0, min(bound, self.seconds if applied.touched is None else applied.touched.length() * NS)
        )

    def _gain_without(self, removed: Mask) -> float:
        key = removed.tobytes()
        if key not in self._without:
            after = without(self.run, removed).timeline
            self._without[key] = self.seconds - play(after).makespan_seconds
        return self._without[key]

    def _longest_work(self) -> float:
        """Seconds for which something ran on the GPU that was busy longest."""
        (starts, ends), columns = self.run.recorded_spans, self.run.columns
        device = columns["stream_device"][columns["operation_stream"]]
        busy = (Union.of(starts[device == gpu], ends[device == gpu]).length() for gpu in np.unique(device))
        return max(busy, default=0) * NS


def shortened_seconds(before: Timeline, after: Timeline) -> float:
    """By how much all durations of `after`, a run of the same operations and calls, are shorter than `before`, added up: no
    change of durations gains more, and one that lengthens them gains nothing.
    """
    spans = ("operation_duration", "call_own", "call_gap")
    shorter = (before.columns[name] - after.columns[name] for name in spans)
    return float(sum(np.maximum(span, 0).sum() for span in shorter)) * NS
