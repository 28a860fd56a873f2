"""A job by processes of this machine: the same result, whatever becomes of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from busfare.errors import InputError
from busfare.jobs.parts import Part
from busfare.jobs.run import do_part, run_job
from busfare.jobs.workers import Processes, read_by
from busfare.nodes import Node
from busfare.questions import Report
from tests.job.build_job import Noted, encoded, write_job, write_rank
from tests.processes import ended, wait_until
from tests.traces import EXAMPLES

SLOW_TO_READ = "generate-text-h100.json.gz"


def test_workers_give_the_same_as_this_process(tmp_path: Path) -> None:
    write_job(tmp_path, 20)
    (tmp_path / "bad.json").write_text("{")
    progress = Noted()
    job = run_job([tmp_path], None, Report(jobs=2), progress)
    assert encoded(job) == encoded(run_job([tmp_path], None, Report(), Noted()))
    assert [done for done, _, _ in progress.seen] == list(range(1, 22))
    assert progress.seen[-1] == (21, 21, 1)


def test_killed_workers_change_no_result(tmp_path: Path) -> None:
    """Three times a worker is killed in the middle of its work, and each part that it had is read again."""
    write_job(tmp_path, 60)
    expected = encoded(run_job([tmp_path], None, Report(), Noted()))
    for round_ in range(3):
        killed = list[int]()

        def kill(done: int, killed: list[int] = killed, n: int = round_) -> None:
            victims = multiprocessing.active_children() if done == 10 + 5 * n else []
            if victims:
                os.kill(victims[n % len(victims)].pid or 0, signal.SIGKILL)
                killed.append(done)

        assert encoded(run_job([tmp_path], None, Report(jobs=2), Noted(kill))) == expected
        assert killed


def dies_of_killers(part: Part, node: Node | None) -> bytes:
    if "killer" in part.path:
        os.kill(os.getpid(), signal.SIGKILL)
    return do_part(part, node)


def test_a_part_that_kills_its_workers_is_tried_alone_then_reported(tmp_path: Path) -> None:
    write_job(tmp_path, 6)
    write_rank(tmp_path / "killer.json")
    parts = [Part(str(path), True) for path in sorted(tmp_path.iterdir())]
    with Processes(2) as workers:
        read = read_by(workers, iter(parts), None, dies_of_killers)
        outcomes = {Path(part.path).name: made for part, made in read}
    assert len(outcomes) == 7
    assert "every worker that read it died" in str(outcomes.pop("killer.json"))
    assert {type(made) for made in outcomes.values()} == {bytes}


def test_no_process_is_left_behind(tmp_path: Path) -> None:
    write_job(tmp_path, 8)
    with pytest.raises(KeyboardInterrupt), Processes(2) as workers:
        for _ in read_by(
            workers, (Part(str(path), True) for path in sorted(tmp_path.iterdir())), None, do_part
        ):
            raise KeyboardInterrupt
    assert multiprocessing.active_children() == []


def cannot_be_run(part: Part, node: Node | None) -> bytes:
    raise ModuleNotFoundError("No module named 'busfare'")


def test_workers_that_lack_busfare_are_named() -> None:
    with Processes(2) as workers, pytest.raises(InputError, match=r"a worker failed .ModuleNotFoundError"):
        list(read_by(workers, iter([Part("x", True)]), None, cannot_be_run))


#: Adds a line to the file of the first argument for each trace of the job.
COUNTED = """
import sys
from busfare.cli import main
from busfare.jobs.reduce import Job
file, add = sys.argv.pop(1), Job.add
def counted(job, *trace):
    add(job, *trace)
    with open(file, "a") as lines:
        print(file=lines)
Job.add = counted
main()
"""


def test_ctrl_c_stops_a_job_with_a_line(tmp_path: Path) -> None:
    for rank in range(60):
        (tmp_path / "job").mkdir(exist_ok=True)
        (tmp_path / "job" / f"rank{rank:02}.json.gz").write_bytes((EXAMPLES / SLOW_TO_READ).read_bytes())
    file = tmp_path / "done"
    words = ("report", str(tmp_path / "job"), "--jobs", "2", "--json")
    command = [sys.executable, "-c", COUNTED, str(file), *words]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: file.exists() and file.stat().st_size >= 3, process)
        process.send_signal(signal.SIGINT)
        out, err = ended(process)
    assert (process.returncode, out) == (130, "")
    assert len(err.splitlines()) == 1 and "of 60 files" in err
