"""Many ranks: their traces read, matched, put on one clock and played as one timeline, and changes to it; many traces on Dask.

It may import planning, timeline, cost, nodes and trace. It gives sums over traces, who waits for whom, and the job as it
plays; what is advised belongs to `advise`, and the results of a command to `answers`.
"""

from busfare.jobs.parts import How, one_trace

__all__ = ["How", "one_trace"]
