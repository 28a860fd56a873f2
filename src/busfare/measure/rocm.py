"""Recording AMD's GPUs: rocprofv3 runs the program, and busfare reads the databases that it writes.

As its documentation has it [rocprofiler-sdk: using-rocprofv3, using-rocpd-output-format]; rocpd came with ROCm 7.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from busfare.errors import InputError

#: What stands in the name of an output here, and what rocprofv3 calls it.
KEYS = {"%p": "%pid%", "%h": "%hostname%", "%r": "%rank%"}


def rocprofv3() -> str | None:
    """Where rocprofv3 is, on the path or where ROCm puts it; None where it is not."""
    places = (os.environ.get("PATH", ""), f"{os.environ.get('ROCM_PATH', '/opt/rocm')}/bin")
    return shutil.which("rocprofv3", path=os.pathsep.join(places))


def profiled(
    tool: str, command: Sequence[str], target: str, options: Mapping[str, Any], defaults: Mapping[str, Any]
) -> list[str]:
    """The command that runs `command` under rocprofv3; `target` as `busfare record` prepares it.

    Raises InputError for options of the recorder's own, which rocprofv3 does not know.
    """
    own = sorted(name for name, value in options.items() if value not in (defaults.get(name), []))
    if own:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in own)
        raise InputError(f"{names}: not for AMD's GPUs, which rocprofv3 records; leave it out")
    folder, name = (target, "%h-%p") if target.endswith("/") else os.path.split(target)
    for ours, theirs in KEYS.items():
        folder, name = folder.replace(ours, theirs), name.replace(ours, theirs)
    asked = [
        "--runtime-trace",
        "--output-format",
        "rocpd",
        "--output-directory",
        folder,
        "--output-file",
        name,
    ]
    return [tool, *asked, "--", *command]
