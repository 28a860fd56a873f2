"""What `bench ft|mg` do where there is a GPU, with programs that answer what an H200 answered (`results/hybrid/`): no GPU
is needed, and nothing is measured.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from busfare.errors import BusfareError, InputError, NoGpuError
from busfare.measure.nas import commands, machine
from busfare.measure.nas.case import cases_of
from busfare.measure.nas.limit import limit_of, rates_of_limits, rates_of_node
from busfare.measure.nas.machine import Machine
from busfare.measure.nas.problem import Benchmark
from busfare.measure.nas.programs import Programs
from busfare.measure.nas.result import rows_of
from busfare.node import load_node

RECORDED = Path(__file__).parents[3] / "results" / "hybrid" / "h200-one-gpu.json"
H200 = Machine(16, ("NVIDIA H200",), True)

#: Answers with a recorded result of the mode and ranks asked for; says which ones it was asked for.
PROGRAM = """#!{python}
import json, os, sys
words = [w for w in sys.argv[1:] if w != "--timed"]
asked = dict(zip(words[::2], words[1::2]))
ranks, mode = int(os.environ["RANKS"]), asked["--mode"]
with open({log!r}, "a") as log:
    log.write(f"{{mode}} {{ranks}} {{'--timed' in sys.argv}} {{os.environ.get('CUDA_MPS_PIPE_DIRECTORY', '')!r}}\\n")
if {slow} and mode == "multiple":
    import time; time.sleep(60)
schema = "busfare.hybrid.{benchmark}/1"
runs = [r["result"] for r in json.load(open({recorded!r}))["runs"] if r["result"]["schema"] == schema]
fits = [r for r in runs if (r["mode"], r["ranks"], r["class"]) == (mode, ranks, asked["--class"])]
if not fits:
    sys.exit(f"nas_{benchmark}: rank 0: mode {{mode}} with {{ranks}} ranks: nobody recorded it")
result = dict(fits[0], timed="--timed" in sys.argv, verified={verified}, gpus=1)
if result["timed"]:
    result["breakdown_seconds"] = dict(result["breakdown_seconds"], kernels=0.05, copies=0.001)
json.dump(result, open(asked["--json"], "w"))
sys.exit(0 if result["verified"] else 1)
"""
LAUNCHER = '#!/bin/sh\nshift; export RANKS=$1; shift; exec "$@"\n'
DAEMON = '#!/bin/sh\nif [ "$1" = -d ]; then echo started >> {log}; else cat >> {log}; fi\n'


class Place:
    """A folder with the programs, the launcher, `device_limits` and NVIDIA's MPS, all played."""

    def __init__(
        self, folder: Path, benchmark: Benchmark = "mg", verified: bool = True, slow: bool = False
    ) -> None:
        self.benchmark = benchmark
        self.folder, self.log, self.daemon_log = folder, folder / "asked.txt", folder / "mps.txt"
        self.log.touch()
        self._script(
            f"nas_{benchmark}",
            PROGRAM.format(
                python=sys.executable,
                benchmark=benchmark,
                log=str(self.log),
                recorded=str(RECORDED),
                verified=verified,
                slow=slow,
            ),
        )
        limits = json.loads(RECORDED.read_text(encoding="utf-8"))["limits"]
        (folder / "limits.json").write_text(json.dumps(limits))
        # Asked for the link alone it gives less from time to time, as on a host that others use.
        (folder / "link.txt").write_text("41 39 50 ")
        self._script(
            "device_limits",
            f"""#!/bin/sh
[ "$1" = --link ] || exec cat {folder / "limits.json"}
read rate rest < {folder / "link.txt"}; echo "$rest $rate" > {folder / "link.txt"}
echo "link $rate" >> {self.log}
echo '{{"both_directions": [{{"each_way_together_bytes_per_second": '$rate'e9}}]}}'
""",
        )
        self._script("mpirun", LAUNCHER)
        self._script("nvidia-cuda-mps-control", DAEMON.format(log=self.daemon_log))

    def _script(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)


def bench(place: Place, monkeypatch: pytest.MonkeyPatch, **asked: Any) -> dict[str, Any]:
    monkeypatch.setattr(commands, "this_machine", lambda: H200)
    monkeypatch.setenv("PATH", f"{place.folder}{os.pathsep}{os.environ['PATH']}")
    options = {"size": "C", "ranks": None, "modes": None, "node": None, "timeout_s": 60.0} | asked
    return commands.bench(
        place.benchmark, build=place.folder, progress=None, say=lambda line: None, **options
    )


def test_every_mode_runs_twice_once_with_its_parts_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    result = bench(place, monkeypatch)
    asked = [line.split()[:3] for line in place.log.read_text().splitlines()]
    assert ["funneled", "4", "False"] in asked and ["funneled", "4", "True"] in asked
    runs = {(r["mode"], r["ranks"]): r for r in result["runs"]}
    assert runs.keys() >= {("single", 1), ("multiple", 8), ("multiple-mps", 4), ("funneled", 8)}
    funneled = runs["funneled", 4]
    assert funneled["parts_timed"] is True
    assert funneled["measured_parts_seconds"]["kernels"] == pytest.approx(0.05 / 20)
    assert result["rates"]["source"] == "device_limits, just before"
    assert funneled["limit_share_percent"] == pytest.approx(
        100 * funneled["limit"]["predicted_seconds"] / funneled["measured_iteration_seconds"]
    )
    assert result["fastest"] == {"mode": "single", "ranks": 1, "algorithm": "", "class": "C"}


def test_the_link_is_measured_beside_each_run_of_ft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path, "ft")
    result = bench(place, monkeypatch, modes="funneled", ranks="4,8")
    first, *others = result["runs"]
    asked = [line.split()[:3] for line in place.log.read_text().splitlines()]
    assert asked[:4] == [
        ["link", "41"],
        ["funneled", "4", "False"],
        ["link", "39"],
        ["funneled", "4", "True"],
    ]
    assert first["measured_link_bytes_per_second"] == [41e9, 39e9]
    assert others[0]["measured_link_bytes_per_second"] == [50e9, 41e9]
    assert first["limit"]["predicted_link_seconds"] * 40 == pytest.approx(
        others[0]["limit"]["predicted_link_seconds"] * 45.5
    )
    assert result["rates"]["each_way_bytes_per_second"] > 45e9, "of the machine, before all runs"


def test_raw_runs_may_tell_of_the_link_beside_them() -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    rates = rates_of_limits(recorded["limits"], "device_limits")
    run = next(
        r
        for r in recorded["runs"]
        if r["result"]["schema"] == "busfare.hybrid.ft/1" and r["result"]["mode"] == "funneled"
    )
    link = [{"both_directions": [{"each_way_together_bytes_per_second": 20e9}]}]
    (bare,), _ = rows_of("ft", [run], rates)
    (beside,), _ = rows_of("ft", [run | {"link": link}], rates)
    assert bare["measured_link_bytes_per_second"] is None
    assert beside["measured_link_bytes_per_second"] == [20e9]
    assert beside["limit"]["predicted_link_seconds"] == pytest.approx(
        bare["limit"]["predicted_link_seconds"] * rates.each_way_bytes_per_s / 20e9
    )
    with pytest.raises(InputError, match="a figure is missing or wrong"):
        rows_of("ft", [run | {"link": [{"both_directions": []}]}], rates)


def test_what_fails_is_left_out_in_the_programs_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = bench(Place(tmp_path), monkeypatch, modes="funneled,cpu", ranks="4")
    assert [r["mode"] for r in result["runs"]] == ["funneled"]
    assert [row["case"] for row in result["left_out"]] == ["cpu, 4 ranks"]
    assert "nobody recorded it" in result["left_out"][0]["why"]
    with pytest.raises(BusfareError, match="nothing could be measured"):
        bench(Place(tmp_path), monkeypatch, modes="cpu", ranks="4")


def test_mps_runs_around_its_mode_alone_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path)
    bench(place, monkeypatch, modes="multiple,multiple-mps", ranks="4")
    assert place.daemon_log.read_text().splitlines() == ["started", "quit -t 2"] * 2
    led = {line.split()[0]: line.split()[3] for line in place.log.read_text().splitlines()}
    assert led["multiple"] == "''"
    assert "/mps-" in led["multiple-mps"]
    assert not Path(led["multiple-mps"].strip("'")).exists(), "its folder is gone with it"


@pytest.mark.parametrize(
    ("name", "script", "why"),
    [
        ("mps_probe", "sleep 60", "a first process under it did not get done within 1 s"),
        ("mps_probe", "echo no connection left >&2; exit 1", "ended with 1: no connection left"),
        ("nvidia-cuda-mps-control", "exec sleep 60", "the daemon did not get done within 1 s"),
        ("nvidia-cuda-mps-control", "exit 5", "the daemon ended with 5"),
    ],
)
def test_mps_that_does_not_work_is_left_out_in_time_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str, why: str
) -> None:
    for limit in ("_MPS_STARTS_S", "_MPS_STOPS_S", "_MPS_PROBE_S"):
        monkeypatch.setattr(machine, limit, 1.0)
    place = Place(tmp_path)
    place._script(name, f"#!/bin/sh\n{script}\n")
    began = time.monotonic()
    result = bench(place, monkeypatch, modes="multiple,multiple-mps", ranks="4")
    assert time.monotonic() - began < 30
    assert [r["mode"] for r in result["runs"]] == ["multiple"]
    (left_out,) = result["left_out"]
    assert left_out["case"] == "multiple-mps, 4 ranks"
    assert "MPS was left out" in left_out["why"] and why in left_out["why"]


def test_a_run_that_takes_too_long_is_ended_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    result = bench(
        Place(tmp_path, slow=True), monkeypatch, modes="multiple,funneled", ranks="4", timeout_s=3.0
    )
    assert time.monotonic() - began < 40
    assert [r["mode"] for r in result["runs"]] == ["funneled"]
    assert "took longer than 3 s" in result["left_out"][0]["why"]


def test_values_that_are_not_the_official_ones_are_said_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = bench(Place(tmp_path, verified=False), monkeypatch, modes="funneled", ranks="4")
    assert result["all_verified"] is False
    assert result["runs"][0]["verified"] is False


def test_a_node_of_the_catalogue_gives_nearly_the_limit_that_was_measured() -> None:
    measured = rates_of_limits(json.loads(RECORDED.read_text(encoding="utf-8"))["limits"], "device_limits")
    probed = rates_of_node(load_node("h200-probed"))
    assert probed.each_way_bytes_per_s == pytest.approx(measured.each_way_bytes_per_s, rel=0.03)
    assert probed.source == "the parameters of h200-probed"


def test_the_kernels_alone_are_a_limit_of_their_own_where_each_was_timed() -> None:
    limits = json.loads(RECORDED.read_text(encoding="utf-8"))["limits"]
    names = ["mg_rprj3", "mg_correct_residual", "mg_correct_and_smooth", "mg_resid", "mg_psinv"]
    names += ["mg_correct_and_smooth_replace", "mg_solve_coarse_16"]
    for points in (256, 128, 64, 32):
        limits[f"mg_{points}"] = [{"name": name, "seconds": points * 1e-6} for name in names]
    told = limit_of("mg", "B", rates_of_limits(limits, "made up"), 2, False)
    # Four of the finest level, three of each of three coarser ones, and one for the rest, timed beside the coarsest.
    assert told["predicted_alone_seconds"] == pytest.approx(1e-6 * (4 * 256 + 3 * (128 + 64 + 32) + 32) / 2)
    del limits["mg_64"]
    assert limit_of("mg", "B", rates_of_limits(limits, ""), 1, False)["predicted_alone_seconds"] is None
    assert limit_of("ft", "B", rates_of_limits(limits, ""), 1, True)["predicted_alone_seconds"] is None


def test_modes_that_cannot_run_are_named_with_the_reason() -> None:
    programs = Programs(Path("mpirun"), Path("nas_ft"), Path("device_limits"))
    cases, left_out = cases_of("ft", Machine(4, ("NVIDIA H200", "NVIDIA H200"), False), programs, (), ())
    assert {(c.mode, c.ranks, c.algorithm) for c in cases} >= {
        ("cpu", 4, "packed-slabs"), ("single", 2, "slabs"), ("funneled", 4, "slabs"),
    }  # fmt: skip
    assert max(c.ranks for c in cases) == 4
    assert [row["case"] for row in left_out] == ["mode multiple-mps"]
    without = Programs(Path("mpirun"), Path("nas_ft"), None)
    with pytest.raises(InputError, match="built without CUDA"):
        cases_of("ft", H200, without, ("funneled",), ())
    with pytest.raises(NoGpuError, match="no GPU"):
        cases_of("ft", Machine(4, (), False), without, ("funneled",), ())
