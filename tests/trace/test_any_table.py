"""Any table and any column of any profiler's database may be missing; what is there is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from busfare.trace import read
from tests.trace.build_nsys import KERNEL, MEMCPY, NsysExport, small_export
from tests.trace.build_nvprof import PREFIX, small_file
from tests.trace.build_rocprof import small_process, small_rpd, write_rocpd


def nsys(generation: str) -> NsysExport:
    export = small_export(generation)
    export.record(4, 13, 1)
    export.call("cuModuleGetLoadingMode", 60, 61, 9)
    export.allocation(70, 16384)
    export.add("TARGET_INFO_GPU", vmId=0, name="GPU", busLocation="0000:01:00.0")
    export.rows["StringIds"] = [{"id": id, "value": text} for text, id in export.strings.items()]
    export.strings.clear()
    return export


#: What makes a small file of each, how it is written, and how many operations it has.
MADE: dict[str, tuple[Callable[[], Any], Callable[[Path, Any], Path], int]] = {
    "nsys-2021": (lambda: nsys("2021"), lambda path, made: made.write(path), 4),
    "nsys-2025": (lambda: nsys("2025.1"), lambda path, made: made.write(path), 4),
    "nvprof": (small_file, lambda path, made: made.write(path), 4),
    "rocpd-3": (small_process, write_rocpd, 3),
    "rocpd-4": (lambda: small_process(schema=4), write_rocpd, 3),
    "rocpd-4.1": (lambda: small_process(schema=41), write_rocpd, 3),
    "rpd": (small_rpd, lambda path, made: made.write(path), 4),
}
#: Tables that hold operations, and how many; and those by which a format is known.
OPERATIONS = {KERNEL: 1, MEMCPY: 2, "CUPTI_ACTIVITY_KIND_MEMSET": 1, PREFIX + "CONCURRENT_KERNEL": 1}
OPERATIONS |= {"rocpd_memory_copy": 2, "rocpd_kernel_dispatch": 1}
KNOWN_BY = {
    "StringIds",
    "StringTable",
    "Version",
    "rocpd_op",
    "rocpd_api",
    "rocpd_string",
    "rocpd_kernel_dispatch",
}
NOT_KNOWN_BY = {("rocpd-3", "rocpd_string"), ("rocpd-4", "rocpd_string")}


@pytest.mark.parametrize("format", MADE)
def test_any_table_and_any_column_may_be_missing(format: str, tmp_path: Path) -> None:
    make, write, operations = MADE[format]
    for table, columns in make().columns.items():
        if table in ("StringTable", "Version"):  # by which nvprof's files are known
            continue
        known_by = table in KNOWN_BY and (format, table) not in NOT_KNOWN_BY
        for column in [*(columns if len(columns) > 1 else []), *([] if known_by else [None])]:
            made = make()
            made.without(table, column)
            trace = read(write(tmp_path / "file", made), launches=True)
            untimed = sum(o.count for o in trace.omissions if o.what.startswith("GPU operations without"))
            lost = OPERATIONS.get(table, 0) if column is None else 0
            assert trace.operations.height + untimed >= operations - lost, (table, column)
