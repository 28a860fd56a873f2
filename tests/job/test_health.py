"""Links that are slower than their peers or than the data sheet are named, and no others."""

from __future__ import annotations

from busfare.job.health import Health
from busfare.job.place import Place
from busfare.job.rates import LinkRate
from busfare.job.spread import Rank

GPU = "NVIDIA H100 80GB HBM3"


def seen(
    health: Health,
    rate: float,
    rank: int | None,
    host: str | None = "b12",
    device: int = 0,
    identity: str | None = None,
    gpu: str | None = GPU,
    sheet: float | None = None,
) -> None:
    place = Place(rank, rank and "trace", host, host and "trace")
    link = LinkRate(device, None, "h2d", gpu, identity, rate, 1, sheet)
    health.add([link], Rank(f"{rank}-{rate}.json", rank, host), place)


def test_a_link_at_half_the_rate_of_its_peers_is_named() -> None:
    health = Health()
    for rank in range(8):
        seen(health, 25e9 if rank == 3 else 50e9 + rank, rank)
    (slow,) = health.slow()
    assert (slow.rank.rank, slow.rank.host, slow.peers) == (3, "b12", 7)
    assert 0.49 < (slow.share_of_peers or 0) < 0.51


def test_three_links_are_too_few_to_compare() -> None:
    health = Health()
    for rank, rate in enumerate([25e9, 50e9, 50e9]):
        seen(health, rate, rank)
    assert health.slow() == []


def test_a_lone_link_is_held_against_the_data_sheet() -> None:
    health = Health()
    seen(health, 25e9, 0, sheet=57e9)
    seen(health, 50e9, 1, sheet=57e9)
    (slow,) = health.slow()
    assert (slow.rank.rank, slow.share_of_peers) == (0, None)
    assert 0.43 < (slow.share_of_data_sheet or 0) < 0.45


def test_the_best_of_all_traces_of_a_gpu_counts() -> None:
    """The same GPU in two traces, once while another copy was in its way."""
    health = Health()
    for rank in range(8):
        seen(health, 20e9 + rank, rank, identity=f"GPU-{rank}")
        seen(health, 50e9 + rank, rank + 100, identity=f"GPU-{rank}")
    assert health.links == 8
    assert health.slow() == []


def test_ranks_that_all_call_their_gpu_0_are_not_taken_for_one() -> None:
    health = Health()
    for rank in range(4):
        seen(health, 25e9 if rank == 1 else 50e9, rank)
        seen(health, 50e9, None, host=None)
    assert health.links == 5  # the traces that say nothing have the same name here
    assert [link.rank.rank for link in health.slow()] == [1]


def test_models_are_not_compared_with_each_other() -> None:
    health = Health()
    for rank in range(4):
        seen(health, 12e9, rank, gpu="Tesla T4")
        seen(health, 50e9, rank + 10)
        seen(health, 5e9 * rank + 1, rank + 20, gpu=None)
    assert health.slow() == []
    assert [(group.gpu, group.links) for group in health.groups()] == [(None, 4), (GPU, 4), ("Tesla T4", 4)]
