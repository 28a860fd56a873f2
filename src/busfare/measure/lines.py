"""Source lines of the call stacks in a recording: looked up where the program ran, and added to its file."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from busfare.errors import InputError
from busfare.trace.readers.recorded.file import CHUNK, CHUNK_MAGIC, ENTRY, TABLES, read_recording
from busfare.trace.sites import is_library_module

__all__ = ["add_lines"]

#: Any of them: they take the same options, and answer alike.
TOOLS = ("addr2line", "llvm-addr2line", "eu-addr2line")
#: Seconds for one program or library.
PATIENCE = 120
#: `addr2line` where it knows nothing.
UNKNOWN = "?"
NUMBERS = {name: number for number, (name, _) in TABLES.items()}


def add_lines(path: Path, run: str) -> None:
    """Adds the table `lines` to the recording of a program that has ended, if it is of this `run` and has call stacks.

    Nothing is added where no tool is there that knows lines, or none of the program's own.
    """
    try:
        recording = read_recording(path)
    except InputError:
        return
    tool = next(filter(None, map(shutil.which, TOOLS)), None)
    own = recording.facts.get("run") == run and recording.complete and not recording.torn_bytes
    stacks = recording.table("stacks")
    if tool is None or not own or not len(stacks):
        return
    number = max(recording.strings, default=0)
    strings: dict[str, int] = {}
    rows = []
    places = np.unique(np.stack([stacks["module"], stacks["address"]], axis=1), axis=0)
    for module in np.unique(places[:, 0]).tolist():
        name = recording.strings.get(module, "")
        if is_library_module(name) or not Path(name).is_file():
            continue
        addresses = places[places[:, 0] == module, 1].tolist()
        for address, depth, function, file, line in _looked_up(tool, name, addresses):
            texts = [strings.setdefault(text, number + len(strings) + 1) for text in (function, file)]
            rows.append((module, address, depth, *texts, line))
    if not rows:
        return
    sequence = int(recording.table("end")["chunks"][-1]) + 1
    encoded = [text.encode("utf-8", "replace") for text in strings]
    named = [(number, len(text)) for number, text in zip(strings.values(), encoded, strict=True)]
    added = _chunk("strings", named, sequence, b"".join(encoded)) + _chunk("lines", rows, sequence + 1)
    with path.open("ab") as file_:
        file_.write(added)


def _looked_up(tool: str, module: str, addresses: Sequence[int]) -> Iterator[tuple[int, int, str, str, int]]:
    """Address, depth (0: the innermost that was inlined), function, file ("": not known) and line of the addresses."""
    asked = "".join(f"{address:#x}\n" for address in addresses)
    command = [tool, "-e", module, "-a", "-i", "-f", "-C"]
    try:
        done = subprocess.run(
            command, input=asked.encode(), capture_output=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    answers = iter(done.stdout.decode("utf-8", "replace").splitlines())
    here = f"{Path.cwd()}/"
    address = depth = 0
    for text in answers:
        if text.startswith("0x"):
            address, depth = int(text, 16), 0
            continue
        file, _, line = next(answers, "").partition(" (")[0].rpartition(":")
        known = line.isdecimal() and not file.startswith(UNKNOWN)
        if known or not text.startswith(UNKNOWN):
            yield address, depth, text, file.removeprefix(here) if known else "", int(line) if known else 0
        depth += 1


def _chunk(table: str, rows: Sequence[Sequence[int]], sequence: int, blob: bytes | None = None) -> bytes:
    """A chunk as docs/recording-format.md has it."""
    data = [struct.pack(f"<{len(rows)}Q", *column) for column in zip(*rows, strict=True)]
    columns = [(number, 8, 0, column) for number, column in enumerate(data)]
    if blob is not None:
        columns.append((len(columns), 255, len(blob), blob + bytes(-len(blob) % 8)))
    directory, body = b"", b""
    for number, width, base, column in columns:
        directory += ENTRY.pack(number, width, 0, ENTRY.size * len(columns) + len(body), base)
        body += column
    payload = directory + body
    head = CHUNK.pack(
        CHUNK_MAGIC, NUMBERS[table], len(columns), len(rows), sequence, len(payload), zlib.crc32(payload), 0
    )[:-4]
    return head + struct.pack("<I", zlib.crc32(head)) + payload
