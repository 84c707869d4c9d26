"""The calls of a client that foretell: when a graph would end, by rehearsals in virtual time."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from taskgraph.documents.read import Given
from taskgraph.interfaces.client.graph import GraphLike, document_of
from taskgraph.interfaces.client.naming import by_graph
from taskgraph.interfaces.client.opening import OpenStore
from taskgraph.model.errors import InvalidInput

if TYPE_CHECKING:
    from taskgraph.interfaces.operations.rehearse import Wanted
    from taskgraph.rehearsal.forecast import Forecast

_ALL = ""  # in place of targets, executors or groups


@by_graph()
class RehearsingCalls(OpenStore):
    async def rehearse(
        self,
        graph: GraphLike,
        *,
        params: Mapping[str, Any] | None = None,
        slots: int | Mapping[str, int] | None = None,
        seconds: float | Mapping[str, float] | None = None,
        limit: int | Mapping[str, int] | None = None,
        drop: Sequence[str] = (),
        fail: Sequence[str] = (),
        history: int = 5,
        seeds: int = 20,
    ) -> "Forecast":
        """When a graph would end that is not submitted: `seconds`, `finishes` are p10, p50, p90. Nothing is written.

        found = await client.rehearse(graph, slots={"default": 8, "gpu": 1})
        print(found.seconds, found.waits, found.path)

        slots: of all targets together, or by target ("default+gpu" for a worker of both); as `run` has them if None.
        seconds: what a task takes of which nothing is known, of any or by executor. limit: so many tasks in flight, of
        the graph or by group, 0 for any. drop: labels of tasks that take no time; fail: that fail. history: it learns
        from so many graphs of its name. seeds: rehearsals. Takes about half a millisecond of CPU for each task and
        rehearsal, in a thread. Raises InvalidGraph, InvalidInput.
        """
        from taskgraph.interfaces.operations import rehearse as rehearsing

        document = document_of(graph, given=Given(params or {}))
        wanted = _wanted(slots, seconds, limit, drop, fail, history, seeds)
        collected = await rehearsing.collect_for_document(self.app, document, wanted)
        return await asyncio.to_thread(collected.forecast)

    async def rehearse_rest(
        self,
        graph_id: str,
        *,
        slots: int | Mapping[str, int] | None = None,
        seconds: float | Mapping[str, float] | None = None,
        limit: int | Mapping[str, int] | None = None,
        drop: Sequence[str] = (),
        fail: Sequence[str] = (),
        history: int = 5,
        seeds: int = 20,
    ) -> "Forecast":
        """When the rest of a graph would end that runs or is blocked; see `rehearse`.

        slots: those of the workers that there are if None. Raises Refused for a graph in another state, InvalidInput.
        """
        from taskgraph.interfaces.operations import rehearse as rehearsing

        wanted = _wanted(slots, seconds, limit, drop, fail, history, seeds)
        collected = await rehearsing.collect_for_graph(self.app, graph_id, wanted)
        return await asyncio.to_thread(collected.forecast)


def _wanted(
    slots: int | Mapping[str, int] | None,
    seconds: float | Mapping[str, float] | None,
    limit: int | Mapping[str, int] | None,
    drop: Sequence[str],
    fail: Sequence[str],
    history: int,
    seeds: int,
) -> "Wanted":
    from taskgraph.interfaces.operations.rehearse import Wanted

    return Wanted(
        slots=_by_name("slots", slots, int, 0),
        seconds=_by_name("seconds", seconds, float, 0),
        limits=_by_name("limit", limit, int, 0),
        drop=drop,
        fail=fail,
        history=history,
        seeds=int(_number("seeds", seeds, int, 1)),
    )


def _by_name(what: str, given: Any, kind: type, least: int) -> dict[str, Any]:
    named = {} if given is None else given if isinstance(given, Mapping) else {_ALL: given}
    return {name: _number(what, each, kind, least) for name, each in named.items()}


def _number(what: str, given: Any, kind: type[float], least: int) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, kind)) or not least <= given < math.inf:
        raise InvalidInput(f"{what} must be {'a whole number' if kind is int else 'a number'} of at least {least}")
    return given
