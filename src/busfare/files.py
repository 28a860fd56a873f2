"""Files and folders that are written whole, or not at all."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from busfare.errors import InputError


def write_file(path: Path, content: str | bytes) -> None:
    """Makes the file, and its folders. Raises InputError where it cannot be written."""
    with replacing(path) as place:
        place.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` to write a file or a folder under, which takes its place once that is done.

    After an error nothing is left of it, and what was at `path` is as it was. A folder that is there keeps its other
    files; a pipe or a device is written itself. Raises InputError where it cannot be written.
    """
    place = Path(os.path.realpath(path))  # a link stays one
    partial = place.with_name(f".busfare-{os.getpid()}.part")
    try:
        special = place.exists() and not place.is_file() and not place.is_dir()
        if special or path.is_relative_to("/dev"):  # as /dev/stdout, whatever that is
            yield place
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        if partial.is_dir() and place.is_dir():
            for file in partial.iterdir():
                file.replace(place / file.name)
            return
        if place.is_file():
            partial.chmod(stat.S_IMODE(place.stat().st_mode))
        partial.replace(place)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{path}: cannot be written ({reason}); name another place") from None
    finally:
        if partial.is_dir():
            import shutil

            shutil.rmtree(partial, ignore_errors=True)
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def check_place(path: Path, folder: bool = True) -> None:
    """Raises InputError where nothing could be written at `path`, or where a folder is and none may be. Leaves nothing."""
    from tempfile import TemporaryFile  # which takes a while to import

    place = Path(os.path.realpath(path))
    if path.is_relative_to("/dev"):  # as /dev/stdout, whatever that is
        return
    try:
        if place.is_dir() and not folder:
            raise InputError(f"{path}: is a folder; name a file in it")
        if place.exists() and not place.is_dir() and not place.is_file():  # a pipe or a device
            return
        there = place if place.is_dir() else place.parent
        while not there.exists():
            there = there.parent
        # Only trying tells: who may do everything may not write to /proc.
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{path}: cannot be written ({reason}); name another place") from None
