"""A job by processes of this machine and on a Dask cluster: the same result, whatever becomes of the workers."""

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import dask
import pytest
from distributed import Client, LocalCluster

from busfare.errors import InputError
from busfare.jobs.parts import Part
from busfare.jobs.run import do_part, run_job
from busfare.jobs.workers import (
    TOGETHER_BYTES,
    DaskWorkers,
    Processes,
    connected,
    hand_over,
    read_by,
    small_ones_together,
)
from busfare.nodes import Node
from busfare.questions import Report
from tests.job.build_job import Noted, encoded, write_job, write_rank
from tests.processes import ended, finished, wait_until
from tests.traces import EXAMPLES

SLOW_TO_READ = "generate-text-h100.json.gz"


class Place(NamedTuple):
    """Where parts are read: as the user asks for it, the processes that do it, and the workers themselves."""

    how: Report
    pids: Callable[[], list[int]]
    workers: Callable[[], AbstractContextManager[Processes | DaskWorkers]]


def local_cluster(**settings: Any) -> LocalCluster:
    """Dask gives its event loop ten seconds to start, which a loaded machine may not have."""
    for _ in range(4):
        with suppress(AssertionError):
            return LocalCluster(threads_per_worker=1, dashboard_address=":0", silence_logs=50, **settings)
    raise AssertionError("Dask's event loop did not start within four times ten seconds")


@pytest.fixture
def on_dask() -> Iterator[Place]:
    """A cluster for each test: Dask may fail to start a killed worker again, and the next test would wait for it."""
    settings = {
        "distributed.scheduler.allowed-failures": 0,
        "distributed.worker.preload": [],
        "distributed.comm.timeouts.connect": "10s",
    }
    with dask.config.set(settings), local_cluster(n_workers=2) as cluster:

        def pids() -> list[int]:
            with Client(cluster, set_as_default=False) as client:
                return sorted(client.run(os.getpid).values())

        @contextmanager
        def workers() -> Iterator[DaskWorkers]:
            with connected(cluster.scheduler_address) as client:
                client.run(sys.path.insert, 0, str(Path(__file__).parents[2]))
                yield DaskWorkers(client, Noted().warn)

        yield Place(Report(scheduler=cluster.scheduler_address), pids, workers)


@pytest.fixture(params=["processes", "dask"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "dask":
        place: Place = request.getfixturevalue("on_dask")
        return place

    def pids() -> list[int]:
        return [child.pid or 0 for child in multiprocessing.active_children()]

    return Place(Report(jobs=2), pids, lambda: Processes(2))


def test_workers_give_the_same_as_this_process(tmp_path: Path, place: Place) -> None:
    write_job(tmp_path, 20)
    (tmp_path / "bad.json").write_text("{")
    progress = Noted()
    job = run_job([tmp_path], None, place.how, progress)
    assert encoded(job) == encoded(run_job([tmp_path], None, Report(), Noted()))
    assert [done for done, _, _ in progress.seen] == list(range(1, 22))
    assert progress.seen[-1] == (21, 21, 1)


def test_killed_workers_change_no_result(tmp_path: Path, place: Place) -> None:
    """Three times a worker is killed in the middle of its work, and each part that it had is read again."""
    write_job(tmp_path, 30)
    expected = encoded(run_job([tmp_path], None, Report(), Noted()))
    for round_ in range(3):
        pids, killed = place.pids(), list[int]()  # processes of this machine start with the job

        def kill(done: int, pids: list[int] = pids, killed: list[int] = killed, n: int = round_) -> None:
            victims = (pids or place.pids()) if done == 5 + 5 * n else []
            if victims:
                os.kill(victims[n % len(victims)], signal.SIGKILL)
                killed.append(done)

        assert encoded(run_job([tmp_path], None, place.how, Noted(kill))) == expected
        assert killed


def dies_of_killers(part: Part, node: Node | None) -> bytes:
    if "killer" in part.path:
        os.kill(os.getpid(), signal.SIGKILL)
    return do_part(part, node)


def test_a_part_that_kills_its_workers_is_tried_alone_then_reported(tmp_path: Path, place: Place) -> None:
    write_job(tmp_path, 6)
    write_rank(tmp_path / "killer.json")
    parts = [Part(str(path), True) for path in sorted(tmp_path.iterdir())]
    with place.workers() as workers:
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


def test_workers_that_lack_busfare_are_named(place: Place) -> None:
    with place.workers() as workers, pytest.raises(InputError, match=r"a worker failed .ModuleNotFoundError"):
        list(read_by(workers, iter([Part("x", True)]), None, cannot_be_run))


class Running:
    """A Dask future, as far as it is read."""

    def __init__(self, status: str, outcome: list[bytes] | Exception) -> None:
        self.status, self._outcome = status, outcome

    async def result(self) -> list[bytes]:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


@pytest.mark.parametrize(
    ("status", "outcome", "raised"),
    [
        ("error", ValueError("of the task"), ValueError),
        ("cancelled", CancelledError(), CancelledError),
        ("lost", ValueError("not enough values to unpack"), CancelledError),
        ("lost", [b"done"], None),
    ],
)
def test_only_what_a_task_raises_is_its_workers_fault(
    status: str, outcome: list[bytes] | Exception, raised: type[Exception] | None
) -> None:
    """A scheduler may be lost while a result is on its way."""
    made: Future[list[bytes]] = Future()
    asyncio.run(hand_over(Running(status, outcome), made))
    with pytest.raises(raised) if raised else nullcontext():
        assert made.result(0) == outcome


def test_a_scheduler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("busfare.jobs.workers.CONNECT_SECONDS", 0.5)
    write_rank(tmp_path / "a.json")
    file = tmp_path / "scheduler.json"
    file.write_text('{"type": "Scheduler", "address": "tcp://127.0.0.1:9"}')
    for address in ("tcp://127.0.0.1:9", "nonsense://x", "not an address", str(file)):
        with pytest.raises(InputError, match="no Dask scheduler answers there"):
            run_job([tmp_path / "a.json"], None, Report(scheduler=address), Noted())
        # Dask closes a client that is left when it is freed, which may be while it starts another and holds its lock.
        left = [client.status for client in gc.get_objects() if isinstance(client, Client)]
        assert set(left) <= {"closed"}


@pytest.mark.parametrize("text", ["", "not JSON", "[1]", '{"workers": {}}', '{"address": 7}'])
def test_a_file_of_something_else_is_no_scheduler_file(text: str, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(text)
    write_rank(tmp_path / "a.json")
    with pytest.raises(InputError, match=r"scheduler\.json: no scheduler file of Dask \("):
        run_job([tmp_path / "a.json"], None, Report(scheduler=str(file)), Noted())


@pytest.mark.parametrize(
    ("options", "status"),
    [(("--scheduler", "tcp://127.0.0.1:9"), 2), (("--jobs", "1"), 0), (("--jobs", "2"), 0)],
)
def test_clusters_alone_need_dask_of_an_extra(tmp_path: Path, options: tuple[str, ...], status: int) -> None:
    write_job(tmp_path, 2)
    code = "import sys; sys.modules['distributed'] = sys.modules['dask'] = None; from busfare.cli import main; main()"
    command = [sys.executable, "-c", code, "report", str(tmp_path), *options, "--json"]
    done = finished(command)
    assert (done.returncode, len(done.stderr.splitlines())) == (status, bool(status))
    assert ("pip install 'busfare[jobs]'" in done.stderr) == bool(status)


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


def test_what_stops_a_job_is_a_line(tmp_path: Path) -> None:
    """Ctrl-C, and a scheduler that is lost."""
    for rank in range(60):
        (tmp_path / "job").mkdir(exist_ok=True)
        (tmp_path / "job" / f"rank{rank:02}.json.gz").write_bytes((EXAMPLES / SLOW_TO_READ).read_bytes())
    with local_cluster(n_workers=1) as cluster:
        for status, message, stop in (
            (130, "of 60 files", lambda process: process.send_signal(signal.SIGINT)),
            (2, "lost the Dask scheduler", lambda process: cluster.close()),
        ):
            file = tmp_path / str(status)
            words = ("report", str(tmp_path / "job"), "--scheduler", cluster.scheduler_address, "--json")
            command = [sys.executable, "-c", COUNTED, str(file), *words]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            with subprocess.Popen(command, text=True, **pipes) as process:
                wait_until(lambda file=file: file.exists() and file.stat().st_size >= 3, process)
                stop(process)
                out, err = ended(process)
            assert (process.returncode, out) == (status, "")
            assert len(err.splitlines()) == 1 and message in err


def test_small_parts_go_to_a_worker_together_and_large_ones_alone(tmp_path: Path) -> None:
    parts = []
    for number, size in enumerate([10] * 20 + [TOGETHER_BYTES + 1] + [10] * 3):
        file = tmp_path / f"{number:02}"
        with file.open("wb") as made:
            made.truncate(size)
        parts.append(Part(str(file), True))
    groups = list(small_ones_together(iter(parts), lambda: 8))
    assert [part for group in groups for part in group] == parts
    assert [len(group) for group in groups] == [8, 8, 4, 1, 3]
    assert [len(group) for group in small_ones_together(iter(parts), lambda: 1)] == [1] * len(parts)
    gone = Part(str(tmp_path / "gone"), True)
    assert list(small_ones_together(iter([gone]), lambda: 8)) == [[gone]]
