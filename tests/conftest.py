"""One choice for all tests: where a run must give the same answer twice, Hypothesis draws the same examples."""

from __future__ import annotations

import os

from hypothesis import settings

# No test is timed: on a busy machine an example may take any time.
settings.register_profile("untimed", deadline=None)
settings.register_profile("same-each-time", deadline=None, derandomize=True)
settings.load_profile("same-each-time" if os.environ.get("CI") else "untimed")
