"""Work for several commits of claims: each begins what it has claimed, whatever becomes of the next one."""

from typing import Any

from taskgraph.model.errors import StorageUnavailable
from taskgraph.storage.tables import Change
from tests.scenarios.crew import Calls, Crew, Instant, once_each, virtually

WIDE: dict[str, list[str]] = {f"m{n:03}": [] for n in range(150)}


class Watched:
    """Tables of a worker. refused: so many commits of more than one row, after the first."""

    def __init__(self, inner: Any, script: Instant, refused: int = 0) -> None:
        self._inner, self._script, self._refused = inner, script, refused
        self.begun: list[tuple[int, int]] = []  # with each commit of claims: how many it is for, and had run by then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, partition: str, changes: list[Change]) -> list[str | None]:
        if len(changes) > 1:
            self.begun.append((len(changes), len(self._script.runs)))
            if len(self.begun) > 1 and self._refused:
                self._refused -= 1
                raise StorageUnavailable("503", "memory")
        etags: list[str | None] = await self._inner.commit(partition, changes)
        return etags


def play(refused: int = 0) -> tuple[list[tuple[int, int]], float]:
    """Gives what was seen at each commit of claims, and how long it took."""
    found: list[tuple[int, int]] = []
    took: list[float] = []

    async def act(crew: Crew) -> None:
        script = Instant()
        handlers = crew.handlers(Calls())
        watched = Watched(handlers.records.tables, script, refused)
        handlers.records.tables = watched  # type: ignore[assignment]
        await crew.submit(WIDE)
        crew.start(crew.worker(script, handlers=handlers, slots=8), crew.consumer())
        await crew.finished()
        took.append(crew.clock.monotonic())
        await crew.end()
        assert once_each([script], WIDE)
        found.extend(watched.begun)

    virtually(act)
    return found, took[0]


def test_what_one_commit_has_claimed_begins_before_the_next_one() -> None:
    """What is sent first is 128 tasks."""
    found, _ = play()
    assert found == [(64, 0), (64, 64), (22, 128)], "two commits of about one size, and the rest"


def test_what_has_begun_goes_on_where_the_next_commit_fails() -> None:
    """The messages of the others come back."""
    found, took = play(refused=1)
    assert found[:2] == [(64, 0), (64, 64)]
    assert sum(number for number, _ in found) >= 150 + 64
    assert took < 15.0, "no lease has to end for it"
