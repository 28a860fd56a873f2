"""The commands that advice prints: each shows the gain that stands with it, whatever part of a trace was asked about."""

import re
import shlex

import pytest

from tests.conftest import Ask, Run
from tests.traces import EXAMPLES

IMAGES = str(EXAMPLES / "train-images-h100.json.gz")


@pytest.mark.parametrize(
    "words", [(), ("--window", "0s..0.09s"), ("--iteration", "3"), ("--from", "t4", "--unrecorded", "0.16s")]
)
def test_the_command_of_an_advice_gives_its_gain(words: tuple[str, ...], ask: Ask, run_here: Run) -> None:
    findings = [finding for finding in ask("report", IMAGES, *words)["findings"] if finding["by_replay"]]
    assert findings
    for finding in findings:
        gain = ask("what-if", IMAGES, *finding["what_if"])["gain_seconds"]
        assert gain == pytest.approx(finding["predicted_gain_seconds"], rel=1e-6)
    shown = re.sub(r"(\s+\\)?\s+", " ", run_here("report", IMAGES, *words).stdout)
    assert f"busfare what-if {IMAGES} {shlex.join(findings[0]['what_if'])}" in shown
