"""What a handler does while it makes the next commit, in virtual time: it sends, and acknowledges what is done."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from taskgraph.engine.commit import Records
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.sweep import sweep
from taskgraph.model.errors import StorageUnavailable
from taskgraph.model.messages import to_text
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Change
from tests.scenarios.crew import Crew, Instant, virtually

WIDE = 300
FAN = {"root": [], **{f"t{n}": ["root"] for n in range(WIDE)}}
INDEPENDENT: dict[str, list[str]] = {f"t{n}": [] for n in range(WIDE)}


@dataclass
class Line:
    """Ports of one process whose calls take their time.

    under_way: calls by kind. beside: what began while a commit was under way. early: deletes that began while messages
    were being sent. failing: how the next sends or deletes fail.
    """

    handlers: Handlers
    under_way: Counter[str] = field(default_factory=Counter)
    beside: list[str] = field(default_factory=list)
    early: int = 0
    done: list[str] = field(default_factory=list)
    failing: dict[str, list[Exception]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tables, queues = self.handlers.records.tables, self.handlers.queues
        self.handlers = replace(
            self.handlers,
            records=Records(_Tables(tables, self), self.handlers.clock),  # type: ignore[arg-type]
            queues=_Queues(queues, self),  # type: ignore[arg-type]
        )

    async def call(self, kind: str, work: Any) -> Any:
        if self.under_way["commit"]:
            self.beside.append(kind)
        self.early += kind == "delete" and self.under_way["send"] > 0
        self.under_way[kind] += 1
        try:
            await asyncio.sleep(0.2 if kind == "send" else 0.05)  # the last commits send nothing, and end before it
            if errors := self.failing.get(kind):
                raise errors.pop(0)
            return await work()
        finally:
            self.under_way[kind] -= 1
            self.done.append(kind)


@dataclass
class _Tables:
    inner: Any
    line: Line

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def commit(self, partition: str, changes: Sequence[Change]) -> Any:
        return await self.line.call("commit", lambda: self.inner.commit(partition, changes))


@dataclass
class _Queues:
    inner: Any
    line: Line

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        await self.line.call("send", lambda: self.inner.send(queue, bodies, delay_seconds=delay_seconds))

    async def delete(self, delivery: Delivery) -> None:
        await self.line.call("delete", lambda: self.inner.delete(delivery))


async def complete_the_root(crew: Crew, line: Line) -> None:
    """Have a consumer handle the result of what a wide graph waits for, until nothing is left to do."""
    await crew.submit(FAN)
    result = to_text(crew.stage.completed(await crew.stage.claim("root")))
    await crew.stage.queues.send(crew.stage.names.events, [result])
    crew.start(crew.consumer(handlers=line.handlers))

    async def is_over() -> bool:
        return "delete" in line.done and not await crew.stage.queues.count(crew.stage.names.events)

    await crew.until(is_over)
    await crew.end()


async def offered(crew: Crew) -> set[str]:
    return {label for label, _ in await crew.stage.offered()}


def test_messages_go_out_while_the_next_commit_is_made_and_before_what_caused_them_is_acknowledged() -> None:
    async def act(crew: Crew) -> None:
        line = Line(replace(crew.stage.more_handlers(), sends_beside=True))
        await complete_the_root(crew, line)
        assert "send" in line.beside
        assert not line.early
        assert len(await offered(crew)) >= 128

    virtually(act)


def test_elsewhere_one_comes_after_the_other() -> None:
    async def act(crew: Crew) -> None:
        line = Line(crew.stage.more_handlers())
        await complete_the_root(crew, line)
        assert line.beside == []

    virtually(act)


@pytest.mark.parametrize("failures", [1, 2])
def test_what_could_not_be_sent_meanwhile_is_found_by_the_sweep(failures: int) -> None:
    async def act(crew: Crew) -> None:
        line = Line(replace(crew.stage.more_handlers(), sends_beside=True))
        await crew.submit(FAN)
        line.failing["send"] = [StorageUnavailable("no answer", "there")] * failures
        script = Instant()
        crew.start(crew.consumer(handlers=line.handlers), crew.worker(script, slots=8))

        async def sweep_often() -> None:
            while not crew.stop.is_set():
                await asyncio.sleep(20)
                await sweep(line.handlers)

        crew.tasks.append(asyncio.create_task(sweep_often()))
        await crew.finish()
        assert not line.failing["send"]
        assert sorted(script.runs) == sorted((label, 0) for label in FAN)

    virtually(act)


def test_results_that_wait_for_a_commit_make_room_for_more_at_once() -> None:
    async def act(crew: Crew) -> None:
        line = Line(crew.stage.more_handlers())
        await crew.submit(INDEPENDENT)
        crew.start(crew.consumer(handlers=line.handlers), crew.worker(Instant(), slots=8))
        await crew.finish()
        assert "send" in line.beside, "by the results that came meanwhile alone: this handler sends nothing else then"
        assert "delete" in line.beside, "what was handled before is acknowledged then, too"

    virtually(act)


@pytest.mark.parametrize(
    ("kind", "error", "level"),
    [
        ("send", StorageUnavailable("no answer", "there"), "WARNING"),
        ("delete", StorageUnavailable("no answer", "there"), "WARNING"),
        ("delete", RuntimeError("odd"), "ERROR"),
    ],
)
def test_what_goes_wrong_meanwhile_costs_nothing(
    kind: str, error: Exception, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(crew: Crew) -> None:
        line = Line(crew.stage.more_handlers())
        await crew.submit(INDEPENDENT)
        script = Instant()
        crew.start(crew.consumer(handlers=line.handlers), crew.worker(script, slots=8))
        await crew.until(lambda: kind in line.beside)
        line.failing[kind] = [error]
        await crew.finish()
        assert not line.failing[kind]
        assert sorted(script.runs) == sorted((label, 0) for label in INDEPENDENT)

    with caplog.at_level(logging.WARNING):
        virtually(act)
    said = [record for record in caplog.records if record.getMessage().startswith("left to redelivery")]
    assert [record.levelname for record in said] == [level]
