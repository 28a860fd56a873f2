"""`busfare try` with a stand-in driver: what it measures, compares and reports. The tests need no GPU: they run shell
scripts and the test program.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import busfare
from busfare.answers.trial import _result
from busfare.answers.trial_changes import Gain, Predictions, _share, chosen_changes
from busfare.errors import InputError
from busfare.measure.trial import Program, Run
from busfare.questions import Try as Question
from busfare.show.terminal import render
from busfare.show.trial import trial_document
from busfare.statements import statement
from busfare.trace import Omission, read
from tests.recorder.conftest import Built
from tests.trial.conftest import Command

IMAGES = Path(busfare.__file__).with_name("examples") / "train-images-h100.json.gz"


def result(done: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_change_is_measured_against_the_unchanged_program(built: Built, command: Command) -> None:
    program = str(built.folder / "testing" / "trial_program")
    done = command("--change", "pin", "--runs", "3", "--json", "--", program, "given-back")
    assert done.returncode == 0, done.stderr
    answer = result(done)
    assert answer["schema"] == "busfare.try/1"
    (row,) = answer["runs"]
    assert row["output"] == "identical"
    assert row["changed_bytes"] > 0
    low, high = row["speedup_range"]
    assert low <= row["speedup"] <= high
    assert row["predicted_seconds"] is None
    assert row["reason"]
    base = answer["baseline"]
    assert base["runs"] == 3
    assert 0 <= base["startup_seconds"] < base["measured_seconds"] <= base["process_seconds"]
    assert base["measured_range_seconds"][0] <= base["measured_seconds"] <= base["measured_range_seconds"][1]


def test_changes_that_cannot_help_are_not_tried(command: Command) -> None:
    done = command("--json", "--", "true")
    assert done.returncode == 0
    answer = result(done)
    assert answer["runs"] == []
    assert [row["change"] for row in answer["refused"]] == ["pin", "pin,async", "prefetch"]
    without_dashes = command("true", "--anything").stdout
    assert "No change is worth trying" in without_dashes
    assert "`try` sees no CUDA work" in without_dashes


@pytest.mark.parametrize(
    ("script", "difference"),
    [
        ("touch out.dat; echo $BUSFARE_TRY_CHANGES", "became 'spin'"),
        ('touch out.dat; test "$BUSFARE_TRY_CHANGES" != spin || exit 5', "'0' became '5'"),
        ('echo 1 > out.dat; test "$BUSFARE_TRY_CHANGES" != spin || echo 2 > out.dat', "out.dat, line 1"),
        ('test "$BUSFARE_TRY_CHANGES" = spin || echo 1 > out.dat', "out.dat, line 1"),
    ],
)
def test_exit_status_is_1_if_the_program_is_altered(command: Command, script: str, difference: str) -> None:
    words = ("--change", "spin", "--runs", "3", "--compare", "out.dat")
    done = command(*words, "--", "sh", "-c", script)
    assert done.returncode == 1
    assert "Do not use `spin`" in done.stdout
    assert difference in " ".join(done.stdout.split())


def test_exit_status_is_2_if_the_unchanged_program_fails(command: Command) -> None:
    done = command("--", "sh", "-c", "echo no input file >&2; exit 7")
    assert done.returncode == 2
    assert "the unchanged program exits with status 7; last line: no input file" in done.stderr


def test_a_program_that_takes_too_long_is_ended(command: Command) -> None:
    done = command("--timeout", "0.2", "--", "sleep", "1000")
    assert done.returncode == 2
    assert "the unchanged program exceeds --timeout" in done.stderr


def test_a_program_with_a_single_cuda_call_is_measured(command: Command) -> None:
    script = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
    done = command("--change", "spin", "--runs", "3", "--json", "--", sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    assert result(done)["runs"][0]["speedup"] > 0


def test_a_signal_ends_the_program_and_restores_its_files(
    environment: dict[str, str], tmp_path: Path
) -> None:
    out, started = tmp_path / "out.dat", tmp_path / "started"
    out.write_text("mine")
    out.chmod(0o600)
    os.mkfifo(started)
    line = [sys.executable, "-m", "busfare", "try", "--compare", "out.dat", "--", "sh", "-c"]
    process = subprocess.Popen([*line, "echo $$ > started; exec sleep 1000"], env=environment, cwd=tmp_path)
    program = int(started.read_text())  # waits for the program
    process.terminate()
    assert process.wait(30) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(program, 0)
    assert (out.read_text(), out.stat().st_mode & 0o777) == ("mine", 0o600)


def test_an_interrupted_measurement_keeps_its_finished_rounds(
    environment: dict[str, str], tmp_path: Path
) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    # Two runs come before the rounds, which have two runs each.
    script = "echo >> runs; test $(wc -l < runs) -lt 7 || { echo > started; exec sleep 1000; }"
    line = [sys.executable, "-m", "busfare", "try", "--change=spin", "--runs=5", "--json", "--", "sh", "-c"]
    with subprocess.Popen(
        [*line, script], env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        started.read_text()  # waits for the third round
        process.send_signal(signal.SIGINT)
        answer = json.loads(process.communicate(timeout=60)[0])
    assert process.returncode == 130
    assert "after 2 of at most 5 rounds" in " ".join(answer["remarks"])
    assert answer["baseline"]["runs"] == 2
    assert answer["runs"][0]["speedup"] > 0


def test_a_program_that_fails_with_the_recorder_is_measured_without_predictions(command: Command) -> None:
    script = 'test -z "$BUSFARE_RECORD_RUN" || exit 9'
    done = command("--change", "spin", "--runs", "3", "--", "sh", "-c", script)
    assert done.returncode == 0
    assert "with the recorder, the program exits with status 9" in " ".join(done.stdout.split())


def test_processes_in_groups_of_their_making_end_with_the_program(command: Command, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started")
    script = 'timeout 1000 sh -c "echo \\$\\$ > started; exec sleep 1000" & cat started >> processes'
    assert command("--change", "spin", "--runs", "3", "--", "sh", "-c", script).returncode == 0
    ended = [Path("/proc", process, "stat") for process in (tmp_path / "processes").read_text().split()]
    assert len(ended) > 6

    def run() -> list[Path]:
        return [file for file in ended if file.exists() and ") Z " not in file.read_text()]

    for _ in range(600):
        if run():
            time.sleep(0.1)
    assert not run()


def test_identical_outputs_are_stored_once(
    built: Built, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUSFARE_RECORDER_LIBRARY", environment["BUSFARE_RECORDER_LIBRARY"])
    monkeypatch.setattr("busfare.measure.trial.shared_library", lambda name: name)
    program = Program(["echo", "result"], [], None)
    first, second = program.run(), program.run()
    assert first.outputs == [b"result\n"]
    assert first.outputs[0] is second.outputs[0]


def test_exit_status_is_3_without_a_driver(command: Command) -> None:
    done = command("--", "true", LD_LIBRARY_PATH="")
    assert done.returncode == 3
    assert "no NVIDIA driver" in done.stderr


def test_running_as_an_mpi_rank_is_refused(command: Command) -> None:
    done = command("--", "true", OMPI_COMM_WORLD_SIZE="2")
    assert done.returncode == 2
    assert "busfare try -- mpirun -n 4 ./app" in " ".join(done.stderr.split())
    assert command("--", "true", OMPI_COMM_WORLD_SIZE="1").returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--", "/no/such/program"), "not found or not executable"),
        (
            ("--change", "faster", "--", "true"),
            "--change 'faster' is unknown; give pin; pin,async; prefetch; spin; block",
        ),
        (("--runs", "1", "--", "true"), "--runs '1' is not a whole number from 3"),
        (("--from", "no-such-node", "--", "true"), "no-such-node"),
        (("--compare", ".", "--", "true"), "is not a file"),
        (("--compare", "a", "--compare", "./a", "--", "true"), "names a file twice"),
        (("--compare", "typo", "--", "true"), "typo: the program does not write this file"),
    ],
)
def test_unusable_input_is_reported(command: Command, words: tuple[str, ...], message: str) -> None:
    done = command(*words)
    assert done.returncode == 2
    assert message in done.stderr


def test_every_run_reads_standard_input_from_its_position(command: Command, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("7\n42\n43\n")
    words = ("--change", "spin", "--runs", "3", "--", "sh", "-c", "read line; test $line = 42")
    with (tmp_path / "in.txt").open("rb", buffering=0) as given:
        given.readline()
        assert command(*words, given=given).returncode == 0
        assert given.read() == b"43\n"  # as after a single run
    assert command(*words).returncode == 2  # without a file, standard input is empty


def test_a_variable_is_set_only_in_changed_runs(command: Command) -> None:
    words = ("--change", "SETTING=7", "--runs", "3", "--json", "--", "sh", "-c", 'echo "${SETTING:-none}"')
    (row,) = result(command(*words))["runs"]
    assert (row["difference"]["unchanged"], row["difference"]["changed"]) == ("none", "7")


def test_files_are_compared_and_restored_and_results_kept(command: Command, tmp_path: Path) -> None:
    (tmp_path / "out.dat").write_text("mine")
    words = ("--change", "spin", "--runs", "3", "--compare", "out.dat", "--keep", "kept", "--json", "--")
    answers = [command(*words, "sh", "-c", "test ! -e out.dat && echo 42 > out.dat") for _ in range(2)]
    assert [done.returncode for done in answers] == [0, 0]
    assert (tmp_path / "out.dat").read_text() == "mine"
    assert [json.loads(line) for line in (tmp_path / "kept").read_text().splitlines()] == [
        *map(result, answers)
    ]


def test_a_file_left_by_an_interrupted_run_is_not_overwritten(command: Command, tmp_path: Path) -> None:
    (tmp_path / "out.dat").write_text("half")
    (tmp_path / "out.dat.before-try").write_text("mine")
    done = command("--compare", "out.dat", "--", "true")
    assert done.returncode == 2
    assert "out.dat.before-try is from an interrupted run; move it back to out.dat" in " ".join(
        done.stderr.split()
    )
    assert [(tmp_path / name).read_text() for name in ("out.dat", "out.dat.before-try")] == ["half", "mine"]


def test_a_launcher_binds_the_program_to_cpus(command: Command, tmp_path: Path) -> None:
    words = ("--change", "taskset -c 0", "--runs", "3", "--json", "--")
    done = command(*words, "sh", "-c", "nproc >> counts")
    (row,) = result(done)["runs"]
    assert (row["change"], row["output"]) == ("taskset -c 0", "identical")
    assert (tmp_path / "counts").read_text().splitlines().count("1") >= 3


def test_a_launcher_that_is_not_installed_is_reported(command: Command) -> None:
    done = command("--change", "taskset -c 0", "--", "true", PATH="")
    assert done.returncode == 2
    assert "taskset is not installed" in done.stderr


def test_prefetching_saves_only_migrations_to_the_gpu() -> None:
    operations = pl.DataFrame(
        {
            "kind": ["migration", "migration", "kernel"],
            "direction": ["h2d", "d2h", None],
            "bytes": [30, 10, 5],
        }
    )
    trace = read(IMAGES)
    trace.operations = operations
    assert _share("prefetch", [trace], counted()) == 0.75
    assert _share("pin", [], counted(changed_bytes=25)) == 0.25
    assert _share("pin,async", [], counted(changed_bytes=25)) == 1


def counted(**counts: int) -> Run:
    """A dry run with these counters."""
    before = {"pageable_copies": 3, "pageable_bytes": 100, "changed_bytes": 100, "pinned_bytes": 0}
    return Run(0, 1.0, [b""], "", 1.0, Counter(before | counts))


def predicted(change: str, **counts: int) -> Gain:
    question = Question.of(change=change)
    gains, _, _ = chosen_changes(
        question, IMAGES, Predictions(busfare.what_if, busfare.report), counted(**counts)
    )
    return gains[change]


def test_predicted_gains_are_those_of_what_if_minus_the_cost_of_the_library() -> None:
    whole = busfare.what_if(IMAGES, pin=True).gain_seconds
    gain = predicted("pin")
    assert gain.seconds is not None
    assert whole is not None
    assert gain.low < gain.seconds < gain.high
    assert gain.seconds >= whole  # registering costs less than allocating, which what-if assumes
    pinned = predicted("pin", pinned_bytes=1 << 30)
    assert pinned.seconds is not None
    assert pinned.seconds < gain.seconds
    half = predicted("pin", changed_bytes=50)
    assert half.seconds == pytest.approx(gain.seconds / 2)
    assert predicted("pin,async").seconds is not None


def test_costs_of_parallel_processes_are_not_added(tmp_path: Path) -> None:
    counts = Counter({"pageable_copies": 3, "pageable_bytes": 100, "changed_bytes": 100})
    alone = Run(0, 1.0, [b""], "", 1.0, counts | Counter(pinned_bytes=1 << 30))
    pair = Run(0, 1.0, [b""], "", 1.0, counts | Counter(pinned_bytes=2 << 30))
    for name in ("a.json.gz", "b.json.gz"):
        shutil.copy(IMAGES, tmp_path / name)

    def what_if(*_: Any, **given: Any) -> Any:
        return busfare.what_if(IMAGES, **given)

    question, predictions = Question.of(change="pin"), Predictions(what_if, busfare.report)
    single, _, _ = chosen_changes(question, IMAGES, predictions, alone)
    double, _, _ = chosen_changes(question, tmp_path, predictions, pair)
    assert double["pin"].seconds == pytest.approx(single["pin"].seconds)


def test_processes_that_exchange_no_messages_are_predicted_separately(tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        shutil.copy(IMAGES, tmp_path / name)

    def what_if(path: Path, **given: Any) -> Any:
        if path.is_dir():
            raise InputError("no message of one rank matches another rank")
        return busfare.what_if(path, **given)

    question = Question.of(change="pin")
    gains, _, _ = chosen_changes(question, tmp_path, Predictions(what_if, busfare.report), counted())
    assert gains["pin"].seconds == predicted("pin").seconds


def test_calls_that_fail_in_the_recording_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = read(IMAGES)
    figures = {"call": "cuMemcpyDtoH", "error": "cudaErrorIllegalAddress (700)"}
    trace.omissions.append(Omission("failed-calls", 64, statement("omission.failed-calls", **figures)))
    monkeypatch.setattr("busfare.answers.trial_changes.read_trace", lambda _: trace)
    predictions = Predictions(busfare.what_if, busfare.report)
    _, _, remarks = chosen_changes(Question.of(change="pin"), IMAGES, predictions, counted())
    assert remarks == [statement("try.calls-fail", **figures)]


def measured(change: str, *runs: Run) -> str:
    """The text of the page for a change with these runs. The unchanged runs take 1 and 2 s."""
    unchanged = [Run(0, seconds, [b""], "") for seconds in (1.0, 2.0)]
    result = _result(["app"], Question(), unchanged, {change: runs}, {change: Gain(None)}, [])
    return " ".join(line for line, _ in render(trial_document(result), 400))


def test_a_change_that_exceeds_the_time_limit_is_not_called_a_failure() -> None:
    text = measured("pin", Run(None, 40.0, [b""], ""))
    assert "Do not use `pin`: it makes the program exceed the time limit" in text
    assert "TIMED OUT" in text
    assert "fail" not in text.lower()


def test_more_rounds_are_suggested_if_intervals_are_wide() -> None:
    text = measured("pin", *(Run(0, seconds, [b""], "") for seconds in (2.0, 1.0)))
    assert "No change makes the program measurably faster. The intervals are wide; more rounds" in text
    narrow = measured("pin", *(Run(0, seconds, [b""], "") for seconds in (1.0, 2.0)))
    assert "wide" not in narrow


def test_no_prediction_is_shorter_than_the_start_up() -> None:
    unchanged, gain = Run(0, 1.0, [b""], "", 0.8, startup_seconds=0.5), Gain(0.2, -0.1, 0.7)
    (row,) = _result(["app"], Question(), [unchanged], {"pin": [unchanged]}, {"pin": gain}, []).runs
    assert (row.predicted_seconds, row.low_seconds, row.high_seconds) == pytest.approx((0.6, 0.5, 0.9))


def test_the_speedup_is_the_geometric_mean_of_the_rounds() -> None:
    short, middle, long = (Run(0, seconds, [b""], "") for seconds in (1.0, 2.0, 4.0))
    changed, gains = {"spin": [short, short, middle]}, {"spin": Gain(None)}
    (row,) = _result(["app"], Question(), [short, middle, long], changed, gains, []).runs
    assert row.speedup == pytest.approx(4 ** (1 / 3))  # that of the medians is 2


def test_a_change_with_a_small_gain_is_tried_only_if_requested() -> None:
    predictions = Predictions(busfare.what_if, busfare.report)
    _, refused, _ = chosen_changes(Question(), IMAGES, predictions, counted(pinned_bytes=1 << 40))
    assert [row.change for row in refused] == ["pin", "prefetch"]
    assert chosen_changes(Question.of(change="pin"), IMAGES, predictions, counted(pinned_bytes=1 << 40))[0]


def test_documents_show_predictions_and_measurements(
    built: Built,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
    tmp_path: Path,
) -> None:
    program = str(built.folder / "testing" / "trial_program")
    done = command("--change", "pin,async", "--runs", "3", "--html", "page.html", "--", program, "large")
    assert done.returncode == 0
    assert "pin,async" in done.stdout
    assert "CUDA start-up" in " ".join(done.stdout.split())
    assert "pin,async: not predicted: no usable recording" in " ".join(done.stdout.split())
    assert "of the pageable copies" in " ".join(done.stdout.split())
    page = (tmp_path / "page.html").read_text()
    assert "trial_program" in page
    assert "first to last CUDA call" in page
