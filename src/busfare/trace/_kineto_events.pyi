import numpy as np
from numpy.typing import NDArray

MISSING: int

class EventScanner:
    """Takes the text of a trace piece by piece and keeps, as columns, the events that busfare reads.

    With `launches`, also how kernels are launched, and the operators on the host.
    """

    def __init__(self, launches: bool = False) -> None: ...
    def feed(self, text: bytes) -> None: ...
    def finish(self) -> None: ...
    @property
    def columns(self) -> dict[str, NDArray[np.int64]]: ...
    @property
    def names(self) -> list[bytes]: ...
    @property
    def functions(self) -> dict[str, NDArray[np.int64]]:
        """A row a call of a Python function, or of an operator that names those around it: process, thread, start_ns,
        duration_ns, name.
        """
    @property
    def function_names(self) -> list[bytes]:
        """Each text once: `train.py(42): load`; of an operator several, the innermost first, with `;` between."""
    @property
    def operators(self) -> dict[str, NDArray[np.int64]]:
        """A row a call: external, process, thread, start_ns, duration_ns, signature."""
    @property
    def signatures(self) -> list[tuple[bytes, bytes, bytes, bytes]]:
        """JSON text of name, dimensions, types and values of the inputs; empty: the event does not say."""
    @property
    def collectives(self) -> list[tuple[int, bytes]]:
        """Rows of the columns that may be collectives, and what their arguments tell of them, as JSON objects."""
    @property
    def header(self) -> dict[bytes, bytes]: ...
    @property
    def error(self) -> str: ...
    @property
    def error_position(self) -> int: ...
    @property
    def truncated(self) -> bool: ...
    @property
    def saw_events(self) -> bool: ...
    @property
    def events(self) -> int: ...
    @property
    def unusable(self) -> int: ...
    @property
    def accelerator_events(self) -> int:
        """Events of accelerators that are no GPUs, which are not read."""
    @property
    def foreign_calls(self) -> int:
        """Events of runtimes that are neither CUDA's nor HIP's, which are not read."""
