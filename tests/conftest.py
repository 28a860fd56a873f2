"""One choice for all tests: where a run must give the same answer twice, Hypothesis draws the same examples."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("same-each-time", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("same-each-time")
