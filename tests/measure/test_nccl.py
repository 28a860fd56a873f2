"""Collectives on a stand-in driver and a stand-in NCCL that notes its calls: what is asked for in groups, and the file."""

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from busfare.cost.collectives import Fabric, price_collectives
from busfare.errors import NoGpuError
from busfare.measure import probe
from busfare.measure.cases import Case
from busfare.measure.cuda.device import CudaDevice
from busfare.measure.cuda.rates import Communicators
from busfare.measure.kernels import collective_cases
from busfare.measure.node_file import encode
from busfare.measure.run import UnavailableError
from busfare.measure.virtual import VirtualDevice
from busfare.nodes import load_node
from busfare.nodes.file import decode
from busfare.questions import Probe
from tests.measure.stand_in_driver import StandIn, Stream

SOURCE = r"""
#include <cstdlib>
#include <cstdio>
#include <cstring>
static char notes[1 << 16]; static int fails; static int depth;
template <class... A> static int note(const char* format, A... values) {
    if (fails) return fails;
    size_t at = strlen(notes); snprintf(notes + at, sizeof notes - at, format, values...); return 0;
}
typedef void* P; typedef size_t N;
extern "C" {
const char* logged() { return notes; }
void forget() { notes[0] = 0; }
void fail(int code) { fails = code; }
const char* ncclGetErrorString(int) { return "stood in the way"; }
int ncclCommInitAll(P* made, int count, const int* gpus) {
    for (int i = 0; i < count; ++i) made[i] = (P)(N)(0x700000000000 + gpus[i]);
    return note("init %d nvls %s\n", count, getenv("NCCL_NVLS_ENABLE"));
}
int ncclCommDestroy(P made) { return note("destroy %d\n", (int)((N)made - 0x700000000000)); }
int ncclGroupStart() { ++depth; return note("("); }
int ncclGroupEnd() { --depth; return note(")\n"); }
static int of(P comm) { return depth == 1 ? (int)((N)comm - 0x700000000000) : -1; }
int ncclAllReduce(P, P, N n, int type, int, P comm, P) { return note("reduce%d:%zux%d ", of(comm), n, type); }
int ncclAllGather(P, P, N n, int type, P comm, P) { return note("gather%d:%zu ", of(comm), n); }
int ncclReduceScatter(P, P, N n, int, int, P comm, P) { return note("scatter%d:%zu ", of(comm), n); }
int ncclSend(P, N n, int, int peer, P comm, P) { return note("%d>%d:%zu ", of(comm), peer, n); }
int ncclRecv(P, N n, int, int peer, P comm, P) { return note("%d<%d:%zu ", of(comm), peer, n); }
}
"""


@pytest.fixture(scope="module")
def nccl(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("nccl")
    (folder / "nccl.cpp").write_text(SOURCE)
    command = ["c++", "-shared", "-fPIC", "-Wno-format-security", "-o", "libnccl.so.2", "nccl.cpp"]
    subprocess.run(command, cwd=folder, check=True)
    made = ctypes.CDLL(str(folder / "libnccl.so.2"))
    made.logged.restype = ctypes.c_char_p
    return made


@pytest.fixture
def device(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, nccl: ctypes.CDLL) -> Iterator[CudaDevice]:
    monkeypatch.setattr(Stream, "__int__", lambda stream: id(stream), raising=False)
    monkeypatch.setattr("busfare.measure.cuda.rates.nccl_library", lambda: nccl)
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "1")
    nccl.forget()
    nccl.fail(0)
    made = CudaDevice(2)
    yield made
    nccl.fail(0)
    made.close()


def logged(nccl: ctypes.CDLL) -> list[str]:
    lines = nccl.logged().decode().splitlines()
    nccl.forget()
    return [line.strip() for line in lines]


def test_every_rank_is_in_a_group_with_its_share(device: CudaDevice, nccl: ctypes.CDLL) -> None:
    expected = {
        "all_reduce": "(reduce0:256x7 reduce1:256x7 )",
        "all_gather": "(gather0:128 gather1:128 )",
        "reduce_scatter": "(scatter0:128 scatter1:128 )",
        "send_receive": "(0>1:256 0<1:256 1>0:256 1<0:256 )",
        "all_to_all": "(0>0:128 0<0:128 0>1:128 0<1:128 1>0:128 1<0:128 1>1:128 1<1:128 )",
    }
    for kind, line in expected.items():
        samples = device.run(Case("none", "device", f"nccl-{kind}", 1024), 2)
        assert len(samples.device_s) == 2
        noted = logged(nccl)
        if kind == "all_reduce":
            assert noted.pop(0) == "init 2 nvls 0"
        assert noted == [line] * 41  # one that connects, and two samples of twenty
    device.close()
    assert logged(nccl) == ["destroy 0", "destroy 1"]


def test_a_refusal_of_nccl_is_reported(device: CudaDevice, nccl: ctypes.CDLL) -> None:
    with pytest.raises(UnavailableError, match="each of 2 GPUs"):
        device.run(Case("none", "device", "nccl-all_gather", 4), 1)
    nccl.fail(3)
    with pytest.raises(UnavailableError, match="ncclGroupStart failed: stood in the way"):
        device.run(Case("none", "device", "nccl-all_gather", 64), 1)
    with pytest.raises(UnavailableError, match="ncclCommInitAll failed"):
        Communicators(device._nccl.boards)


def test_a_single_gpu_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(NoGpuError, match="one GPU") as raised:
        collective_cases(1, fast=True)
    assert raised.value.exit_status == 3


def test_a_probe_writes_what_price_reads(tmp_path: Path) -> None:
    played = VirtualDevice(load_node("dgx-a100"))
    probed = probe.evaluated(probe.measured(played, Probe(quick=True, only="collectives"), seed=3))
    node = decode(encode(probed.node), "own.toml")
    measured, published = Fabric.of(node, 8), Fabric.of(load_node("dgx-a100"), 8)
    sizes = np.array([2.0**14, 2.0**26])
    for kind in ("all_reduce", "all_to_all"):
        prices = [price_collectives(fabric, [kind] * 2, sizes) for fabric in (measured, published)]
        assert (prices[0].rung, prices[1].rung) == ("probed", "datasheet")
        assert prices[0].seconds == pytest.approx(prices[1].seconds, rel=0.05)
