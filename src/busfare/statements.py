"""What results state in words, as ids and figures: `show/words.toml` has the sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

__all__ = ["Figure", "Statement", "Words", "sentences", "statement"]


class Statement(Struct, frozen=True):
    """The id of a sentence, and its figures by their names: bytes, seconds, bytes per second and counts; names that come
    from the trace or the node; and statements within it.
    """

    id: str
    figures: dict[str, Figure] = {}

    def __hash__(self) -> int:
        return hash(self.id)


Figure = int | float | str | Statement | tuple[Statement | str, ...] | None

if TYPE_CHECKING:
    #: A field of a result that a user reads: a Statement until `show.words.worded` replaces it by its sentence.
    Words = str
else:
    Words = Statement | str


def statement(id: str, **figures: Figure) -> Words:
    """The statement `id`; its sentence names these `figures`."""
    return Statement(id, figures)  # type: ignore[return-value]


def sentences(*statements: Words | None) -> Words:
    """Those sentences behind each other; what is None or empty is left out."""
    return statement("common.sentences", parts=tuple(filter(None, statements)))
