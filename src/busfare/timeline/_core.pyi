from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]

def explain(columns: Columns, recorded: Columns) -> dict[str, Any]: ...
def play(columns: Columns, path: bool = False) -> dict[str, Any]: ...
def alone(columns: Columns, start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]: ...
