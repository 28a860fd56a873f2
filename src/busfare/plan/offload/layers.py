"""A network, or any program, as layers that are worked off in order: what each needs from the host, and what it computes."""

from __future__ import annotations

from dataclasses import dataclass

from busfare.errors import InputError

__all__ = ["MOST_LAYERS", "Layers"]

#: More than any published network has, and few enough to answer at once.
MOST_LAYERS = 4096


@dataclass(frozen=True, slots=True)
class Layers:
    """By layer: `bytes` that it needs in GPU memory (its weights), `seconds` of its kernels with these there, and
    `back_bytes` that are copied out once it is computed (gradients, updated weights); empty: none. `held`: bytes that it
    takes where it is resident; empty: `bytes` (of a mixture's experts, a pass brings those that it needs).
    """

    bytes: tuple[float, ...]
    seconds: tuple[float, ...]
    back_bytes: tuple[float, ...] = ()
    held: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Raises InputError where they do not fit together."""
        if not 1 <= len(self.bytes) <= MOST_LAYERS:
            raise InputError(f"{len(self.bytes)} layers; give 1 to {MOST_LAYERS}")
        if len(self.seconds) != len(self.bytes) or len(self.back_bytes) not in (0, len(self.bytes)):
            raise InputError(
                f"{len(self.bytes)} layers with {len(self.seconds)} times and {len(self.back_bytes)} sizes of what is "
                "copied back; give each once, or one a layer"
            )
        if min(*self.bytes, *self.seconds, *self.back_bytes, 0.0) < 0.0:
            raise InputError("a layer with fewer than no bytes or seconds; give numbers from zero")

    @classmethod
    def alike(cls, count: int, bytes_: float, seconds: float, back_bytes: float = 0.0) -> Layers:
        """`count` layers that are all alike."""
        if not 1 <= count <= MOST_LAYERS:
            raise InputError(f"{count} layers; give 1 to {MOST_LAYERS}")
        back = (back_bytes,) * count if back_bytes else ()
        return cls((bytes_,) * count, (seconds,) * count, back)

    def __len__(self) -> int:
        return len(self.bytes)

    @property
    def resident_bytes(self) -> tuple[float, ...]:
        """Bytes that each layer takes where it is resident."""
        return self.held or self.bytes

    @property
    def back(self) -> tuple[float, ...]:
        """Bytes copied out behind each layer."""
        return self.back_bytes or (0.0,) * len(self)
