"""Every example of README and docs is run, and prints what is shown. What cannot be run here says why, and is counted."""

import ast
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.docs.examples import ROOT, Example, examples, matches
from tests.job.kineto_job import write_ranks
from tests.streamed_programs import single_stream
from tests.trace.build_nsys import NsysExport, global_pid

EXAMPLES = examples()
WHY_NOT = {
    "needs a GPU",
    "needs a GPU and PyTorch",
    "needs a GPU and CuPy",
    "needs a GPU and JAX",
    "needs several GPUs and PyTorch",
    "needs a cluster",
    "needs a profiler",
    "takes minutes",
    "installs",
}
#: Names that the docs give to a trace of one's own, and the example that stands for it.
YOURS = {
    "run.json.gz": "train-images-h100",
    "run-h100.json.gz": "train-images-h100",
    "run-h200.json.gz": "train-images-h200",
    "loop.json.gz": "smooth-out-of-core-h100",
    "run.sqlite": "smooth-out-of-core-h100",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where examples run: the traces that ship, also as in a checkout and by the names in the docs; a job of four ranks."""
    made = tmp_path_factory.mktemp("examples")
    shipped = ROOT / "src" / "busfare" / "examples"
    for trace in shipped.glob("*.gz"):
        shutil.copy(trace, made)
    shutil.copytree(shipped, made / "src" / "busfare" / "examples")
    for name, of in YOURS.items():
        shutil.copy(shipped / f"{of}.json.gz", made / name)
    write_ranks(
        made / "run-folder", [[900.0] * 6, [900.0] * 6, [950.0] * 6, [1400.0] * 6], 300.0, copy_us=200.0
    )
    (made / "runs").mkdir()
    (made / "runs" / "first").symlink_to(made / "run-folder")
    write_streamed(made / "streamed.sqlite")
    nodes = [e.text for e in EXAMPLES if e.language == "toml" and e.text.startswith('name = "my-box"')]
    (made / "my-box.toml").write_text(nodes[0], "utf-8")
    plans = [e.text for e in EXAMPLES if e.language == "toml" and "[[kernel]]" in e.text]
    (made / "kernels.toml").write_text(plans[0], "utf-8")
    return made


def write_streamed(path: Path) -> None:
    """A run that streams layers from the host, as an export of Nsight Systems."""
    run, export = single_stream(names=("layer.",)), NsysExport()
    for row in run.calls.iter_rows(named=True):
        times = row["start_ns"], row["end_ns"], row["correlation"]
        export.call(row["name"], *times)
        if row["waits_for"] == "stream":
            export.wait(3, *times, streamId=row["stream"])
    for row in run.operations.iter_rows(named=True):
        times = row["start_ns"], row["end_ns"], row["correlation"]
        if row["kind"] == "kernel":
            export.kernel(row["name"], *times)
        else:
            into = row["direction"] == "h2d"
            export.copy(1 if into else 2, (1, 2) if into else (2, 1), row["bytes"], *times)
    for row in run.markers.iter_rows(named=True):
        about = {"eventType": 59, "text": row["name"], "globalTid": global_pid() + 5, "domainId": 0}
        export.add("NVTX_EVENTS", start=row["start_ns"], end=row["end_ns"], **about)
    export.write(path)


def is_run(example: Example) -> bool:
    return example.language in ("sh", "console") and example.why_not is None


@pytest.mark.parametrize("example", [e for e in EXAMPLES if is_run(e)], ids=str)
def test_an_example_does_what_is_shown(
    example: Example, folder: Path, run_here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    steps = example.steps()
    assert steps, "no command"
    for command, shown in steps:
        done = run_in(run_here, command)
        refused = any(line.startswith("busfare: ") for line in (shown or "").splitlines())
        assert (done.returncode != 0) == refused, done.stderr or done.stdout
        if shown is not None:
            printed = done.stdout + (done.stderr if refused else "")
            assert matches(shown, printed), f"$ {command}\n{printed}"


def run_in(run_here: Run, command: str) -> subprocess.CompletedProcess[str]:
    """What a command line does: `busfare` in this process, and anything else in a shell."""
    words = shlex.split(command, comments=True)
    if words[0] != "busfare" or "$(" in command or "|" in words:
        return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    target = words[words.index(">") + 1] if ">" in words else None
    done = run_here(*words[1 : words.index(">") if target else None])
    if target:
        Path(target).write_text(done.stdout, "utf-8")
        done.stdout = ""
    return done


def test_what_is_not_run_says_why() -> None:
    reasons = Counter(e.why_not for e in EXAMPLES if e.why_not)
    assert set(reasons) == WHY_NOT
    run = sum(map(is_run, EXAMPLES))
    commands = [e for e in EXAMPLES if e.language in ("sh", "console")]
    assert len(commands) - run <= 25, "run a new example, or raise this number and say why it cannot be run"
    assert run >= 40


def test_every_block_says_its_language() -> None:
    languages = {"sh", "console", "python", "toml", "c++", "fortran", "text"}
    assert [f"{e} {e.language!r}" for e in EXAMPLES if e.language not in languages] == []


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.language == "python"], ids=str)
def test_python_runs_or_parses(example: Example, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = compile(ast.parse(example.text), str(example), "exec")
    if example.why_not is None:
        monkeypatch.chdir(folder)
        exec(code, {"__name__": "__main__"})


def test_toml_is_toml() -> None:
    parsed = [tomllib.loads(e.text) for e in EXAMPLES if e.language == "toml"]
    assert len(parsed) >= 5 and all(parsed)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("a…d\n", "a b c d\n", True),
        ("a\nb\n", "a\nc\n", False),
        ("a\n", "a\nb\n", False),
        ("…\nb\n", "a\nb\n", True),
    ],
)
def test_outputs_are_compared(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same
