"""Messages: there and back, the checks against the schemas, and whatever else may lie in a queue."""

import base64
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskgraph.model import limits, schemas
from taskgraph.model.bundles import bundles
from taskgraph.model.errors import InvalidInput, InvalidMessage, TaskgraphError, TooLarge
from taskgraph.model.ids import task_id_of
from taskgraph.model.messages import (
    MESSAGE_TYPES,
    AddTasks,
    Cancel,
    Edit,
    HoldBack,
    Message,
    Prioritize,
    Rerun,
    RunTasks,
    Seen,
    SendReady,
    SetLimit,
    TaskCompleted,
    TaskFailed,
    TaskResult,
    UnknownVersion,
    is_large,
    parse,
    to_object,
    to_text,
)

IDS = [task_id_of("g", f"t{i}") for i in range(40)]
ENDED = "2030-01-31T12:00:00Z"
DONE = TaskResult(IDS[0], 0, "claim", ENDED, {"failed": False, "exitCode": 0, "size": {"bytes": 1}})
LOST = TaskResult(IDS[1], 3, "claim", ENDED, {"failed": True, "reason": "é"}, exception=True)
MESSAGES: list[tuple[str, Message]] = [
    ("add-tasks", AddTasks("g-1", "r_1")),
    ("cancel", Cancel("g-1")),
    ("cancel", Cancel("g-1", (), "superseded", terminate=True)),
    ("cancel", Cancel("g-1", ((IDS[0], 0), (IDS[1], 3)), "why not")),
    ("run-tasks", RunTasks("g-1", "default", ((IDS[0], 0),), level="high")),
    ("send-ready", SendReady("g-1")),
    ("send-ready", SendReady("g-1", IDS[0])),
    ("hold-back", HoldBack("g-1", True, "2030-01-31T12:00:00+00:00")),
    ("hold-back", HoldBack("g-1", False, "2030-01-31T12:00:00.000001+00:00", "a group", reason="why not")),
    ("hold-back", HoldBack("g-1", True, "2030-01-31T12:00:00+00:00", by="ann")),
    ("hold-back", HoldBack("g-1", True, "2030-01-31T12:00:00+00:00", tasks=(IDS[0], IDS[1]))),
    ("prioritize", Prioritize("g-1", "lowest", "2030-01-31T12:00:00+00:00", (IDS[0], IDS[1]), "why not", "ann")),
    ("set-limit", SetLimit("g-1", 8, "2030-01-31T12:00:00+00:00")),
    ("set-limit", SetLimit("g-1", 0, "2030-01-31T12:00:00+00:00", "a group", "why not", "ann")),
    ("rerun", Rerun("g-1", ((IDS[0], 2),))),
    ("rerun", Rerun("g-1", ((IDS[0], 2),), "why not")),
    ("rerun", Rerun("g-1", ((IDS[0], 2), (IDS[1], 0)), reopens=True)),
    ("task-completed", TaskCompleted("g-1", (DONE,))),
    ("task-failed", TaskFailed("g-1", (LOST, TaskResult(IDS[2], 0, "c", ENDED, {"failed": True})))),
    ("run-tasks", RunTasks("g-1", "big-one", ((IDS[0], 0), (IDS[1], 7)))),
    ("run-tasks", RunTasks("g-1", "big-one", ((IDS[0], 0), (IDS[1], 7)), {IDS[1]: Seen('W/"1"', "é", "{}", IDS[2])})),
    ("run-tasks", RunTasks("g-1", "big-one", ((IDS[0], 0),), {IDS[0]: Seen("e", "", "{}")})),
    ("task-completed", TaskCompleted("g-1", (DONE, replace(DONE, task=IDS[1], etag="e2", over="e1")), "worker-7")),
    ("task-failed", TaskFailed("g-1", (replace(LOST, etag="e2", over="e1"),))),
    ("run-tasks", RunTasks("g-1", "big-one", ((IDS[0], 0), (IDS[1], 7)), routing={IDS[1]: "nightly.linux"})),
    ("task-completed", TaskCompleted("g-1", (DONE, replace(DONE, task=IDS[1], routing=".linux")))),
    ("task-failed", TaskFailed("g-1", (replace(LOST, temporary=True, exception=False, routing="x" * 21),))),
    ("edit", Edit("g-1", "r_1")),
]


@pytest.mark.parametrize(("kind", "message"), MESSAGES)
def test_a_message_survives_the_way_there_and_back(kind: str, message: Message):
    text = to_text(message)
    assert json.loads(text) == to_object(message)
    assert json.loads(text)["type"] == kind
    assert json.loads(text)["version"] == 1
    assert schemas.validator(f"message-{kind}").is_valid(json.loads(text))
    for body in (
        text,
        text.encode(),
        "\ufeff" + text + "\n",
        json.dumps(json.loads(text), indent=2),
        base64.b64encode(text.encode()).decode(),
        base64.b64encode(b"\xef\xbb\xbf" + text.encode()),
    ):
        assert parse(body) == message


MANY = tuple(task_id_of("g", f"t{n}") for n in range(limits.LARGE_BUNDLE_TASKS_MAX + 1))
LARGE: list[Callable[[int], Message]] = [
    lambda count: RunTasks("g-1", "default", tuple((task, 0) for task in MANY[:count])),
    lambda count: TaskCompleted("g-1", tuple(replace(DONE, task=task) for task in MANY[:count])),
    lambda count: TaskFailed("g-1", tuple(replace(LOST, task=task) for task in MANY[:count])),
]


@pytest.mark.parametrize("make", LARGE)
def test_work_and_results_of_many_tasks_are_of_version_2(make: Callable[[int], Message]) -> None:
    """As many as older programs read are of the version that they read."""
    most, every = limits.LARGE_BUNDLE_TASKS_MAX, limits.BUNDLE_TASKS_MAX
    for count, version in ((1, 1), (every, 1), (every + 1, 2), (most, 2)):
        message = make(count)
        obj = json.loads(to_text(message))
        validator = schemas.validator(f"message-{obj['type']}")
        assert (obj["version"], is_large(message)) == (version, version == 2)
        assert validator.is_valid(obj)
        assert parse(json.dumps(obj)) == message
        assert parse(json.dumps(obj | {"version": 2})) == message  # whatever a newer sender thinks large
        wrong = obj | {"version": 1}
        assert validator.is_valid(wrong) == (count <= every)
        if count > every:
            with pytest.raises(InvalidMessage, match="1 to 32"):
                parse(json.dumps(wrong))
    with pytest.raises(InvalidMessage, match=f"1 to {most}"):
        parse(to_text(make(most + 1)))
    with pytest.raises(UnknownVersion):
        parse(json.dumps(json.loads(to_text(make(1))) | {"version": 3}))


def test_a_rerun_of_one_task_is_read_as_versions_before_wrote_it() -> None:
    body = {"version": 1, "type": "rerun", "graph": "g-1", "task": IDS[0], "run": 2, "reason": "why not"}
    assert parse(json.dumps(body)) == Rerun("g-1", ((IDS[0], 2),), "why not")
    assert schemas.validator("message-rerun").is_valid(body)


def test_there_is_a_schema_for_every_message_and_its_examples_are_read():
    names = [name for name in schemas.names() if name.startswith("message-")]
    assert names == sorted(f"message-{kind}" for kind in MESSAGE_TYPES)
    for name in names:
        for example in schemas.schema(name)["examples"]:
            read = {key: value for key, value in example.items() if key not in ("traceparent", "sent")}
            assert to_object(parse(json.dumps(example))) == read  # those two are for telemetry, and passed over


def test_text_is_ascii_without_half_characters():
    result = TaskResult(IDS[0], 0, "c", ENDED, {"failed": True, "reason": "\ud83d😀\x00\uffff", "\udc00": "\udc00"})
    text = to_text(TaskFailed("g", (result,)))
    assert text.isascii()
    message = parse(text)
    assert isinstance(message, TaskFailed)
    assert message.tasks[0].resolution == {"failed": True, "reason": "\ufffd😀\x00\uffff", "\ufffd": "\ufffd"}


@pytest.mark.parametrize("value", [float("nan"), object(), {1, 2}])
def test_what_json_cannot_hold_is_not_written(value: object):
    with pytest.raises(InvalidMessage, match="task-completed"):
        to_text(TaskCompleted("g", (TaskResult(IDS[0], 0, "c", ENDED, {"failed": False, "x": value}),)))


def test_unknown_keys_are_passed_over_and_resolutions_keep_theirs():
    obj = to_object(MESSAGES[3][1])
    obj["new"] = obj["tasks"][0]["new"] = {"x": [1]}
    assert parse(json.dumps(obj)) == MESSAGES[3][1]


@pytest.mark.parametrize("kind", ["add-tasks", "invent-tasks"])
def test_a_higher_version_is_left_for_a_newer_reader(kind: str):
    with pytest.raises(UnknownVersion) as caught:
        parse(json.dumps({"version": 2, "type": kind, "graph": ["g"]}))
    assert isinstance(caught.value, TaskgraphError)
    assert not isinstance(caught.value, InvalidInput)


def changed(kind: str, **changes: Any) -> dict[str, Any]:
    obj = json.loads(to_text(dict(MESSAGES)[kind]))
    return {key: value for key, value in (obj | changes).items() if value is not ...}


def result_changed(kind: str, **changes: Any) -> dict[str, Any]:
    obj = json.loads(to_text(dict(MESSAGES)[kind]))
    obj["tasks"][0] = {key: value for key, value in (obj["tasks"][0] | changes).items() if value is not ...}
    return obj


WRONG: list[tuple[dict[str, Any], str]] = [
    (changed("add-tasks", version=...), "version"),
    (changed("add-tasks", version="1"), "version"),
    (changed("add-tasks", version=True), "version"),
    (changed("add-tasks", version=0), "version"),
    (changed("add-tasks", version=1.5), "version"),
    (changed("add-tasks", type="add-task"), "type"),
    (changed("add-tasks", type=["add-tasks"]), "type"),
    (changed("add-tasks", graph="a/b"), "graph"),
    (changed("add-tasks", graph="a\n"), "graph"),
    (changed("add-tasks", graph="x" * 65), "graph"),
    (changed("add-tasks", graph=None), "graph"),
    (changed("add-tasks", request=""), "request"),
    (changed("add-tasks", request="r#"), "request"),
    (changed("edit", request=""), "request"),
    (changed("edit", request=...), "request"),
    (changed("rerun", tasks=[{"task": "short", "run": 0}]), "task"),
    (changed("rerun", tasks=[{"task": IDS[0] + "\n", "run": 0}]), "task"),
    (changed("rerun", tasks=[{"task": IDS[0], "run": -1}]), "run"),
    (changed("rerun", tasks=[{"task": IDS[0], "run": 1_000_001}]), "run"),
    (changed("rerun", tasks=[{"task": IDS[0], "run": True}]), "run"),
    (changed("rerun", tasks=[]), "tasks"),
    (changed("rerun", tasks=...), "tasks"),
    (changed("cancel", reopened=-1), "reopened"),
    (changed("rerun", reason="x" * 1_001), "reason"),
    (changed("rerun", reason=None), "reason"),
    (changed("cancel", reason=None), "reason"),
    (changed("cancel", terminate=1), "terminate"),
    (changed("cancel", tasks=[]), "tasks"),
    (changed("cancel", tasks=None), "tasks"),
    (changed("cancel", tasks=[{"task": IDS[0]}]), "reruns"),
    (changed("cancel", tasks=[{"task": "short", "reruns": 0}]), "task"),
    (changed("cancel", tasks=[{"task": IDS[0], "reruns": -1}]), "reruns"),
    (changed("cancel", tasks=[{"task": IDS[0], "reruns": 0}] * 33), "tasks"),
    (changed("set-limit", max=-1), "max"),
    (changed("set-limit", max=1001), "max"),
    (changed("set-limit", max=True), "max"),
    (changed("set-limit", max=...), "max"),
    (changed("set-limit", asked="yesterday"), "asked"),
    (changed("set-limit", group=["g"]), "group"),
    (changed("run-tasks", level="urgent"), "level"),
    (changed("run-tasks", level=""), "level"),
    (changed("send-ready", after="short"), "after"),
    (changed("send-ready", after=None), "after"),
    (changed("hold-back", on=1), "on"),
    (changed("hold-back", on=...), "on"),
    (changed("hold-back", asked="yesterday"), "asked"),
    (changed("hold-back", asked="2030-01-31T12:00:00Z"), "asked"),
    (changed("hold-back", asked=...), "asked"),
    (changed("hold-back", group=1), "group"),
    (changed("hold-back", tasks=[]), "tasks"),
    (changed("prioritize", level="urgent"), "level"),
    (changed("prioritize", level=...), "level"),
    (changed("prioritize", asked=...), "asked"),
    (changed("prioritize", tasks=[]), "tasks"),
    (changed("prioritize", tasks=...), "tasks"),
    (changed("prioritize", tasks=["x"]), "tasks"),
    (changed("hold-back", tasks=[IDS[0]] * 33), "tasks"),
    (changed("hold-back", tasks=["short"]), "tasks"),
    (changed("hold-back", tasks=[IDS[0]], group="g"), "group"),
    (changed("run-tasks", target="A"), "target"),
    (changed("run-tasks", tasks=[]), "tasks"),
    (changed("run-tasks", tasks=[{"task": IDS[0], "run": 0}] * 33), "tasks"),
    (changed("run-tasks", tasks=[[IDS[0], 0]]), "tasks"),
    (changed("run-tasks", tasks=[{"task": IDS[0]}]), "run"),
    (changed("task-completed", tasks={}), "tasks"),
    (result_changed("task-completed", claim=""), "claim"),
    (result_changed("task-completed", claim="x" * 129), "claim"),
    (result_changed("task-completed", ended="yesterday"), "ended"),
    (result_changed("task-completed", ended="2030-01-31T12:00:00"), "ended"),
    (result_changed("task-completed", ended=...), "ended"),
    (result_changed("task-completed", exception=True), "exception"),
    (result_changed("task-failed", exception=1), "exception"),
    (result_changed("task-completed", resolution=None), "resolution"),
    (result_changed("task-completed", resolution={}), "failed"),
    (result_changed("task-completed", resolution={"failed": True}), "failed"),
    (result_changed("task-failed", resolution={"failed": False}), "failed"),
    (result_changed("task-failed", resolution={"failed": 1}), "failed"),
    (result_changed("task-failed", resolution={"failed": True, "reason": "x" * 1_001}), "reason"),
    (result_changed("task-failed", resolution={"failed": True, "exitCode": "1"}), "exitCode"),
    (result_changed("task-failed", resolution={"failed": True, "exitCode": 2**31}), "exitCode"),
    (result_changed("task-failed", resolution={"failed": True, "logsUrl": 1}), "logsUrl"),
    (result_changed("task-failed", routing="x" * 22), "routing"),
    (result_changed("task-completed", routing=0), "routing"),
]


@pytest.mark.parametrize(("obj", "word"), WRONG)
def test_what_is_wrong_is_named(obj: dict[str, Any], word: str):
    with pytest.raises(InvalidMessage, match=word):
        parse(json.dumps(obj))
    for name in schemas.names():
        if name.startswith("message-"):
            assert not schemas.validator(name).is_valid(obj)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("", "no JSON object"),
        ("hello", "neither"),
        ("[]", "neither"),
        (base64.b64encode(b"hello").decode(), "no JSON object"),
        (b"\xff\xfe", "UTF-8"),
        ('{"version": 1', "not JSON"),
        ('{"version": 1, "version": 1}', "more than once"),
        ('{"version": NaN}', "NaN"),
        ('{"version": 1e999}', "Infinity"),
        ('{"version": 1' + "0" * 10_000 + "}", "64 bits"),
        ('{"version": 99999999999}', "version"),
        ('{"version": 1, "graph": "\\ud800"}', "surrogate"),
        ('{"x": ' * 100 + "1" + "}" * 100, "64"),
        ("{" * 60_000, "64"),
        ('{"' + "x" * 70_000, "fit"),
    ],
)
def test_what_else_may_lie_in_a_queue(body: str | bytes, word: str):
    with pytest.raises(InvalidMessage, match=word):
        parse(body)


SCALARS = (
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, 2, -1, 1.0, 0.5, 1_000_000, 1_000_001, 2**31, -(2**31)])
    | st.sampled_from(["", "g-1", IDS[0], IDS[0] + "\n", "x" * 64, "x" * 65, "x" * 128, "x" * 129, "x" * 1_001, ENDED,
                       "2030-02-31T12:00:00Z", "2030-01-31T12:00:00+00:00", "default", "a--b", "add-tasks", "rerun"])
)  # fmt: skip
ANYTHING = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.sampled_from(["task", "run"]), SCALARS)


def spoilt(good: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The object with up to two of its members, at any depth, changed, removed or added."""

    @st.composite
    def draw_one(draw: st.DrawFn) -> dict[str, Any]:
        obj: dict[str, Any] = json.loads(json.dumps(good))
        for _ in range(draw(st.integers(0, 2))):
            here: Any = obj
            while True:
                inner = [key for key, value in here.items() if isinstance(value, dict)]
                inner += [key for key, value in here.items() if isinstance(value, list) and value]
                if not inner or draw(st.booleans()):
                    break
                there = here[draw(st.sampled_from(inner))]
                there = there[0] if isinstance(there, list) else there
                if not isinstance(there, dict):
                    break
                here = there
            extra = ["new", "routing", "exception", "reason", "exitCode", "resultUrl", "logsUrl"]
            key = draw(st.sampled_from([*here, *extra]))
            if draw(st.integers(0, 5)):
                here[key] = draw(ANYTHING)
            else:
                here.pop(key, None)
        return obj

    return draw_one()


@given(st.sampled_from(MESSAGES).flatmap(lambda pair: st.tuples(st.just(pair[0]), spoilt(to_object(pair[1])))))
@settings(deadline=None, max_examples=600)
def test_the_checks_and_the_schemas_agree(case: tuple[str, dict[str, Any]]):
    _, obj = case
    kinds = {kind for kind, _ in MESSAGES}
    kind = obj.get("type")
    by_schema = isinstance(kind, str) and kind in kinds and schemas.validator(f"message-{kind}").is_valid(obj)
    try:
        message = parse(json.dumps(obj))
    except (InvalidMessage, UnknownVersion):
        assert not by_schema
    else:
        assert by_schema
        assert parse(to_text(message)) == message


@given(st.text(max_size=40) | st.binary(max_size=40) | st.text('{}[]":,\\version1typeAQgw=', max_size=60))
@settings(deadline=None, max_examples=300)
def test_no_body_breaks_the_reader(body: str | bytes):
    with pytest.raises((InvalidMessage, UnknownVersion)):
        parse(body)


# --- bundles ---------------------------------------------------------------------------------------------------


def test_bundles_keep_the_order_and_the_number():
    wanted = [(task_id, index) for index, task_id in enumerate(IDS)]
    made = bundles(lambda part: RunTasks("g", "default", part), wanted, 7)
    assert [len(message.tasks) for message in made if isinstance(message, RunTasks)] == [7, 7, 7, 7, 7, 5]
    assert [entry for message in made if isinstance(message, RunTasks) for entry in message.tasks] == wanted
    made = bundles(lambda part: RunTasks("g", "default", part), wanted)
    assert [len(message.tasks) for message in made if isinstance(message, RunTasks)] == [limits.BUNDLE_TASKS_MAX, 8]
    assert bundles(lambda part: RunTasks("g", "d", part), []) == []


@given(st.lists(st.integers(0, 900), max_size=40), st.integers(1_300, 5_000))
@settings(deadline=None)
def test_bundles_fill_the_bytes_and_never_overflow(sizes: list[int], bytes_max: int):
    results = [
        TaskResult(IDS[index], 0, "c", ENDED, {"failed": True, "reason": "é" * (size // 6)})
        for index, size in enumerate(sizes)
    ]
    make: Callable[[tuple[TaskResult, ...]], Message] = lambda part: TaskFailed("g", part)  # noqa: E731
    made = [message for message in bundles(make, results, bytes_max=bytes_max) if isinstance(message, TaskFailed)]
    assert [result for message in made for result in message.tasks] == results
    for message, following in itertools.zip_longest(made, made[1:]):
        assert len(to_text(message)) <= bytes_max
        assert 1 <= len(message.tasks) <= limits.BUNDLE_TASKS_MAX
        if following is not None and len(message.tasks) < limits.BUNDLE_TASKS_MAX:
            one_more = TaskFailed("g", (*message.tasks, following.tasks[0]))
            assert len(to_text(one_more)) > bytes_max


def test_bundles_use_the_last_byte():
    results = [DONE, DONE, DONE]
    exactly = len(to_text(TaskCompleted("g", (DONE, DONE, DONE))))
    for bytes_max, parts in ((exactly, [3]), (exactly - 1, [2, 1])):
        made = bundles(lambda part: TaskCompleted("g", part), results, bytes_max=bytes_max)
        assert [len(message.tasks) for message in made if isinstance(message, TaskCompleted)] == parts


def test_an_item_that_is_too_large_by_itself_is_refused():
    result = TaskResult(IDS[0], 0, "c", ENDED, {"failed": True, "x": "x" * limits.MESSAGE_BYTES_MAX})
    with pytest.raises(TooLarge):
        bundles(lambda part: TaskFailed("g", part), [DONE, result])


@given(st.from_regex(schemas._PLAIN_DATE_TIME, fullmatch=True))
def test_what_plainly_is_a_date_time_is_one(text: str):
    assert schemas.parse_date_time(text).utcoffset() is not None
    assert schemas.is_date_time(text)


# --- hints -------------------------------------------------------------------------------------------------------


def run_of(**more: Any) -> str:
    entry = {"task": IDS[0], "run": 0, "etag": "e", "label": "l", "definition": "{}", **more}
    entry = {name: value for name, value in entry.items() if value is not None}
    return json.dumps({"version": 1, "type": "run-tasks", "graph": "g", "target": "t", "tasks": [entry]})


def result_of(**more: Any) -> str:
    entry = {"task": IDS[0], "run": 0, "claim": "c", "ended": ENDED, "resolution": {"failed": False}, **more}
    entry = {name: value for name, value in entry.items() if value is not None}
    return json.dumps({"version": 1, "type": "task-completed", "graph": "g", "tasks": [entry]})


@pytest.mark.parametrize(
    "more",
    [
        {"etag": ""},
        {"etag": "e" * 129},
        {"etag": 1},
        {"label": None},
        {"label": 1},
        {"definition": None},
        {"definition": "{"},
        {"definition": "x" * (limits.INLINE_DEFINITION_CHARS_MAX + 1)},
        {"next": ""},
        {"next": "nobody"},
        {"next": None, "label": "x" * (2 * limits.LABEL_CHARS_MAX + 1)},
    ],
    ids=str,
)
def test_what_a_work_message_says_of_a_task_is_checked(more: dict[str, Any]):
    assert isinstance(parse(run_of()), RunTasks)
    with pytest.raises(InvalidMessage):
        parse(run_of(**more))


@pytest.mark.parametrize("more", [{"etag": 1}, {"over": 1}, {"etag": "e" * 129}, {"over": "e" * 129}, {"etag": []}])
def test_what_a_result_says_of_rows_is_checked(more: dict[str, Any]):
    with pytest.raises(InvalidMessage):
        parse(result_of(**more))


@pytest.mark.parametrize("more", [{"etag": None}, {"etag": None, "label": None, "definition": None}])
def test_without_the_etag_nothing_was_seen(more: dict[str, Any]):
    """A version before says nothing of what it saw, and the rows are read."""
    message = parse(run_of(**more))
    assert isinstance(message, RunTasks)
    assert message.seen == {}
    assert message.tasks == ((IDS[0], 0),)


@pytest.mark.parametrize("hints", [{"etag": "e"}, {"over": "e"}, {"etag": "", "over": "e"}])
def test_of_a_result_both_etags_are_said_or_none(hints: dict[str, str]):
    """One alone says nothing: what a row has become is known to whoever knows what it was."""
    result = replace(DONE, **hints)
    (entry,) = to_object(TaskCompleted("g", (result,)))["tasks"]
    assert not {"etag", "over"} & entry.keys()


def test_hints_are_no_part_of_what_a_message_is_about():
    """Two messages that ask for the same tasks hash alike, whatever they say of them."""
    one = RunTasks("g", "t", ((IDS[0], 0),), {IDS[0]: Seen("e", "l", "{}")})
    assert hash(one) == hash(RunTasks("g", "t", ((IDS[0], 0),)))


@pytest.mark.parametrize("worker", [1, None, "w" * 256, ["w"]])
def test_the_name_of_a_worker_is_a_short_text(worker: Any):
    text = json.dumps({**json.loads(result_of()), "worker": worker})
    with pytest.raises(InvalidMessage):
        parse(text)


def test_messages_with_long_hints_are_parted_by_their_size():
    definition = json.dumps({"payload": {"x": "é" * 900}})
    items = [(task, Seen("e" * 128, "l", definition)) for task in IDS[:32]]
    made = bundles(lambda part: RunTasks("g", "t", tuple((t, 0) for t, _ in part), dict(part)), items)
    assert len(made) > 1
    assert all(len(to_text(message)) <= limits.MESSAGE_BYTES_MAX for message in made)
    assert [task for message in made for task, _ in message.tasks] == IDS[:32]  # type: ignore[union-attr, misc, str-unpack]
    assert {task for message in made for task in message.seen} == set(IDS[:32])  # type: ignore[union-attr]
