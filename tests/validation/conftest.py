"""The scripts of validation/ import each other by their own names."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "validation"))
