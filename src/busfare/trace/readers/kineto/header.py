"""What a Kineto trace says of itself beside its events: GPUs, host, rank, profiler."""

from __future__ import annotations

import msgspec
import polars as pl

from busfare.trace.tables import DEVICES, conform, empty

__all__ = ["devices", "host", "producer"]


class _Device(msgspec.Struct):
    """An entry of `deviceProperties`."""

    id: int | None = None
    name: str | None = None
    totalGlobalMem: int | None = None  # noqa: N815  the file's own spelling
    computeMajor: int | None = None  # noqa: N815
    computeMinor: int | None = None  # noqa: N815
    numSms: int | None = None  # noqa: N815


class _Job(msgspec.Struct):
    """`distributedInfo`."""

    rank: int | None = None


def _decoded(text: bytes | None, kind: type[object] | object) -> object:
    """`text` as `kind`, or None where the file says something else."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=kind, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def devices(header: dict[str, bytes]) -> pl.DataFrame:
    """Rows of `DEVICES`; none where the file lists no GPUs."""
    found = _decoded(header.get("deviceProperties"), list[_Device])
    if not isinstance(found, list):
        return empty(DEVICES)
    rows = [
        {
            "device": d.id,
            "name": d.name,
            "memory_bytes": d.totalGlobalMem,
            "multiprocessors": d.numSms,
            "compute_capability": f"{d.computeMajor}.{d.computeMinor}"
            if d.computeMajor is not None
            else None,
        }
        for d in found
        if d.id is not None and abs(d.id) < 1 << 31
    ]
    return conform(pl.DataFrame(rows, strict=False), DEVICES) if rows else empty(DEVICES)


def producer(header: dict[str, bytes]) -> str:
    """The profiler, and its CUPTI where the file tells."""
    version = _decoded(header.get("cupti_version"), int)
    return "PyTorch profiler (Kineto" + (f", CUPTI {version})" if version else ")")


def host(header: dict[str, bytes]) -> dict[str, str]:
    """`cuda`, `hostname` and `rank`, those that the file tells."""
    keys = {"cuda_driver_version": "cuda", "hostname": "hostname"}
    values = {new: _decoded(header.get(old), str | int) for old, new in keys.items()}
    job = _decoded(header.get("distributedInfo"), _Job)
    if isinstance(job, _Job) and job.rank is not None:
        values["rank"] = str(job.rank)
    return {key: str(value) for key, value in values.items() if value}
