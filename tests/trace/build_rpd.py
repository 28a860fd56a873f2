"""Builds RPD files (rocmProfileData) a row at a time."""

from __future__ import annotations

from pathlib import Path

from tests.trace.sqlite_file import Tables, Value, write_sqlite

PROCESS = 6161

COLUMNS: dict[str, list[str]] = {
    "rocpd_metadata": ["id", "tag", "value"],
    "rocpd_string": ["id", "string"],
    "rocpd_op": ["id", "gpuId", "queueId", "sequenceId", "start", "end", "description_id", "opType_id"],
    "rocpd_api": ["id", "pid", "tid", "start", "end", "apiName_id", "args_id"],
    "rocpd_api_ops": ["id", "api_id", "op_id"],
    "rocpd_copyapi": [
        *["api_ptr_id", "stream", "size", "width", "height", "kind", "dst", "src", "dstDevice", "srcDevice"],
        *["sync", "pinned"],
    ],
    "rocpd_kernelapi": [
        *["api_ptr_id", "stream", *[f"{what}{side}" for what in ("grid", "workgroup") for side in "XYZ"]],
        *["groupSegmentSize", "kernelName_id"],
    ],
}


class RpdFile(Tables):
    """A file in the making."""

    def __init__(self) -> None:
        super().__init__({table: list(columns) for table, columns in COLUMNS.items()})
        self.add("rocpd_metadata", tag="schema_version", value="2")

    def add(self, table: str, **values: Value) -> int:
        """Adds a row and returns its id."""
        rows = self.rows.setdefault(table, [])
        rows.append(({"id": len(rows) + 1} if COLUMNS[table][0] == "id" else {}) | values)
        return len(rows)

    def text(self, value: str) -> int:
        if value not in self.strings:
            self.strings[value] = self.add("rocpd_string", string=value)
        return self.strings[value]

    def call(self, name: str, start: int, end: int, arguments: str = "") -> int:
        """A call; its id links the operations that it started."""
        who: dict[str, Value] = {"pid": PROCESS, "tid": 77, "start": start, "end": end}
        return self.add("rocpd_api", **who | {"apiName_id": self.text(name), "args_id": self.text(arguments)})

    def operation(
        self, kind: str, start: int, end: int, call: int | None = None, description: str = ""
    ) -> None:
        """An operation: KernelExecution, CopyHostToDevice, FillBuffer, Task…"""
        where: dict[str, Value] = {"gpuId": 1, "queueId": 3, "start": start, "end": end}
        names: dict[str, Value] = {"opType_id": self.text(kind), "description_id": self.text(description)}
        operation = self.add("rocpd_op", **where | names)
        if call is not None:
            self.add("rocpd_api_ops", api_id=call, op_id=operation)

    def copied(self, call: int, size: Value, kind: int, pinned: Value = 0, **more: Value) -> None:
        """What a copy's call says of it: `kind` 1 host to device, 2 device to host, 3 within devices."""
        what: dict[str, Value] = {"api_ptr_id": call, "size": size, "kind": kind, "pinned": pinned}
        self.add("rocpd_copyapi", **what | more)

    def write(self, path: Path) -> Path:
        return write_sqlite(path, self.columns, self.rows)


def small_rpd() -> RpdFile:
    """A copy in from pinned memory, a kernel, a fill, a copy out, their calls and a marker."""
    file = RpdFile()
    file.call("UserMarker", 990, 1600, "step")
    upload = file.call("hipMemcpyAsync", 1000, 1050)
    file.copied(upload, 4096, 1, pinned=1)
    file.operation("CopyHostToDevice", 1100, 1200, upload)
    launch = file.call("hipLaunchKernel", 1060, 1070)
    file.operation("KernelExecution", 1210, 1310, launch, "axpy(float*)")
    fill = file.call("hipMemsetAsync", 1080, 1090)
    file.operation("FillBuffer", 1320, 1330, fill)
    download = file.call("hipMemcpy", 1095, 1500)
    file.copied(download, 8192, 2, pinned=0)
    file.operation("CopyDeviceToHost", 1340, 1490, download)
    return file
