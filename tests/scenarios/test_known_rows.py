"""Decisions by known rows that are old: whichever of them is, the end is the same as by rows that were just read.

A story is played step by step, and the rows after each step are remembered. Its last message is then handled by a
process that knows some rows as they stood after an earlier step, once for every row alone and for all of them.
"""

import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from taskgraph.engine.handlers import Handlers
from taskgraph.model.ids import GRAPH, row_key
from taskgraph.model.messages import AddTasks, TaskCompleted
from taskgraph.storage.tables import Row
from taskgraph.testing import MemoryQueues, MemoryTables
from tests.scenarios.stage import PAST_LEASE_SECONDS, Held, Stage, extension, graph, memory_stage

Rows = dict[str, Row]
LABELS = [f"t{number:03}" for number in range(100)]


class Story:
    """A graph on a stage, with what is known of it after each step."""

    def __init__(self) -> None:
        self.stage = memory_stage()
        self.known: list[Rows] = []
        self.held: dict[str, Held] = {}
        self.etags: dict[str, tuple[str, str]] = {}

    @property
    def rows(self) -> Rows:
        assert isinstance(self.stage.tables, MemoryTables)
        return self.stage.tables.partitions["graph"]

    def step(self) -> None:
        self.known.append(dict(self.rows))

    async def begin(self, requires: Mapping[str, Sequence[str]], *, reruns: Mapping[str, int] | None = None) -> None:
        await self.stage.submit(graph(requires, reruns=reruns))
        self.step()

    async def claim(self, *labels: str) -> None:
        for label in labels:
            key = row_key(self.stage.task_id(label))
            over = self.rows[key].etag
            self.held[label] = await self.stage.claim(label)
            self.etags[label] = self.rows[key].etag, over
        self.step()

    async def complete(self, *labels: str) -> None:
        await self.stage.deliver(self.completed(*labels))
        self.step()

    async def extend(self, requires: Mapping[str, Sequence[str]]) -> None:
        staged = await self.stage.stage_extension(extension(requires))
        await self.stage.deliver(AddTasks("graph", staged.request))
        self.step()

    def completed(self, *labels: str, hints: bool = True) -> TaskCompleted:
        message = self.stage.completed(*(self.held[label] for label in labels))
        if not hints:
            return message
        etags = [self.etags[label] for label in labels]
        pairs = zip(message.tasks, etags, strict=True)
        return replace(message, tasks=tuple(replace(result, etag=new, over=old) for result, (new, old) in pairs))


async def a_task_that_others_claimed(story: Story) -> list[str]:
    await story.begin({"a": [], "b": ["a"]})
    await story.claim("a")
    return ["a"]


async def a_dependent_that_waited_for_more(story: Story) -> list[str]:
    await story.begin({"a": [], "x": [], "y": [], "b": ["a", "x", "y"]})
    await story.claim("a", "x", "y")
    await story.complete("x")
    await story.complete("y")
    return ["a"]


async def the_last_of_several_leaves(story: Story) -> list[str]:
    await story.begin({"a": [], "x": [], "y": []})
    await story.claim("a", "x", "y")
    await story.complete("x")
    await story.complete("y")
    return ["a"]


async def a_leaf_while_the_graph_is_extended(story: Story) -> list[str]:
    """The completion of the last task must see what the graph waits for by now."""
    await story.begin({"a": []})
    await story.claim("a")
    await story.extend({"c": []})
    return ["a"]


async def a_task_that_got_a_dependent_before_it_was_claimed(story: Story) -> list[str]:
    """The row that was claimed is not the one that is known, and the etag of the claim does not tell what it says."""
    await story.begin({"a": [], "z": []})
    await story.extend({"c": ["a"]})
    await story.claim("a")
    return ["a"]


async def a_task_that_got_a_dependent_after_it_was_claimed(story: Story) -> list[str]:
    await story.begin({"a": [], "z": []})
    await story.claim("a")
    await story.extend({"c": ["a"]})
    return ["a"]


async def a_result_that_comes_again(story: Story) -> list[str]:
    """Its dependent stands ready, and has to be told to the workers again."""
    await story.begin({"a": [], "b": ["a"]})
    await story.claim("a")
    await story.complete("a")
    return ["a"]


async def a_result_that_comes_again_when_its_dependent_has_run(story: Story) -> list[str]:
    await story.begin({"a": [], "b": ["a"], "c": ["b"]})
    await story.claim("a")
    await story.complete("a")
    await story.claim("b")
    await story.complete("b")
    return ["a"]


async def a_result_of_a_graph_that_has_finished(story: Story) -> list[str]:
    await story.begin({"a": []})
    await story.claim("a")
    await story.complete("a")
    return ["a"]


async def a_result_of_a_run_that_was_given_up(story: Story) -> list[str]:
    await story.begin({"a": [], "b": ["a"]})
    await story.claim("a")
    story.stage.clock.advance(PAST_LEASE_SECONDS)
    await story.stage.lose(story.held["a"])
    story.step()
    await story.stage.claim("a")
    story.step()
    return ["a"]


async def a_result_of_a_task_that_was_rerun(story: Story) -> list[str]:
    await story.begin({"a": [], "b": ["a"]}, reruns={"a": 1})
    await story.claim("a")
    await story.stage.deliver(story.stage.failed(story.held["a"]))
    story.step()
    await story.claim("a")
    return ["a"]


async def a_dependent_that_failed_and_was_rerun(story: Story) -> list[str]:
    await story.begin({"a": [], "b": ["a"], "x": []})
    await story.claim("a", "x")
    await story.complete("a")
    await story.stage.fail("b")
    story.step()
    await story.stage.rerun("b")
    story.step()
    return ["a", "x"]


async def a_leaf_of_a_blocked_graph(story: Story) -> list[str]:
    await story.begin({"a": [], "x": [], "b": ["a"]})
    await story.claim("a", "x")
    await story.stage.deliver(story.stage.failed(story.held["x"]))
    story.step()
    return ["a"]


async def the_last_of_a_join(story: Story) -> list[str]:
    await story.begin({**{label: [] for label in LABELS}, "end": LABELS})
    await story.claim("t000", "t001", "t002")
    await story.stage.deliver(story.stage.completed(*await story.stage.claims(*LABELS[3:])))
    story.step()
    await story.complete("t001")
    await story.complete("t002")
    return ["t000"]


async def a_task_with_forks(story: Story) -> list[str]:
    await story.begin({"a": [], **{label: ["a"] for label in LABELS}})
    await story.claim("a")
    await story.extend({"z": ["a", "t007"]})
    return ["a"]


async def several_at_once(story: Story) -> list[str]:
    await story.begin({"a": [], "b": [], "c": [], "x": ["a", "b"], "y": ["b", "c"], "z": ["a", "c"]})
    await story.claim("a", "b", "c")
    await story.complete("c")
    return ["a", "b", "c"]


STORIES: list[Callable[[Story], Awaitable[list[str]]]] = [
    a_task_that_others_claimed,
    a_dependent_that_waited_for_more,
    the_last_of_several_leaves,
    a_leaf_while_the_graph_is_extended,
    a_task_that_got_a_dependent_before_it_was_claimed,
    a_task_that_got_a_dependent_after_it_was_claimed,
    a_result_that_comes_again,
    a_result_that_comes_again_when_its_dependent_has_run,
    a_result_of_a_graph_that_has_finished,
    a_result_of_a_run_that_was_given_up,
    a_result_of_a_task_that_was_rerun,
    a_dependent_that_failed_and_was_rerun,
    a_leaf_of_a_blocked_graph,
    the_last_of_a_join,
    a_task_with_forks,
    several_at_once,
]


@dataclass(frozen=True)
class End:
    rows: Mapping[str, Mapping[str, Any]]
    outcomes: tuple[str, ...]
    offered: frozenset[tuple[str, int]]
    ended: bool
    """Whether the process that handled the message heard that the graph has ended."""


def copy_of(story: Story) -> Stage:
    """The stage as it stands, in a store of its own, with nothing on its queues."""
    assert isinstance(story.stage.tables, MemoryTables)
    tables = MemoryTables()
    tables.partitions = {name: dict(rows) for name, rows in story.stage.tables.partitions.items()}
    tables._etags = itertools.count(1_000_000)  # an old etag must not come to mean a new row
    made = Stage(tables, MemoryQueues(story.stage.clock), story.stage.clock)
    made._labels = story.stage._labels
    return made


async def played(story: Story, message: TaskCompleted, known: Rows) -> tuple[End, Handlers]:
    stage = copy_of(story)
    heard: list[str] = []
    handlers = stage.more_handlers()
    handlers.listeners.ended.append(lambda graph_id, state: heard.append("ended"))
    handlers.row_cache.of("graph").rows.update(known)
    (handled,) = await handlers.handle("graph", [message])
    assert handled.error is None
    rows = handlers.row_cache.of("graph").rows
    assert isinstance(stage.tables, MemoryTables)
    now = stage.tables.partitions["graph"]
    assert None not in rows.values()
    for key, row in rows.items():
        # What is still known is as it stands, or was known before and not touched: it is never made up.
        assert row is not None
        assert row == known.get(key) or dict(row.columns) == dict(now[key].columns), key
        assert row == known.get(key) or row.etag == now[key].etag, key
    outcomes = tuple(str(answer.outcome) for answer in handled.answers)
    return End(await stage.snapshot(), outcomes, frozenset(await stage.offered()), bool(heard)), handlers


def ways_of_being_old(story: Story) -> Iterator[Rows]:
    """What a process may know: every row as it stands but one, and all as they stood; and old ones alone."""
    now = story.rows
    for then in story.known:
        yield dict(then)
        old = [key for key, row in then.items() if now[key].etag != row.etag and not key.startswith("event:")]
        for key in old[:8] if len(old) > 8 else old:
            yield {**now, key: then[key]}
            yield {key: then[key]}
    yield dict(now)
    yield {GRAPH: now[GRAPH]}


@pytest.mark.parametrize("hints", [True, False], ids=["with hints", "without"])
@pytest.mark.parametrize("tell", STORIES, ids=lambda tell: tell.__name__)
async def test_whatever_is_old_the_end_is_the_same(tell: Callable[[Story], Awaitable[list[str]]], hints: bool) -> None:
    story = Story()
    labels = await tell(story)
    message = story.completed(*labels, hints=hints)
    expected, _ = await played(story, story.completed(*labels, hints=False), {})
    tried = 0
    for known in ways_of_being_old(story):
        found, _ = await played(story, message, known)
        assert found == expected, [key for key, row in known.items() if story.rows[key].etag != row.etag]
        tried += 1
    assert tried >= 4


async def test_what_is_known_and_right_is_not_read(memory: Stage) -> None:
    story = Story()
    labels = await a_dependent_that_waited_for_more(story)
    _, handlers = await played(story, story.completed(*labels), dict(story.rows))
    assert handlers.counters.conflicts == 0


@pytest.mark.parametrize("position", ["own", "dependent", "graph"])
async def test_one_old_row_costs_one_conflict(position: str) -> None:
    story = Story()
    if position == "graph":
        await the_last_of_several_leaves(story)
        key = GRAPH
    else:
        await a_dependent_that_waited_for_more(story)
        key = row_key(story.stage.task_id("a" if position == "own" else "b"))
    known = {**story.rows, key: story.known[0][key]}
    _, handlers = await played(story, story.completed("a", hints=False), known)
    # The own row as it stood before the claim decides that the result is stale: it is read before that is believed.
    assert handlers.counters.conflicts == (0 if position == "own" else 1)


async def test_after_two_conflicts_nothing_that_is_known_is_believed(memory: Stage) -> None:
    story = Story()
    await a_dependent_that_waited_for_more(story)
    handlers = story.stage.more_handlers()
    known = handlers.row_cache.of("graph")
    for key, row in story.rows.items():
        if not key.startswith("event:"):
            known.rows[key] = replace(row, etag="old")
    (handled,) = await handlers.handle("graph", [story.completed("a", hints=False)])
    assert [str(answer.outcome) for answer in handled.answers] == ["applied"]
    assert handlers.counters.conflicts <= 3


async def test_a_graph_that_ended_is_not_kept(memory: Stage) -> None:
    story = Story()
    await a_leaf_while_the_graph_is_extended(story)
    handlers = story.stage.more_handlers()
    await handlers.handle("graph", [story.completed("a")])
    assert handlers.row_cache.of("graph").rows
    held = await story.stage.claim("c")
    await handlers.handle("graph", [story.stage.completed(held)])
    assert handlers.row_cache.of("graph").rows == {}


async def test_a_transition_drops_what_it_has_written_from_what_is_kept(memory: Stage) -> None:
    """It goes by rows of its own: what is kept has become old."""
    await memory.submit(graph({"a": [], "b": ["a"]}))
    handlers = memory.more_handlers()
    assert isinstance(memory.tables, MemoryTables)
    handlers.row_cache.of("graph").rows.update(memory.tables.partitions["graph"])
    key = row_key(memory.task_id("a"))
    await memory.transition(*[], handlers=handlers)
    assert key in handlers.row_cache.of("graph").rows
    held = await memory.claim("a")
    await memory.deliver(memory.failed(held), handlers=handlers)
    assert key not in handlers.row_cache.of("graph").rows
    assert GRAPH not in handlers.row_cache.of("graph").rows
    assert row_key(memory.task_id("b")) in handlers.row_cache.of("graph").rows
