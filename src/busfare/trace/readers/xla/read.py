"""Profiles of JAX and TensorFlow as XSpace files (`.xplane.pb`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from busfare.errors import InputError
from busfare.trace.model import Omissions, Trace
from busfare.trace.readers.xla import space
from busfare.trace.readers.xla.rows import GPU, HOST, NUMBERS, PYTHON_FRAME, STATS, STREAM, TPU, Row, Rows

METADATA = "/host:metadata"


def read(path: Path, file: Path) -> Trace:
    """Reads the XSpace `path`, which lies at `file`. Raises InputError if no plane of it can be read, or it is of a TPU."""
    omissions, rows = Omissions(), Rows()
    about: Row = {}
    hosts, planes = [], 0
    for field, value in space.contents(file.read_bytes(), omissions):
        if field == space.PLANES:
            planes += 1
            _take(value, rows, about)
        elif field in (space.ERRORS, space.WARNINGS):
            omissions.add("profiler-said", f"the profiler said: {value[:200]}", 1)
        elif field == space.HOSTNAMES:
            hosts.append(value)
    if not planes:
        raise InputError(f"{path}: nothing of this profile can be read; copy or record it again")
    for row in (*rows.on_host, *rows.ranges):
        row["process"] = about.get("process_id")
    version = about.get("jax_version")
    producer = f"JAX {version} (XLA's profiler)" if version else "JAX or TensorFlow (XLA's profiler)"
    trace = rows.trace(path, producer, omissions)
    trace.host = {"hostname": hosts[0]} if hosts else {}
    return trace


def _take(plane: Any, rows: Rows, about: Row) -> None:
    """Adds the rows of a plane, and what the metadata's plane says to `about`."""
    name = space.text(plane.name)
    texts = space.names(plane.stat_metadata)
    if gpu := GPU.fullmatch(name):
        stats = space.values(plane.stats, texts)
        device = int(gpu[1])
        rows.gpus.append(_device(device, stats))
        rows.amd = rows.amd or stats.get("device_vendor") == "AMD"
        streams = [line for line in plane.lines if STREAM.match(space.text(line.name))]
        for stream, row in _events(plane, texts, streams):
            rows.add_on_gpu(row | {"device": device, "stream": stream})
    elif name.endswith(METADATA):
        about.update(space.values(plane.stats, texts))
    elif HOST.fullmatch(name):
        for thread, row in _events(plane, texts, plane.lines):
            rows.add_on_host(row | {"thread": thread})
    elif TPU.fullmatch(name):
        rows.tpus += 1


def _events(plane: Any, texts: dict[int, str], lines: Iterable[Any]) -> Iterator[tuple[int, Row]]:
    """The events of lines of a plane but frames of Python, as rows, each with the number of its line."""
    names = space.names(plane.event_metadata)
    wanted = {number: STATS[text] for number, text in texts.items() if text in STATS}
    for line in lines:
        for event in line.events:
            name = names.get(event.metadata_id)
            if name and name.startswith(PYTHON_FRAME):
                continue
            begun = line.timestamp_ns * 1000 + event.offset_ps
            row: Row = {
                "name": name,
                "start_ns": begun // 1000,
                "end_ns": (begun + event.duration_ps) // 1000,
            }
            for stat in event.stats:
                if column := wanted.get(stat.metadata_id):
                    value = space.value(stat, texts)
                    row[column] = value if column in NUMBERS else None if value is None else str(value)
            yield line.id, row


def _device(device: int, stats: Row) -> Row:
    """A row of `DEVICES`. Of AMD's GPUs the two numbers are those of their code: 9.4 of gfx942."""
    capability = [stats.get(f"compute_cap_{part}") for part in ("major", "minor")]
    known = None not in capability
    clock = stats.get("clock_rate")  # kHz
    return {
        "device": device,
        "name": stats.get("gpu_device_name"),
        "clock_hz": clock * 1000.0 if isinstance(clock, int) else None,
        "multiprocessors": stats.get("core_count"),
        "memory_bandwidth_bytes_per_s": stats.get("memory_bandwidth"),
        "memory_bytes": stats.get("memory_size"),
        "compute_capability": f"{capability[0]}.{capability[1]}" if known else None,
    }
