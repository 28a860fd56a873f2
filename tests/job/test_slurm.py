"""A job through Slurm. No Slurm is needed: a stand-in for its commands runs the job scripts on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from busfare.errors import InputError
from busfare.job.cluster import slurm_options
from tests.job.build_job import write_job

SBATCH = """#!/bin/sh
# Takes a job script as Slurm does: keeps it, runs it in the background, and says its number.
cp "$1" "$FAKE_SLURM/script"
setsid bash "$FAKE_SLURM/script" > "$FAKE_SLURM/output" 2>&1 < /dev/null &
echo $! >> "$FAKE_SLURM/jobs"
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
echo "$1" >> "$FAKE_SLURM/cancelled"
kill -- "-$1" 2> /dev/null || exit 1
"""
REFUSES = """#!/bin/sh
echo "sbatch: error: invalid partition specified: $0" >&2
exit 1
"""


def with_slurm(folder: Path, sbatch: str = SBATCH) -> dict[str, str]:
    """The environment in which the stand-ins are Slurm."""
    commands = folder / "bin"
    commands.mkdir()
    for name, text in (("sbatch", sbatch), ("scancel", SCANCEL)):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    return os.environ | {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "FAKE_SLURM": str(folder),
        "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "False",
    }


#: Dask's scheduler runs in this process and may log until the very end: a worker that goes away is a line there.
LOGS_LATE = "atexit.register(lambda: logging.getLogger('distributed.batched').info('Batched Comm Closed'))"


def busfare(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    code = f"import atexit, logging; from busfare.cli import main; {LOGS_LATE}; main()"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_slurm_jobs_do_the_work_and_are_cancelled(tmp_path: Path) -> None:
    traces = write_job(tmp_path / "job", 12)
    environment = with_slurm(tmp_path)
    options = "queue=gpu,cores=2,memory=2GB,walltime=00:30:00,job_extra_directives=--gres=gpu:0;--exclusive"
    options += f",interface=lo,local_directory={tmp_path / 'scratch'}"
    done = busfare(environment, "report", str(traces), "--slurm", options, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    here = busfare(environment, "report", str(traces), "--json")
    assert done.stdout == here.stdout
    script = (tmp_path / "script").read_text()
    wanted = "-p gpu|-t 00:30:00|--cpus-per-task=2|--mem=2G|--gres=gpu:0|--exclusive|-J busfare"
    for line in wanted.split("|"):
        assert f"#SBATCH {line}\n" in script
    assert "--nworkers 2" in script
    jobs = (tmp_path / "jobs").read_text().split()
    assert (tmp_path / "cancelled").read_text().split() == jobs
    wait_until_gone(int(jobs[0]))


def wait_until_gone(group: int) -> None:
    """Until no process of the group is left; fails after a minute."""
    for _ in range(600):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError(f"process group {group} still runs")


def test_what_slurm_refuses_or_its_absence_is_one_line(tmp_path: Path) -> None:
    traces = write_job(tmp_path / "job", 2)
    for environment, message in (
        (with_slurm(tmp_path, REFUSES), "invalid partition"),
        (os.environ | {"PATH": ""}, "where sbatch works"),
    ):
        done = busfare(environment, "report", str(traces), "--slurm", "queue=nowhere,interface=lo")
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert message in done.stderr


def test_options_become_arguments() -> None:
    said = "queue=gpu, cores=4,memory=8GB,walltime=00:30:00,job-extra-directives=-C a100;-q debug"
    numbers, directives = {"cores": 4, "processes": 4}, {"job_extra_directives": ["-C a100", "-q debug"]}
    words = {"queue": "gpu", "memory": "8GB", "walltime": "00:30:00", "job_name": "busfare"}
    assert slurm_options(said) == numbers | directives | words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("queu=gpu", "did you mean 'queue'"),
        ("zzz=4", "known: queue"),
        ("queue", "queue=VALUE"),
        ("queue=", "queue=VALUE"),
        ("cores=many", "no whole number"),
        ("cores=0", "no whole number"),
        ("cores=-1", "no whole number"),
        ("cores=99999999999999999999", "no whole number"),
        ("cores=4,processes=3", "divisor"),
    ],
)
def test_wrong_options_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        slurm_options(text)
