"""Where the command `busfare` begins."""

from __future__ import annotations

import os
import signal

__all__ = ["main"]


def main() -> None:
    """Runs the command line (`busfare.cli.main`). Ctrl-C while that is imported ends it without a traceback, too."""
    theirs = signal.getsignal(signal.SIGINT)
    if theirs is signal.default_int_handler:  # who starts it in the background may have it ignored
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from busfare.cli import main as run

    signal.signal(signal.SIGINT, theirs)
    run()
