"""A timeline for the page: every operation and call of a run as compact columns, which its script unpacks and draws."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from busfare.advise.amounts import count, several, time
from busfare.printable import printable
from busfare.show.svg import COLOUR, escaped
from busfare.trace.tables import Schema

#: A page of more is large: it shows the longest eighth of so many, and of the others merged bars, about as many in a row.
MOST_ITEMS, MERGED_BARS = 80_000, 2_000
LONGEST_NAME, MOST_JOINTS = 300, 20_000
NS = 1e-9
#: What is drawn: `kind` is a place in COLOUR. `id` is what `cause` (of an operation the call that launched it, of a call
#: what it waited for, of a step of the critical path whose it is) and `after` (what had to end before it) mean.
#: `marks`: a bit for each finding that touches it.
ITEMS: Schema = {
    **dict.fromkeys(("start_ns", "end_ns", "bytes", "id", "cause", "after", "marks"), pl.Int64()),
    "kind": pl.UInt8(),
    "name": pl.Categorical(),
    "stream": pl.Categorical(),
}
HINT = (
    "Select an operation or a call to see what it waited for and what waited for it. Zoom with the wheel or two fingers; "
    "drag to move. Keys as in Perfetto: W, S zoom; A, D move; F fits the selection; 0 shows all; / finds; N, Shift+N step."
)
BUTTONS = {"in": "Zoom in", "out": "Zoom out", "whole": "Whole run", "path": "Critical path"}
#: Of names: what is typed lights up, and Enter steps through it.
SEARCH = '<input type="search" placeholder="Find by name" aria-label="Find by name" spellcheck="false"><output></output>'


@dataclass(frozen=True)
class Row:
    """A row of a timeline: `items` as ITEMS has them; `group`: path, calls or work."""

    label: str
    group: str
    items: pl.DataFrame
    predicted: bool = False


@dataclass(frozen=True)
class TimeLine:
    """Rows over one axis of time. `joints`: moments (ns) at which rows meet, and the places of the first and the last of
    them. `marks`: what each bit of the items' marks means; `note` says what is not drawn.
    """

    rows: Sequence[Row]
    joints: Sequence[tuple[int, int, int]] = ()
    marks: Sequence[str] = ()
    note: str = ""

    @property
    def items(self) -> int:
        return sum(row.items.height for row in self.rows)

    def markup(self) -> str:
        """The canvas, what it says to those who do not see it, its legend, and the packed columns."""
        rows, merged = _merged(self.rows) if self.items > MOST_ITEMS else (self.rows, "")
        packed, seconds = _packed(rows, self.joints, self.marks)
        names = list(COLOUR)
        used = sorted({kind for row in rows for kind in row.items["kind"].unique().to_list()})
        legend = "".join(
            f'<li><i style="background:{COLOUR[names[kind]]}"></i>{names[kind]}</li>' for kind in used
        )
        if any(row.predicted for row in rows):
            legend += '<li><i class="hatched"></i>hatched: predicted</li>'
        label = f"Timeline of {count(self.items)} operations and calls in {several(len(rows), 'row')}, {time(seconds)}"
        labels = ", ".join(dict.fromkeys(row.label for row in rows))
        path = any(row.group == "path" for row in rows)
        buttons = "".join(
            f'<button type="button" data-do="{do}"{" aria-pressed=false" * (do == "path")}>{words}</button>'
            for do, words in BUTTONS.items()
            if path or do != "path"
        )
        notes = "".join(f'<p class="dim">{escaped(note)}</p>' for note in (self.note, merged) if note)
        return (
            f'<div class="time-line"><div class="tools" hidden>{buttons}{SEARCH}</div>'
            f'<canvas tabindex="0" role="application" aria-roledescription="timeline" '
            f'aria-label="{escaped(f"{label}: {labels}")}"></canvas><div class="hover" hidden></div>'
            f'<ul class="legend">{legend}</ul><p class="selected" aria-live="polite">{HINT}</p>'
            "<noscript><p>This page's script draws the timeline, but scripts are switched off; "
            "<code>busfare export --to perfetto</code> writes it for another tool.</p></noscript>"
            f'{notes}<script type="text/plain">{packed}</script></div>'
        )


def _packed(
    rows: Sequence[Row], joints: Sequence[tuple[int, int, int]], marks: Sequence[str]
) -> tuple[str, float]:
    """The rows deflated and in base64, and how many seconds they span. Four bytes tell the length of a header in JSON;
    behind it stand the columns, each as planes of bytes.
    """
    items = pl.concat(
        [row.items.sort("start_ns", "end_ns", descending=[False, True]) for row in rows]
    ).rechunk()
    starts, ends = (items[name].to_numpy() for name in ("start_ns", "end_ns"))
    first = int(starts.min()) if len(starts) else 0
    span = int(ends.max()) - first if len(ends) else 0
    names, name = _numbered(items["name"])
    streams, stream = _numbered(items["stream"])
    ids = items["id"].fill_null(-1).to_numpy()
    place = np.zeros(int(ids.max(initial=-1)) + 2, np.int64)
    place[ids] = np.arange(1, len(ids) + 1)
    place[-1] = 0  # of -1: nothing
    here = np.arange(1, len(ids) + 1)

    def referred(column: str) -> NDArray[np.int64]:
        """0, or by how much what is meant stands before this one, and 1 more: alike in a run of launches."""
        to = place[items[column].fill_null(-1).to_numpy()]
        return np.where(to > 0, to - here, 0)

    columns = {
        "start": starts - first,
        "length": ends - starts,
        "kind": items["kind"],
        "name": name,
        "stream": stream,
        "bytes": items["bytes"].fill_null(-1),
        "cause": referred("cause"),
        "after": referred("after"),
        "marks": items["marks"].fill_null(0),
    }
    planes = {key: _planes(np.asarray(values).astype(np.int64)) for key, values in columns.items()}
    header = {
        "count": len(ids),
        "span": span,
        "rows": [[row.label, row.group, row.items.height, row.predicted] for row in rows],
        "kinds": list(COLOUR.items()),
        "names": names,
        "streams": streams,
        "marks": list(marks),
        "joints": [(at - first, *places) for at, *places in joints[:: len(joints) // MOST_JOINTS + 1]],
        "columns": [[key, number] for key, (number, _) in planes.items()],
    }
    encoded = msgspec.json.encode(header)
    whole = b"".join([len(encoded).to_bytes(4, "little"), encoded, *(plane for _, plane in planes.values())])
    return b64encode(zlib_ng.compress(whole, 6)).decode(), span * NS


def _numbered(names: pl.Series) -> tuple[list[str], NDArray[Any]]:
    """Each text once, shortened and printable, and which one each row has; that of a null is empty."""
    codes = names.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    _, firsts, of = np.unique(codes, return_index=True, return_inverse=True)
    texts = names.gather(firsts).cast(pl.String).fill_null("").to_list()
    return [printable(text[:LONGEST_NAME]) for text in texts], of


def _planes(values: NDArray[np.int64]) -> tuple[int, bytes]:
    """Whole numbers as differences, the sign in the lowest bit: all first bytes, all second ones, as many as are used."""
    steps = np.diff(values, prepend=0)
    coded = ((steps << 1) ^ (steps >> 63)).view(np.uint64)
    used = (int(coded.max(initial=0)).bit_length() + 7) // 8
    return used, coded.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :used].T.tobytes()


def _merged(rows: Sequence[Row]) -> tuple[list[Row], str]:
    """Rows in which all but the longest items are merged into bars, and the sentence that says so."""
    every = pl.concat([row.items.select("start_ns", "end_ns") for row in rows])
    first, last = int(every["start_ns"].to_numpy().min()), int(every["end_ns"].to_numpy().max())
    start, end = pl.col("start_ns"), pl.col("end_ns")
    length = end - start
    limit = every.select(length.top_k(MOST_ITEMS // 8).min()).item()
    width = max(1, (last - first) // min(MERGED_BARS, MOST_ITEMS // 8 // len(rows) + 1))
    busy = (100 * length.sum() / (end.max() - start.min()).clip(1)).clip(0, 100).round(0).cast(pl.Int64)
    made, alone = [], 0
    for row in rows:
        items = row.items.sort("start_ns").with_columns(alone=length > limit)
        items = items.with_columns(behind=pl.col("alone").cum_sum())
        # No bar reaches over an item that stands alone.
        bars = items.filter(~pl.col("alone")).group_by("behind", bar=(start - first) // width).agg(
            start.min(),
            end.max(),
            pl.col("kind").get(length.arg_max()),
            pl.col("bytes").sum(),
            name=pl.format("{} in one bar, busy {} %", pl.len(), busy),
        )  # fmt: skip
        kept = items.filter("alone")
        alone += kept.height
        made.append(Row(row.label, row.group, pl.concat(map(items_of, (kept, bars))), row.predicted))
    return made, (
        f"Of {count(every.height)} operations and calls, the longest {count(alone)} are drawn alone; shorter neighbours are "
        "merged into bars. A page of a part of the run (--window, --range, --iteration) shows more of them."
    )


def items_of(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with the columns of ITEMS; nulls for those that it lacks."""
    given = frame.schema
    return frame.select(
        (pl.col(name) if name in given else pl.lit(None)).cast(kind).alias(name)
        for name, kind in ITEMS.items()
    )
