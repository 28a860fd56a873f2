"""Where the published traces and measurements lie: the folder that BUSFARE_SHARED names, or `../shared`."""

import os
from pathlib import Path

SHARED = Path(os.environ.get("BUSFARE_SHARED", Path(__file__).parents[2] / "shared")).resolve()
DATA = SHARED / "data"
TRACES = DATA / "traces"


def published(folder: str = "", pattern: str = "*") -> list[Path]:
    """The traces of a folder of TRACES; none where the data is missing, which deselects the tests of them."""
    files = (TRACES / folder).rglob(pattern)
    return sorted(path for path in files if path.is_file() and path.suffix not in (".md", ".txt"))
