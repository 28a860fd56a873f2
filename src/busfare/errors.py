"""The errors that end a command with one line on standard error."""

from __future__ import annotations

__all__ = ["BusfareError", "InputError", "NoGpuError", "StoppedError"]


class BusfareError(Exception):
    """Base of every error that busfare raises on purpose; `exit_status` is what the command returns."""

    exit_status = 2


class InputError(BusfareError):
    """Input that cannot be used. The message says what, where, and the mend."""


class NoGpuError(BusfareError):
    """A GPU is needed and none is there."""

    exit_status = 3


class StoppedError(BusfareError):
    """The user stopped the work (Ctrl-C); the message says what is left of it."""

    exit_status = 130
