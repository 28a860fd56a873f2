"""A job that does not fit into memory is replayed by the ranks that decide. Made-up ranks, and files as Linux has them."""

from pathlib import Path

import numpy as np
import pytest

import busfare
from busfare.advise.jobs import JobFinding
from busfare.answers import job as jobs
from busfare.jobs import run
from busfare.jobs import timeline as deciding
from busfare.jobs.workers import free_memory
from busfare.show.words import text
from tests.job.kineto_job import write_ranks

RANKS, STRAGGLER = 15, 4


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Rank 4 computes half as long again as the others, between which a few per cent lie."""
    compute = np.random.default_rng(5).uniform(950, 1050, (RANKS, 20))
    compute[STRAGGLER] *= 1.5
    write_ranks(tmp_path, compute.round().tolist())
    return tmp_path


def memory_for(ranks: float, monkeypatch: pytest.MonkeyPatch, job: Path) -> None:
    trace = busfare.read(job / "rank0.json.gz")
    rows = trace.calls.height + trace.operations.height
    monkeypatch.setattr(deciding, "rows_that_fit", lambda: round(rows * ranks))


def test_the_straggler_is_among_those_that_are_replayed(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = busfare.what_if(job, no_stragglers=True)
    assert len(whole.ranks or ()) == RANKS and whole.speedup and whole.speedup > 1.3
    memory_for(8, monkeypatch, job)
    some = busfare.what_if(job, no_stragglers=True, recorded_on="h100")
    replayed = [rank.rank for rank in some.ranks or ()]
    assert STRAGGLER in replayed and 6 <= len(replayed) <= 9
    assert some.baseline.recorded_seconds == pytest.approx(whole.baseline.recorded_seconds, rel=1e-6)
    assert some.speedup == pytest.approx(whole.speedup, rel=0.02)
    (left,) = [left for left in some.omissions if left.id == "ranks-left-out"]
    assert left.count == RANKS - len(replayed)


def test_ranks_that_are_named_are_replayed(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory_for(6.5, monkeypatch, job)
    result = busfare.what_if(job, no_stragglers=True, rank=[3, 11])
    assert {3, 11, STRAGGLER} <= {rank.rank for rank in result.ranks or ()}


def test_half_of_the_ranks_late_are_half_of_those_that_are_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that others wait for count for themselves alone in the median."""
    compute = np.full((20, 10), 1000.0)
    compute[:7] = 1200.0 + np.arange(7)[:, None]
    write_ranks(tmp_path, compute.tolist())
    memory_for(9, monkeypatch, tmp_path)
    result = busfare.what_if(tmp_path, no_stragglers=True)
    assert any(left.id == "ranks-left-out" for left in result.omissions)
    assert result.speedup == pytest.approx(1.2, rel=0.03)


def test_awaited_seconds_name_who_is_waited_for(job: Path) -> None:
    ranks = busfare.report([job]).ranks or []
    awaited = {rank.rank: rank.awaited_seconds for rank in ranks}
    assert awaited[STRAGGLER] == max(awaited.values())
    assert sum(awaited.values()) == pytest.approx(sum(rank.waiting_seconds for rank in ranks))


def test_a_report_of_a_large_job_says_what_the_job_gains(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gain() -> tuple[float, list[str]]:
        result = busfare.report([job])
        (straggling,) = [finding for finding in result.findings if finding.id == "straggling-rank"]
        assert straggling.traces == RANKS
        evidence = text(straggling.largest.evidence)
        assert f"Rank {STRAGGLER} arrived last because of its own work at 20 of 20 collectives" in evidence
        return straggling.predicted_gain_seconds, [str(left.id) for left in result.omissions]

    of_all, left = gain()
    assert "ranks-left-out" not in left
    monkeypatch.setattr(jobs, "MOST_TRACES", 10)
    monkeypatch.setattr(jobs, "SOME_OPERATIONS", 40 * 8)
    of_some, left = gain()
    assert "ranks-left-out" in left
    assert of_some == pytest.approx(of_all, rel=0.03)


def test_findings_of_large_jobs_are_replayed_by_gain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its traces are read without replays; those with a finding are among the ranks that are replayed then."""
    write_ranks(tmp_path, [[1000.0] * 5] * 12, copy_us=4000.0, copied_on=(7,), copy_bytes=40 << 20)

    def pageable_finding() -> JobFinding:
        report = busfare.report([tmp_path], recorded_on="h100-sxm")
        (pageable,) = [finding for finding in report.findings if finding.id == "pageable-copies"]
        return pageable

    of_all = pageable_finding()
    monkeypatch.setattr(jobs, "MOST_TRACES", 10)
    monkeypatch.setattr(run, "MOST_TRACES", 10)
    monkeypatch.setattr(jobs, "SOME_OPERATIONS", 8 * 15)
    of_some = pageable_finding()
    assert of_some.largest.rank == of_all.largest.rank == 7
    assert of_some.largest.by_replay and of_some.largest.what_if == of_all.largest.what_if
    assert of_some.traces == of_all.traces == 1
    assert of_some.predicted_gain_seconds == pytest.approx(of_all.predicted_gain_seconds, rel=0.03)
    # Of no more traces than may be, but of more files.
    monkeypatch.setattr(jobs, "MOST_TRACES", 12)
    monkeypatch.setattr(run, "MOST_TRACES", 12)
    (tmp_path / "notes.json").write_text("{}")
    assert pageable_finding() == of_all


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


def test_the_first_version_of_groups_has_different_names(root: Path) -> None:
    put(root / "proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/slurm/job_7\n0::/\n")
    group(root / "sys/fs/cgroup/memory/slurm/job_7", str(128 * MEBI), 28 * MEBI, 4 * MEBI, version=1)
    group(root / "sys/fs/cgroup/memory", "9223372036854771712", 28 * MEBI, 4 * MEBI, version=1)
    assert free_memory(root) == 104 * MEBI


def test_more_taken_than_allowed_leaves_nothing(root: Path) -> None:
    put(root / "proc/self/cgroup", "nonsense\n0::/\n")
    group(root / "sys/fs/cgroup", str(10 * MEBI), 30 * MEBI, 1 * MEBI)
    assert free_memory(root) == 0
