"""Every table has exactly the columns and types that `busfare.trace.tables` names."""

import polars as pl
import pytest

from busfare.trace import tables
from busfare.trace.tables import OPERATIONS, OPERATIONS_RECORDED, Schema, conform, empty

TABLES = ("OPERATIONS", "CALLS", "EVENTS", "MARKERS", "DEVICES", "STREAMS", "LAUNCHES")


@pytest.mark.parametrize("schema", [getattr(tables, name) for name in TABLES], ids=TABLES)
def test_an_empty_table_and_a_table_of_unknown_columns_have_the_schema(schema: Schema) -> None:
    assert dict(empty(schema).schema) == dict(schema)
    conformed = conform(pl.DataFrame({"somebody's": [1, 2]}), schema)
    assert dict(conformed.schema) == dict(schema)
    assert conformed.height == 2
    assert conformed.null_count().row(0) == (2,) * len(schema)


def test_what_does_not_fit_its_type_is_null() -> None:
    frame = pl.DataFrame({"kind": ["kernel", "dance"], "device": [1 << 31, 3], "start_ns": [1.0, 2.0]})
    expected = [("kernel", None, 1), (None, 3, 2)]
    assert conform(frame, OPERATIONS).select("kind", "device", "start_ns").rows() == expected


def test_optional_columns_are_kept_only_where_they_are() -> None:
    frame = pl.DataFrame({"fingerprint": [5]})
    assert "fingerprint" not in conform(frame, OPERATIONS).columns
    kept = conform(frame, OPERATIONS, OPERATIONS_RECORDED)
    assert kept.columns[len(OPERATIONS) :] == ["fingerprint"]
    assert kept.schema["fingerprint"] == pl.UInt64()
