"""The verdicts on the shared traces beside what is true of them: `python validation/verdicts.py`.

`verdicts.toml` holds the largest part of each trace's critical path, which was found with queries of the files alone, before
any verdict was run. The traces are the shared ones (`BUSFARE_SHARED`), read in place.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from claims import goal, judge, table
from published import SHARED

import busfare

TRACES = SHARED / "data" / "traces"
LARGEST = "The largest single item is "


def main() -> None:
    rows, named, agree = [], 0, 0
    truths = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["trace"]
    for truth in truths:
        report = busfare.report(TRACES / truth["file"])
        largest = next((text for text in report.verdict.text if text.startswith(LARGEST)), "")
        owners = [(p.share * p.owner.share, p.owner.name) for p in report.critical_path if p.owner]
        agrees = any(words in max(owners, default=(0.0, ""))[1] for words in truth["says"])
        named, agree = named + bool(largest), agree + agrees
        shown = largest.removeprefix(LARGEST).partition(". ")[0]
        name = truth["file"].rpartition("/")[2][:40]
        rows.append(
            (name, f"{truth['part'][:60]} ({truth['percent']:.0f} %)", shown[:90], "yes" if agrees else "no")
        )
    table("trace | true | verdict | agree", rows)
    goal("traces whose largest part has a name", named, least=len(truths), form="d")
    goal("verdicts that agree with the truth", agree, least=25, form="d")


if __name__ == "__main__":
    judge(main)
