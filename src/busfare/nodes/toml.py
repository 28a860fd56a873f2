"""TOML text → a checked value, or one line that says what is wrong, where, and the fix. Node files and plan files."""

import math
import re
import threading
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from busfare.errors import InputError, instead_of
from busfare.printable import printable

File = TypeVar("File")
Built = TypeVar("Built")
#: What stands in quotes, and comments; and what stands between keys.
_TEXTS = re.compile(
    r'''"""(?:[^\\]|\\.)*?(?:"""|\Z)|\'\'\'.*?(?:\'\'\'|\Z)|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*'?|#[^\n]*''',
    re.DOTALL,
)
_BETWEEN_KEYS = re.compile(r"[^\w.\- \t]+")
MOST_PARTS = 64
#: msgspec looks at a type when it first meets it, which two threads must not do at once: the process would end.
_conversion_lock = threading.Lock()


class WrongError(Exception):
    """What is wrong, at which path of the file (as msgspec writes it: `$.link[2].lanes`)."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(what)
        self.path = path


def read_text(text: str, kind: str, most_bytes: int) -> str:
    """The file at path `text`, of at most `most_bytes` and one more. Raises InputError; `kind` names it ('node file')."""
    try:
        with FilePath(text).open("rb") as file:
            content = file.read(most_bytes + 1)
    except FileNotFoundError:
        see = ", or see `busfare nodes`" if kind == "node file" else ""
        raise InputError(f"{kind} {text!r}: not there; correct the path{see}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the path cannot be used"
        raise InputError(f"{kind} {text[:200]!r}: {reason}; give a file that can be read") from None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        if b"\0" in content:
            raise InputError(
                f"{text}: not a text file and not a {kind}; is it a trace? Give a TOML file"
            ) from None
        raise InputError(f"{text}:{line}: not UTF-8 text; save the file as UTF-8") from None


def decoded(
    text: str, origin: str, file: type[File], build: Callable[[File], Built], most_bytes: int, kind: str
) -> Built:
    """`build` of the TOML `text` of `file`; messages name `origin` and `kind`. Raises InputError, and nothing else."""
    if len(text) > most_bytes:
        raise InputError(
            f"{origin}: exceeds the limit of {most_bytes} bytes of a {kind}; name another file, or split it"
        )
    # The time to parse a key grows with the square of its parts.
    if any(piece.count(".") > MOST_PARTS for piece in _BETWEEN_KEYS.split(_TEXTS.sub("_", text))):
        raise InputError(f"{origin}: a key of over {MOST_PARTS} parts; a node file only has tables of values")
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        place = f":{line[1]}" if line else ""
        raise InputError(f"{origin}{place}: not TOML: {error}; correct this line") from None
    except (ValueError, RecursionError):
        raise InputError(f"{origin}: unreadable TOML: a number or the nesting is out of bounds") from None
    try:
        _finite(raw, "$", 0)
        with _conversion_lock:
            converted = msgspec.convert(raw, file, str_keys=True)
        return build(converted)
    except (WrongError, msgspec.ValidationError) as error:
        what, path = (
            (str(error), error.path) if isinstance(error, WrongError) else _explained(str(error), raw, file)
        )
        key = "" if path == "$" else f"{path.removeprefix('$.')}: "
        raise InputError(f"{origin}:{_line_of(text, path)}: {key}{what}") from None
    except InputError as error:
        raise InputError(f"{origin}: {error}") from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise InputError(
            f"{origin}: a value is out of bounds ({type(error).__name__}); see docs/nodes.md"
        ) from None


def _finite(value: Any, path: str, depth: int) -> None:
    """Refuses nan, infinity, text that a terminal would obey, and nesting that no file needs."""
    if depth > 8:
        raise WrongError(path, "nested too deeply; a node file only has tables of values")
    if isinstance(value, float) and not math.isfinite(value):
        raise WrongError(path, f"{value} is not a valid figure; give a finite number or leave the key out")
    if isinstance(value, str) and printable(value, but="\n\t") != value:
        raise WrongError(path, "contains a control character; write plain text")
    if isinstance(value, dict):
        for key, inner in value.items():
            _finite(inner, f"{path}.{key}", depth + 1)
    elif isinstance(value, list):
        for n, inner in enumerate(value):
            _finite(inner, f"{path}[{n}]", depth + 1)


#: A step of a path as msgspec writes it.
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")


def _explained(message: str, raw: Any, file: type) -> tuple[str, str]:
    """msgspec's message as (what and the fix, path)."""
    what, _, path = message.partition(" - at `")
    path = path.rstrip("`").removeprefix("key` in `") or "$"
    if missing := re.search(r"missing required field `(.*)`", what):
        return f"the key {missing[1]!r} is missing; add it", path
    if wrong := re.search(r"(unknown field|Invalid enum value|Invalid value) [`']?(.*?)[`']?$", what):
        allowed = _allowed_words(inspect.type_info(file), path, raw)
        fix = instead_of(wrong[2], allowed)
        if "field" in wrong[1]:
            return f"unknown key; {fix}", f"{path}.{wrong[2]}"
        return f"{wrong[2]!r} is not known; {fix}", path
    return f"{what[:1].lower()}{what[1:]}", path


def _allowed_words(kind: Any, path: str, raw: Any) -> list[str]:
    """The words that may stand at `path` of a file of the type `kind`: keys of a table, or values of a key."""
    for step in _STEP.finditer(path):
        kind = _of_tag(kind, raw)
        if isinstance(kind, inspect.UnionType):  # of tables, and the step is the tag that tells them apart
            return [str(member.tag) for member in kind.types if isinstance(member, inspect.StructType)]
        if isinstance(kind, inspect.StructType):
            kind = next(field.type for field in kind.fields if field.encode_name == step[1])
            raw = raw.get(step[1]) if isinstance(raw, dict) else None
        elif isinstance(kind, inspect.DictType):
            kind, raw = kind.value_type, None
        elif isinstance(kind, (inspect.ListType, inspect.VarTupleType)):
            kind, raw = kind.item_type, raw[int(step[2])] if raw and step[2] else None
    kind = _of_tag(kind, raw)
    if isinstance(kind, inspect.DictType):
        kind = kind.key_type
    if isinstance(kind, inspect.LiteralType):
        return [str(value) for value in kind.values]
    if not isinstance(kind, inspect.StructType):
        return []
    return [*([kind.tag_field] if kind.tag_field else []), *(field.encode_name for field in kind.fields)]


def _of_tag(kind: Any, raw: Any) -> Any:
    """`kind`; of a union, the table that has the tag of `raw`, or what is no table; a union of tables where none has it."""
    if isinstance(kind, inspect.Metadata):
        kind = kind.type
    if not isinstance(kind, inspect.UnionType):
        return kind
    tagged = raw if isinstance(raw, dict) else {}
    fitting = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
    fitting = [
        member
        for member in fitting
        if getattr(member, "tag", None) in (None, tagged.get(getattr(member, "tag_field", None)))
    ]
    return fitting[0] if fitting else kind


def _line_of(text: str, path: str) -> int:
    """The line, from 1, where `path` (as msgspec writes it: `$.link[2].lanes`) stands, or the table that should hold it."""
    here, listed = "$", ""
    line_numbers: dict[str, int] = {}
    rows: Counter[str] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*(\[\[?)([^\[\]]+)\]", line):
            names, here, listed = header[2].split("."), "$", ""
            for n, name in enumerate(names, 1):
                here += "." + name.strip().strip("\"'")
                rows[here] += n == len(names) and header[1] == "[["
                here += f"[{rows[here] - 1}]" if rows[here] else ""
                line_numbers.setdefault(here, number)
        elif key := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            listed = f"{here}.{key[1]}"
            line_numbers.setdefault(listed, number)
        elif line.lstrip().startswith("{"):  # a row of the list that the key began
            line_numbers[f"{listed}[{rows[listed]}]"] = number
            rows[listed] += 1
    while path and path not in line_numbers:
        path = path[: max(path.rfind("."), path.rfind("["))]
    return line_numbers.get(path, 1)
