"""No text on any queue does anything but what a good message may do (S15).

`test_a_hundred_thousand_spoilt_messages` is the bulk, and every day ten thousand of them: seeded, all through the
production consumer, handlers and worker, with the ruling of `tests/hostile/installation.py` after each round. A breach
names its round; play it again with `Installation().play(ROUND)`. What was found once has a test of its own below.
"""

import base64
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskgraph.model import limits
from taskgraph.model.errors import InvalidMessage
from taskgraph.model.messages import UnknownVersion, parse, to_object, to_text
from taskgraph.storage.queues import Delivery
from taskgraph.testing import MemoryTables
from tests.hostile.installation import SETUPS, Installation, good_object, seeds, words
from tests.hostile.mutate import Mutator
from tests.scenarios.stage import Stage, graph
from tests.simulation.invariants import Violation

EVERYDAY_MESSAGES = 10_000
MESSAGES = 100_000
MORE_MESSAGES = 1_000_000


async def play(first: int, messages: int) -> Installation:
    installation = Installation()
    for seed in seeds(first, messages):
        await installation.play(seed)
    return installation


async def ruled(messages: int) -> None:
    """Play the first so many, and see that they met what they are for."""
    played = (await play(0, messages)).played
    print(played.line())
    assert played.messages > messages * 0.99  # a few are longer than any queue takes
    for fate in ("applied", "repeated", "stale", "refused", "handled", "retried", "left", "set aside"):
        assert played.fates[fate] > messages // 1_000, f"hardly any message was {fate}: {played.line()}"
    for move in ("pending to running", "running to completed", "running to pending", "running to failed"):
        assert played.moves[move] > messages // 1_000, f"hardly any task went from {move}: {played.moves}"
    assert played.moves["failed to pending"] > messages // 10_000


async def test_ten_thousand_spoilt_messages() -> None:
    await ruled(EVERYDAY_MESSAGES)


@pytest.mark.campaign
async def test_a_hundred_thousand_spoilt_messages() -> None:
    await ruled(MESSAGES)


@pytest.mark.slow
async def test_a_million_more() -> None:
    print((await play(10**6, MORE_MESSAGES)).played.line())


# --- the reader alone ----------------------------------------------------------------------------------------------


async def test_the_reader_takes_what_the_schemas_allow_and_says_why_not() -> None:
    """Text and bytes, with half characters too."""
    installation = Installation()
    told: list[str] = []
    taken = 0
    for name in SETUPS:
        setup = await installation.setup(name)
        mutator = Mutator([to_object(message) for message in setup.messages], words())
        for seed in range(2_500):
            text = mutator.text(seed)
            good = good_object(text)
            for body in (text, text.encode("utf-8", "surrogatepass")):
                try:
                    message = parse(body)
                except InvalidMessage as error:
                    told.append(str(error))
                    assert good is None, told[-1]
                except UnknownVersion:
                    assert good is None
                else:
                    assert good is not None, f"{name} {seed}: {text[:300]}"
                    assert parse(to_text(message)) == message
                    taken += 1
    assert taken > 500
    assert len(told) > 5_000
    assert [each for each in told if not each.isprintable() or not each.endswith((".", ")")) or len(each) > 500] == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(words()) | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON | st.dictionaries(st.sampled_from(words()), JSON, max_size=6), st.booleans())
@settings(deadline=None, max_examples=500, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_no_json_breaks_the_reader(value: Any, coded: bool) -> None:
    text = json.dumps(value)
    body = base64.b64encode(text.encode()).decode() if coded else text
    try:
        message = parse(body)
    except (InvalidMessage, UnknownVersion):
        assert good_object(body) is None
    else:
        assert good_object(body) is not None
        assert parse(to_text(message)) == message


@pytest.mark.parametrize("depth", [65, 1_000, 10_000, 65_000, 100_000])
@pytest.mark.parametrize("opening", ["[", '{"x":', '{"a":1,"x":[', '"]"[', "]["])
def test_any_depth_is_refused(opening: str, depth: int) -> None:
    for text in (opening * depth, '{"version":1,"x":' + opening * depth + "1", "{}" + opening * depth):
        for body in (text, text.encode(), base64.b64encode(text.encode())):
            with pytest.raises(InvalidMessage):
                parse(body)


# --- the ruling itself ---------------------------------------------------------------------------------------------


class _Believing:
    """What a consumer would be that takes anybody's word: the claim of a result is not asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from taskgraph.protocol import runs

        monkeypatch.setattr(
            runs,
            "_holds",
            lambda task, run, claim: task.text("state") == "running" and task.integer("run") == run,
        )


async def test_a_consumer_that_believes_anybody_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    _Believing(monkeypatch)
    with pytest.raises(Violation, match="without a message that says so"):
        await play(0, 20_000)


async def test_a_consumer_that_drops_what_it_cannot_read_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from taskgraph.engine.poison import Poison

    async def dropped(self: Poison, delivery: Delivery, reason: str) -> None:
        await self._queues.delete(delivery)

    monkeypatch.setattr(Poison, "set_aside", dropped)
    with pytest.raises(Violation, match="is handled, and not set aside"):
        await play(0, 320)


async def test_a_consumer_that_stumbles_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from taskgraph.protocol import decide, runs

    def stumbles(*_: Any) -> Any:
        raise KeyError("exitCode")

    monkeypatch.setitem(decide.RULES, runs.Failed, stumbles)
    with pytest.raises(Violation, match="handling failed"):
        await play(0, 320)


# --- found once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("char", ["\x01", "\x1b", "\u2028", "\U0001f600"])
async def test_addresses_of_control_characters(char: str) -> None:
    """As long as the schema allows; JSON spells them out, and the column cannot hold both."""
    installation = Installation()
    setup = await installation.setup("running")
    body = next(found for message in setup.messages if (found := to_object(message))["type"] == "task-completed")
    body = json.loads(json.dumps(body))
    for entry in body["tasks"]:
        entry["resolution"] = {"failed": False, "logsUrl": char * 4_096, "resultUrl": char * 4_096, "exitCode": 3}
    text = json.dumps(body, ensure_ascii=char < " ", separators=(",", ":"))
    assert len(text.encode()) < 65_536
    await installation.play_bodies("running", [text] * 3, context=f"U+{ord(char):04X}")
    assert installation.played.fates["handled"] == 3


async def test_many_results_of_expensive_characters(memory: Stage) -> None:
    """Each fits its column; together they are far more bytes than one commit takes."""
    labels = [f"t{number}" for number in range(32)]
    await memory.submit(graph({label: [] for label in labels}))
    held = await memory.claims(*labels)
    await memory.deliver(*(memory.completed(each, note="é" * 31_900) for each in held))
    assert await memory.state() == "finished"


class Choosy(MemoryTables):
    """A store that does not take one certain row, for a reason that nobody foresaw."""

    refused = ""

    async def commit(self, partition: str, changes: Any) -> list[str | None]:
        if any(change.key == self.refused for change in changes):
            raise ZeroDivisionError(self.refused)
        return await super().commit(partition, changes)


async def test_a_message_that_cannot_be_handled_costs_no_neighbour_of_its_batch(memory: Stage) -> None:
    tables = Choosy()
    stage = Stage(tables, memory.queues, memory.clock)
    await stage.submit(graph({"a": [], "b": ["a"], "c": [], "d": []}))
    a, c, d = await stage.claims("a", "c", "d")
    tables.refused = f"task:{c.task_id}"
    await stage.queues.send(stage.names.events, [to_text(stage.completed(each)) for each in (a, c, d)])
    for _ in range(limits.POISON_FAILURES_MAX + 1):
        await stage.consume()
        stage.clock.advance(120)
    assert await stage.states() == {"a": "completed", "b": "pending", "c": "running", "d": "completed"}
    (message,) = await stage.poison.list()
    assert (message.failures, message.reason) == (
        limits.POISON_FAILURES_MAX + 1,
        f"ZeroDivisionError: task:{c.task_id}",
    )
    assert await stage.queues.count(stage.names.events) == 0
