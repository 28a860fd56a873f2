"""Call stacks: the line of the program that makes each call, by its debug information, else by what is known of it."""

from pathlib import Path

from busfare.measure.record import add_lines
from busfare.trace import read
from busfare.trace.readers.recorded.file import Recording, read_recording

from .conftest import SOURCE, Launch, Recorded

PROGRAM = SOURCE / "testing" / "fake_program.cpp"


def only(folder: Path) -> Recording:
    (file,) = folder.iterdir()
    return read_recording(file)


def test_every_call_has_its_line(launch: Launch, tmp_path: Path) -> None:
    done = launch("--stacks", "-o", "run.bf", program="rounds")
    assert done.returncode == 0, done.stderr
    recording, trace = only(tmp_path / "run.bf"), read(tmp_path / "run.bf")
    assert recording.complete and not trace.omissions
    sites = dict(trace.calls.select("name", "site").unique().rows())
    assert len(recording.table("call_stacks")) == 2 * len(recording.table("calls")) // 3 == 20
    assert set(sites) == {"cuMemcpyHtoDAsync", "cuLaunchKernel", "cuMemcpyDtoHAsync"}
    assert sites.pop("cuLaunchKernel") is None  # kernels have names
    for site in sites.values():
        file, _, rest = site.partition(":")
        number, _, function = rest.partition(" ")
        line = PROGRAM.read_text("utf-8").splitlines()[int(number) - 1]
        # The compiler makes one of some calls, and leaves others to their callers.
        assert file == str(PROGRAM) and ("round" in function or function == "main"), site
        assert "round(" in line or "fake(" in line or "return function" in line, site


def test_without_the_option_there_are_no_stacks(launch: Launch, tmp_path: Path) -> None:
    launch("-o", "run.bf", program="rounds")
    tables = only(tmp_path / "run.bf").tables
    assert not any(len(tables[name]) for name in ("stacks", "call_stacks", "lines"))
    assert "site" not in read(tmp_path / "run.bf").calls.columns


def test_where_nobody_looked_lines_up_the_offset_in_the_file_is_shown(recorded: Recorded) -> None:
    run = recorded("rounds", stacks=True)
    sites = read(run.files[0]).calls["site"].cast(str).drop_nulls().unique().to_list()
    assert len(sites) == 2
    assert all(site.startswith("+0x") and site.endswith("(fake_program)") for site in sites)


def test_lines_go_only_into_recordings_of_the_same_run_that_ended(recorded: Recorded) -> None:
    (file,) = recorded("rounds", stacks=True, extra={"BUSFARE_RECORD_RUN": "7-1"}).files
    before = file.read_bytes()
    add_lines(file, "7-2")
    assert file.read_bytes() == before
    add_lines(file, "7-1")
    assert file.read_bytes().startswith(before) and len(file.read_bytes()) > len(before)
    assert "fake_program.cpp" in "".join(read(file).calls["site"].cast(str).drop_nulls())
    file.write_bytes(before[:-40])
    add_lines(file, "7-1")
    assert file.read_bytes() == before[:-40]


def test_threads_have_separate_stacks(recorded: Recorded) -> None:
    recording = recorded("threads", "300", stacks=True).only
    calls, stacks = recording.table("call_stacks"), recording.table("stacks")
    assert len(calls) == 8 * 300 * 2
    # Eight threads that do the same from the same places.
    assert {*calls["stack"].tolist()} == {*stacks["stack"].tolist()}
    assert len({*stacks["stack"].tolist()}) < 30
