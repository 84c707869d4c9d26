"""Spoilt documents are run or refused, and never half of it; what is refused leaves nothing behind."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskgraph import Client
from taskgraph.documents.read import document_from_object
from taskgraph.interfaces.cli import failures
from taskgraph.model.errors import InvalidGraph
from tests.hostile.plans import WORDS, judged, play, spoiler
from tests.hostile.terminal import dangerous, taskgraph
from tests.scenarios.stage import Stage

DOCUMENTS = 2_000
MANY_DOCUMENTS = 5_000
MORE_DOCUMENTS = 300_000


async def play_all(first: int, number: int) -> Counter[str]:
    found: Counter[str] = Counter()
    spoil = spoiler()
    for seed in range(first, first + number):
        text = spoil.text(seed)
        try:
            await play(text if seed % 2 else text.encode("utf-8", "surrogatepass"), found)
        except BaseException as error:
            error.add_note(f"document {seed}: {text[:2_000]!r}")
            raise
    return found


@pytest.mark.parametrize("number", [DOCUMENTS, pytest.param(MANY_DOCUMENTS, marks=pytest.mark.campaign)])
async def test_spoilt_documents_run_or_are_refused(number: int) -> None:
    found = await play_all(0, number)
    print(found)
    assert found["ran"] + found["refused"] == number
    assert found["ran"] > number // 20
    for code in ("syntax", "depth", "duplicate-key", "number", "surrogate", "unknown-label", "unknown-key"):
        assert found[code] > 3, (code, found)
    for code in ("cycle", "self-requirement", "duplicate-requirement", "bad-subs", "wrong-type", "missing", "encoding"):
        assert found[code] > 3, (code, found)


@pytest.mark.slow
async def test_many_more_spoilt_documents() -> None:
    print(await play_all(10**6, MORE_DOCUMENTS))


# --- by strategies over the schema ---------------------------------------------------------------------------------

LABEL = st.text(min_size=1, max_size=8) | st.sampled_from(
    ["a", "b", "c", "../x", "x" * 255, "x" * 256, "\u202e", "\x1b[2J"]
)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
TASK = st.fixed_dictionaries(
    {},
    optional={
        "executor": st.sampled_from(["noop", "sleep", "command", "python", "x-1", "X"]) | VALUE,
        "target": st.sampled_from(["default", "a-b", "a--b", "A"]) | VALUE,
        "payload": st.dictionaries(st.sampled_from(WORDS), VALUE, max_size=3) | VALUE,
        "deadline": st.sampled_from(["2030-01-31T12:00:00Z", "2030-02-31T12:00:00Z"]) | VALUE,
        "routing": st.text(max_size=11),
        "metadata": st.dictionaries(st.sampled_from(["name", "owner", "x"]), VALUE, max_size=2),
    },
)
NODE = st.fixed_dictionaries(
    {"task": TASK},
    optional={"requires": st.lists(LABEL, max_size=3) | VALUE, "reruns": st.integers(-1, 1_000) | VALUE, "more": VALUE},
)
DOCUMENT = st.fixed_dictionaries(
    {"tasks": st.dictionaries(LABEL, NODE, max_size=5) | VALUE},
    optional={"metadata": VALUE, "tags": st.dictionaries(st.text(max_size=4), VALUE, max_size=2), "routing": VALUE},
)


@given(DOCUMENT)
@settings(deadline=None, max_examples=400, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_documents_made_of_anything(document: Any) -> None:
    """As text and as values: both doors say the same."""
    outcome = judged(json.dumps(document))
    try:
        document_from_object(document)
        codes = set()
    except InvalidGraph as error:
        codes = {each.code for each in error.problems}
    assert codes == ({each.code for each in outcome.problems} if isinstance(outcome, InvalidGraph) else set())


@given(st.binary(max_size=60) | st.text(max_size=60) | st.text('{}[]":,\\tasksrequire1eE+-.\ud800', max_size=80))
@settings(deadline=None, max_examples=400, derandomize=True)
def test_raw_text_is_refused(text: str | bytes) -> None:
    assert isinstance(judged(text), InvalidGraph)


# --- nothing is written --------------------------------------------------------------------------------------------


async def test_what_is_refused_leaves_nothing_in_a_store(tmp_path: Path) -> None:
    """By the client, over a real file: no row, no message, no name in an index."""
    spoil = spoiler()
    async with Client(f"sqlite:///{tmp_path}/store.db") as client:
        refused = 0
        for seed in range(600):
            try:
                value = json.loads(spoil.text(seed))
            except (ValueError, RecursionError):
                continue
            if not isinstance(value, dict):
                continue
            try:
                document_from_object(value)
            except InvalidGraph:
                with pytest.raises(InvalidGraph):
                    await client.submit(value, "refused")
                with pytest.raises(InvalidGraph):
                    await client.run(value, "refused")
                refused += 1
        assert refused > 100
        assert await client.graphs() == []
        for partition in ("refused", "index:live", "index:graphs", "index:poison"):
            from taskgraph.storage.tables import Range, query_all

            assert await query_all(client.app.tables, partition, Range()) == []
        for queue in ("taskgraph-events", "taskgraph-work-default"):
            assert await client.app.queues.count(queue) == 0


def test_what_is_refused_by_a_command_leaves_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TASKGRAPH_STORE", raising=False)
    monkeypatch.delenv("AzureWebJobsStorage", raising=False)
    spoil = spoiler()
    refused = 0
    for seed in range(150):
        data = spoil.text(seed).encode("utf-8", "surrogatepass")
        if not isinstance(judged(data), InvalidGraph):
            continue
        Path("graph.json").write_bytes(data)
        for words in (("validate",), ("submit", "--id", "g"), ("run", "--id", "g")):
            shown = taskgraph(*words, "graph.json", tty=seed % 2 == 0)
            assert shown.code == failures.INVALID, (seed, shown)
            assert dangerous(shown.out + shown.err) == [], (seed, shown.text)
            assert b"graph.json" in shown.err
        refused += 1
    assert refused > 80
    assert not Path(".taskgraph").exists()


# --- found once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "node",
    [
        {"requires": {"$subs": "taskId:a"}, "task": {}},
        {"requires": [{"$subs": "taskId:a"}], "task": {}},
        {"reruns": {"$subs": "taskId:a"}, "task": {}},
        {"$subs": "taskId:a", "task": {}},
        {"task": {"target": {"$subs": "taskId:a"}}},
        {"task": {"metadata": {"name": {"$subs": "taskId:a"}}}},
        {"task": {"deadline": {"$subs": "taskId:a"}}},
    ],
)
def test_a_reference_outside_the_payload_is_no_excuse(node: dict[str, Any]) -> None:
    """A task that required an object was let in, and waited for a task `$subs` for ever."""
    found = judged(json.dumps({"tasks": {"a": {"task": {}}, "b": node}}))
    assert isinstance(found, InvalidGraph)
    assert {problem.pointer.split("/")[2] for problem in found.problems} == {"b"}


@pytest.mark.parametrize("char", ["é", "日", "\x01", '"', "\U0001f600"])
async def test_large_definitions_of_any_characters_are_submitted_whole(memory: Stage, char: str) -> None:
    """Each within its limit; as a store is sent them, together far more than one commit takes."""
    units = len(json.dumps(char, ensure_ascii=False).encode("utf-16-le")) // 2 - 2  # without its quotation marks
    length = 440_000 // units
    payload = {"payload": {"x": char * length}}
    tasks = {f"t{number}": {"task": payload} for number in range(8)}
    await memory.submit(document_from_object({"tasks": tasks}))
    more = {f"more{number}": {"requires": ["t0"], "task": payload} for number in range(8)}
    assert await memory.extend(document_from_object({"tasks": more}, kind="extension")) == "done"
    assert await memory.work() == "finished"
