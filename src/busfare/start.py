"""Where the command `busfare` begins."""

import ctypes
import os
import signal

__all__ = ["main"]

#: The parameter of mallopt(3) from which size on a block is mapped by itself, and that size.
M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES = -3, 4 << 20


def main() -> None:
    """Runs the command line (`busfare.cli.main`). Ctrl-C while that is imported ends it without a traceback, too."""
    theirs = signal.getsignal(signal.SIGINT)
    if theirs is signal.default_int_handler:  # who starts it in the background may have it ignored
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from busfare.cli import main as run

    signal.signal(signal.SIGINT, theirs)
    # Large columns go back to the system as they are freed: glibc would keep those of up to 32 MiB for later ones.
    if setting := getattr(ctypes.CDLL(None), "mallopt", None):
        setting(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
    run()
