"""What recording cost a job, taken out again, where it is known how long the job takes unrecorded."""

from __future__ import annotations

from dataclasses import replace

from busfare.jobs.model import JobTimeline, together
from busfare.timeline import play
from busfare.timeline.recording_cost import Unrecorded, all_unrecorded

__all__ = ["without_recorder"]


def without_recorder(job: JobTimeline, target_ns: int) -> tuple[JobTimeline, Unrecorded]:
    """`job` as it is when it takes `target_ns`, and what recording cost its ranks, each call of all ranks the same."""
    runs = [part.timeline for part in job.parts]
    bare = all_unrecorded(runs, target_ns, lambda own: play(together(job, own)).makespan_ns)
    parts = [replace(part, timeline=run) for part, run in zip(job.parts, bare.timelines, strict=True)]
    return replace(job, parts=parts), bare
