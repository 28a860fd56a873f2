"""The words of outputs are plain English, or defined in the glossary."""

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import pytest

from busfare.advise.finding import LANGUAGES
from busfare.cli import output
from busfare.cost.ranges import RUNGS
from busfare.quantities import BYTE_UNITS, TIME_UNITS
from busfare.show.document import Document, Table
from busfare.show.words import templates
from busfare.timeline.engine import PARTS
from tests.conftest import Run
from tests.docs.examples import ROOT
from tests.job.kineto_job import write_ranks

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text("utf-8")
TERMS = re.findall(r"\*\*(.+?)\*\*", GLOSSARY)
#: Names of directions, strategies, units and so on: before the colons of the glossary's last list.
VALUES = re.findall(r"`(.+?)`", " ".join(re.findall(r"^- (.+?): ", GLOSSARY.partition("## Values")[2], re.M)))
DEFINED = {term.lower() for term in (*TERMS, *VALUES)}
#: Words of headings and titles that need no definition.
PLAIN = set(
    re.findall(
        r"\w+",
        """
    a actual again against and are at back be before behind best between both by bytes change come comes compared
    copied copies cost could count each everything fact file first for frequent from given go here hold how idle if in
    into is it its keeps kept kind large last late least limited long longest loop loops made many match meanwhile
    migrates most moves much name no number of on one only or other others out over own per program ready run said same seen
    sent should size slower small so sum than that the them these time to type unchanged up value waiting waking what when
    where which while whole why with within
    """,
    )
)
#: Words that anybody who programs GPUs knows.
FIELD = set(
    re.findall(
        r"\w+",
        """
    algorithm allocated api block buffer call compute copy cpu cudnn error freed gpu host kernel launch mean median memory
    model operation operator page parameter protocol rate run set share source stream token wait
    """,
    )
)
EXAMPLE = str(ROOT / "src" / "busfare" / "examples" / "train-images-h100.json.gz")
LOOP = str(ROOT / "src" / "busfare" / "examples" / "smooth-out-of-core-h100.json.gz")
COMMANDS = [
    f"report {EXAMPLE}",
    "report run-folder",
    f"what-if {EXAMPLE} --pin",
    "what-if run-folder --no-stragglers",
    f"project {EXAMPLE} --to h200-sxm",
    f"compare {EXAMPLE} {EXAMPLE}",
    "price --node h100-sxm --bytes 64MiB",
    "price --node dgx-a100 --collective all_reduce --ranks 8 --bytes 64MiB",
    "price --from a100-sxm4-80gb --node h100-sxm --kernel gemm --type fp16 --shape 4096,8192,8192 --seconds 2.1ms",
    "plan --h2d 336MB --d2h 504MB --kernel 12ms --node h100-sxm --flops 1G --device-bytes 1GB",
    f"plan --from-trace {LOOP} --kernel-name smooth --to gh200",
    "plan offload --model llama-3.1-70b --type q4_0 --tokens 512 --node rtx-4090",
    "plan kv --model llama-3.1-8b --tokens 8192 --node h100-probed",
    "nodes",
    "nodes 4090",
    "probe --virtual rtx-4090 --quick",
]


def is_defined(word: str) -> bool:
    """Whether the glossary has it, or the field, in the singular or the plural."""
    return any(
        form in DEFINED | FIELD
        for form in (word, word.removesuffix("s"), word.removesuffix("es"), word + "s")
    )


def undefined(heading: str) -> set[str]:
    """The words of a heading that are neither plain nor defined, where the heading as a whole is not."""
    if is_defined(heading.lower()):
        return set()
    for term in DEFINED:
        heading = heading.replace(term, "") if " " in term else heading
    words = re.findall(r"L\+o|[^\W\d_][\w/-]*", heading)
    return {word for word in words if word.lower() not in PLAIN and not is_defined(word.lower())}


def test_the_glossary_is_short() -> None:
    assert len(TERMS) <= 80
    assert len(set(TERMS)) == len(TERMS)


def headings(document: Document) -> Iterator[str]:
    for block in document.blocks:
        if isinstance(block, Table):
            yield from (column.name for column in block.columns)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    write_ranks(folder / "run-folder", [[900.0] * 4, [950.0] * 4], copy_us=200.0)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_the_headings_of_an_output_are_defined(
    command: str, run_here: Run, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Document] = []
    monkeypatch.chdir(job)
    monkeypatch.setattr(output, "show", shown.append)
    done = run_here(*command.split())
    assert done.returncode == 0, done.stderr
    names = [heading for document in shown for heading in headings(document)]
    assert names
    assert {heading: lacking for heading in names if (lacking := undefined(heading))} == {}


def advised() -> list[str]:
    return [id.removesuffix(".change") for id in templates() if id.endswith(".change")]


def test_kinds_rungs_and_units_are_defined() -> None:
    from busfare.planning.strategies import STRATEGIES
    from busfare.trace import tables

    kinds = [*tables.DIRECTIONS, *tables.MEMORY_KINDS, *RUNGS, *STRATEGIES]
    assert [kind for kind in kinds if not is_defined(kind)] == []
    units = {
        unit
        for unit in (*BYTE_UNITS, *TIME_UNITS)
        if unit not in ("PB", "EB", "TiB", "PiB", "EiB", "us", "μs", "min")
    }
    assert units <= set(VALUES)


def test_titles_of_findings_and_parts_of_the_critical_path_are_defined() -> None:
    titles = [templates()[f"{id}.title"] for id in advised()] + list(PARTS.values())
    assert len(titles) > 20
    assert {title: lacking for title in titles if (lacking := undefined(title))} == {}


@pytest.mark.parametrize("id", advised())
def test_every_finding_has_a_page_with_its_title_and_its_change(id: str) -> None:
    from busfare.advise.by_replay import CANDIDATES

    page = (ROOT / "docs" / "advice" / f"{id}.md").read_text("utf-8")
    title = templates()[f"{id}.title"]
    assert f"*{title}.* Finding `{id}`" in page
    parts = ["Symptom", "Cause", "Fix", "Check the gain", "When it does not help"]
    assert re.findall(r"^## (.+)$", page, re.M) == parts
    options = {w for change in CANDIDATES.get(id, ()) for w in change.option_words() if w.startswith("--")}
    assert {option for option in options if option not in page} == set()
    assert f"]({id}.md)" in (ROOT / "docs" / "advice" / "index.md").read_text("utf-8")


def test_no_page_is_of_a_finding_that_is_gone() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "advice").glob("*.md")} - {"index"}
    assert pages == set(advised())


def source(folder: str = "") -> str:
    return "".join(p.read_text("utf-8") for p in sorted((ROOT / "src" / "busfare" / folder).rglob("*.py")))


def put_together() -> set[str]:
    """The ids of statements that the code puts together of parts."""
    from busfare.answers.verdict import KINDS_OF, OwnerKind
    from busfare.cost.kernels.move import BOUNDS
    from busfare.planning.strategies import STRATEGIES
    from busfare.timeline.changes.fewer_copies import IDENTITY_COLUMNS

    findings = re.findall(r'\bfinding\(\s*"([\w-]+)"|^ +\("([\w-]+)", \w+\(', source("advise"), re.MULTILINE)
    values = {
        "best.strategy": STRATEGIES,
        "bound": BOUNDS,
        "limiter": ("cpu", "gpu", "mixed", "unexplained"),
        "change": re.findall(r'\btitled(?:\(|, )"([\w-]+)"', source("timeline")),
        "kind": ("unexplained-before", *KINDS_OF.values(), *get_args(OwnerKind)),
        "outcome": ("same", "faster", "slower"),
        "comparable": ("programs", "runs", "units", "unknown"),
        "dominant": ("h2d", "d2h", "kernel"),
        "judged": ("few", "real", "same"),
        "figure": ("high", "low", "mean", "median"),
        "id": [rule or of_job for rule, of_job in findings],
        "identified_by": IDENTITY_COLUMNS,
    }
    ids = {"pageable-copies.title-small", "mostly-copies.change-and-link", "small-copies.change-rows"}
    for template in set(re.findall(r'[sS]tatement\(\s*f"([^"]+)"', source())) - {
        "{id}.{title}",
        "{id}.{change}",
        "omission.{id}",
        "omission.{key}",
    }:
        parts: list[Iterable[str]] = []
        for n, part in enumerate(re.split(r"\{(.*?)\}", template)):
            either = re.findall(r"'([\w-]+)'", part)
            parts.append([part] if n % 2 == 0 else either + [""] * ("*" in part) or values[part])
        ids |= set(map("".join, itertools.product(*parts)))
    return ids - {f"plan.do-{strategy}-in-place" for strategy in STRATEGIES if strategy != "mapped"}


def test_every_statement_of_the_code_has_a_sentence_and_every_sentence_a_statement() -> None:
    stated = set(re.findall(r'[sS]tatement\(\s*"([\w.-]+)"', source())) | put_together()
    assert stated - set(templates()) == set()
    written = stated | set(re.findall(r'"([\w-]+\.[\w-]+)"', source()))
    languages = {f"{id}-{language}" for id in written for language in LANGUAGES}
    languages |= {id for id in templates() if id.startswith("omission.")}  # tests/house/test_sentences.py
    assert set(templates()) - written - languages == set()
