"""Many ranks: their traces read (on Dask, too), matched, put on one clock and played as one timeline; changes to that.

It may import planning, timeline, cost, nodes and trace. It gives sums over traces, who waits for whom, and the job as it
plays; what is advised belongs to `advise`, and the results of a command to `answers`.
"""

from busfare.jobs.parts import only_trace

__all__ = ["only_trace"]
