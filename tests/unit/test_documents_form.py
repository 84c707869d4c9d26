"""Both libraries say the same of a node; the schemas are whole; lines and cycles are found exactly."""

import copy
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskgraph.documents import graph_algorithms
from taskgraph.model import json_pointer, json_strict, limits, schemas
from taskgraph.model.errors import NotFound
from taskgraph.model.json_strict import Path

# --- schemas ---------------------------------------------------------------------------------------------------


def test_every_schema_is_one_and_its_examples_obey_it():
    assert {"task-graph", "extension"} <= set(schemas.names())
    for name in schemas.names():
        schema = schemas.schema(name)
        jsonschema.Draft202012Validator.check_schema(dict(schema))
        assert schema["$id"] == f"urn:taskgraph:schema:{name}"
        assert schema["title"]
        assert schema["description"]
        for example in schema["examples"]:
            assert schemas.validator(name).is_valid(example), name
    with pytest.raises(NotFound):
        schemas.schema("task_graph")


def test_the_schema_holds_the_limits_of_the_code():
    definitions = schemas.schema("task-graph")["$defs"]
    assert definitions["label"]["maxLength"] == limits.LABEL_CHARS_MAX
    assert definitions["routing"]["maxLength"] == limits.ROUTING_CHARS_MAX
    assert definitions["node"]["properties"]["reruns"]["maximum"] == limits.RERUNS_MAX
    assert definitions["task"]["properties"]["target"]["pattern"] == limits.TARGET_PATTERN
    assert definitions["task"]["properties"]["host"]["pattern"] == limits.HOST_PATTERN
    assert definitions["task"]["properties"]["workerLabels"]["items"]["pattern"] == limits.WORKER_LABEL_PATTERN
    assert definitions["task"]["properties"]["workerLabels"]["maxItems"] == limits.WORKER_LABELS_MAX
    assert definitions["task"]["properties"]["workersLostMax"]["maximum"] == limits.WORKERS_LOST_BOUND
    assert definitions["task"]["properties"]["workersLostMax"]["default"] == limits.WORKERS_LOST_MAX
    after = schemas.schema("task-graph")["properties"]["stalledAfter"]
    assert (after["minimum"], after["maximum"]) == (limits.STALLED_SECONDS_MIN, limits.STALLED_SECONDS_MAX)
    assert f"{limits.DEFINITION_CHARS_MAX:,}" in schemas.schema("task-graph")["description"]
    assert f"most {limits.DOCUMENT_DEPTH_MAX} deep" in schemas.schema("task-graph")["description"]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2030-01-31T12:00:00Z", datetime(2030, 1, 31, 12, tzinfo=UTC)),
        ("2030-01-31t12:00:00.1234567z", datetime(2030, 1, 31, 12, 0, 0, 123456, UTC)),
        ("2030-01-31T12:00:00.5+01:30", datetime(2030, 1, 31, 10, 30, 0, 500000, UTC)),
        ("2016-12-31T23:59:60Z", datetime(2017, 1, 1, tzinfo=UTC)),
    ],
)
def test_date_times(text: str, moment: datetime):
    assert schemas.parse_date_time(text) == moment


@pytest.mark.parametrize(
    "text",
    ["", "2030-01-31", "2030-01-31T12:00:00", "2030-01-31 12:00:00Z", "2030-13-01T00:00:00Z", "2030-01-31T24:00:00Z",
     "2030-01-31T12:00:00+24:00", "0001-01-01T00:00:00+01:00", "2030-01-31T12:00:00Z\n", "٢٠٣٠-01-31T12:00:00Z"],
)  # fmt: skip
def test_what_is_no_date_time(text: str):
    with pytest.raises(ValueError):  # noqa: PT011 - any ValueError is right
        schemas.parse_date_time(text)


# --- two libraries --------------------------------------------------------------------------------------------

TEXTS = st.sampled_from(["", "a", "x" * 10, "x" * 11, "x" * 255, "x" * 256, "\0", "\n", "\x7f", "a\n", "é", "default"])
SCALARS = st.none() | st.booleans() | st.sampled_from([0, 1, -1, 999, 1000, 0.0, 0.5, 1.0, 1e3, -0.5]) | TEXTS
REFERENCES = st.sampled_from(
    [{"$subs": "taskId:a"}, {"$subs": "a"}, {"$subs": 1}, {"$subs": "taskId:a", "x": 1}, {}, {"x": "y"},
     {"$param": "a"}, {"$param": "a b"}, {"$param": "a", "path": "/0"}, {"$param": "a", "path": "0"},
     {"$result": "a"}, {"$result": ""}, {"$result": "a b", "path": "/~1", "default": []}, {"$result": "a", "x": 1}]
)  # fmt: skip
WORDS = TEXTS | REFERENCES | SCALARS
PAYLOADS = st.fixed_dictionaries(
    {},
    optional={
        "command": st.lists(WORDS, max_size=3) | SCALARS,
        "env": st.dictionaries(st.sampled_from(["A", "", "A=", "B\0", "c\n"]), WORDS, max_size=2) | SCALARS,
        "cwd": WORDS,
        "timeout": SCALARS,
        "seconds": SCALARS,
        "other": WORDS,
    },
)
TASKS = st.fixed_dictionaries(
    {},
    optional={
        "routing": SCALARS,
        "deadline": SCALARS
        | st.sampled_from(["2030-01-31T12:00:00Z", "2030-02-31T12:00:00Z", "2030-01-31T12:00:00z\n"]),
        "payload": PAYLOADS | SCALARS | st.just([]),
        "executor": st.sampled_from(["command", "sleep", "noop", "own-1", "", "Own", "1a", "a" * 40, "a" * 41, "a\n"])
        | SCALARS,
        "target": st.sampled_from(["default", "a", "a-b", "a--b", "-a", "a-", "a" * 40, "a" * 41, "A", "a\n"])
        | SCALARS,
        "host": st.sampled_from(["build-7", "Lab.example.com", "a_b", "-a", "a" * 63, "a" * 64, "a b", "a\n"])
        | SCALARS,
        "workerLabels": st.lists(
            st.sampled_from(["gpu", "os=debian-12", "a/b:c", "-a", "", "a" * 64]) | SCALARS, max_size=3
        )
        | st.just([f"l{n}" for n in range(17)])
        | SCALARS,
        "workersLostMax": SCALARS | st.sampled_from([20, 21, 3.0]),
        "metadata": st.dictionaries(st.sampled_from(["name", "description", "owner", "more"]), SCALARS, max_size=3)
        | SCALARS,
        "other": WORDS,
    },
)
CHANNELS = st.fixed_dictionaries(
    {},
    optional={
        "queue": st.sampled_from(["abc", "a-b", "ab", "a--b", "Abc", "abc\n", "a" * 63, "a" * 64]) | SCALARS,
        "webhook": st.sampled_from(["https://a", "http://a/b?c=d", "ftp://a", "https://a b", "https://é"]) | SCALARS,
        "secret": st.sampled_from(["ci", "C_1", "1c", "a-b", "ci\n", "c" * 41]) | SCALARS,
        "command": st.lists(WORDS, max_size=2) | SCALARS | st.just(["x"] * 101),
        "other": SCALARS,
    },
)
NOTIFY = st.dictionaries(
    st.sampled_from(["onSuccess", "onFailure", "onFinished", "onBlocked"]),
    CHANNELS | st.lists(CHANNELS, max_size=2) | SCALARS | st.just([{"queue": "abc"}] * 11),
    max_size=2,
)
NODES = (
    st.fixed_dictionaries(
        {},
        optional={
            "requires": st.lists(SCALARS | st.sampled_from(["a", "b"]), max_size=4) | SCALARS | st.just({}),
            "reruns": SCALARS,
            "task": TASKS | SCALARS | st.just([]),
            "notify": NOTIFY | SCALARS | st.just([]),
            "taks": st.just({}),
        },
    )
    | SCALARS
    | st.just([])
)


GOOD: list[dict[str, Any]] = [
    {"task": {}},
    {
        "task": {},
        "notify": {
            "onSuccess": {"queue": "abc"},
            "onFailure": [{"webhook": "https://a/b", "secret": "ci"}, {"command": ["x", ""]}],
        },
    },
    {"requires": ["a", "é"], "reruns": 999, "task": {"routing": "x" * 10, "deadline": "2030-01-31T12:00:00Z"}},
    {"task": {"executor": "sleep", "payload": {"seconds": 0, "command": 1}, "target": "a-b"}},
    {"task": {"host": "build-7.example.com", "workerLabels": ["gpu", "os=debian-12"]}},
    {"task": {"host": {"$param": "host"}, "workerLabels": ["gpu", {"$param": "os"}]}},
    {"task": {"workerLabels": {"$param": "labels"}, "workersLostMax": 20}},
    {"reruns": 1.0, "task": {"executor": "own-1", "payload": {"command": []}, "metadata": {"name": "", "more": []}}},
    {
        "requires": [],
        "task": {
            "payload": {
                "command": ["x", {"$subs": "taskId:a"}],
                "env": {"A": "", "B": {"$subs": "taskId:a"}},
                "cwd": ".",
                "timeout": 1,
            },
            "metadata": {"description": "", "owner": "", "source": ""},
        },
    },
    {"task": {"executor": "command", "payload": {"command": ["x"], "env": {}, "cwd": {"$subs": "taskId:b"}}}},
    {
        "task": {
            **{key: {"$param": key} for key in ("routing", "deadline", "executor", "target", "payload")},
            "metadata": {"name": {"$param": "a", "path": "/~0/~1"}},
        }
    },
    {
        "task": {
            "payload": {
                "command": {"$param": "argv"},
                "env": {"$param": "env", "path": ""},
                "cwd": {"$param": "cwd"},
                "timeout": {"$param": "n"},
            }
        }
    },
    {"task": {"executor": "sleep", "payload": {"seconds": {"$param": "n"}}}},
    {"task": {"executor": "sleep", "payload": {"seconds": {"$result": "a", "path": "/n", "default": 1}}}},
    {
        "task": {
            "payload": {
                "command": {"$result": "a"},
                "env": {"$result": "a", "default": {}},
                "cwd": {"$result": "a", "path": ""},
                "timeout": {"$result": "a", "default": None},
            }
        }
    },
    {"task": {"payload": {"command": [{"$result": "a"}], "env": {"A": {"$result": "a", "path": "/0"}}}}},
]
VALUES = st.one_of(SCALARS, REFERENCES, PAYLOADS, TASKS, st.lists(WORDS, max_size=2))
KEYS = [
    "requires",
    "reruns",
    "task",
    "routing",
    "deadline",
    "payload",
    "executor",
    "target",
    "metadata",
    "command",
    "notify",
    "queue",
]


@st.composite
def spoilt(draw: st.DrawFn) -> Any:
    """A good node of which up to two members, at any depth, are changed, removed or added."""
    node: Any = json.loads(json.dumps(draw(st.sampled_from(GOOD))))
    for _ in range(draw(st.integers(0, 2))):
        here = node
        while inner := [there for there in (here.values() if isinstance(here, dict) else here) if there]:
            there = draw(st.sampled_from(inner))
            if not isinstance(there, dict | list) or draw(st.integers(0, 3)) == 0:
                break
            here = there
        if isinstance(here, list):
            here.append(copy.deepcopy(draw(WORDS)))
        elif draw(st.integers(0, 3)) or not here:
            here[draw(st.sampled_from([*here, *KEYS, "timeout", "seconds", "name"]))] = copy.deepcopy(draw(VALUES))
        else:
            here.pop(draw(st.sampled_from(list(here))))
    return node


NODE = schemas.validator("task-graph", "#/$defs/node")


def agreed(node: Any) -> bool:
    """What both libraries say of a node."""
    fast = NODE.is_valid(node)
    assert (next(NODE.findings(node), None) is None) is fast, node
    return fast


@given(NODES | spoilt())
@settings(deadline=None, max_examples=600)
def test_the_libraries_agree(node: Any):
    agreed(node)


@pytest.mark.parametrize("node", GOOD)
def test_the_good_ones_are_good(node: dict[str, Any]):
    assert agreed(node)


VALUE_LIST: list[Any] = [
    None, True, False, 0, -1, 1, 999, 1000, 0.0, 0.5, 1.0, -0.5, "", "a", "é", "\0", "\n", "x" * 10, "x" * 11, "x" * 40,
    "x" * 255, "x" * 256, "x" * 32_768, "x" * 32_769, "A", "a-b", "a\n", "command", "sleep", "own-1", [], {}, [[]],
    ["a"], ["a", "a"], [1], [True], ["x\0"], {"$subs": "taskId:a"}, {"$subs": "a"}, {"$subs": 1},
    {"$subs": "taskId:a", "x": 1}, {"$param": "a"}, {"$param": "1"}, {"$param": 1}, {"$param": "a", "x": ""},
    {"$result": "a"}, {"$result": ""}, {"$result": 1}, {"$result": "a", "x": 1}, {"$result": "a", "path": "/a"},
    {"$result": "a", "path": "a"}, {"$result": "a", "default": 1}, {"$result": "a", "$subs": "taskId:a"},
    {"$param": "a", "path": "/a"}, {"$param": "a", "path": "a"}, {"$param": "a", "path": "/~2"},
    {"A": "x"}, {"": "x"}, {"A=": "x"}, {"B\0": ""}, {"A": 1}, {"A": "\0"}, {"seconds": 1}, {"command": ["x"]},
    "2030-01-31T12:00:00Z", "2030-02-31T12:00:00Z",
]  # fmt: skip


def all_changes(node: Any) -> Iterator[Any]:
    """The node with one member at any depth changed to each value, removed, or added."""
    members = list(node.items()) if isinstance(node, dict) else list(enumerate(node)) if isinstance(node, list) else []
    for key, member in members:
        for value in [*VALUE_LIST, *all_changes(member)]:
            changed = copy.copy(node)
            changed[key] = value
            yield changed
        shorter = copy.copy(node)
        del shorter[key]
        yield shorter
    if isinstance(node, dict):
        for key in (*KEYS, "timeout", "env", "cwd", "seconds", "name", "source", "unknown"):
            for value in VALUE_LIST if key not in node else ():
                yield {**node, key: value}
    elif isinstance(node, list):
        for value in VALUE_LIST:
            yield [*node, value]


def test_they_agree_on_single_changes():
    """On some of the hundred thousand: the thorough library takes milliseconds for each."""
    changed = itertools.islice(itertools.chain.from_iterable(map(all_changes, GOOD)), 0, None, 97)
    assert {agreed(node) for node in changed} == {True, False}


# --- strict JSON -----------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text('a"\\[{}],:\n', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a"\\/[{:,\n', max_size=3), inner, max_size=3),
    max_leaves=12,
)


def places(value: Any, path: Path = (), line: int = 1) -> tuple[dict[Path, int], int]:
    """Where each place stands in json.dumps(value, indent=1), and the last line of the value."""
    found = {path: line}
    members: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        members = list(value.items())
    elif isinstance(value, list):
        members = list(enumerate(value))
    for token, member in members:
        inner, line = places(member, (*path, token), line + 1)
        found.update(inner)
    return found, line + 1 if members else line


@given(JSON)
@settings(deadline=None)
def test_every_place_has_its_line(value: Any):
    expected, _ = places(value)
    assert json_pointer.lines(json.dumps(value, indent=1), list(expected)) == expected


def test_a_place_that_is_missing_has_the_line_above_it():
    assert json_pointer.lines('{\n"a":\n[1]}', [("a", 5, "x"), ("b",)]) == {("a", 5, "x"): 2, ("b",): 1}


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@given(JSON, st.integers(0, 6))
@settings(deadline=None)
def test_depth_is_counted_outside_strings_alone(value: Any, bound: int):
    text = json.dumps(value)
    at = json_strict.too_deep_at(text, bound)
    assert (at is not None) is (depth_of(value) > bound)
    assert at is None or text[at] in "[{"


def test_show_steers_no_terminal():
    assert json_strict.show("\x1b[31m\x9b\u202e") == "“\\u001b[31m\\u009b\\u202e”"
    assert json_strict.show("x" * 100_000, 10) == "“xxxxxxxxx…"


# --- cycles and levels -----------------------------------------------------------------------------------------


def graphs(labels: str) -> st.SearchStrategy[dict[str, list[str]]]:
    inner = st.lists(st.sampled_from(labels), unique=True, max_size=3)
    return st.fixed_dictionaries(dict.fromkeys(labels, inner))


def shortest_by_trying(requirements: Mapping[str, Sequence[str]]) -> dict[frozenset[str], int]:
    """Strongly connected parts of more than one label, with the length of their shortest cycle, by brute force."""
    reach = {label: {label} for label in requirements}
    for _ in requirements:
        for label, requires in requirements.items():
            for other in requires:
                reach[label] |= reach[other]
    parts = {frozenset(other for other in reach[label] if label in reach[other]) for label in requirements}
    found = {}
    for part in parts:
        for length in range(2, len(part) + 1):
            if any(
                all(path[(i + 1) % length] in requirements[path[i]] for i in range(length))
                for path in itertools.permutations(part, length)
            ):
                found[part] = length
                break
    return found


@given(graphs("abcdefg"))
@settings(deadline=None, max_examples=300)
def test_the_shortest_cycle_of_every_part_is_found(requirements: dict[str, list[str]]):
    expected = shortest_by_trying(requirements)
    found = list(graph_algorithms.cycles(requirements))
    assert len(found) == len(expected)
    for cycle, size, exact in found:
        assert exact
        assert all(cycle[(i + 1) % len(cycle)] in requirements[cycle[i]] for i in range(len(cycle)))
        (part,) = (part for part in expected if set(cycle) <= part)
        assert (len(cycle), size) == (expected[part], len(part))
        assert cycle[0] == min(cycle, key=list(requirements).index)


def test_a_shorter_cycle_behind_a_longer_one_is_found():
    five = {"a": ["b", "x"], "x": ["b"], "b": ["c"], "c": ["d", "f"], "d": ["e"], "e": ["a"]}
    four = {"f": ["g"], "g": ["h"], "h": ["c"]}
    assert list(graph_algorithms.cycles(five | four)) == [(["c", "f", "g", "h"], 9, True)]
    assert [
        len(cycle) for cycle, _, _ in graph_algorithms.cycles(five | {"f": ["g"], "g": ["h"], "h": ["i"], "i": ["c"]})
    ] == [5]


@given(graphs("abcdefgh"))
@settings(deadline=None, max_examples=200)
def test_levels_are_longest_distances(requirements: dict[str, list[str]]):
    level = graph_algorithms.levels(requirements)
    assert set(level) == set(requirements) or list(graph_algorithms.cycles(requirements))
    seen: set[str] = set()
    for label, distance in level.items():
        others = [other for other in requirements[label] if other != label]
        assert seen.issuperset(others)
        assert distance == max((level[other] + 1 for other in others), default=0)
        seen.add(label)


def test_a_search_without_end_is_cut_short(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(graph_algorithms, "CYCLE_EDGES_MAX", 100)
    size = 400
    requirements = {str(i): [str((i - 1) % size), str((i - 2) % size)] for i in range(size)}
    ((cycle, knot, exact),) = graph_algorithms.cycles(requirements)
    assert (knot, exact) == (size, False)
    assert all(cycle[(i + 1) % len(cycle)] in requirements[cycle[i]] for i in range(len(cycle)))
