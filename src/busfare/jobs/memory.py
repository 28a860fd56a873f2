"""How much memory can still be taken: of the machine, and of the groups of processes that a container or a batch system
limits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

#: Of either version of control groups: its folder, files of the limit and of what is taken, and in memory.stat what caches
#: of files hold [Linux, Documentation: cgroup-v2, cgroup-v1/memory].
VERSION_2 = ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
VERSION_1 = (
    "sys/fs/cgroup/memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file",
)


def free_memory(root: Path = Path("/")) -> int:
    """Bytes that can still be taken: what caches of files hold is free, too. `root`: of the file system."""
    return min([_of_machine(root), *_of_groups(root)])


def _of_machine(root: Path) -> int:
    said = re.search(r"^MemAvailable:\s+(\d+) kB$", _text(root / "proc/meminfo"), re.MULTILINE)
    return int(said[1]) << 10 if said else os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_groups(root: Path) -> Iterator[int]:
    """What each group that this process is in leaves, and each that holds one of these."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        folder, limit, taken, cached = VERSION_1 if controllers else VERSION_2
        within = PurePosixPath(path.lstrip("/"))
        for group in (root / folder / level for level in (within, *within.parents)):
            most, used = _text(group / limit), _text(group / taken)
            if most.isdigit() and used.isdigit():
                held = re.search(rf"^{cached} (\d+)$", _text(group / "memory.stat"), re.MULTILINE)
                yield max(0, int(most) - int(used) + (int(held[1]) if held else 0))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""
