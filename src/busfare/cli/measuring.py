"""What the commands do that measure: probe, bench methods and strategies."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from busfare.answers.measure import bench, opened, read_result
from busfare.cli.output import answer
from busfare.files import write_file
from busfare.measure.cases import read_record, write_record
from busfare.measure.node_file import encode
from busfare.measure.probe import evaluated, measured
from busfare.printable import note
from busfare.questions import Bench, BenchMethods, BenchStrategies, Probe
from busfare.show.bench import methods_document, strategies_document
from busfare.show.document import Document
from busfare.show.probe import probe_document
from busfare.show.progress import progress


def probe(
    output: Path | None, raw: Path | None, from_: Path | None, json: bool, html: Path | None, **given: Any
) -> None:
    question = Probe.of(**given)
    if from_:
        probed = evaluated(read_record(from_))
    else:
        with closing(opened(question)) as device:
            with progress() as shown:
                record = measured(device, question, shown)
            # On file before anything is fitted or shown: what was measured cannot be had again.
            if raw:
                write_record(record, raw)
        probed = evaluated(record)
    if output:
        write_file(output, encode(probed.node))
    if raw and from_:
        write_record(probed.record, raw)
    answer(probed.result, probe_document, json, html)


def methods(**given: Any) -> None:
    _bench(BenchMethods, methods_document, **given)


def strategies(**given: Any) -> None:
    _bench(BenchStrategies, strategies_document, **given)


def _bench(
    kind: type[Bench], document: Callable[[Any], Document], from_: Path | None, json: bool, html: Path | None, **given: Any
) -> None:  # fmt: skip
    question = kind.of(**given)
    if from_:
        result = read_result(from_, kind)
    else:
        with progress() as shown:
            result = bench(question, shown, note)
    answer(result, document, json, html)
