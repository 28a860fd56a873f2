"""Where a run goes: its critical path as one bar of parts, or two of them below each other, as wide as the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from busfare.advise.amounts import time
from busfare.show.svg import COLOUR, drawn_as, escaped

if TYPE_CHECKING:
    from busfare.answers.report import Part
    from busfare.timeline import PathPart

#: A smaller part is not to be seen.
LEAST_DRAWN = 0.001
PATH_NOTE = "The critical path: the chain of calls, operations and waits that decides how long the run takes."


@dataclass(frozen=True)
class Shares:
    """Critical paths by their names; the one called predicted is hatched."""

    paths: Mapping[str, Sequence[Part | PathPart]]

    def markup(self) -> str:
        most = max((sum(part.seconds for part in path) for path in self.paths.values()), default=0.0) or 1.0
        bars, legend = [], dict[str, list[str]]()
        for name, path in self.paths.items():
            shown = [part for part in path if part.share >= LEAST_DRAWN]
            parts = "".join(
                f'<i style="width:{part.seconds / most:.2%};background-color:{COLOUR[drawn_as(part.part)]}" '
                f'title="{escaped(f"{part.part}: {time(part.seconds)}, {part.share:.1%}")}"></i>'
                for part in shown
            )
            whole = time(sum(part.seconds for part in path))
            hatched = " hatched" if name == "predicted" else ""
            bars.append(
                f'<div class="name">{escaped(name)}, {whole}</div><div class="share{hatched}">{parts}</div>'
            )
            for part in shown:
                share = f"{part.share:.0%}" if part.share >= 0.005 else "&lt; 1%"
                legend.setdefault(part.part, []).append(share)
        # Of several paths, each part's share stands where it is pointed at.
        said = {part: shares[0] if len(self.paths) == 1 else "" for part, shares in legend.items()}
        entries = "".join(
            f'<li><i style="background:{COLOUR[drawn_as(part)]}"></i>{escaped(part)} {share}</li>'
            for part, share in said.items()
        )
        return f'<div class="shares">{"".join(bars)}<ul class="legend">{entries}</ul></div>'
