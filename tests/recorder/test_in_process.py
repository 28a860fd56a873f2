"""`with busfare.record()`: a Python process records itself, with stand-ins for CUDA and CUPTI."""

import json
import sys
from pathlib import Path

from tests.processes import finished
from tests.recorder.conftest import Built

#: What a notebook does: CUDA is in use before it is recorded, and it is recorded twice.
PROGRAM = """
import ctypes, json, os, sys
import busfare

ctypes.CDLL("libcuda.so.1").cuInit(0)
cupti = None

def work(rounds):
    global cupti
    cupti = cupti or ctypes.CDLL("libcupti.so.13")
    for _ in range(rounds):
        cupti.fake_kernel(b"_Z5scalePfi", ctypes.c_uint64(0))

with busfare.record() as first:
    work(3)
work(5)  # recorded by nobody
with busfare.record(sys.argv[1], stacks=False) as second:
    work(2)
recorded = [one.trace.kernels["name"].to_list() for one in (first, second)]
refused = []
for wrong in ({"output": sys.argv[1]}, {"kinds": ["nothing"]}):
    try:
        with busfare.record(**wrong):
            pass
    except busfare.BusfareError as error:
        refused.append(str(error))
with busfare.record() as outer:
    try:
        with busfare.record():
            pass
    except busfare.BusfareError as error:
        refused.append(str(error))
left = [name for name in os.environ if name.startswith("BUSFARE_RECORD_")]
print(json.dumps([recorded, refused, left, first.trace.devices.to_dicts()]))
"""


def test_a_process_records_itself_twice(built: Built, variables: dict[str, str], tmp_path: Path) -> None:
    done = finished(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "second")],
        env={name: text for name, text in variables.items() if name != "PYTHONPATH"},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    recorded, refused, left, devices = json.loads(done.stdout)
    assert recorded == [["scale(float*, int)"] * 3, ["scale(float*, int)"] * 2]
    for message, why in zip(refused, ("contains an earlier recording", "unknown", "is running"), strict=True):
        assert why in message
    assert left == []
    # CUPTI says nothing of devices in use; what the driver says of them (the stand-in: an attribute's own number) is there.
    (device,) = devices
    assert (device["device"], device["name"]) == (0, "NVIDIA H100 80GB HBM3")
    assert (device["multiprocessors"], device["copy_engines"]) == (16, 40)
    assert device["compute_capability"] == "75.76"
    assert (device["memory_bytes"], device["memory_bandwidth_bytes_per_s"]) == (80 << 30, 2 * 36e3 * 37 // 8)


def test_a_machine_without_a_driver_says_so(variables: dict[str, str]) -> None:
    code = "import busfare\nwith busfare.record(): pass"
    environment = {name: t for name, t in variables.items() if name not in ("LD_LIBRARY_PATH", "PYTHONPATH")}
    done = finished([sys.executable, "-c", code], env=environment)
    assert done.returncode == 1 and "NoGpuError: no NVIDIA driver" in done.stderr
