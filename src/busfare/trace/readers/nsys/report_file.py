"""Reports of Nsight Systems (.nsys-rep, .qdrep), which only its own `nsys export` can read."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from busfare.errors import InputError

#: How such a file begins, of versions 2020 to 2026, and how it ends.
MAGIC, END = b"NVIDIA Tegra Profiler Report", b"[END]"
#: Where Nsight Systems and the toolkits put it, if not on the PATH.
PLACES = (
    ("/opt/nvidia/nsight-systems", "*/bin/nsys"),
    ("/opt/nvidia/nsight-systems-cli", "*/bin/nsys"),
    ("/opt/nvidia/hpc_sdk", "*/*/profilers/Nsight_Systems/bin/nsys"),
    ("/usr/local", "cuda*/bin/nsys"),
)
#: Exports that nobody read for so long go.
KEPT_S = 30 * 86_400


def exported(path: Path, place: Path) -> Path:
    """The SQLite export of the report `path`, which lies, unpacked, at `place`.

    One that lies beside it and is not older is taken; others are made by `nsys` once, and kept in `cache()`.
    Raises InputError, with the line to run, where there is no `nsys` or it fails.
    """
    beside = path.with_suffix(".sqlite")
    status = path.stat()
    if beside.is_file() and beside.stat().st_mtime_ns >= status.st_mtime_ns:
        return beside
    folder = cache()
    identity = f"{path.resolve()}\0{status.st_size}\0{status.st_mtime_ns}"
    kept = folder / f"{hashlib.sha256(identity.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.sqlite"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in folder.glob("*.sqlite"):
            if time.time() - file.stat().st_mtime > KEPT_S:
                file.unlink(missing_ok=True)
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=folder) as room:
                _export(path, place, Path(room, "export.sqlite")).replace(kept)
        os.utime(kept)
    except OSError as error:
        raise InputError(
            f"{path}: its export cannot be kept in {folder} ({error.strerror or error}); make room, or name another "
            "folder with XDG_CACHE_HOME"
        ) from None
    return kept


def cache() -> Path:
    """Where exports are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "busfare" / "nsys"


def installed() -> list[str]:
    """Every `nsys` of this machine: that on the PATH first, then the newest."""
    found = [
        str(place)
        for folder, pattern in PLACES
        for place in sorted(Path(folder).glob(pattern), key=_version, reverse=True)
    ]
    first = shutil.which("nsys")
    return list({os.path.realpath(place): place for place in ([first] if first else []) + found}.values())


def _version(place: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(place))]


def _export(path: Path, place: Path, export: Path) -> Path:
    with place.open("rb") as file:
        head = file.read(128)
        file.seek(max(place.stat().st_size - 16, 0))
        if head.startswith(MAGIC) and not file.read().endswith(END):
            raise InputError(
                f"{path}: the report ends in the middle; copy it again from where it was recorded"
            )
    version = re.match(re.escape(MAGIC) + rb" (\d{4}@\d+@\d+)@", head)  # since 2025
    what = "an Nsight Systems report"
    if version:
        what += f" of version {version[1].decode().replace('@', '.')}"
    line = f"`nsys export --type sqlite {path.name}`"
    programs = installed()
    if not programs:
        raise InputError(
            f"{path}: {what}, and there is no `nsys` on this machine to read it; run {line} where there is, and give "
            "the .sqlite"
        )
    said = [reason for nsys in programs if (reason := _tried(nsys, place, export))]
    if len(said) == len(programs):
        raise InputError(
            f"{path}: {what}: {said[0]}; run {line} where it was recorded, or with a later Nsight Systems, and give "
            "the .sqlite"
        )
    return export


def _tried(nsys: str, place: Path, export: Path) -> str:
    """Why this `nsys` makes no export; '' when it has."""
    command = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(export)]
    done = subprocess.run([*command, str(place.resolve())], capture_output=True, text=True, errors="replace")
    if done.returncode == 0 and export.exists():
        return ""
    export.unlink(missing_ok=True)
    version = subprocess.run([nsys, "--version"], capture_output=True, text=True, errors="replace").stdout
    return f"{version.strip() or nsys} cannot export it ({_reason(done.stderr + done.stdout)})"


def _reason(text: str) -> str:
    """What nsys says is wrong, in a line, without libraries' own notes and bars of progress."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", text)]
    what = [line.partition("::what: ")[2] for line in lines if "::what: " in line]
    plain = [line for line in lines if line and not line.startswith(("[", "Exporting ", "Processing "))]
    return next(iter(what + plain), "it gives no reason")[:160]
