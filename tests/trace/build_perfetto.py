"""Builds Perfetto files as rocprofv3 writes them: packets of one writer, with interned texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from busfare.trace.readers.rocprof.perfetto_schema import packet_class
from tests.trace.build_rocprof import PROCESS
from tests.trace.build_rocprof_files import QUEUE, STREAM, THREAD

#: Tracks of a process: its own, of a thread of its, of a stream.
OWN, HOST, GPU = 1, 0xA000, 0xB000


class PerfettoFile:
    """A file of one process in the making."""

    def __init__(self, process: int = PROCESS, sequence: int = 2) -> None:
        self.process, self.sequence = process, sequence
        self.packets = [self._packet(flags=1)]
        self.texts: dict[tuple[str, str], int] = {}
        for track, parent in ((OWN, None), (HOST, OWN), (GPU, HOST)):
            made = self.packet().track
            made.uuid = self._uuid(track)
            if parent is None:
                made.process.pid = process
            else:
                made.parent_uuid = self._uuid(parent)

    def _uuid(self, track: int) -> int:
        return self.process << 20 | track

    def _packet(self, **fields: Any) -> Any:
        return packet_class()(sequence=self.sequence, **fields)

    def packet(self, **fields: Any) -> Any:
        self.packets.append(self._packet(**fields))
        return self.packets[-1]

    def slice(
        self, category: str, name: str, start: int, end: int, track: int, **annotations: int | str
    ) -> None:
        """A slice and its end; texts are written where they are first used."""
        packet = self.packet(timestamp=start)
        event = packet.event
        event.type, event.track_uuid = 1, self._uuid(track)
        event.category_iids.append(self._number(packet, "categories", category))
        event.name_iid = self._number(packet, "names", name)
        for key, value in {"begin_ns": start, "end_ns": end, "delta_ns": end - start, **annotations}.items():
            added = event.annotations.add(name_iid=self._number(packet, "annotations", key))
            if isinstance(value, str):
                added.string = value
            else:
                added.uint = value
        self.packet(timestamp=end).event.type = 2

    def _number(self, packet: Any, kind: str, text: str) -> int:
        number = self.texts.setdefault((kind, text), len(self.texts) + 1)
        if number == len(self.texts) and text.encode() not in [
            one.text for one in getattr(packet.interned, kind)
        ]:
            getattr(packet.interned, kind).add(iid=number, text=text.encode())
        return number

    def call(self, name: str, start: int, end: int, id: int, category: str = "hip_api") -> None:
        self.slice(category, name, start, end, HOST, tid=THREAD, corr_id=id, kind=1, operation=2)

    def kernel(self, name: str, start: int, end: int, id: int, agent: int | str = "Agent-1") -> None:
        sizes = {
            "VGPR_Count": 8,
            "Accum_VGPR_Count": 4,
            "LDS_Block_Size": 512,
            "workgroup_size": 64,
            "grid_size": 128,
        }
        place = {"agent": agent, "queue": QUEUE, "tid": THREAD, "stream_ID": STREAM}
        self.slice("kernel_dispatch", name, start, end, GPU, corr_id=id, **sizes, **place)

    def copy(self, name: str, ends: tuple[str, str], size: int, start: int, end: int, id: int) -> None:
        place = {"src_agent": ends[0], "dst_agent": ends[1], "tid": THREAD, "stream_ID": STREAM}
        self.slice("memory_copy", name, start, end, GPU, corr_id=id, copy_bytes=size, **place)

    def content(self) -> bytes:
        return b"".join(framed(packet.SerializeToString()) for packet in self.packets)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.content())
        return path


def framed(packet: bytes) -> bytes:
    """A packet as a field of the file."""
    length, made = len(packet), b"\x0a"
    while length > 0x7F:
        made, length = made + bytes([length & 0x7F | 0x80]), length >> 7
    return made + bytes([length]) + packet


def small_perfetto(process: int = PROCESS, sequence: int = 2) -> PerfettoFile:
    """The run of `small_process`."""
    file = PerfettoFile(process, sequence)
    file.call("hipMemcpyAsync", 1000, 1050, 11)
    file.call("hipLaunchKernel", 1060, 1070, 12)
    file.call("hipMemcpy", 1095, 1500, 13)
    file.call("step", 990, 1600, 14, "marker_api")
    file.copy("MEMORY_COPY_HOST_TO_DEVICE", ("Agent-0", "Agent-1"), 4096, 1100, 1200, 11)
    file.copy("MEMORY_COPY_DEVICE_TO_HOST", ("Agent-1", "Agent-0"), 8192, 1340, 1490, 13)
    file.kernel("axpy(float*)", 1210, 1310, 12)
    return file
