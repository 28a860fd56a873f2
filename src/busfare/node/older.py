"""Node files of before 2026-11-23, whose `[[measured]]` tables held what are now curves, contention and costs."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

from busfare.node.component import Cost

__all__ = ["renew"]

#: What a byte takes beside other traffic, by memory kind: its key then, its key now.
_SLOWED = {
    "pinned": {"both_directions_gap_per_byte_s": "both", "mapped_gap_per_byte_s": "copy_beside_mapped"},
    "mapped": {
        "both_directions_gap_per_byte_s": "mapped_beside_copy",
        "mapped_gap_per_byte_s": "mapped_both",
    },
}
_KEPT = ("direction", "memory", "gpu", "peer", "timing", "source")


def renew(raw: dict[str, Any]) -> None:
    """Replaces the older tables of `raw` where they are well formed; others stay, and are refused as unknown."""
    try:
        found = [_renewed(table, raw) for table in raw["measured"]]
    except (KeyError, TypeError, AttributeError, ZeroDivisionError):
        return
    raw["curve"] = [curve for curves in found for curve in curves]
    calls = get_args(get_type_hints(Cost)["call"])
    raw["cost"] = [cost for cost in raw.get("cost", ()) if cost.get("call") in calls]
    del raw["measured"]


def _renewed(table: dict[str, Any], raw: dict[str, Any]) -> list[dict[str, Any]]:
    """The curves of one older table; what it says of contention goes to `raw`."""
    kept = {key: table[key] for key in _KEPT if key in table}
    curves = []
    if pieces := table.get("pieces"):
        detail = [{"streams": row["copies"]} | _pieces(row["pieces"]) for row in table.get("rows", ())]
        curves.append(kept | _pieces(pieces) | {"detail": detail})
        if "gap_s" in table:
            curves[0]["issue_interval_s"] = {"1": table["gap_s"]}
        for key, name in _SLOWED.get(table["memory"], {}).items():
            if key in table:
                share = min(pieces[-1]["gap_per_byte_s"] / table[key], 1.0)
                _contention(raw, table).setdefault(name, {"h2d": 1.0, "d2h": 1.0})[table["direction"]] = share
    if table.get("faults"):
        curves.append(kept | _pieces(table["faults"]) | {"faults": True})
    return curves


def _contention(raw: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {key: table[key] for key in ("gpu", "source") if key in table}
    known: list[dict[str, Any]] = raw.setdefault("contention", [])
    found = next((one for one in known if one.get("gpu") == own.get("gpu")), own)
    if found is own:
        known.append(own)
    return found


def _pieces(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "latency_overhead_s": [piece.get("latency_overhead_s", 0.0) for piece in pieces],
        "gap_per_byte_s": [piece["gap_per_byte_s"] for piece in pieces],
        "up_to_bytes": [piece["up_to_bytes"] for piece in pieces[:-1]],
    }
