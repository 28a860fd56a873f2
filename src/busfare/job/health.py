"""Which links of a job run slower than their peers, or than their data sheet."""

from __future__ import annotations

import statistics
from collections import defaultdict

import msgspec

from busfare.job.bounded import Sampled
from busfare.job.place import Place
from busfare.job.rates import LinkRate
from busfare.job.spread import Rank

__all__ = ["Health", "Peers", "SlowLink"]

#: Below this part of the peers' median, or of the data sheet, a link is named: the bound of the finding `slow-link`.
SOUND = 0.7
FEWEST_PEERS = 3
#: Links kept at once; a job of more is judged by a sample of so many.
MOST_LINKS = 8192
LISTED = 100


class _Best(msgspec.Struct, frozen=True):
    rate: LinkRate
    rank: Rank


class Peers(msgspec.Struct, frozen=True):
    """The links of one GPU model in one direction; rates in bytes per second."""

    gpu: str | None
    direction: str
    links: int
    least: float
    median: float
    most: float
    data_sheet: float | None


class SlowLink(msgspec.Struct, frozen=True):
    """A link that is slower than it should be; shares are of the peers' median and of the data sheet."""

    rank: Rank
    gpu: str | None
    device: int
    peer: int | None
    direction: str
    bytes_per_s: float
    share_of_peers: float | None
    share_of_data_sheet: float | None
    peers: int


class Health:
    """The best rate seen on every link of the job, whichever of the traces saw it."""

    def __init__(self) -> None:
        self._links: Sampled[_Best] = Sampled(MOST_LINKS, _better)

    def add(self, rates: list[LinkRate], rank: Rank, place: Place) -> None:
        for rate in rates:
            self._links.add(_key(rate, rank, place), _Best(rate, rank))

    def merge(self, other: Health) -> None:
        self._links.merge(other._links)

    @property
    def links(self) -> int:
        """How many links there are, an estimate where there are more than are kept."""
        return self._links.count()

    @property
    def complete(self) -> bool:
        return self._links.complete

    def groups(self) -> list[Peers]:
        """Rates by GPU model and direction."""
        return [
            Peers(
                gpu or None,
                direction,
                len(group),
                min(rates),
                statistics.median(rates),
                max(rates),
                max((b.rate.data_sheet_bytes_per_s or 0.0 for b in group), default=0.0) or None,
            )
            for (gpu, direction), group in self._groups().items()
            for rates in [[b.rate.bytes_per_s for b in group]]
        ]

    def slow(self) -> list[SlowLink]:
        """Links below SOUND of their peers or of the data sheet, slowest first by share; at most LISTED."""
        found = []
        for (gpu, _), group in self._groups().items():
            median = statistics.median(b.rate.bytes_per_s for b in group)
            comparable = bool(gpu) and len(group) > FEWEST_PEERS
            for best in group:
                rate, sheet = best.rate, best.rate.data_sheet_bytes_per_s
                of_peers = rate.bytes_per_s / median if comparable else None
                of_sheet = rate.bytes_per_s / sheet if sheet else None
                if min(share for share in (of_peers, of_sheet, 1.0) if share is not None) < SOUND:
                    found.append(
                        SlowLink(
                            best.rank,
                            rate.gpu,
                            rate.device,
                            rate.peer,
                            rate.direction,
                            rate.bytes_per_s,
                            of_peers,
                            of_sheet,
                            len(group) - 1,
                        )
                    )
        return sorted(found, key=_slowest_first)[:LISTED]

    def _groups(self) -> dict[tuple[str, str], list[_Best]]:
        groups: dict[tuple[str, str], list[_Best]] = defaultdict(list)
        for best in self._links.values():
            groups[best.rate.gpu or "", best.rate.direction].append(best)
        return {key: groups[key] for key in sorted(groups)}


def _slowest_first(link: SlowLink) -> tuple[float, str, int, str]:
    shares = [share for share in (link.share_of_peers, link.share_of_data_sheet) if share is not None]
    return min(shares), link.rank.path, link.device, link.direction


def _better(a: _Best, b: _Best) -> _Best:
    return min(a, b, key=lambda best: (-best.rate.bytes_per_s, best.rank.path))


def _key(rate: LinkRate, rank: Rank, place: Place) -> str:
    """What names a link. Ranks may each call another GPU 0: only an identity, or the rank, tells them apart."""
    end = "" if rate.peer is None else f">{rate.peer}"
    if rate.identity:
        return f"{place.host or ''}\0{rate.identity}{end}\0{rate.direction}"
    who = f"rank {place.rank}" if place.rank is not None else rank.path
    return f"{place.host or ''}\0{who}\0{rate.device}{end}\0{rate.direction}"
