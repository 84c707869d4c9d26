"""Strict JSON text: reading that refuses to guess, and one canonical way of writing.

The json module lets pass duplicate keys, NaN, numbers of a million digits, and a nesting that exhausts the stack;
documents and messages may hold none of these.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from taskgraph.model.utf16 import has_surrogate

Path = tuple[str | int, ...]  # A place in a JSON value: the tokens of its JSON pointer, with array positions as numbers
INTEGER_MAX: Final = 2**63 - 1
INTEGER_MIN: Final = -(2**63)
_BEYOND: Final = 2**80  # stands for an integer whose digits are not worth converting: out of range as well

# The quantifiers are possessive and an unterminated string reaches to the end, so that hostile text costs linear time.
_STRING = r'"[^"\\]*+(?:\\(?s:.)[^"\\]*+)*+(?:"|\\?\Z)'
_STRINGS = re.compile(_STRING)
_NO_BRACKETS = re.compile(r"[^\[\]{}]+")
_NO_BRACKET_OR_QUOTE: Final = bytes(byte for byte in range(128) if byte not in b'[]{}"')
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_BRACKET_OR_STRING = re.compile(r"[\[\]{}]|" + _STRING)
TOKEN = re.compile(r"[\[\]{}:,]|" + _STRING + r'|[^\s\[\]{}:,"]++')
_HALF: Final = "holds half of a surrogate pair, which is no character."
_WHOLE: Final = "Write the whole character, or both halves of its \\u escape."
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class Repeated(dict[str, Any]):
    """An object whose text named `keys` more than once; the last one won."""

    __slots__ = ("keys_repeated",)
    keys_repeated: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Parsed:
    """A parsed text. suspect: something in it may break the rules that `faults` checks."""

    value: Any
    suspect: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """A place that is JSON for the json module, and not for us. code: duplicate-key, number, surrogate."""

    path: Path
    code: str
    message: str
    remedy: str


def too_deep_at(text: str, depth_max: int) -> int | None:
    """Offset of the first bracket nested deeper than depth_max, None if there is none. Linear, without recursion."""
    if text.count("{") + text.count("[") <= depth_max:
        return None
    brackets = _brackets(text)
    for _ in range(depth_max):  # each round takes the innermost level out, all over the text
        brackets = brackets.replace("[]", "")
        if not brackets:
            return None
    depth = 0
    for match in _BRACKET_OR_STRING.finditer(text):
        word = match.group()
        if word in "[{":
            depth += 1
            if depth > depth_max:
                return match.start()
        elif word in "]}":
            depth -= 1
    return None


def _brackets(text: str) -> str:
    """The brackets of a text that stand in no string, all of them written as `[` and `]`."""
    if "\\" not in text and text.isascii():
        # Where no quotation mark is escaped, and no string holds a bracket, every string leaves two marks side by side.
        bare = text.encode("ascii").translate(_SQUARE, _NO_BRACKET_OR_QUOTE).replace(b'""', b"")
        if b'"' not in bare:
            return bare.decode("ascii")
    return _NO_BRACKETS.sub("", _STRINGS.sub("", text)).replace("{", "[").replace("}", "]")


def parse(text: str) -> Parsed:
    """Parse JSON whose depth has been checked. Raises json.JSONDecodeError for a text that is no JSON."""
    suspect = ("\\u" in text and _SURROGATE_ESCAPE.search(text) is not None) or has_surrogate(text)

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal suspect
        made = dict(members)
        if len(made) == len(members):
            return made
        suspect = True
        seen: set[str] = set()
        again: dict[str, None] = {}
        for key, _ in members:
            if key in seen:
                again[key] = None
            seen.add(key)
        repeated = Repeated(members)
        repeated.keys_repeated = tuple(again)
        return repeated

    def integer(digits: str) -> int:
        nonlocal suspect
        if len(digits) < 19:
            return int(digits)
        value = int(digits) if len(digits) < 21 else _BEYOND
        if not INTEGER_MIN <= value <= INTEGER_MAX:
            suspect = True
        return value

    def number(digits: str) -> float:
        nonlocal suspect
        value = float(digits)
        if math.isinf(value):
            suspect = True
        return value

    def constant(name: str) -> float:
        nonlocal suspect
        suspect = True
        return float(name)

    value = json.loads(text, object_pairs_hook=pairs, parse_int=integer, parse_float=number, parse_constant=constant)
    return Parsed(value, suspect)


def faults(value: Any) -> Iterator[Fault]:
    """Every duplicate key, number out of range and lone surrogate in a parsed value."""
    stack: list[tuple[Path, Any]] = [((), value)]
    while stack:
        path, here = stack.pop()
        match here:
            case str() if has_surrogate(here):
                yield Fault(path, "surrogate", f"The text {_HALF}", _WHOLE)
            case int() if not INTEGER_MIN <= here <= INTEGER_MAX:
                remedy = "Write it as a string; other programs would read another number."
                yield Fault(path, "number", "The integer does not fit into 64 bits.", remedy)
            case float() if not math.isfinite(here):
                remedy = "Leave it out, or write null, a finite number or a string."
                yield Fault(path, "number", f"{json.dumps(here)} is no JSON number.", remedy)
            case str() | int() | float() | None:
                pass
            case dict():
                if isinstance(here, Repeated):
                    for key in here.keys_repeated:
                        message = f"The key {show(key)} stands more than once in one object."
                        remedy = "Keep one of them; readers differ in which one they would take."
                        yield Fault((*path, key), "duplicate-key", message, remedy)
                for key, member in reversed(here.items()):
                    if has_surrogate(key):
                        yield Fault((*path, key), "surrogate", f"The key {_HALF}", _WHOLE)
                    if member is not None and member is not True and member is not False:
                        stack.append(((*path, key), member))
            case list():
                stack.extend(((*path, index), here[index]) for index in range(len(here) - 1, -1, -1))
            case _:  # pragma: no cover - the json module makes nothing else
                raise TypeError(f"{type(here).__name__} did not come from JSON")


_CANONICAL_SLOW: Final = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
).encode
_COMPACT_SLOW: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_SAMPLE: Final = {"b": [1.5, "\u00e9\n"], "a": {"d": None, "c": True}}


def _encoder(slow: Callable[[Any], str], *arguments: Any) -> Callable[[Any, int], Iterable[str]] | None:
    """The encoder behind json.dumps, made once: making one for each call takes longer than encoding a value.

    It is no public part of Python: None where it is missing, takes other arguments, or writes other text than `slow`.
    """
    try:
        made: Callable[[Any, int], Iterable[str]] = json.encoder.c_make_encoder(*arguments)  # type: ignore[attr-defined]
        return made if "".join(made(_SAMPLE, 0)) == slow(_SAMPLE) else None
    except Exception:  # whatever a later Python makes of these arguments
        return None


_CANONICAL: Final = _encoder(
    _CANONICAL_SLOW, None, None, json.encoder.encode_basestring, None, ":", ",", True, False, False
)
_COMPACT: Final = _encoder(
    _COMPACT_SLOW.encode,
    *(None, _COMPACT_SLOW.default, json.encoder.encode_basestring, None, ":", ",", False, False, True),
)


def compact_json(value: Any) -> str:
    """What `json.dumps` writes without blanks and escapes. Raises TypeError for what JSON cannot hold."""
    if _COMPACT is None:
        return _COMPACT_SLOW.encode(value)
    try:
        return "".join(_COMPACT(value, 0))
    except (RecursionError, TypeError):
        return _COMPACT_SLOW.encode(value)


def canonical_json(value: Any) -> str:
    """Compact, keys sorted, characters as they are. Raises ValueError for NaN and infinities, TypeError."""
    if _CANONICAL is None:
        return _CANONICAL_SLOW(value)
    try:
        return "".join(_CANONICAL(value, 0))
    except (RecursionError, TypeError):
        return _CANONICAL_SLOW(value)  # which says what is wrong


def show(value: object, chars_max: int = 80) -> str:
    """A value for a sentence: quoted, cut, and without anything that steers a terminal."""
    if isinstance(value, str):
        text = f"“{json.dumps(value[: chars_max + 1], ensure_ascii=False)[1:-1]}”"
    elif isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
        return "a huge integer"
    elif isinstance(value, bool | int | float) or value is None:
        text = json.dumps(value)
    else:
        return "an object" if isinstance(value, dict) else "an array"
    if len(text) > chars_max:
        text = text[:chars_max] + "…"
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
