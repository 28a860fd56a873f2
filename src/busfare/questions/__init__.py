"""What busfare can be asked: a frozen dataclass for each command that takes options, with defaults, units and limits, and
what goes together.

Times are seconds, sizes bytes, rates bytes per second; None is 'not given'. `Question.of` reads what the command line or
Python gives: numbers in these units, or texts (`336MB`, `12ms`). Nothing of busfare is imported here but errors and units.
"""

from busfare.quantities import Question
from busfare.questions.measuring import Bench, BenchMethods, BenchStrategies, Probe, Record, Try
from busfare.questions.planning import MOST_LAYERS as MOST_LAYERS
from busfare.questions.planning import MOST_PROMPT as MOST_PROMPT
from busfare.questions.planning import OF_MODEL as OF_MODEL
from busfare.questions.planning import HostMemory, Kernel, KvCache, KvLayout, Offload, Plan, Price
from busfare.questions.traces import (
    ChangeName,
    Compare,
    HostRule,
    KernelRule,
    Part,
    Project,
    Removable,
    Report,
    Scaled,
    WhatIf,
    Where,
)

__all__ = [
    "Bench", "BenchMethods", "BenchStrategies", "ChangeName", "Compare", "HostMemory", "HostRule", "Kernel",
    "KernelRule", "KvCache", "KvLayout", "Offload", "Part", "Plan", "Price", "Probe", "Project", "Question", "Record",
    "Removable", "Report", "Scaled", "Try", "WhatIf", "Where",
]  # fmt: skip
