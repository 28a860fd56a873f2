"""The command as users run it: exit status, one line for each error, only JSON on standard output."""

import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from busfare.cli import COMMANDS
from tests.conftest import BUSFARE, Run, run
from tests.processes import finished
from tests.trace.build_kineto import call, write_kineto
from tests.trace.build_kineto import copy as kineto_copy
from tests.traces import EXAMPLES

TRACE = str(EXAMPLES / "smooth-out-of-core-h100.json.gz")
TRACE_H200 = str(EXAMPLES / "smooth-out-of-core-h200.json.gz")

IMAGES = str(EXAMPLES / "train-images-h100.json.gz")
PLANNED = "--h2d 336MB --d2h 504MB --kernel 12ms --node h100-sxm"


@pytest.mark.parametrize("arguments", [(), ("bench",)])
def test_without_a_command_they_are_listed(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(" ".join(("Usage: busfare", *arguments)))
    assert "Commands:" in done.stderr and len(done.stderr.splitlines()) > 5
    assert arguments or all(f"  {name} " in done.stderr for name in COMMANDS)


def test_ctrl_c_while_it_is_imported_leaves_no_traceback() -> None:
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job in the background ignores it
        "class Pressed:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'click': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Pressed())\n"
        "from busfare.start import main\n"
        "main()"
    )
    done = finished([sys.executable, "-c", code])
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_version_is_the_package_s() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"busfare {version('busfare')}\n", "")


@pytest.mark.parametrize(
    ("arguments", "modules", "loaded"),
    [
        (["--help"], ["polars", "numpy", "rich", "msgspec"], []),
        (["--version"], ["polars", "numpy", "rich", "msgspec"], []),
        (
            ["report", "--help"],
            [
                *(f"busfare.cli.options.{name}" for name in ("measuring", "planning", "traces")),
                *("busfare.cli.about", "busfare.cli.traces", "polars", "numpy", "rich"),
            ],
            ["busfare.cli.options.traces"],
        ),
    ],
)
def test_a_command_loads_what_it_needs(arguments: list[str], modules: list[str], loaded: list[str]) -> None:
    code = (
        f"import sys, busfare.cli\nsys.argv = ['busfare', *{arguments}]\n"
        "try: busfare.cli.main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        f"print([m for m in {modules} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(loaded)


@pytest.mark.parametrize(
    ("arguments", "schema"),
    [
        (f"report {TRACE}", "busfare.report/1"),
        (f"project {TRACE} --to gh200 --to pcie:4x16", "busfare.project/1"),
        (f"compare {TRACE} {TRACE_H200}", "busfare.compare/1"),
        (f"what-if {TRACE} --pin --streams 3", "busfare.what-if/1"),
        (f"what-if --async {TRACE} --remove d2h --kernels 0.5x", "busfare.what-if/1"),
        ("price --node h100-sxm --bytes 64MiB", "busfare.price/1"),
        ("price --node dgx-a100 --bytes 1G --gpus 4 --direction h2d+d2h", "busfare.price/1"),
        ("price --node summit --bytes 1G --collective all_to_all --ranks 6", "busfare.price/1"),
        ("price --node h200-sxm --from h100-sxm --kernel other --seconds 1.2ms", "busfare.price/1"),
        ("plan --h2d 336MB --d2h 504MB --kernel 12ms --node k20", "busfare.plan/1"),
        ("plan kv --node k20 --bytes-per-token 128KiB", "busfare.plan-kv/1"),
        (f"plan --from-trace {TRACE} --kernel-name smooth", "busfare.plan/1"),
        ("nodes", "busfare.nodes/1"),
        ("nodes show summit", "busfare.nodes/1"),
    ],
)
def test_json_is_a_single_object_and_nothing_more(run_here: Run, arguments: str, schema: str) -> None:
    done = run_here(*shlex.split(arguments), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert next(iter(result.items())) == ("schema", schema)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("repotr", "Did you mean one of: 'export', 'record', 'report'"),
        ("report", "Missing argument"),
        ("report no/such/file", "cannot be read"),
        (f"report {__file__}", "not a trace"),
        (f"report {TRACE} --node h100sxm", "did you mean h100-sxm"),
        (f"project {TRACE} --to gh200 --model magic", "magic"),
        (f"project {TRACE} --to gh200 --host magic", "--host"),
        (f"what-if {TRACE} --node gh200 --host magic", "--host"),
        ("price --node gh200 --bytes many", "--bytes 'many' is not a size"),
        ("price --node gh200 --bytes 8 --collective all_reduce", "--ranks 8"),
        ("price --node dgx-a100 --bytes 1G --gpus 9", "dgx-a100 has 8"),
        ("price --node dgx-a100 --bytes 1G --gpus 2 --direction p2p", "h2d+d2h"),
        ("price --node gh200 --bytes 8 --collective sum --ranks 2 --hosts 2", "sum"),
        ("price --node gh200 --bytes 9e99GB", "exceeds the largest value that busfare accepts"),
        ("price --node gh200 --bytes -5", "is negative"),
        ("price --node gh200 --bytes 4096 --direction sideways", "sideways"),
        ("plan", "nothing crosses the bus"),
        ("plan --d2h 504MB --kernel 12ms --node h100-sxm --h2d -3MB", "negative"),
        ("plan --d2h 504MB --kernel 12ms --node h100-sxm --h2d 0MB", "is zero"),
        ("plan --d2h 504MB --kernel 12ms --node h100-sxm --h2d 1EB", "exceeds the largest value that busfare accepts"),
        ("plan --d2h 504MB --kernel 12ms --node h100-sxm --h2d '336 bananas'", "or a unit (B, kB, MB"),
        ("plan --h2d 336MB --d2h 504MB --node h100-sxm --kernel 12", "write a unit (ns, us"),
        ("plan --h2d 336MB --d2h 504MB --node h100-sxm --kernel 0ms", "is zero"),
        ("plan --h2d 336MB --d2h 504MB --node t4 --kernel 9e99s", "exceeds the largest value that busfare accepts"),
        (f"plan {PLANNED} --streams 4.5", "not a whole number"),
        (f"plan {PLANNED} --streams 64 --levels 42", "exceeds the 42 levels"),
        (f"plan {PLANNED} --accesses-in 0", "is zero"),
        (f"plan {PLANNED} --memory paged", "pinned, pageable"),
        (f"plan {PLANNED} --kernel-at 42:15ms", "STREAMS=TIME"),
        ("plan --h2d 336MB --d2h 504MB --kernel 12ms --node h100sxm", "did you mean h100-sxm"),
        (f"plan {PLANNED} --to gh2000", "gh200"),
        ("plan --h2d 1MB --node pcie:4x16", "kernel time is missing"),
        ("plan --h2d 1MB --kernel 1ms", "--node"),
        ("plan no-such.toml", "not there"),
        ("plan no-such.toml --h2d 1MB", "leave it out"),
        (f"plan --from-trace {TRACE}", "--kernel-name REGEX"),
        (f"plan --from-trace {TRACE} --kernel-name '('", "not a regular expression"),
        (f"plan --from-trace {TRACE} --kernel-name absent", "it has smooth"),
        ("nodes show sumit", "summit"),
        ("price --node . --bytes 1MB", "node '.': a folder; give a node file"),
        ("price --node h100-sxm --bytes 1MB --direction p2p --memory pageable", "stay in GPU memory"),
        ("price --node h100-sxm --bytes 1MB --memory device", "give the kind of host memory, such as pinned"),
        ("plan offlod --node h100-sxm", "did you mean `busfare plan offload`?"),
        ("nodes shwo t4", "did you mean `busfare nodes show`?"),
        ("plan --h2d 336 MB --kernel 12ms --node t4", "--h2d: the plan file MB already defines this"),
        (f"plan {PLANNED} --levels 2 --streams 4", "exceeds the 2 levels"),
        ("plan kv --node t4 --bytes-per-token 0", "--bytes-per-token '0' is zero"),
        ("price --node t4 --bytes 1MB --ranks 4", "--ranks: describes a --collective; add --collective"),
        (f"probe --from {__file__}", "no raw samples of a probe (Expected"),
        ("price --node gh200 --kernel gemm --from h100-sxm --seconds long", "--seconds 'long' is not a time"),
        ("nodes check no-such.toml", "no such file"),
        (f"export {TRACE} --to xml -o x", "parquet, csv"),
        (f"report {TRACE} no/such/file", "cannot be read"),
        ("report 'no/such/*.sqlite'", "no file matches"),
        ("report /", "is the root folder"),
        (f"report {TRACE} --jobs 0", "from 1 to"),
        (f"report {TRACE} --jobs many", "--jobs 'many' is not a number"),
        (f"report {TRACE} --scheduler nowhere", "no Dask scheduler answers"),
        (f"report {TRACE} --html /proc/no/page.html", "cannot be written"),
        (f"report {TRACE} --unrecorded 12", "--unrecorded '12' is not a time"),
        (f"report {TRACE} --unrecorded 1s --jobs 2", "give it with one trace"),
        (f"report {TRACE} --fingerprints {TRACE} --jobs 2", "give it with one trace"),
        (f"report {TRACE} --fingerprints {TRACE}", "has no fingerprints"),
        (f"what-if {TRACE} --keep-on-gpu --fingerprints {TRACE}", "has no fingerprints"),
        (f"report {TRACE} --fail-if exposed", "exposed > 20%"),
        (f"report {TRACE} --fail-if 'exposed > much'", "is not a time"),
        (f"report {TRACE} --fail-if 'colour > 3'", "one of exposed"),
        (f"what-if {TRACE}", "no change given"),
        (f"what-if {TRACE} --pin '('", "--pin '(' is not a regular expression"),
        (f"what-if {TRACE} --pin=yes", "--pin 'yes': this regular expression matches nothing"),
        (f"what-if {TRACE} --drop-synchronisations yes", "such as 'cudaStreamSynchronize'"),
        (f"what-if {TRACE} --streams 2 --kernel yes", "--kernel 'yes': this regular expression"),
        (f"what-if {TRACE} --kernels yes=2x", "--kernels 'yes': this regular expression"),
        (f"what-if {TRACE} --to gh200 --node h200-sxm", "given twice; give it once; `busfare project`"),
        (f"what-if {TRACE} --to gh200 --link pcie:5", "--link, --node: both name the new link or node"),
        (f"report {TRACE} --html a.html --html b.html", "--html: given twice"),
        ("report no/such/file --html /proc/page.html", "/proc/page.html: cannot be written"),
        (f"report no/such/file --html {EXAMPLES}", "a folder; name a file in it"),
        (f"export no/such/file --to perfetto -o {EXAMPLES}", "a folder; name a file in it"),
        ("export no/such/file --to nsys-sqlite -o traces", "was removed; use --to parquet"),
        (f"export no/such/file --to csv -o {TRACE}", "is a file, but csv needs a folder"),
        ("export no/such/file --to xml -o traces", "--to xml: unknown format"),
        (f"demo --output {TRACE}/pages", "cannot be written (Not a directory)"),
        ("probe --output /proc/node.toml", "/proc/node.toml: cannot be written"),
        ("record -o /proc/run.bf -- true", "/proc/run.bf: cannot be written"),
        ("record -o run.bf --kinds colours -- true", "--kinds 'colours' is unknown"),
        (f"what-if {TRACE} --pin '(?=h2d)'", "look-around"),
        (f"what-if {TRACE} --kernels '(a)\\1=2x'", "not a regular expression"),
        (f"what-if {TRACE} --streams 0", "1 to 1024"),
        (f"what-if {TRACE} --pin --unrecorded 12", "not a time"),
        (f"what-if {TRACE} --remove kernels", "one of h2d"),
        (f"what-if {TRACE} --batch-below '64 bananas'", "--batch-below '64 bananas' is not a size"),
        (f"what-if {TRACE} --copy-speed fast", "write a factor"),
        (f"what-if {TRACE} --kernels clock", "compares two nodes"),
        (f"what-if {TRACE} --node h100sxm", "did you mean h100-sxm"),
        (f"what-if {TRACE} --dedupe", "--fingerprint"),
        ("what-if no/such/file --pin", "cannot be read"),
        ("price --node t4 --bytes 1MB --direction p2p", "cannot be priced on t4: it has one GPU"),
        (f"report {TRACE} --unrecorded 0s", "is zero; leave it out"),
        (f"what-if {TRACE} --pin --unrecorded 0s", "is zero; leave it out"),
        (f"report {TRACE} --unrecorded 1000s", "--unrecorded 1000s: longer than the recorded run (0."),
        (f"what-if {TRACE} --pin --unrecorded 1000s", "leave it out"),
        (f"report {TRACE} --pin", "did you mean `busfare what-if … --pin`?"),
        (f"{TRACE} --streams 3", "did you mean `busfare what-if … --streams`?"),
        (f"what-if {TRACE} --kernel smooth", "--streams N"),
        (f"what-if {TRACE} --link pcie:9", "no such generation; generations 1 to 6"),
        (f"what-if {TRACE} --kernels fast", "bandwidth"),
        (f"project {TRACE} --to gh200 --host fast", "measured, keep"),
        (f"project {TRACE} --to {TRACE}", "is it a trace?"),
        (f"plan {TRACE}", "not a plan file; is it a trace?"),
        ("plan kv --node h100-probed --model llama-3.1-8b --memcpy 0", "--memcpy 0: a core"),
        ("price --node dgx-a100 --bytes 1MB --collective all_reduce --ranks 8 --gpus 2", "give one of them"),
        ("price --node dgx-a100 --bytes 1MB --collective all_reduce --ranks 0", "--ranks '0'"),
        (f"nodes check {EXAMPLES}", "a folder"),
        ("diff one two three", "argument (three). Try `busfare diff --help`."),
        ("what-if", "Try `busfare what-if --help`."),
        (f"report {IMAGES} --fail-if 'makespan > +5%'", "--baseline FILE"),
        (f"report {IMAGES} --baseline x --fail-if 'makespan > +x%'", "not a percentage"),
        (f"report {IMAGES} --baseline x --fail-if 'makespan > +5'", "not a time"),
        ("plan --node t4 --kernel 1ms", "--h2d: nothing crosses the bus; give --h2d or --d2h"),
        ("plan --node t4 --h2d 1MB", "kernel: the kernel time is missing; give --kernel, or --flops or --device-bytes"),
        ("price --node t4 --bytes 1MB --direction up", "--direction 'up': unknown"),
        ("price --node t4 --bytes 1MB --memory wax", "--memory 'wax': unknown"),
        ("plan kv --node h100-sxm --model llama-3.1-8b --tensor-parallel 3", "--tensor-parallel 3: does not divide"),
        ("price --node summit --bytes 1 --latency-from titan", "titan: nobody measured L+o of h2d copies there; give"),
    ],
)  # fmt: skip
def test_unusable_input_is_an_error_of_a_single_line(run_here: Run, arguments: str, message: str) -> None:
    done = run_here(*shlex.split(arguments))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("busfare: ")
    assert message in done.stderr
    assert done.stdout == ""


def test_a_trace_of_an_unknown_gpu_asks_where_it_was_recorded(tmp_path: Path) -> None:
    copied = kineto_copy("Memcpy HtoD (Pinned -> Device)", 8, 1, 1, 1)
    done = run("project", str(write_kineto(tmp_path / "trace.json", [copied])), "--to", "gh200")
    assert done.returncode == 2
    assert "--from NODE" in done.stderr


@pytest.mark.parametrize(
    ("traces", "limit", "status"),
    [
        (f"{TRACE}", "exposed > 20%", 1),
        (f"{TRACE}", "exposed > 99.9%", 0),
        (f"{TRACE}", "makespan > 100ms", 1),
        (f"{TRACE}", "bytes > 1GB", 1),
        (f"{TRACE}", "count >= 49", 0),
        (f"{TRACE} {TRACE_H200}", "makespan > 1s", 0),
        (f"{TRACE} {TRACE_H200}", "makespan > 1ms", 1),
        (f"{TRACE} {TRACE_H200}", "exposed < 99%", 1),
        (f"{TRACE} {TRACE_H200}", "bytes > 1TB", 0),
    ],
)
def test_a_passed_limit_sets_the_exit_status(run_here: Run, traces: str, limit: str, status: int) -> None:
    done = run_here("report", *traces.split(), "--fail-if", limit, "--json")
    assert done.returncode == status
    assert json.loads(done.stdout)["schema"].startswith("busfare.report")
    assert len(done.stderr.splitlines()) == status
    passed = f"{TRACE if traces == TRACE else 'the job'}: limit exceeded"
    assert (passed in done.stderr) == bool(status)


def test_what_if_writes_two_time_lines_and_a_page(tmp_path: Path) -> None:
    line, page = tmp_path / "line.json", tmp_path / "new" / "page.html"
    done = run("what-if", TRACE, "--pin", "h2d", "--wide", "--perfetto", str(line), "--html", str(page))
    assert done.returncode == 0
    assert "pin host buffers (only matches of h2d)" in done.stdout
    events = json.loads(line.read_text())["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {name.partition(":")[0] for name in names} == {"recorded", "predicted"}
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") and text.endswith("</html>")


def test_gpus_are_listed_by_a_word_of_their_name() -> None:
    names = [line.split()[0] for line in run("nodes", "3060").stdout.splitlines() if line]
    expected = {"rtx-3060", "rtx-3060-laptop", "rtx-3060-ti"}
    assert {name for name in names if name.startswith("rtx")} == expected
    assert json.loads(run("nodes", "a100", "sxm4", "--json").stdout)["gpus"][0]["link"] == "pcie:4x16"
    assert json.loads(run("nodes", "--json", "rtx", "5090").stdout)["nodes"][0]["name"] == "rtx-5090"
    assert run("nodes", "no-such-gpu").returncode == 2
    shown = run("nodes", "show", "rtx-3060-laptop")
    assert "PCIe 4 x16" in shown.stdout and "A notebook may connect" in shown.stdout


def test_the_demonstration_shows_a_change_that_matters_and_ends_by_naming_its_page(tmp_path: Path) -> None:
    done = run("demo", "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"Open this page: {tmp_path / 'report.html'}"
    rows = {line.split("  ")[0]: line.split("  ") for line in done.stdout.splitlines()}
    predicted, recorded = (
        float(rows[f"pinned, 3 streams ({how})"][-1].split()[0]) for how in ("predicted", "recorded")
    )
    assert recorded > 5 and predicted == pytest.approx(recorded, rel=0.2)
    names = ("h100-sxm (recorded)", *(f"{node} (predicted)" for node in ("gh200", "dgx-a100", "pcie:3x16")))
    assert len({rows[name][-1] for name in names}) == 4
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'smooth-out-of-core-h100.json.gz <span class="option">--pin</span></code>' in page
    assert "`" not in page.partition("<script")[0]


def test_a_limit_cannot_be_held_against_nothing(tmp_path: Path) -> None:
    (tmp_path / "cpu.json").write_text(json.dumps({"traceEvents": [call("cudaMalloc", 1, 2, 3)]}))
    for more in ((), ("--jobs", "1"), ("--json",)):
        done = run("report", str(tmp_path / "cpu.json"), "--fail-if", "exposed > 20%", *more)
        assert done.returncode == 2
        assert "no GPU activity was recorded" in done.stderr and done.stdout
        assert len(done.stderr.splitlines()) == 1
    # A launcher's trace beside one with GPU work says nothing of the job.
    done = run("report", str(tmp_path / "cpu.json"), TRACE, "--fail-if", "count > 1e6", "--json")
    assert done.returncode == 0


def test_help_fits_a_terminal_of_40_columns() -> None:
    assert max(map(len, run("price", "--help", COLUMNS="40").stdout.splitlines())) <= 40


@pytest.mark.parametrize("arguments", [("nodes",), ("nodes", "--json"), ("report", TRACE), ("--help",)])
@pytest.mark.parametrize("where", [">/dev/full", ">&-"])
def test_output_that_is_lost_is_no_success(arguments: tuple[str, ...], where: str) -> None:
    done = run_in_shell(where, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("busfare: standard output: cannot be written")
    assert len(done.stderr.splitlines()) == 1


def test_nor_is_a_closed_standard_error_mixed_into_the_output() -> None:
    done = run_in_shell("2>&-", "report", TRACE, "--json", "--fail-if", "exposed > 1%")
    assert done.returncode == 1
    assert json.loads(done.stdout)
    for where in (">&- 2>&-", ">/dev/full 2>/dev/full"):
        done = run_in_shell(where, "nodes")
        assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_a_limit_holds_where_nobody_reads_to_the_end() -> None:
    for more in ((), ("--json",)):
        done = run_in_shell("| true", "report", TRACE, "--fail-if", "exposed > 1%", *more)
        assert done.returncode == 1
        assert "limit exceeded" in done.stderr and len(done.stderr.splitlines()) == 1


def run_in_shell(where: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    shell = ["bash", "-o", "pipefail", "-c", f"{shlex.join([*BUSFARE, *arguments])} {where}"]
    return finished(shell)


def test_a_reader_that_has_had_enough_is_no_error() -> None:
    command = [*BUSFARE, "nodes", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_several_traces_a_folder_and_a_glob_are_a_job(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for number, source in enumerate((TRACE, TRACE_H200)):
        (tmp_path / "job" / f"rank{number}.json.gz").write_bytes(Path(source).read_bytes())
    files = sorted(str(file) for file in (tmp_path / "job").iterdir())
    spelt = files, [str(tmp_path / "job")], [f"{tmp_path}/job/*.gz"], [*files, "--jobs", "2"]
    results = [run("report", *named, "--json") for named in spelt]
    assert [done.returncode for done in results] == [0] * 4
    assert {done.stdout for done in results} == {results[0].stdout}
    result = json.loads(results[0].stdout)
    assert next(iter(result.items())) == ("schema", "busfare.report-job/1")
    assert (result["traces"]["read"], result["ranks_seen"]) == (2, 2)
    assert results[0].stderr == ""
    single = json.loads(run("report", TRACE, "--jobs", "1", "--json").stdout)
    assert single["schema"] == "busfare.report-job/1"


def test_progress_goes_to_a_terminal_alone(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"rank{number}.json.gz").write_bytes(Path(TRACE).read_bytes())
    command = [*BUSFARE, "report", str(tmp_path), "--json"]
    ours, theirs = os.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            shown += piece
            if not piece:
                break
        assert json.loads(process.stdout.read())["traces"]["read"] == 6
    os.close(ours)
    assert process.returncode == 0
    assert b"/6" in shown


def test_a_trace_alone_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [call("cudaLaunchKernel", 0, 5, 1), kineto_copy("Memcpy HtoD", 64, 10, 5, 1)]
    trace = str(write_kineto(tmp_path / "report", events))
    monkeypatch.chdir(tmp_path)
    assert run("./report", "--json").stdout == run("report", trace, "--json").stdout.replace(trace, "report")
    missing = run("missing.sqlite")
    assert missing.returncode == 2 and "missing.sqlite: cannot be read" in missing.stderr
    # A command's name wins over a file of that name.
    assert run("report").returncode == 2 and "TRACE" in run("report").stderr


def test_details_are_for_those_who_ask() -> None:
    """On a terminal of 80 columns the report of a run takes at most 40 lines."""
    brief = run("report", IMAGES, COLUMNS="80").stdout.splitlines()
    assert len(brief) <= 40 and brief[-1] != "" and brief.index("") <= 9
    assert any(line.startswith("Add --details for: transfers") for line in brief)
    full = run("report", IMAGES, "--details").stdout
    assert "Transfers by size" in full and "Add --details" not in full
