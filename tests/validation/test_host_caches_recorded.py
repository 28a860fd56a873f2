"""What large copies cost the host between its calls, on recordings of an H200 in results/pairs/h200-after."""

from __future__ import annotations

import re

from tests.validation.test_claims import run


def test_less_is_foretold_than_was_recorded_and_of_its_size() -> None:
    done = run("host_caches.py")
    assert done.returncode == 0, done.stderr
    pairs = [
        (float(recorded), float(predicted))
        for recorded, predicted in re.findall(r"\| +(\d+), +(\d+)$", done.stdout, re.M)
    ]
    assert len(pairs) == 4
    # The least that it can be: half of it at the least, and never more.
    assert all(recorded / 2 <= predicted <= recorded for recorded, predicted in pairs)
