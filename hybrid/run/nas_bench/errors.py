"""What ends a run of this program with one line on standard error."""

from __future__ import annotations


class UsageError(Exception):
    """Wrong options or input that cannot be used."""

    status = 2


class NoGpuError(UsageError):
    """A GPU is needed and there is none."""

    status = 3


class RunError(Exception):
    """A program ended without a result: this run is left out, the others go on."""
