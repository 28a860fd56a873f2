"""Values as people give them, on a command line or in Python: sizes, times, counts, words and lists of them.

A reader takes what is given, a text or a number in SI units, and returns the value or raises InputError, whose text begins
with what was given.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Self, get_args, get_type_hints

from busfare.errors import FieldError, InputError, instead_of

BYTE_UNITS = {"B": 1.0}
BYTE_UNITS |= {f"{prefix}B": 1000.0**power for power, prefix in enumerate(("k", "M", "G", "T", "P", "E"), 1)}
BYTE_UNITS |= {f"{prefix}iB": 1024.0**power for power, prefix in enumerate(("K", "M", "G", "T", "P", "E"), 1)}
#: The B may be left out, and the unit: 64M are 64 MB, a million times 64, and 64Mi are 64 MiB.
_BYTES = {name: factor for unit, factor in BYTE_UNITS.items() for name in (unit.lower(), unit.lower()[:-1])}
TIME_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
COUNT_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
MOST_BYTES = 1 << 60
#: Thirty years: no kernel runs for longer.
MOST_SECONDS = 1e9
MOST_COUNT = 1e30

_NUMBER = re.compile(r"\s*(-?)(\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)\s*([a-zA-Zµμ]*)\s*")
_FACTOR = re.compile(r"\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)\s*[xX×]?\s*")
_COUNTS = {f"{unit.lower()}{of}": n for unit, n in COUNT_UNITS.items() for of in ("", "flop", "flops")}


def _parsed(
    given: str | float,
    units: dict[str, float],
    unit_of: Callable[[str], str],
    what: str,
    most: float,
    limit: str,
) -> float:
    """A number times its unit, or a number as it is. Raises InputError, with `what` to write, else and above `most`."""
    named, value = shown(given), None
    if isinstance(given, str):
        match = _NUMBER.fullmatch(given)
        factor = units.get(unit_of(match[3])) if match else None
        value = None if match is None or factor is None else float(match[1] + match[2]) * factor
    elif isinstance(given, (int, float)) and not isinstance(given, bool):
        value = float(given)
    if value is None:
        raise InputError(f"{named} is not a {what}")
    if value < 0:
        raise InputError(f"{named} is negative; give a number above zero")
    if not value <= most:
        raise InputError(f"{named} exceeds the largest value that busfare accepts ({limit})")
    return value


def parse_bytes(text: str | float, *, most: int = MOST_BYTES) -> int:
    """'4096', '64M' (of 1,000,000), '64MiB' or '1.5GB' in bytes. Raises InputError for anything else, and above `most`."""
    limit = "1 EiB" if most == MOST_BYTES else f"{most / 1e12:g} TB"
    what = f"size; write bytes (4096) or a unit ({', '.join(BYTE_UNITS)})"
    return round(_parsed(text, _BYTES, str.lower, what, most, limit))


def exact_bytes(number: int) -> str:
    """Bytes as people write them: '64 KiB', '100 kB'; in the largest unit of which they are a whole number."""
    factor, name = max(
        (int(f), name) for name, f in BYTE_UNITS.items() if f == 1 or (number >= f and number % f == 0)
    )
    return f"{number // factor:,} {name}"


def parse_seconds(text: str | float, *, most: float = MOST_SECONDS) -> float:
    """'12ms', '3.5 µs' or '2s' in seconds. Raises InputError for anything else: a time needs its unit."""
    what = f"time; write a unit ({', '.join(TIME_UNITS)}), as in 12ms"
    return _parsed(text, TIME_UNITS, str, what, most, f"{most:g} s")


def parse_count(text: str | float) -> float:
    """'42', '1.5e9' or '12G' as a number. Raises InputError for anything else."""
    what = f"number; write 42, 1.5e9 or a prefix ({', '.join(filter(None, COUNT_UNITS))})"
    return _parsed(text, _COUNTS, str.lower, what, MOST_COUNT, f"{MOST_COUNT:g}")


def parse_factor(text: str | float, words: str = "") -> float:
    """'2x' or '0.8' as a number. Raises InputError, naming the `words` that are also taken, for others."""
    match = _FACTOR.fullmatch(str(text))
    value = float(match[1]) if match else 0.0
    if not 1e-6 <= value <= 1e6:
        raise InputError(f"{str(text)[:40]!r}: write {words}a factor, as in 2x or 0.8")
    return value


Read = Callable[[Any], Any]


def shown(value: object) -> str:
    """What was given, in quotes and not too long."""
    return repr(value[:80]) if isinstance(value, str) else f"{value!r:.80}"


def above_zero(parse: Read) -> Read:
    """Numbers above zero."""

    def read(value: Any) -> float:
        number: float = parse(value)
        if number <= 0:
            raise InputError(f"{shown(value)} is zero; leave it out, or give a number above zero")
        return number

    return read


def whole(least: int, most: int) -> Read:
    """Whole numbers from `least` to `most`."""

    def read(value: Any) -> int:
        number = parse_count(value)
        if number != int(number) or not least <= number <= most:
            raise InputError(f"{shown(value)} is not a whole number from {least} to {most}")
        return int(number)

    return read


def word(*allowed: str) -> Read:
    """One of the `allowed` words."""

    def read(value: Any) -> str:
        if value not in allowed:
            raise InputError(f"{shown(value)} is unknown; choose one of {', '.join(allowed)}")
        return str(value)

    return read


def text(value: Any) -> str:
    """Any text but an empty one."""
    if not isinstance(value, str) or not value:
        raise InputError(f"{shown(value)} is not text; give text in quotes")
    return value


def file_path(value: Any) -> Path:
    """A path."""
    return value if isinstance(value, Path) else Path(text(value))


def flag(value: Any) -> bool:
    """True, or nothing."""
    if not isinstance(value, bool):
        raise InputError(f"{shown(value)}: give True, or leave it out")
    return value


def regex(value: Any) -> str:
    """A regular expression; True or an empty one is for all."""
    if value is not True and not isinstance(value, str):
        raise InputError(f"{shown(value)}: give True for all, or a regular expression in quotes")
    return "" if value is True else value


def as_given(value: Any) -> Any:
    """Whatever it is."""
    return value


def repeated(read: Read) -> Read:
    """Values of an option that may be given several times."""
    return lambda value: tuple(map(read, value if isinstance(value, (list, tuple)) else (value,)))


def parts_of(value: Any) -> list[Any]:
    """'1,2,3' or a sequence as a list, a single value as a list of it."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return list(value) if isinstance(value, (list, tuple)) else [value]


def listed(read: Read) -> Read:
    """Values behind each other: '1,2,3'."""
    return lambda value: tuple(map(read, parts_of(value)))


def points(read_key: Read, read_value: Read, form: str) -> Read:
    """Values by number: '8=15ms,16=12ms', several such texts, or a mapping; by number, sorted. `form`: how to write them."""

    def read(value: Any) -> tuple[tuple[float, float], ...]:
        pairs = [*value.items()] if isinstance(value, Mapping) else []
        for part in () if pairs else (p for group in parts_of(value) for p in parts_of(group)):
            number, equals, of = str(part).partition("=")
            if not equals:
                raise InputError(f"{shown(part)} is not a point; write {form}")
            pairs.append((number, of))
        by_number = {read_key(number): read_value(of) for number, of in pairs}
        if len(by_number) < len(pairs):
            raise InputError(f"{shown(value)} has two points with the same number; give each once")
        return tuple(sorted(by_number.items()))

    return read


def layer_times(value: Any) -> "LayerTimes":
    """'1.2ms', '1ms,2ms' or '1=0.2ms,2048=4ms'."""
    if not isinstance(value, (str, Mapping)) or (isinstance(value, str) and "=" not in value):
        return listed(parse_seconds)(value)  # type: ignore[no-any-return]
    return dict(points(parse_count, parse_seconds, "TOKENS=TIME, as in 512=1.2ms")(value))


def window(value: Any) -> tuple[float, float]:
    """'1.5s..2s', '0.2..0.3' or two numbers, in seconds; both ends are optional. The trace's length is checked later."""
    ends = (
        value.split("..") if isinstance(value, str) else [*value] if isinstance(value, (list, tuple)) else []
    )
    if len(ends) != 2:
        raise InputError(f"{shown(value)} is not a window; write START..END, as in 1.5s..2s")
    start, end = (str(end).strip() for end in ends)
    return _signed_seconds(start) if start else 0.0, _signed_seconds(end) if end else MOST_SECONDS


def _signed_seconds(text: str) -> float:
    seconds = bare_seconds(text.removeprefix("-"))
    return -seconds if text.startswith("-") else seconds


def sides(value: Any) -> tuple[int, int, int]:
    """'128,1,1', or fewer numbers, as three."""
    given = listed(whole(1, 2**31 - 1))(value)
    if not 1 <= len(given) <= 3:
        raise InputError(f"{shown(value)}: give up to three whole numbers above 0, as 128,1,1")
    x, y, z = [*given, 1, 1][:3]
    return x, y, z


def bare_seconds(value: Any) -> float:
    """Seconds, with a unit or without."""
    try:
        return parse_seconds(float(value))
    except (TypeError, ValueError):
        return parse_seconds(value)


positive_size, positive_time = above_zero(parse_bytes), above_zero(parse_seconds)
#: Seconds of a layer, or of each layer; or by tokens of a pass.
LayerTimes = tuple[float, ...] | Mapping[float, float]
Size = Annotated[int, parse_bytes]
Count = Annotated[float, parse_count]
Factor = Annotated[float, parse_factor]
Text = Annotated[str, text]
Regex = Annotated[str, regex]
Flag = Annotated[bool, flag]
File = Annotated[Path, file_path]
Sides = Annotated[tuple[int, int, int], sides]
Sizes = Annotated[tuple[int, ...], listed(parse_bytes)]
PositiveSize = Annotated[int, positive_size]
Positive = Annotated[float, above_zero(parse_count)]
PositiveTime = Annotated[float, positive_time]
#: A petabyte over one link is hours of copying: a slip of the unit.
LinkSize = Annotated[int, above_zero(partial(parse_bytes, most=10**15))]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What all questions share."""

    @classmethod
    def of(cls, **given: Any) -> Self:
        """The question with what is given by field, None for what is not; a name may end in `_`, as `async_`. Raises
        InputError for a name that is no field, and FieldError for a value that cannot be used.
        """
        readers = _readers(cls)  # type: ignore[arg-type]  # a class hashes
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name.rstrip("_") not in readers:
                raise InputError(f"{name}: is not an option; {instead_of(name, readers)}")
            field_name, read = readers[name.rstrip("_")]
            if value is None or value is False or value == ():
                continue
            try:
                values[field_name] = read(value)
            except InputError as error:
                raise FieldError(field_name, f" {error}") from None
        return cls(**values)

    @classmethod
    def names(cls) -> frozenset[str]:
        """Its fields."""
        return frozenset(f.name for f in fields(cls))

    def given(self) -> dict[str, Any]:
        """What differs from the defaults, by field."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}

    def option_words(self) -> tuple[str, ...]:
        """The options of the command that ask the same."""
        words: list[str] = []
        readers = _readers(type(self))  # type: ignore[arg-type]
        for name, value in self.given().items():
            read = readers[name.rstrip("_")][1]
            spell = _SPELLED.get(read, str)
            for part in value if isinstance(value, tuple) and read is not window else (value,):
                words.append("--" + _OPTIONS.get(name, name.rstrip("_").replace("_", "-")))
                words += [] if part is True or part == "" else [spell(part)]
        return tuple(words)


#: Options with another name than their field.
_OPTIONS = {"recorded_on": "from"}
#: By what reads them, how numbers are written that are not written as they are.
_SPELLED: dict[Read, Callable[[Any], str]] = {
    parse_bytes: lambda size: exact_bytes(size).replace(" ", ""),
    positive_size: lambda size: exact_bytes(size).replace(" ", ""),
    positive_time: "{:g}s".format,
    window: lambda edges: "..".join(f"{edge}s" if edge < MOST_SECONDS else "" for edge in edges),
    as_given: lambda value: str(getattr(value, "name", value)),
}


@cache
def _readers(kind: Callable[..., Question]) -> dict[str, tuple[str, Read]]:
    """By field name without a trailing `_`: the reader that its type is annotated with, alone or beside None."""
    readers = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        read = next(
            (m for part in (hint, *get_args(hint)) for m in getattr(part, "__metadata__", ())), as_given
        )
        readers[name.rstrip("_")] = name, read
    return readers
