"""Places in a JSON text: JSON pointers (RFC 6901), and the lines on which they stand."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from taskgraph.model.json_strict import TOKEN, Path, show


def pointer(path: Sequence[str | int], token_chars_max: int = 300) -> str:
    """The JSON pointer (RFC 6901) of a path. Very long tokens are cut, lone surrogates escaped, so that it prints."""
    parts = []
    for token in path:
        text = str(token)
        if len(text) > token_chars_max:
            text = text[:token_chars_max] + "…"
        parts.append("/" + text.replace("~", "~0").replace("/", "~1"))
    return "".join(parts).encode("utf-8", "backslashreplace").decode("utf-8")


_TOKEN_OF_POINTER: Final = re.compile(r"(?:[^~]|~[01])*+")
_POSITION: Final = re.compile(r"0|[1-9][0-9]{0,15}", re.ASCII)


class NoSuchPlace(LookupError):
    """A pointer leads nowhere. reached: pointer of the last place; there: its value; token: the step that fails."""

    def __init__(self, reached: str, there: Any, token: str) -> None:
        super().__init__(reached)
        self.reached = reached
        self.there = there
        self.token = token


def steps(text: str) -> tuple[str, ...]:
    """The tokens of a JSON pointer (RFC 6901); none for "", the whole value. Raises ValueError for other texts."""
    if not text:
        return ()
    first, *tokens = text.split("/")
    if first or not all(map(_TOKEN_OF_POINTER.fullmatch, tokens)):
        raise ValueError("it is no JSON pointer (RFC 6901)")
    return tuple([token.replace("~1", "/").replace("~0", "~") for token in tokens])


def look_up(value: Any, path: str) -> Any:
    """What stands in a JSON value at a pointer. Raises ValueError for what is no pointer, NoSuchPlace."""
    tokens = steps(path)
    here = value
    for number, token in enumerate(tokens):
        if isinstance(here, dict) and token in here:
            here = here[token]
        elif isinstance(here, list) and _POSITION.fullmatch(token) and int(token) < len(here):
            here = here[int(token)]
        else:
            raise NoSuchPlace(pointer(tokens[:number]), here, token)
    return here


def what_is(value: Any, names_max: int = 8) -> str:
    """What a JSON value is, for a sentence: a scalar as it stands, of the others what can be asked of them."""
    match value:
        case dict():
            if not value:
                return "an object without keys"
            more = f" and {len(value) - names_max:,} more" if len(value) > names_max else ""
            named = ", ".join(show(key, 40) for key in list(value)[:names_max])
            return f"an object with the key{'s' if len(value) > 1 else ''} {named}{more}"
        case list():
            return f"an array of {len(value):,}"
        case _:
            return show(value)


_LINE: Final = object()  # a key that no JSON member can have


def lines(text: str, paths: Iterable[Path]) -> dict[Path, int]:
    """The line on which each path stands (for a member: its key), or the nearest place above it that exists.

    text is JSON that has been parsed. One pass over its tokens; a key written twice has the line of the last one.
    """
    trie: dict[Any, Any] = {_LINE: 1}
    wanted = list(paths)
    for path in wanted:
        here = trie
        for token in path:
            here = here.setdefault(token, {})
    # A frame: [is it an object, its part of the trie or None, position or key of the member that is being read].
    frames: list[list[Any]] = []
    offset, line = 0, 1
    node: dict[Any, Any] | None = trie
    key_next = False
    for match in TOKEN.finditer(text):
        word = match.group()
        if word in (",", ":"):
            key_next = word == "," and frames[-1][0]
            if word == "," and not frames[-1][0]:
                frames[-1][2] += 1
            continue
        if word in ("}", "]"):
            frames.pop()
            key_next = False
            continue
        if frames:
            frame = frames[-1]
            if key_next:
                frame[2] = json.loads(word)
                key_next = False
                place = None if frame[1] is None else frame[1].get(frame[2])
                if place is not None:
                    line += text.count("\n", offset, match.start())
                    offset = match.start()
                    place[_LINE] = line
                continue
            node = None if frame[1] is None else frame[1].get(frame[2])
            if node is not None and not frame[0]:
                line += text.count("\n", offset, match.start())
                offset = match.start()
                node[_LINE] = line
        if word in ("{", "["):
            frames.append([word == "{", node, 0])
            key_next = word == "{"
    found: dict[Path, int] = {}
    for path in wanted:
        here = trie
        found[path] = here[_LINE]
        for token in path:
            here = here[token]
            if _LINE not in here:
                break
            found[path] = here[_LINE]
    return found
