"""What can still be taken, by files as Linux has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from busfare.jobs.workers import free_memory

MEBI = 1 << 20
MACHINE = "MemTotal:  4194304 kB\nMemFree:  1024 kB\nMemAvailable:  2097152 kB\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path / "proc/meminfo", MACHINE)
    return tmp_path


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def group(folder: Path, limit: str, taken: int, cached: int, version: int = 2) -> None:
    names = ("memory.max", "memory.current", "inactive_file")
    if version == 1:
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    put(folder / names[0], f"{limit}\n")
    put(folder / names[1], f"{taken}\n")
    put(folder / "memory.stat", f"anon 5\n{names[2]} {cached}\nother 7\n")


def test_without_groups_it_is_what_the_machine_has(root: Path) -> None:
    assert free_memory(root) == 2048 * MEBI
    put(root / "proc/self/cgroup", "0::/\n")
    assert free_memory(root) == 2048 * MEBI


def test_here_it_is_some() -> None:
    assert MEBI < free_memory() < 1 << 60


@pytest.mark.parametrize("within", ["", "system.slice/job"])
def test_a_container_s_limit_counts_with_what_caches_hold(root: Path, within: str) -> None:
    put(root / "proc/self/cgroup", f"0::/{within}\n")
    group(root / "sys/fs/cgroup" / within, str(512 * MEBI), 300 * MEBI, 100 * MEBI)
    assert free_memory(root) == 312 * MEBI
    group(root / "sys/fs/cgroup" / within, "max", 300 * MEBI, 100 * MEBI)
    assert free_memory(root) == 2048 * MEBI


def test_the_least_of_all_groups_around_counts(root: Path) -> None:
    put(root / "proc/self/cgroup", "0::/slurm/job_7/step_0\n")
    group(root / "sys/fs/cgroup/slurm/job_7/step_0", "max", 50 * MEBI, 0)
    group(root / "sys/fs/cgroup/slurm/job_7", str(256 * MEBI), 56 * MEBI, 0)
    group(root / "sys/fs/cgroup/slurm", str(1024 * MEBI), 60 * MEBI, 0)
    assert free_memory(root) == 200 * MEBI


def test_the_first_version_of_groups_has_other_names(root: Path) -> None:
    put(root / "proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/slurm/job_7\n0::/\n")
    group(root / "sys/fs/cgroup/memory/slurm/job_7", str(128 * MEBI), 28 * MEBI, 4 * MEBI, version=1)
    group(root / "sys/fs/cgroup/memory", "9223372036854771712", 28 * MEBI, 4 * MEBI, version=1)
    assert free_memory(root) == 104 * MEBI


def test_more_taken_than_allowed_leaves_nothing(root: Path) -> None:
    put(root / "proc/self/cgroup", "nonsense\n0::/\n")
    group(root / "sys/fs/cgroup", str(10 * MEBI), 30 * MEBI, 1 * MEBI)
    assert free_memory(root) == 0
