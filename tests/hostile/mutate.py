"""Spoil JSON texts: bytes, structure, types, sizes, nesting, keys, characters, wrappings. Seeded, and quick.

A text is spoilt as a tree in which an object is a list of pairs (so that a key may stand twice) and any node may be raw
text (so that NaN, half characters and a hundred thousand brackets can be written). One seed gives one text. It never
knows what a message or a document means.
"""

import base64
import itertools
import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

BODY_BYTES = 64 * 1024
"""What a queue takes, as UTF-8."""


class Raw(str):
    """Text that stands in the JSON as it is."""


class Pairs(list[Any]):
    """An object: [key, value] pairs, in order, keys as often as they like."""


def tree(value: Any) -> Any:
    """A JSON value as a tree that can be spoilt."""
    if isinstance(value, dict):
        return Pairs([key, tree(member)] for key, member in value.items())
    return [tree(member) for member in value] if isinstance(value, list) else value


def text_of(node: Any) -> str:
    """The tree as text."""
    if isinstance(node, Raw):
        return str(node)
    if isinstance(node, Pairs):
        return "{" + ",".join(f"{text_of(key)}:{text_of(value)}" for key, value in node) + "}"
    if isinstance(node, list):
        return "[" + ",".join(map(text_of, node)) + "]"
    return json.dumps(node)


HOSTILE_TEXTS: Final = (
    "",
    " ",
    "..",
    "../../etc/passwd",
    "a/b",
    "a\\b",
    "a#b?c",
    "a%2fb",
    "$batch",
    "p1' or PartitionKey ne '",
    "index:live",
    "task-graph",
    "task:x",
    "\x00",
    "\x1b[2J",
    "\x1b]8;;http://example.com\x07x",
    "\u202eabc",
    "\u2028",
    "[red]x[/red]",
    "<script>alert(1)</script>",
    "$(touch /tmp/x); `x`",
    "a\n",
    "\ufeff",
    "\U0001f600",
    "x" * 64,
    "x" * 65,
    "x" * 129,
    "x" * 600,
    "\u0001" * 4096,
    "\U0001f600" * 1000,
    "y" * 1001,
    "2030-01-31T12:00:00Z",
    "2030-02-31T12:00:00Z",
    "9999-12-31T23:59:60+23:59",
    "0001-01-01T00:00:00Z",
    "AAAAAAAAQRCGAAAAAAAAAA",
)
HOSTILE_RAW: Final = tuple(
    map(
        Raw,
        (
            "NaN",
            "-Infinity",
            "1e400",
            "-1e400",
            "1e-400",
            "-0",
            "-0.0",
            "1e0",
            "1.0",
            "0.5",
            "1e6",
            "1E+1",
            "9" * 19,
            "9" * 5000,
            "-" + "9" * 4301,
            "0x1",
            "01",
            "+1",
            "1.",
            ".5",
            "True",
            "nul",
            "'x'",
            "{}",
            "[]",
            "[[]]",
            '"\\ud800"',
            '"\\udc00x"',
            '"\ud800"',
            '"\\ud83d\\ude00"',
            '"\\u0000"',
            '"\\x"',
            '"\\u12"',
            '"\n"',
            '"open',
            "[" * 65 + "]" * 65,
            '{"x":' * 65 + "1" + "}" * 65,
            "[" * 20_000,
            "[" * 100_000 + "]" * 100_000,
            '{"x":' * 3_000,
            "/* */1",
            "[1,]",
            "{,}",
            "",
        ),
    )
)
HOSTILE_NUMBERS: Final = (0, 1, -1, 2, 31, 32, 33, 255, 999, 1_000_000, 1_000_001, 2**31 - 1, 2**31, 2**53, 2**63)
HOSTILE_VALUES: Final[tuple[Any, ...]] = (None, True, False, 0.5, 1e300, -1e300, [], Pairs(), [None], Pairs([["x", 1]]))


def _nodes(node: Any, into: list[tuple[Any, int]]) -> None:
    """Every place in a tree: (container, index); in an object the place of a value is (pair, 1)."""
    for index, member in enumerate(node):
        if isinstance(node, Pairs):
            into.append((member, 1))
            if isinstance(member[1], list):
                _nodes(member[1], into)
        else:
            into.append((node, index))
            if isinstance(member, list):
                _nodes(member, into)


def _objects(node: Any, into: list[Pairs]) -> None:
    if isinstance(node, Pairs):
        into.append(node)
        for _, member in node:
            _objects(member, into)
    elif isinstance(node, list):
        for member in node:
            _objects(member, into)


def copy_of(node: Any) -> Any:
    """A tree that shares nothing which may be changed."""
    if isinstance(node, Pairs):
        return Pairs([key, copy_of(value)] for key, value in node)
    return [copy_of(member) for member in node] if isinstance(node, list) else node


class Mutator:
    """Spoils texts made of given trees. words: keys and texts that mean something to whoever reads them."""

    def __init__(self, bases: Sequence[Any], words: Sequence[str]) -> None:
        self.bases = [tree(base) for base in bases]
        self.words = tuple(words)
        self._kin = self._values_by_key()
        self._steps: tuple[tuple[int, Callable[[random.Random, Any], None]], ...] = (
            (60, self._like),
            (30, self._value),
            (10, self._drop),
            (8, self._add),
            (6, self._double_key),
            (6, self._rename),
            (6, self._swap),
            (4, self._wrap),
            (4, self._multiply),
            (4, self._graft),
        )
        self._weights = [weight for weight, _ in self._steps]

    def _values_by_key(self) -> dict[str, list[Any]]:
        """Every value that a key has in any base."""
        found: dict[str, list[Any]] = {}
        for base in self.bases:
            objects: list[Pairs] = []
            _objects(base, objects)
            for key, value in itertools.chain.from_iterable(objects):
                if value not in found.setdefault(key, []):
                    found[key].append(value)
        return found

    def text(self, seed: int) -> str:
        """The spoilt text of a seed; it may hold half characters."""
        rng = random.Random(seed)
        draw = rng.random()
        if draw < 0.01:
            return "".join(rng.choice('{}[]",:\\ \n\x00a1eé\ud800') for _ in range(rng.randrange(60)))
        node = copy_of(rng.choice(self.bases))
        steps = [step for _, step in self._steps]
        for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 5))):
            if isinstance(node, list):
                rng.choices(steps, self._weights)[0](rng, node)
        text = text_of(node)
        if draw > 0.80:
            text = self._characters(rng, text)
        if draw < 0.08:
            text = self._wrapping(rng, text)
        return text

    def _hostile(self, rng: random.Random) -> Any:
        match rng.randrange(10):
            case 0 | 1:
                return rng.choice(HOSTILE_TEXTS)
            case 2:
                return rng.choice(HOSTILE_RAW)
            case 3 | 4:
                return rng.choice(HOSTILE_NUMBERS)
            case 5 | 6:
                return copy_of(rng.choice(HOSTILE_VALUES))
            case 7:
                return "z" * rng.choice((1, 255, 256, 4096, 4097, 33_000)) if rng.random() < 0.2 else "z"
            case _:
                return rng.choice(self.words)

    def _place(self, rng: random.Random, node: Any) -> tuple[Any, int] | None:
        places: list[tuple[Any, int]] = []
        _nodes(node, places)
        return rng.choice(places) if places else None

    def _object(self, rng: random.Random, node: Any) -> Pairs | None:
        found: list[Pairs] = []
        _objects(node, found)
        return rng.choice(found) if found else None

    def _like(self, rng: random.Random, node: Any) -> None:
        """What the same key has elsewhere: another task, another run, somebody else's claim."""
        here = self._object(rng, node)
        if here:
            pair = rng.choice(here)
            if isinstance(pair[0], str) and (others := self._kin.get(pair[0])):
                pair[1] = copy_of(rng.choice(others))

    def _value(self, rng: random.Random, node: Any) -> None:
        if place := self._place(rng, node):
            place[0][place[1]] = self._hostile(rng)

    def _drop(self, rng: random.Random, node: Any) -> None:
        here = self._object(rng, node)
        if here:
            del here[rng.randrange(len(here))]

    def _add(self, rng: random.Random, node: Any) -> None:
        here = self._object(rng, node)
        if here is not None:
            key = rng.choice((rng.choice(self.words), rng.choice(HOSTILE_TEXTS), Raw('"\\ud800"'), Raw("1")))
            here.insert(rng.randrange(len(here) + 1), [key, self._hostile(rng)])

    def _double_key(self, rng: random.Random, node: Any) -> None:
        here = self._object(rng, node)
        if here:
            key, value = rng.choice(here)
            here.insert(rng.randrange(len(here) + 1), [key, rng.choice((copy_of(value), self._hostile(rng)))])

    def _rename(self, rng: random.Random, node: Any) -> None:
        here = self._object(rng, node)
        if here:
            pair = rng.choice(here)
            pair[0] = rng.choice(
                (rng.choice(self.words), str(pair[0]).upper(), f"{pair[0]}s", rng.choice(HOSTILE_TEXTS))
            )

    def _swap(self, rng: random.Random, node: Any) -> None:
        one, other = self._place(rng, node), self._place(rng, node)
        if one and other:
            first, second = copy_of(one[0][one[1]]), copy_of(other[0][other[1]])
            one[0][one[1]], other[0][other[1]] = second, first

    def _wrap(self, rng: random.Random, node: Any) -> None:
        if place := self._place(rng, node):
            value = place[0][place[1]]
            for _ in range(rng.choice((1, 2, 62, 64, 70))):
                value = [value] if rng.random() < 0.5 else Pairs([["x", value]])
            place[0][place[1]] = value

    def _multiply(self, rng: random.Random, node: Any) -> None:
        places: list[tuple[Any, int]] = []
        _nodes(node, places)
        arrays = [here[index] for here, index in places if isinstance(here[index], list) and here[index]]
        if arrays:
            here = rng.choice(arrays)
            for _ in range(rng.choice((1, 2, 31, 32, 33))):
                here.append(copy_of(here[0]))

    def _graft(self, rng: random.Random, node: Any) -> None:
        """Something out of another text, in a place of this one."""
        if (place := self._place(rng, node)) and (other := self._place(rng, rng.choice(self.bases))):
            place[0][place[1]] = copy_of(other[0][other[1]])

    def _characters(self, rng: random.Random, text: str) -> str:
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(len(text) + 1)
            end = min(len(text), at + rng.choice((0, 1, 1, 3, 40)))
            match rng.randrange(6):
                case 0:
                    text = text[:at] + text[end:]
                case 1:
                    text = text[:at]
                case 2:
                    text = text[:at] + text[at:end] * 2 + text[end:]
                case 3:
                    text = text[:at] + rng.choice(('"', "\\", "{", "}", "[", "]", ",", ":", "\x00", "é")) + text[end:]
                case 4:
                    text = text[:at] + chr(rng.choice((0x1B, 0x7F, 0x85, 0x2028, 0xD800, 0xFFFE, 0x1F600))) + text[at:]
                case _:
                    text = text[:at] + text_of(rng.choice(self.bases))[at:]
        return text

    def _wrapping(self, rng: random.Random, text: str) -> str:
        whole = text.encode("utf-8", "surrogatepass")
        match rng.randrange(9):
            case 0 | 1 | 2:
                return base64.b64encode(whole).decode()
            case 3:
                return base64.b64encode(base64.b64encode(whole)).decode()
            case 4:
                coded = base64.b64encode(whole).decode()
                at = rng.randrange(len(coded) + 1)
                return coded[:at] + rng.choice(("=", "\n", "-", "é", "")) + coded[at:]
            case 5:
                return "\ufeff" + text
            case 6:
                return " " * rng.choice((1, BODY_BYTES)) + text
            case 7:
                return json.dumps(text)
            case _:
                return text + rng.choice((text, "\x00", " null", "\n\n"))
