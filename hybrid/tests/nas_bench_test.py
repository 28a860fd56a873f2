"""The runner of NAS FT and MG, around played programs, launcher, GPU and MPS: nothing is measured.

With HYBRID_PROGRAMS naming a folder of built programs, these are run, too, on processors and on stand-ins.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

RUN = Path(__file__).resolve().parents[1] / "run"
sys.path.insert(0, str(RUN))

from nas_bench import __main__ as program  # noqa: E402
from nas_bench import show  # noqa: E402
from nas_bench.errors import NoGpuError, UsageError  # noqa: E402
from nas_bench.limit import limit_of, rates_of_limits  # noqa: E402
from nas_bench.machine import Machine, cases_of  # noqa: E402
from nas_bench.result import row_of, rows_of  # noqa: E402

H200 = Machine(16, ("NVIDIA H200",), True)
POINTS_C = 512**3
LIMITS = {
    "both_directions": [{"each_way_together_bytes_per_second": rate} for rate in (45e9, 50e9)],
    "device_copy_bytes_per_second": 4e12,
}

#: Answers for the mode and ranks asked for, and notes them; a mode `cpu` fails, and `multiple` may never end.
PROGRAM = """#!{python}
import json, os, sys, time
words = [w for w in sys.argv[1:] if w != "--timed"]
arguments, timed = dict(zip(words[::2], words[1::2])), "--timed" in sys.argv
mode, ranks = arguments["--mode"], int(os.environ["RANKS"])
with open({log!r}, "a") as log:
    log.write(f"{{mode}} {{ranks}} {{timed}} {{os.environ.get('CUDA_MPS_PIPE_DIRECTORY', '-')}}\\n")
if mode == "multiple":
    time.sleep(3600 * {endless})
if mode == "cpu":
    sys.exit("nas: rank 0: no core is left")
json.dump({{
    "schema": "busfare.hybrid.{benchmark}/1", "mode": mode, "ranks": ranks, "gpus": 1, "device": "NVIDIA H200",
    "class": arguments["--class"], "algorithm": arguments.get("--algorithm", ""), "timed": timed, "iterations": 2,
    "iteration_seconds": [0.1, 0.1] if mode != "funneled" else [0.05, 0.05], "seconds": 0.25,
    "exchange": "device" if mode == "funneled" else "host", "verified": {verified},
    "breakdown_seconds": {{"kernels": 0.05, "copies": 0.001, "fft_1d": 0.01, "synchronous_local_copies": 0.04}},
}}, sys.stdout)
sys.exit(0 if {verified} else 1)
"""
LAUNCHER = '#!/bin/sh\nshift; export RANKS=$1; shift; exec "$@"\n'
LINKS = """#!/bin/sh
[ "$1" = --link ] || exec cat {folder}/limits.json
read rate rest < {folder}/link.txt; echo "$rest $rate" > {folder}/link.txt; echo "link $rate" >> {log}
echo '{{"both_directions": [{{"each_way_together_bytes_per_second": '$rate'e9}}]}}'
"""


class Case(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def script(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)

    def play(self, benchmark: str = "mg", verified: bool = True, endless: bool = False) -> None:
        """A machine with an H200, whose link alone gives less from time to time, as on a host that others use."""
        self.log = self.folder / "runs.txt"
        self.log.write_text("")
        names = {
            "python": sys.executable,
            "log": str(self.log),
            "benchmark": benchmark,
            "folder": self.folder,
        }
        self.script(f"nas_{benchmark}", PROGRAM.format(**names, verified=verified, endless=endless))
        self.script("device_limits", LINKS.format(**names))
        self.script("mpirun", LAUNCHER)
        self.script("mps_probe", "#!/bin/sh\necho probed\n")
        self.script("nvidia-cuda-mps-control", "#!/bin/sh\ncat > /dev/null\n")
        (self.folder / "limits.json").write_text(json.dumps(LIMITS))
        (self.folder / "link.txt").write_text("41 39 50 ")

    def run_program(self, *arguments: str, machine: Machine = H200) -> tuple[int, str, str]:
        """Status, standard output and standard error."""
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.object(program, "this_machine", lambda: machine),
            mock.patch.dict(os.environ, {"PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}"}),
            mock.patch.object(sys, "argv", ["nas_bench", *arguments]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            status = program.main()
        return status, out.getvalue(), err.getvalue()

    def measured(self, benchmark: str, *arguments: str) -> dict:
        status, out, err = self.run_program(benchmark, "--build", str(self.folder), "--json", *arguments)
        self.assertEqual(status, 0, err)
        return json.loads(out)


class OnAGpu(Case):
    def test_every_mode_runs_twice_once_with_its_parts_timed(self) -> None:
        self.play()
        result = self.measured("mg")
        runs = [line.split()[:3] for line in self.log.read_text().splitlines()]
        self.assertIn(["funneled", "4", "False"], runs)
        self.assertIn(["funneled", "4", "True"], runs)
        runs = {(run["mode"], run["ranks"]): run for run in result["runs"]}
        modes = {("single", 1), ("multiple", 8), ("multiple-mps", 4), ("funneled", 8)}
        self.assertGreaterEqual(runs.keys(), modes, result["left_out"])
        funneled = runs["funneled", 4]
        self.assertTrue(funneled["parts_timed"])
        self.assertAlmostEqual(funneled["measured_parts_seconds"]["kernels"], 0.025)
        self.assertAlmostEqual(funneled["measured_parts_seconds"]["rest"], 0.125 - 0.0255)
        self.assertEqual(result["rates"]["source"], "device_limits, just before")
        self.assertEqual((result["fastest"]["mode"], result["fastest"]["class"]), ("funneled", "C"))
        gains = {(gain["ranks"], gain["over"]): gain["measured_times_as_fast"] for gain in result["gains"]}
        self.assertEqual(gains[4, "multiple"], 2.0)
        # Reads and writes of the points of each level: 9.375 at the top, 5.375 of each below, whose points are a seventh.
        self.assertAlmostEqual(
            funneled["limit"]["predicted_seconds"], 8 * POINTS_C * (9.375 + 5.375 / 7) / 4e12
        )
        self.assertIn("cpu, 1 rank", {row["case"] for row in result["left_out"]})
        self.assertTrue(any("no core is left" in row["why"] for row in result["left_out"]))

    def test_the_link_is_measured_around_every_run_of_ft(self) -> None:
        self.play("ft")
        first, packed, *_ = self.measured("ft", "--modes", "funneled", "--ranks", "4")["runs"]
        runs = [line.split()[:3] for line in self.log.read_text().splitlines()]
        self.assertEqual(
            runs[:4], [["link", "41"], ["funneled", "4", "False"], ["link", "39"], ["funneled", "4", "True"]]
        )
        self.assertEqual(first["measured_link_bytes_per_second"], [41e9, 39e9])
        self.assertEqual(packed["measured_link_bytes_per_second"], [50e9, 41e9])
        # The transpose stays in the GPU: the grid crosses the link once.
        self.assertAlmostEqual(first["limit"]["predicted_link_seconds"], 16 * POINTS_C / 40e9)

    def test_what_takes_longer_than_the_limit_is_ended_and_left_out(self) -> None:
        self.play(endless=True)
        wait = subprocess.Popen.communicate

        def out_of_time(process: subprocess.Popen, timeout: float | None = None) -> tuple:
            """The limit passes as soon as the endless run has begun, and for no other run, however busy the machine is."""
            if "multiple" not in process.args:
                return wait(process)
            while "multiple" not in self.log.read_text():
                self.assertIsNone(process.poll(), "it ended by itself")
                time.sleep(0.01)
            raise subprocess.TimeoutExpired(process.args, timeout)

        with mock.patch.object(subprocess.Popen, "communicate", out_of_time):
            result = self.measured("mg", "--modes", "multiple,funneled", "--ranks", "4", "--timeout", "3")
        self.assertEqual([run["mode"] for run in result["runs"]], ["funneled"], result["left_out"])
        self.assertIn("took longer than 3 s", result["left_out"][0]["why"])

    def test_values_that_are_not_the_official_ones_are_status_1(self) -> None:
        self.play(verified=False)
        status, out, err = self.run_program(
            "mg", "--build", str(self.folder), "--modes", "funneled", "--ranks", "4"
        )
        self.assertEqual(status, 1)
        self.assertIn("NOT VERIFIED", out)
        self.assertIn("missed NAS's official values", err)

    def test_mps_leads_its_mode_alone_and_is_left_out_where_it_does_not_work(self) -> None:
        self.play()
        self.measured("mg", "--modes", "multiple,multiple-mps", "--ranks", "4")
        led = {line.split()[0]: line.split()[3] for line in self.log.read_text().splitlines()}
        self.assertEqual(led["multiple"], "-")
        self.assertIn("/mps.", led["multiple-mps"])
        self.assertFalse(Path(led["multiple-mps"]).exists(), "its folder is gone with it")
        self.script("mps_probe", "#!/bin/sh\necho no connection left >&2; exit 1\n")
        result = self.measured("mg", "--modes", "multiple,multiple-mps", "--ranks", "4")
        self.assertEqual([run["mode"] for run in result["runs"]], ["multiple"], result["left_out"])
        self.assertIn("ended with 1: no connection left", result["left_out"][0]["why"])

    def test_a_given_launch_starts_the_ranks_and_the_measurement_of_the_link(self) -> None:
        self.play("ft")
        self.script(
            "srun",
            '#!/bin/sh\n[ "$1" = --gpu-bind=none ] || exit 9; shift 2; export RANKS=$1; shift; exec "$@"\n',
        )
        (self.folder / "mpirun").unlink()
        options = ("--launch", "srun --gpu-bind=none", "--modes", "funneled", "--ranks", "16")
        result = self.measured("ft", *options, "--class", "E")
        self.assertEqual([run["ranks"] for run in result["runs"]], [16, 16], result["left_out"])
        self.assertEqual((result["gpu"], result["driver"]), ("NVIDIA H200", None))
        limit = result["runs"][0]["limit"]["predicted_link_seconds"]
        self.assertAlmostEqual(limit, 16 * 4096 * 2048 * 2048 / 40e9)

    def test_a_result_is_shown_again_as_table_and_page(self) -> None:
        self.play()
        result = self.measured(
            "mg", "--modes", "funneled", "--rates", "5e10,4e12", "--rates-source", "a <node>"
        )
        self.assertEqual(result["rates"]["source"], "a <node>")
        kept, page = self.folder / "kept.json", self.folder / "deep" / "page.html"
        kept.write_text(json.dumps(result))
        status, out, _ = self.run_program("mg", "--from", str(kept), "--html", str(page))
        self.assertEqual(status, 0)
        self.assertIn("funneled, 4 ranks", out)
        text = page.read_text(encoding="utf-8")
        self.assertIn("a &lt;node&gt;", text)
        self.assertEqual(text.count("limit, predicted: 2.7"), len(result["runs"]))
        status, _, err = self.run_program("mg", "--from", str(kept), "--html", str(kept))
        self.assertEqual((status, json.loads(kept.read_text())), (2, result))
        self.assertIn("is the input", err)
        self.assertEqual(show.plain("a\x1b[31m\u202e"), "a\\x1b[31m\\u202e")

    def test_a_page_shows_how_modes_scale_with_ranks(self) -> None:
        run = {"class": "C", "mode": "cpu", "algorithm": "", "ranks": 1, "measured_iteration_seconds": 0.08}
        runs = [run, run | {"ranks": 4, "measured_iteration_seconds": 0.04}, run | {"mode": "funneled"}]
        plot = show._scaling("C", runs)
        self.assertEqual((plot.count("<circle"), plot.count("stroke-dasharray")), (3, 1))
        measured = re.search(
            r'<polyline points="([-\d.]+),([-\d.]+) ([-\d.]+),([-\d.]+)"[^>]*stroke-width="2"', plot
        )
        ideal = re.search(r'<polyline points="([-\d.]+),([-\d.]+) ([-\d.]+),([-\d.]+)"[^>]*dasharray', plot)
        assert measured and ideal
        fell, would_fall = (float(m[4]) - float(m[2]) for m in (measured, ideal))
        self.assertAlmostEqual(would_fall, 2 * fell, delta=0.3)  # a quarter of the time instead of half
        self.assertEqual(show._scaling("C", runs[1:]), "")


class Refused(Case):
    def test_impossible_options_are_refused_in_a_line(self) -> None:
        self.play()
        nothing = self.folder / "nothing"
        for arguments, status, message in (
            (("--class", "Q"), 2, "one of S, W, A"),
            (("--ranks", "3"), 2, "powers of two"),
            (("--ranks", "one"), 2, "powers of two"),
            (("--modes", "shared"), 2, "give some of cpu"),
            (("--modes", ","), 2, "give some of cpu"),
            (("--timeout", "0"), 2, "above 0"),
            (("--rates", "5e10"), 2, "two rates above 0"),
            (("--modes", "cpu,funneled"), 3, "mode funneled: no GPU"),
            (("--modes", "cpu", "--ranks", "4"), 2, "nothing could be measured"),
            (("--build", str(nothing)), 2, "cmake -S hybrid"),
            (("--from", str(nothing)), 2, "give a file that --json wrote"),
            (("--launch", "no-such-launcher -N 2"), 2, "no such program on the PATH"),
            (("--launch", "'mpirun"), 2, "No closing quotation"),
            (("--launch", "mpirun"), 2, "give --modes and --ranks too"),
            (("--launch", "mpirun", "--modes", "multiple-mps", "--ranks", "2"), 2, "leave multiple-mps out"),
        ):
            with self.subTest(arguments):
                arguments = ("mg", "--build", str(self.folder), *arguments)
                got, out, err = self.run_program(*arguments, machine=Machine(4, (), False))
                self.assertEqual((got, out, len(err.splitlines())), (status, "", 1), err)
                self.assertIn(message, err)
        with mock.patch("shutil.which", lambda _: None):
            status, _, err = self.run_program("mg")
        self.assertEqual(status, 2)
        self.assertIn("no mpirun", err)

    def test_a_file_of_foreign_content_is_refused_in_a_line(self) -> None:
        raw = {"gpu": "x", "driver": "1", "date": "today", "limits": LIMITS}
        empty = [{"command": "x", "result": {"schema": "busfare.hybrid.ft/1"}}]
        whole = dict.fromkeys(program.KEYS) | {"schema": "busfare.bench-ft/1", "runs": [{}], "gains": []}
        for text, message in (
            ("{", "not of schema"),
            ("[]", "not of schema"),
            ("[" * 100_000, "not of schema"),
            ('{"schema": "busfare.bench-mg/1"}', "not of schema"),
            ('{"schema": "busfare.bench-ft/1"}', "the file is not whole"),
            (json.dumps(whole), "a figure is missing or wrong"),
            (json.dumps(raw | {"runs": {}}), "no list of runs"),
            (json.dumps(raw | {"runs": []}), "no run of nas_ft"),
            (json.dumps(raw | {"runs": [], "limits": {}}), "no result of device_limits"),
            (json.dumps(raw | {"runs": empty}), "missing or wrong"),
        ):
            with self.subTest(text[:60]):
                path = self.folder / "result.json"
                path.write_text(text)
                status, out, err = self.run_program("ft", "--from", str(path))
                self.assertEqual((status, out, len(err.splitlines())), (2, "", 1), err)
                self.assertIn(message, err)


class Judged(unittest.TestCase):
    def test_raw_runs_are_joined_with_their_timed_likes_and_may_hold_the_link(self) -> None:
        plain = {
            "schema": "busfare.hybrid.ft/1", "mode": "funneled", "ranks": 4, "gpus": 1, "class": "C", "device": "GPU",
            "algorithm": "slabs", "exchange": "device", "iterations": 1, "iteration_seconds": [0.05], "seconds": 0.05,
            "breakdown_seconds": {"fft_1d": 0.01, "synchronous_local_copies": 0.03}, "verified": True,
        }  # fmt: skip
        timed = plain | {"timed": True, "iteration_seconds": [0.06], "verified": False}
        rates = rates_of_limits(LIMITS, "made up")
        (row,), left_out = rows_of(
            "ft",
            [{"result": plain}, {"result": timed}, {"command": "nas_ft", "status": 70, "result": None}],
            rates,
        )
        self.assertEqual((row["verified"], row["parts_timed"]), (False, True))
        self.assertEqual(left_out[0]["why"], "ended with 70: it wrote nothing")
        (alone,), _ = rows_of("ft", [{"result": plain}], rates)
        self.assertAlmostEqual(alone["measured_parts_seconds"]["device_phases"], 0.03)
        link = [{"both_directions": [{"each_way_together_bytes_per_second": 20e9}]}]
        (row,), _ = rows_of("ft", [{"result": plain, "link": link}], rates)
        self.assertAlmostEqual(row["limit"]["predicted_link_seconds"], 16 * POINTS_C / 20e9)
        with self.assertRaisesRegex(UsageError, "a figure is missing or wrong"):
            rows_of("ft", [{"result": plain, "link": [{"both_directions": []}]}], rates)

    def test_several_gpus_share_the_host_s_memory_where_all_were_measured_at_once(self) -> None:
        limits = LIMITS | {"all_at_once": {"gpus": 4, "each_way_together_bytes_per_second": 20e9}}
        rates = rates_of_limits(limits, "made up")
        whole = 16 * POINTS_C
        for gpus, rate in ((1, 50e9), (2, 50e9), (4, 20e9)):
            limit = limit_of("ft", "C", rates, gpus, True)
            self.assertAlmostEqual(limit["predicted_link_seconds"], whole / gpus / rate)
        run = {
            "schema": "busfare.hybrid.ft/1", "mode": "funneled", "ranks": 8, "gpus": 4, "class": "C", "device": "GPU",
            "algorithm": "slabs", "exchange": "device", "iterations": 1, "iteration_seconds": [0.03], "seconds": 0.03,
            "breakdown_seconds": {"fft_1d": 0.01, "synchronous_local_copies": 0.02}, "verified": True,
        }  # fmt: skip
        slower = limits | {"all_at_once": {"gpus": 4, "each_way_together_bytes_per_second": 16e9}}
        (row,), _ = rows_of("ft", [{"result": run, "link": [limits, slower]}], rates)
        self.assertAlmostEqual(row["limit"]["predicted_link_seconds"], whole / 4 / 18e9)
        self.assertEqual(row["measured_link_bytes_per_second"], [20e9, 16e9])
        self.assertEqual(rates.row()["all_gpus"], {"gpus": 4, "each_way_bytes_per_second": 20e9})
        none = limits | {"all_at_once": {"gpus": 4, "each_way_together_bytes_per_second": 0}}
        with self.assertRaisesRegex(UsageError, "a rate of 0"):
            rates_of_limits(none, "made up")

    def test_kernels_timed_alone_give_a_separate_limit(self) -> None:
        names = ["mg_rprj3", "mg_correct_residual", "mg_correct_and_smooth", "mg_resid"]
        names += ["mg_correct_and_smooth_replace", "mg_solve_coarse_16"]
        timed = {
            f"mg_{n}": [{"name": name, "seconds": n * 1e-6} for name in names] for n in (256, 128, 64, 32)
        }
        limit = limit_of("mg", "B", rates_of_limits(LIMITS | timed, "made up"), 2, False)
        # Four of the finest level, three of each of three coarser ones, and one for the rest, timed beside the coarsest.
        expected = 1e-6 * (4 * 256 + 3 * (128 + 64 + 32) + 32) / 2
        self.assertAlmostEqual(limit["predicted_alone_seconds"], expected)
        del timed["mg_64"]
        for benchmark in ("mg", "ft"):
            rates = rates_of_limits(LIMITS | timed, "made up")
            self.assertIsNone(limit_of(benchmark, "B", rates, 1, True)["predicted_alone_seconds"])

    def test_modes_that_cannot_run_are_named_with_the_reason(self) -> None:
        cases, left_out = cases_of("ft", Machine(4, ("H200", "H200"), False), True, (), ())
        wanted = {("cpu", 4, "packed-slabs"), ("single", 2, "slabs"), ("funneled", 4, "slabs")}
        self.assertGreaterEqual({(case.mode, case.ranks, case.algorithm) for case in cases}, wanted)
        self.assertEqual(max(case.ranks for case in cases), 4)
        self.assertEqual([row["case"] for row in left_out], ["mode multiple-mps"])
        for machine, error in ((H200, UsageError), (Machine(4, (), False), NoGpuError)):
            with self.assertRaises(error):
                cases_of("ft", machine, False, ("funneled",), ())


@unittest.skipUnless(os.environ.get("HYBRID_PROGRAMS"), "HYBRID_PROGRAMS names no folder of programs")
class Real(Case):
    def test_processors_run_it_and_reach_the_official_values(self) -> None:
        build = os.environ["HYBRID_PROGRAMS"]
        for benchmark, runs, iterations in (("ft", 4, 6), ("mg", 2, 4)):
            command = [sys.executable, str(RUN / "nas_bench"), benchmark, "--class", "S", "--modes", "cpu"]
            command += ["--ranks", "1,2", "--build", build, "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            result = json.loads(done.stdout)
            self.assertEqual((next(iter(result)), result["all_verified"]), ("schema", True))
            self.assertEqual(len(result["runs"]), runs, result["left_out"])
            # The values of NAS's own verification, class S.
            expected = "checksum 6 is 5.542683411" if benchmark == "ft" else "norm 5.3077070057"
            self.assertIn(expected, show.text(result))
            for run in result["runs"]:
                self.assertIsNone(run["limit"])
                self.assertEqual(len(run["iteration_seconds"]), iterations)
                whole = sum(run["measured_parts_seconds"].values()) * iterations
                self.assertGreaterEqual(whole, 0.99 * sum(run["iteration_seconds"]))

    def test_nothing_is_predicted_of_stand_ins(self) -> None:
        ft = Path(os.environ["HYBRID_PROGRAMS"], "nas_ft")
        words = [
            "mpirun",
            "-n",
            "4",
            str(ft),
            "--mode",
            "funneled",
            "--device",
            "standin",
            "--standin-gpus",
            "2",
        ]
        env = importlib.import_module("nas_bench.programs").environment()
        done = subprocess.run([*words, "--timed"], capture_output=True, text=True, check=False, env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        row = row_of("ft", json.loads(done.stdout), None, rates_of_limits(LIMITS, "made up"))
        self.assertEqual(
            (row["mode"], row["gpus"], row["verified"], row["limit"]), ("funneled", 2, True, None)
        )
        self.assertGreater(row["measured_parts_seconds"]["fft_2d"], 0)


if __name__ == "__main__":
    unittest.main()
