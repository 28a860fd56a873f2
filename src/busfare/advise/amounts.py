"""Amounts as people read them, and predicted times with their ranges."""

import re

from msgspec import UNSET, Struct, UnsetType

from busfare.cost.ranges import is_wide
from busfare.statements import Words


def size(bytes_: float) -> str:
    """Bytes with a decimal unit: '1.2 GB'."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(bytes_) >= limit:
            return f"{bytes_ / limit:.3g} {unit}".replace("-", "−", 1)
    return f"{bytes_:.0f} B"


def time(seconds: float) -> str:
    """Seconds with a unit: '3.2 ms'."""
    for limit, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(seconds) >= limit * 0.9995:
            value = seconds / limit
            shown = f"{value:.3g} {unit}" if abs(value) < 999.5 else f"{value:,.0f} {unit}"
            return shown.replace("-", "−", 1)
    return f"{seconds / 1e-9:.0f} ns".replace("-", "−") if seconds else "0 s"


def between(
    seconds: float | None, low: float | None, high: float | None, *, is_measured: bool = False
) -> str:
    """A time with its range, in the unit of the time: '12.3 ms (11.1–13.9)'. Without a range, or with both ends equal to the
    time, only the time. Without a time, or if it is predicted and the ends are far apart, only the ends: '3.18–38.5 µs'.
    """
    if low is None or high is None or seconds == 0 or low == high == seconds:
        return "–" if seconds is None else time(seconds)
    shown = time(high if seconds is None else seconds)
    unit = shown.rpartition(" ")[2]
    only_ends = seconds is None or (is_wide(low, high) and not is_measured)
    limit = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    if low < 0 or high / limit > 9_999_500:  # no dash beside a sign, and units that suit the ends
        ends = f"{time(low)} to {time(high)}"
        return ends if only_ends else f"{shown} ({ends})"
    ends = "–".join(
        f"{end:.3g}" if abs(end) < 999.5 else f"{end:,.0f}" for end in (low / limit, high / limit)
    )
    return f"{ends} {unit}" if only_ends else f"{shown} ({ends})"


def rate(bytes_per_second: float | None) -> str:
    """Bytes per second with a unit; '–' if unknown."""
    return "–" if bytes_per_second is None else size(bytes_per_second) + "/s"


def flops(per_second: float) -> str:
    """Floating-point operations per second: '47.9 TFLOP/s'."""
    return size(per_second).removesuffix("B") + "FLOP/s"


def percent(share: float, digits: int | None = None) -> str:
    """A share in percent: '27 %', '4.4 %' below ten, or with `digits` decimals."""
    shown = 100 * share
    digits = int(abs(shown) < 9.95 and shown != 0) if digits is None else digits
    return f"{round(shown, digits) + 0.0:.{digits}f} %".replace("-", "−")


def signed_percent(share: float, digits: int = 1) -> str:
    """A change in percent: '+1.2 %', '−1.2 %', and '0.0 %' without a sign."""
    return "+" * (round(100 * share, digits) > 0) + percent(share, digits)


def ratio(factor: float, digits: int = 2) -> str:
    """A factor: '1.25 ×'."""
    return f"{factor:.{digits}f} ×"


def count(number: int) -> str:
    """A number with its thousands apart."""
    return f"{number:,}"


def several(number: int, what: str) -> str:
    """'1 copy', '2,000 copies'."""
    if number != 1:
        what = re.sub("y$", "ie", what) if re.search("[^aeiou]y$", what) else re.sub("(ch|s)$", r"\1e", what)
        what += "s"
    return f"{number:,} {what}"


class Ranged(Struct, kw_only=True):
    """The 80 % range of the prediction, and the rung that it is based on."""

    low_seconds: float | None = None
    high_seconds: float | None = None
    rung: str | None = None
    reason: Words | UnsetType = UNSET  # only without a range

    def shown(self, seconds: float | None) -> str:
        """'12.3 ms (11.1–13.9)'."""
        return between(seconds, self.low_seconds, self.high_seconds)


class Predicted(Ranged, kw_only=True):
    """A predicted time with its range."""

    predicted_seconds: float

    def __str__(self) -> str:
        return self.shown(self.predicted_seconds)


class Timed(Ranged, kw_only=True):
    """A time that may be predicted, with its range."""

    seconds: float

    def __str__(self) -> str:
        return self.shown(self.seconds)
