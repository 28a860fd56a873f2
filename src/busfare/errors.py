"""The errors that end a command with one line on standard error."""

from collections.abc import Iterable


class BusfareError(Exception):
    """Base of every error that busfare raises on purpose; `exit_status` is what the command returns."""

    exit_status = 2


class InputError(BusfareError):
    """Input that cannot be used: what, where, and the fix. Backquoted fields are spelled as options on a command line."""


class FieldError(InputError):
    """A `field` of a question that cannot be used: `what` goes on behind its name."""

    def __init__(self, field: str, what: str) -> None:
        super().__init__(f"`{field}`{what}")
        self.field, self.what = field, what.lstrip(": ")


class NoGpuError(BusfareError):
    """A GPU is needed and none is there."""

    exit_status = 3


class LimitPassed(BusfareError):  # noqa: N818 (nothing went wrong: a limit of the user's own was passed)
    """A limit that the user set with --fail-if was passed."""

    exit_status = 1


class StoppedError(BusfareError):
    """The user stopped the work (Ctrl-C); the message says what is left of it."""

    exit_status = 130


def instead_of(word: str, allowed: Iterable[str]) -> str:
    """The fix for a word that is not in `allowed`: the nearest allowed word, or all of them."""
    import difflib

    words = list(allowed)
    near = difflib.get_close_matches(word, words, 1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(words)}"
