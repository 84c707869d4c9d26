"""Reading hostile input costs linear time.

Judged by processor time of this process, for an input and one eight times as long: the least of several goes, so that
what else the machine does is no matter, with room for three times what linear would be. Quadratic is eight times
as much, and what is worse does not end. A cost too small to be measured is small enough.
"""

import importlib
import json
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

import taskgraph
from taskgraph.documents.plan import plan, to_dot, to_mermaid
from taskgraph.documents.read import document_from_object, read_document
from taskgraph.documents.texts import Form
from taskgraph.interfaces.cli.output import LogText, safe
from taskgraph.model import schemas
from taskgraph.model.errors import InvalidGraph, InvalidMessage
from taskgraph.model.messages import parse

FACTOR: Final = 8
ROOM: Final = 3
_TOO_SMALL_SECONDS: Final = 0.02
_GOES: Final = 3


def once(call: Callable[[Any], object], value: Any) -> float:
    began = time.process_time()
    call(value)
    return time.process_time() - began


def least(call: Callable[[Any], object], value: Any) -> float:
    return min(once(call, value) for _ in range(_GOES))


def is_linear(call: Callable[[Any], object], make: Callable[[int], Any], size: int) -> bool:
    """Whether `FACTOR` times the input costs about so many times as much; looked at again before it is denied."""
    for _ in range(3 * _GOES):  # the first go that is quick enough settles it: most of the time is that of long inputs
        large = once(call, make(size * FACTOR))
        if large < _TOO_SMALL_SECONDS or large < least(call, make(size)) * FACTOR * ROOM:
            return True
    return False


def test_the_measure_tells_linear_from_quadratic() -> None:
    assert is_linear(lambda text: [text.count("b") for _ in range(10)], lambda size: "a" * size, 300_000)
    assert not is_linear(lambda each: [x for x in each for y in each if x > y], lambda size: [*range(size)], 300)


# --- documents -----------------------------------------------------------------------------------------------------


def tasks(nodes: dict[str, Any]) -> str:
    return json.dumps({"tasks": nodes})


def noop(**more: Any) -> dict[str, Any]:
    return {"task": {}, **more}


def payload(*payloads: Any) -> str:
    return tasks({f"t{number}": {"task": {"payload": each}} for number, each in enumerate(payloads)})


def wide(n: int) -> str:
    labels = [f"t{number}" for number in range(n)]
    return tasks({**{label: noop() for label in labels}, "z": noop(requires=labels)})


def layers(n: int) -> str:
    """So many tasks, each of which requires all twenty of the layer before."""
    levels = [[f"{level}-{number}" for number in range(20)] for level in range(n // 20)]
    before = [[], *levels]
    return tasks({each: noop(requires=before[at]) for at, level in enumerate(levels) for each in level})


def given_all(n: int) -> str:
    """So many tasks, each of which is given every parameter."""
    names = [f"p{number}" for number in range(20)]
    task = {"payload": {"x": [{"$param": name} for name in names]}, "own": {"$param": "p0", "path": "/0"}}
    declared = {name: {"default": ["x" * 50], "type": "array"} for name in names}
    return json.dumps({"params": declared, "tasks": {f"t{i}": {"task": task} for i in range(n)}})


def taking(n: int, of: Callable[[int], int]) -> str:
    """A chain of so many tasks, each of which takes the result of another."""

    def task(i: int) -> dict[str, Any]:
        return noop(task={"payload": {"x": {"$result": f"t{of(i)}"}}}, requires=[f"t{i - 1}"] if i else [])

    return tasks({f"t{i}": task(i) for i in range(n)})


def knot(n: int) -> str:
    """Everybody requires the first forty, who require each other."""
    first = [f"t{number}" for number in range(40)]
    return tasks({f"t{i}": noop(requires=[each for each in first if each != f"t{i}"]) for i in range(n)})


DOCUMENTS: Final[dict[str, tuple[Callable[[int], str], int]]] = {
    "nested": (lambda n: '{"tasks":' + "[" * n, 20_000),
    "nested-and-closed": (lambda n: "[" * n + "]" * n, 20_000),
    "nested-in-strings": (lambda n: '{"tasks":"' + "[{" * n + '"}', 20_000),
    "open-strings": (lambda n: '{"tasks":' + '"' * n, 20_000),
    "backslashes": (lambda n: '{"tasks":"' + "\\" * n, 20_000),
    "escaped-quotes": (lambda n: '{"tasks":"' + '\\"' * n, 20_000),
    "whitespace": (lambda n: " " * n + "x", 50_000),
    "line-breaks": (lambda n: '{"tasks":{' + "\n" * n + "}}", 50_000),
    "digits": (lambda n: '{"tasks":' + "9" * n + "}", 20_000),
    "fraction": (lambda n: '{"tasks":0.' + "9" * n + "}", 20_000),
    "exponent": (lambda n: '{"tasks":1e' + "9" * n + "}", 20_000),
    "not-a-number": (lambda n: '{"tasks":[' + "NaN," * n + "1]}", 3_000),
    "halves": (lambda n: '{"tasks":["' + '\\ud800","' * n + '"]}', 3_000),
    "same-key": (lambda n: '{"tasks":{' + '"a":{"task":{}},' * n + '"b":{"task":{}}}}', 2_000),
    "two-keys": (lambda n: '{"tasks":{"a":{"x":{' + ",".join(f'"k{i}":1,"k{i}":2' for i in range(n)) + "}}}}", 1_000),
    "long-string": (lambda n: tasks({"a": noop(task={"payload": {"x": "é" * n}})}), 50_000),
    "long-label": (lambda n: tasks({"x" * n: noop()}), 50_000),
    "long-labels": (lambda n: tasks({f"{i}{'x' * 300}": noop() for i in range(n)}), 500),
    "control-labels": (lambda n: tasks({f"{i}\x1b": noop() for i in range(n)}), 500),
    "many-tasks": (lambda n: tasks({f"t{i}": noop() for i in range(n)}), 1_000),
    "chain": (lambda n: tasks({f"t{i}": noop(requires=[f"t{i - 1}"] if i else []) for i in range(n)}), 1_000),
    "star": (lambda n: tasks({"a": noop(), **{f"t{i}": noop(requires=["a"]) for i in range(n)}}), 1_000),
    "wide": (lambda n: wide(n), 1_000),
    "layers": (lambda n: layers(n), 400),
    "ring": (lambda n: tasks({f"t{i}": noop(requires=[f"t{(i + 1) % n}"]) for i in range(n)}), 500),
    "rings": (lambda n: tasks({f"t{i}": noop(requires=[f"t{i ^ 1}"]) for i in range(n)}), 500),
    "complete-knot": (lambda n: knot(n), 200),
    "itself": (lambda n: tasks({f"t{i}": noop(requires=[f"t{i}"]) for i in range(n)}), 500),
    "unknown": (lambda n: tasks({f"t{i}": noop(requires=[f"t{i}x"]) for i in range(n)}), 500),
    "unknown-many": (lambda n: tasks({"t": noop(requires=[f"t{i}" for i in range(n)])}), 1_000),
    "same-requirement": (lambda n: tasks({"t": noop(), "u": noop(requires=["t"] * n)}), 2_000),
    "wrong-requirements": (lambda n: tasks({"t": noop(requires=list(range(n)))}), 500),
    "unhashable-requirements": (lambda n: tasks({"t": noop(requires=[{"a": i} for i in range(n)])}), 100),
    "unknown-keys": (lambda n: tasks({"t": noop(**{f"k{i}": 1 for i in range(n)})}), 1_000),
    "near-keys": (lambda n: tasks({f"t{i}": noop(require=[], rerun=1) for i in range(n)}), 500),
    "wrong-types": (lambda n: tasks({f"t{i}": {"task": i} for i in range(n)}), 500),
    "bad-subs": (lambda n: tasks({f"t{i}": noop(task={"payload": {"x": {"$subs": i}}}) for i in range(n)}), 500),
    "subs": (lambda n: tasks({"t": noop(task={"payload": {"x": [{"$subs": "taskId:t"}] * n}})}), 1_000),
    "params": (lambda n: given_all(n), 500),
    "bad-params": (lambda n: tasks({f"t{i}": noop(task={"x": {"$param": f"p{i}"}}) for i in range(n)}), 500),
    "results": (lambda n: taking(n, lambda i: 0), 500),
    "results-of-all": (lambda n: taking(n, lambda i: i // 2), 500),
    "results-of-nobody": (lambda n: taking(n, lambda i: n - 1), 500),
    "bad-results": (lambda n: payload({"x": [{"$result": i} for i in range(n)]}), 500),
    "bad-env": (lambda n: payload({"command": ["x"], "env": {f"={i}": "" for i in range(n)}}), 500),
    "bad-command": (lambda n: tasks({"t": noop(task={"payload": {"command": list(range(n))}})}), 500),
    "tags": (lambda n: json.dumps({"tags": {f"k{i}": i for i in range(n)}, "tasks": {}}), 500),
    "extra": (lambda n: json.dumps({f"k{i}": i for i in range(n)}), 1_000),
    "wide-payload": (lambda n: tasks({"t": noop(task={"payload": {f"k{i}": {"x": [i]} for i in range(n)}})}), 2_000),
    "deep-payloads": (lambda n: payload(*[json.loads('{"x":' * 50 + "1" + "}" * 50)] * n), 100),
}


def read(text: str, form: Form = "json") -> None:
    try:
        document = read_document(text, form=form)
    except InvalidGraph as error:
        assert error.problems  # noqa: PT017 - that there is one is all that matters here
    else:
        plan(document)


@pytest.mark.parametrize("shape", DOCUMENTS)
def test_reading_a_document_is_linear(shape: str) -> None:
    make, size = DOCUMENTS[shape]
    assert is_linear(read, make, size)


AS_WRITTEN: Final[dict[str, tuple[Form, Callable[[int], str], int]]] = {
    "brackets": ("yaml", lambda n: "a: " + "[" * n, 5_000),
    "dashes": ("yaml", lambda n: "- " * n, 5_000),
    "questions": ("yaml", lambda n: "? " * n, 5_000),
    "colons": ("yaml", lambda n: "a: " * n, 5_000),
    "words": ("yaml", lambda n: "a:\n" + "  x\n" * n, 5_000),
    "flow-words": ("yaml", lambda n: "[" + "x, 'y' " * n, 5_000),
    "open-quote": ("yaml", lambda n: 'a: "' + "\\x41\n" * n, 5_000),
    "comments": ("yaml", lambda n: "# x\n" * n + "a: 1", 5_000),
    "block": ("yaml", lambda n: "a: |\n" + "  x\n" * n, 5_000),
    "digits": ("yaml", lambda n: "a: " + "9" * n, 20_000),
    "zeros": ("yaml", lambda n: "a: " + "0" * n, 20_000),
    "base-60": ("yaml", lambda n: "a: 1" + ":30" * n, 20_000),
    "tasks": ("yaml", lambda n: "tasks:\n" + "".join(f"  t{i}:\n    requires: []\n" for i in range(n)), 500),
    "same-key": ("yaml", lambda n: "tasks:\n" + "  a: {}\n" * n, 1_000),
    "anchors": ("yaml", lambda n: "a:\n" + "".join(f"- &a{i} x\n" for i in range(n)), 1_000),
    "aliases": ("yaml", lambda n: "a: &a [x, y]\nb: [" + "*a, " * n + "]", 1_000),
    "merges": ("yaml", lambda n: "a: &a {x: y}\nb: {<<: [" + "*a, " * n + "]}", 1_000),
    "tables": ("toml", lambda n: "".join(f"[tasks.t{i}]\nrequires = []\n" for i in range(n)), 500),
    "dots": ("toml", lambda n: "x." * n + "x = 1", 5_000),
    "dots-inside": ("toml", lambda n: "a = {" + "x." * n + "x = 1}", 5_000),
    "dots-in-a-text": ("toml", lambda n: 'a = "' + "x." * n + '"', 5_000),
    "toml-brackets": ("toml", lambda n: "a = " + "[" * n, 5_000),
    "toml-quotes": ("toml", lambda n: "a = '" + "''" * n, 5_000),
    "by-content": ("by-content", lambda n: "\n# x\n" * n + "x", 5_000),
    "a-line": ("by-content", lambda n: "x" * n, 50_000),
}


@pytest.mark.parametrize("shape", AS_WRITTEN)
def test_reading_what_people_write_is_linear(shape: str) -> None:
    form, make, size = AS_WRITTEN[shape]
    assert is_linear(lambda text: read(text, form), make, size)


@pytest.mark.parametrize(
    "shape", ["many-tasks", "chain", "wide", "unknown-keys", "subs", "params", "wide-payload", "deep-payloads"]
)
def test_reading_values_is_linear(shape: str) -> None:
    make, size = DOCUMENTS[shape]

    def take(value: Any) -> None:
        try:
            document_from_object(value)
        except InvalidGraph:
            return

    assert is_linear(take, lambda n: json.loads(make(n)), size)


@pytest.mark.parametrize("shape", ["chain", "star", "long-labels", "layers"])
def test_pictures_are_linear(shape: str) -> None:
    make, size = DOCUMENTS[shape if shape != "long-labels" else "many-tasks"]

    def draw(text: str) -> None:
        document = read_document(text)
        to_dot(document)
        to_mermaid(document)

    assert is_linear(draw, make, size)


# --- messages ------------------------------------------------------------------------------------------------------

ENTRY: Final = {"task": "AAAAAAAAQRCGAAAAAAAAAA", "run": 0, "claim": "c", "ended": "2030-01-31T12:00:00Z"}


def result(note: str) -> dict[str, Any]:
    return {**ENTRY, "resolution": {"failed": False, "x": note}}


BODIES: Final[dict[str, Callable[[int], str]]] = {
    "open-objects": lambda n: '{"x":' * (n // 5),
    "spaces": lambda n: " " * n,
    "spaces-inside": lambda n: '{"version":1' + " " * n + "}",
    "base64": lambda n: "e" * (n // 4 * 4),
    "base64-of-braces": lambda n: "e3t7" * (n // 4),
    "keys": lambda n: "{" + ",".join(f'"k{i}":1' for i in range(n // 10)) + "}",
    "same-key": lambda n: "{" + '"k":1,' * (n // 6) + '"k":1}',
    "resolution": lambda n: json.dumps(
        {"version": 1, "type": "task-completed", "graph": "g", "tasks": [result("é" * (n // 7))]}
    ),
    "nan": lambda n: '{"x":[' + "NaN," * (n // 4) + "1]}",
    "halves": lambda n: '{"x":"' + "\\ud800" * (n // 6) + '"}',
    "digits": lambda n: '{"version":' + "1" * n + "}",
}


@pytest.mark.parametrize("shape", BODIES)
def test_reading_a_message_is_linear(shape: str) -> None:
    """Up to what a queue takes, which is little: so little that hardly any of it can be measured."""

    def take(text: str) -> None:
        for _ in range(4):
            try:
                parse(text)
            except InvalidMessage:
                continue

    assert is_linear(take, BODIES[shape], 8_000)


# --- texts for terminals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", ["\x1b", "\x1b[", "\x1b[0;", "\x1b[31m", "\r", "\r\n", "é", "\u202e", "a"])
def test_making_text_harmless_is_linear(piece: str) -> None:
    def take(text: str) -> None:
        safe(text)
        LogText.plain(text)
        shown = LogText()
        shown.take(text)
        shown.end()

    def in_pieces(text: str) -> None:
        shown = LogText()
        for start in range(0, len(text), 100):
            shown.take(text[start : start + 100])
        shown.end()

    assert is_linear(take, lambda n: piece * (n // len(piece)), 12_500)
    assert is_linear(in_pieces, lambda n: piece * (n // len(piece)), 12_500)


# --- patterns ------------------------------------------------------------------------------------------------------


def patterns_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, member in value.items():
            if key == "pattern" and isinstance(member, str):
                yield member
            else:
                yield from patterns_of(member)
    elif isinstance(value, list):
        for member in value:
            yield from patterns_of(member)


def compiled() -> dict[str, re.Pattern[str]]:
    """Every pattern of the schemas, and every one that a module of taskgraph holds."""
    found = {}
    for name in schemas.names():
        for text in patterns_of(schemas.schema(name)):
            found[f"{name}: {text}"] = re.compile(text)
    for module in pkgutil.walk_packages(taskgraph.__path__, "taskgraph."):
        if module.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                found[f"{module.name}.{name}"] = value
    return found


PATTERNS: Final = compiled()
NEVER_SEARCHED: Final = (
    "taskgraph.storage.checks._QUEUE_NAME",
    "taskgraph.engine.poison._KEY",
    "taskgraph.documents.importers.dot._TOKEN",
    "taskgraph.documents.importers.guess._AIRFLOW_JSON",
    "taskgraph.documents.importers.make._RULE",
    "taskgraph.documents.importers.ninja_text._BINDING",
    "taskgraph.documents.importers.taskcluster._DATESTAMP_PART",
    "taskgraph.documents.importers.taskcluster._SHORT_PART",
)
"""Patterns that are held against a whole text, or one place of it, and that nothing is looked for with."""

PIECES: Final = (
    *("a", "A", "0", "-", "_", ".", " ", "\t", "\n", "\r", '"', "'", "\\", '\\"', "/", "=", "#", "?", "\x00", "\x1b"),
    *("\x1b[", "\x1b[0;", "a-", "a0-", "0-0", "aQ", "taskId:", "{", "}", "[", "]", "[]", '""', '"\\', ",", ":", ";"),
    *("2030-01-31T12:00:00", ".0", "e3t7", "a\n", "$", "${", "$(", "<", "%", "--", "a=b;", "A=", "://", "@", "é"),
)
ENDS: Final = ("!", "", "\n", "m")


def test_there_are_patterns_to_look_at() -> None:
    assert len(PATTERNS) > 20
    assert any("json_strict" in name for name in PATTERNS)
    assert any("task-graph: " in name for name in PATTERNS)


@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_takes_more_than_linear_time(name: str) -> None:
    """A hundred thousand characters; lengths grow, so that what is worse is soon seen."""
    pattern = PATTERNS[name]
    ways = [pattern.match, pattern.fullmatch, *([] if name in NEVER_SEARCHED else [pattern.search])]
    for length in (2_000, 100_000):
        for piece in PIECES:
            for end in ENDS if length < 100_000 else ENDS[:1]:
                text = piece * (length // len(piece)) + end
                for way in ways:
                    began = time.process_time()
                    way(text)
                    if time.process_time() - began > 0.1:
                        again = least(way, text)
                        assert again < 0.1, f"{name} on {piece!r} * {length // len(piece)} + {end!r}: {again:.2f} s"


def test_a_pattern_that_backtracks_is_seen() -> None:
    """The measure of the test above, on a pattern of the kind that everybody has written once."""
    bad = re.compile(r"(?:a|aa)+$")
    short, long = (least(bad.match, "a" * length + "!") for length in (20, 32))
    assert long > 20 * short  # each further letter costs half as much again as all before it
