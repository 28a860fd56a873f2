"""`busfare bench ft|mg` hand their options to the runner of `hybrid/`, and end as it ends."""

import json
from pathlib import Path

import pytest

from busfare.cli.programs import VARIABLE, rates
from busfare.nodes import load_node
from tests.conftest import run

RUNNER = "import json, sys\nprint(json.dumps(sys.argv[1:]))\nsys.exit(5)\n"


def test_options_reach_the_runner_and_its_status_comes_back(tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text(RUNNER)
    nas_options = ("--class", "S", "--ranks", "1,2", "--node", "h200-sxm", "--json", "--html", "page.html")
    for options, variables in ((("--runner", str(tmp_path)), {}), ((), {VARIABLE: str(tmp_path)})):
        done = run("bench", "ft", *nas_options, *options, **variables)
        assert (done.returncode, done.stderr) == (5, "")
        benchmark, *arguments = json.loads(done.stdout)
        assert benchmark == "ft"
        assert {"--class=S", "--ranks=1,2", "--json", "--html=page.html"} < set(arguments)
        link, memory = map(float, rates(load_node("h200-sxm")).split(","))
        assert f"--rates={link!r},{memory!r}" in arguments
        assert 40e9 < link < 64e9 and memory == 4.8e12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mg", "--runner", "/nowhere"), "/nowhere: no runner of NAS FT and MG"),
        (("ft", "--node", "no-such-node"), "no-such-node"),
        (("ft", "--from", __file__, "--html", __file__), "overlaps the input"),
    ],
)
def test_an_error_has_a_single_line(arguments: tuple[str, ...], message: str) -> None:
    done = run("bench", *arguments)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr


def test_the_runner_of_this_source_tree_is_used() -> None:
    done = run("bench", "mg", "--class", "Q")
    assert (done.returncode, done.stdout) == (2, "")
    assert "busfare: --class 'Q': give one of S, W, A" in done.stderr
