"""Two ranks that know what they say to each other, by MPI or by NCCL, and a look at their recordings.

    mpirun -n 2 busfare record -o mpi.bf -- python ranks.py mpi                      # one GPU is enough; needs mpi4py
    busfare record -o nccl.bf -- torchrun --nproc-per-node 2 ranks.py nccl           # two GPUs
    python ranks.py check mpi.bf nccl.bf

`check` prints a line a recording; status 1 where one differs.
"""  # fmt: skip

import json
import os
import subprocess
import sys
import time

STEPS, LATE_SECONDS, COUNT = 20, 0.02, 1 << 20


def mpi() -> None:
    import torch
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    peer = 1 - world.rank
    device = torch.zeros(COUNT, device="cuda")
    sent, got = (torch.zeros(COUNT, pin_memory=True).numpy() for _ in range(2))
    world.Barrier()
    for _ in range(STEPS):
        if world.rank == 1:
            time.sleep(LATE_SECONDS)
        device += 1
        sent[:] = device.cpu().numpy()
        requests = [world.Irecv(got, peer, 7), world.Isend(sent, peer, 7)]
        MPI.Request.Waitall(requests)
        world.Allreduce(MPI.IN_PLACE, got[:8])


def nccl() -> None:
    import torch
    import torch.distributed as dist

    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    data = torch.zeros(COUNT, device="cuda")
    dist.all_reduce(data)
    torch.cuda.synchronize()
    for _ in range(STEPS):
        if rank == 1:
            time.sleep(LATE_SECONDS)
        dist.all_reduce(data)
        torch.cuda.synchronize()
    dist.destroy_process_group()


def check(folder: str) -> bool:
    command = [sys.executable, "-m", "busfare", "report", "--json", "--jobs", "1", folder]
    result = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    rows = {(row["communicator"], row["kind"]): (row["count"], row["bytes"]) for row in result["collectives"]}
    waited = {rank["rank"]: rank["waiting_seconds"] for rank in result["ranks"]}
    lost = [omission for omission in result["omissions"] if omission["id"] == "unmatched-communication"]
    if any(name == "MPI_COMM_WORLD" for name, _ in rows):
        expected = {"all_reduce": (STEPS, STEPS * 32), "barrier": (1, 0)}
        expected["send_receive"] = (2 * STEPS, 2 * STEPS * 4 * COUNT)
    else:
        expected = {"all_reduce": (STEPS + 1, (STEPS + 1) * 4 * COUNT)}
    same = {kind: figures for (_, kind), figures in rows.items()} == expected
    # Ranks start NCCL at different times, and the first of its operations waits for that, too.
    least = 0.9 * STEPS * LATE_SECONDS
    sound = same and not lost and least < waited.get(0, 0.0) < (1.5 * least if len(expected) > 1 else 1e9)
    rounded = {rank: round(seconds, 4) for rank, seconds in waited.items()}
    print("as expected" if sound else "DIFFERS", folder, rows, rounded, lost)
    return sound


if __name__ == "__main__":
    if sys.argv[1] == "check":
        sys.exit({check(folder) for folder in sys.argv[2:]} != {True})
    {"mpi": mpi, "nccl": nccl}[sys.argv[1]]()
