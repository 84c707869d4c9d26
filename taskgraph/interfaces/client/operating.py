"""The calls of a client that ask for a change of what is there, and the wait for what they bring."""

from collections.abc import Mapping, Sequence
from typing import Any

from taskgraph.engine.foresight import Foreseen
from taskgraph.engine.submission import Extension, Submission
from taskgraph.interfaces import one_graph
from taskgraph.interfaces.app import App
from taskgraph.interfaces.client.naming import by_graph
from taskgraph.interfaces.client.opening import OpenStore
from taskgraph.interfaces.one_graph import Watcher
from taskgraph.interfaces.operations import cancel, changes, document, limit, pause, prioritize, requests, rerun
from taskgraph.interfaces.operations.waiting import ends
from taskgraph.interfaces.settings import StoreSettings
from taskgraph.model.clock import Clock
from taskgraph.model.errors import TaskgraphError
from taskgraph.model.states import GraphState
from taskgraph.storage.store import Store


@by_graph()
class OperatingCalls(OpenStore):
    def __init__(
        self,
        store: str | StoreSettings | Store | None = None,
        *,
        clock: Clock | None = None,
        token: str | None = None,
    ) -> None:
        super().__init__(store, clock=clock, token=token)
        self._rerun: dict[str, dict[str, int]] = {}  # graph id -> taskId -> the run that is to be replaced
        self._cancel: dict[str, cancel.Cancellation] = {}  # graph id -> what was asked for last

    async def resubmit(
        self,
        graph_id: str,
        new_id: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        priority: str | None = None,
    ) -> Submission:
        """Submit a stored graph again, as a new graph; every task of it runs.

        It is what `document` gives. new_id: as for `submit`. params, priority: instead of those that it had. Raises
        what `submit` raises, and InvalidInput where no row says where parameters stand, or a deadline has passed.
        """
        stored = await document.stored(self.app, graph_id)
        again = document.again(self.app, stored, params=params or {}, priority=priority)
        return await requests.submit(self.app, new_id, again)

    async def rerun(
        self,
        graph_id: str,
        *labels: str,
        group: str | None = None,
        failed: bool = False,
        everything: bool = False,
        downstream: bool = False,
        reason: str = "",
    ) -> list[str]:
        """Ask for another run of tasks: of these, of those of a group or (failed) of all that failed, or of everything.

        What depends on them runs again after them; with `downstream` also what has run, and what was cancelled while it
        waited. A graph that has ended goes on. Gives the labels of all that runs again. reason: kept with the run.
        Raises InvalidInput if it is too long, and Refused, with nothing asked for, when one of the tasks has not ended,
        its deadline has passed, a dependent has run and `downstream` is not said, or the graph is being cancelled.
        """
        asked = await rerun.ask(
            self.app,
            graph_id,
            labels,
            group=group,
            failed=failed,
            everything=everything,
            downstream=downstream,
            reason=reason,
        )
        self._rerun.setdefault(graph_id, {}).update({each.task_id: each.run for each in asked.tasks})
        return [*(each.label for each in asked.tasks), *asked.following]

    async def cancel(
        self, graph_id: str, *labels: str, group: str = "", reason: str = "", terminate: bool = False
    ) -> list[str]:
        """Ask for a graph to be cancelled; or for these of its tasks alone, or those of a group. Gives their labels.

        What has not begun never will; what runs is stopped by its worker, and `wait` waits for that. terminate: running
        tasks count as ended at once. A task that is cancelled alone has failed for good, and can be rerun. No labels
        for the whole graph, and where everything is cancelled already. Raises InvalidInput for a reason that is too
        long, and Refused where the graph, or a task that is named, came to another end before.
        """
        asked = await cancel.ask(self.app, graph_id, labels, group=group, reason=reason, terminate=terminate)
        if not asked.nothing:
            self._cancel[graph_id] = asked
        return sorted(asked.tasks.values())

    async def pause(self, graph_id: str, *labels: str, group: str = "", reason: str = "", wait: bool = False) -> None:
        """Ask for a graph, some tasks or a group of it to be held back: no further run begins until it is resumed.

        What runs already runs to its end. wait: until that is so. Raises Refused for a graph that is over, and while it
        waits if a later request asks for the opposite (code `superseded`). The same holds for the next three.
        """
        await _pause(self.app, graph_id, labels, on=True, group=group, reason=reason, wait=wait)

    async def resume(
        self,
        graph_id: str,
        *labels: str,
        group: str = "",
        reason: str = "",
        wait: bool = False,
        budget: float | None = None,
    ) -> None:
        """Ask for what was paused to go on; also for tasks and groups that were not active from the start.

        budget: what the graph may cost from now on. Raises Refused (code `over-budget`) where it takes a larger one.
        """
        await _pause(self.app, graph_id, labels, on=False, group=group, reason=reason, wait=wait, budget=budget or 0.0)

    async def deactivate(self, graph_id: str, *labels: str, reason: str = "", wait: bool = False) -> None:
        """Ask for single tasks to be held back, however ready they are, as `pause` does with their labels.

        Raises Refused for one that is over.
        """
        await _pause(self.app, graph_id, labels, on=True, reason=reason, wait=wait)

    async def activate(self, graph_id: str, *labels: str, reason: str = "", wait: bool = False) -> None:
        """Ask for tasks to run that were deactivated, or were not active from the start."""
        await _pause(self.app, graph_id, labels, on=False, reason=reason, wait=wait)

    async def prioritize(
        self, graph_id: str, level: str, *labels: str, group: str = "", reason: str = "", wait: bool = False
    ) -> list[str]:
        """Ask for another priority for tasks, for those of a group, or for all, as far as they have not begun.

        Gives the labels of those that were asked for. wait: until they have it. Raises InvalidInput for what is no
        level, and Refused for a graph that is over, and a task that is named and runs, or is over.
        """
        asked = await prioritize.ask(self.app, graph_id, level, labels, group=group, reason=reason)
        if wait:
            await prioritize.settled(self.app, asked)
        return sorted(asked.tasks.values())

    async def plan(self, graph_id: str, change: Mapping[str, Any]) -> Foreseen:
        """What a change would do now, task by task; nothing is written.

        change: as `schemas/change.json` has it, such as `{"change": "rerun", "failed": True}`. Raises InvalidGraph for
        what is none, and what the call of that name raises.
        """
        return await changes.plan(self.app, graph_id, changes.check(change))

    async def apply(
        self, graph_id: str, change: Mapping[str, Any], plan: str | Foreseen, *, timeout_seconds: float | None = None
    ) -> str:
        """Have a change made just as it was planned, and wait for that; gives the id of the request.

        plan: what `plan` gave, or its digest. Raises StalePlan, with the new plan, where anything that it names has
        moved since, and TimeoutError when handlers take longer than timeout_seconds.
        """
        digest, change = plan if isinstance(plan, str) else plan.digest, changes.check(change)
        asked = await changes.apply(self.app, graph_id, change, digest)
        until = ends(self.app.clock, timeout_seconds)
        head = await changes.applied(self.app, graph_id, change, asked, until=until)
        if head.get("state") not in requests.ANSWERED:
            raise TimeoutError(f"request {asked.request} is not answered within {timeout_seconds:g} s")
        return asked.request

    async def plan_each(
        self, graph_ids: Sequence[str], change: Mapping[str, Any]
    ) -> dict[str, Foreseen | TaskgraphError]:
        """The plan of one change for each of these graphs, or why there is none."""
        return await changes.plan_each(self.app, graph_ids, changes.check(change))

    async def apply_each(
        self, plans: Mapping[str, str | Foreseen | TaskgraphError], change: Mapping[str, Any]
    ) -> dict[str, Extension | TaskgraphError]:
        """Ask for one change of many graphs, each as it was planned; what was asked for, or why nothing was.

        plans: what `plan_each` gave, or the digests by graph. A graph that has no plan is left out.
        """
        digests = {
            each: plan if isinstance(plan, str) else plan.digest
            for each, plan in plans.items()
            if not isinstance(plan, TaskgraphError)
        }
        return await changes.apply_each(self.app, digests, changes.check(change))

    async def pause_target(self, target: str, *, reason: str = "") -> bool:
        """Pause a target for all graphs; gives whether that is new.

        Workers notice within limits.GATE_SECONDS (5 s), and what runs then runs to its end.
        """
        return await pause.ask_target(self.app, target, on=True, reason=reason)

    async def resume_target(self, target: str) -> bool:
        """Let a target go on; gives whether it was paused."""
        return await pause.ask_target(self.app, target, on=False)

    async def set_limit(
        self, graph_id: str, most: int, *, group: str = "", reason: str = "", wait: bool = False
    ) -> None:
        """Ask for so many tasks of a graph, or of a group of it, to be in flight at a time; 0: as many as can be.

        What runs already runs to its end, and counts. wait: until that is so. Raises Refused for a graph that is over,
        for a limit that cannot be set (code `too-many-limits`) or that 0 finds not set (`not-limited`); and, where it
        waits, if a later request sets another one (`superseded`).
        """
        asked = await limit.ask(self.app, graph_id, most, group=group, reason=reason)
        if wait:
            await limit.settled(self.app, asked)

    async def limit_target(self, target: str, most: int, *, reason: str = "") -> bool:
        """Let so many tasks of a target be in flight, over all graphs; 0: any number. Gives whether that is new.

        Workers notice within some 10 s, and what runs then runs to its end.
        """
        return await limit.ask_target(self.app, target, most, reason=reason)

    async def wait(
        self, graph_id: str, *, timeout_seconds: float | None = None, watcher: Watcher | None = None
    ) -> GraphState:
        """Wait until a graph is finished or cancelled, or is blocked with nothing moving; gives its state.

        watcher: called with the state now and then. Raises TimeoutError when it takes longer than timeout_seconds.
        """
        app = self.app
        until = ends(app.clock, timeout_seconds)
        taken_up = await rerun.taken_up(app, graph_id, self._rerun.get(graph_id, {}), until=until)
        if taken_up:
            self._rerun.pop(graph_id, None)
        if taken_up and (asked := self._cancel.get(graph_id)) is not None:
            taken_up = await cancel.taken_up(app, asked, until=until)
            if taken_up:
                del self._cancel[graph_id]
        state = await one_graph.wait_for_end(app, graph_id, until=until, watcher=watcher) if taken_up else None
        if state is None:
            raise TimeoutError(f"graph {graph_id} has not ended within {timeout_seconds:g} s")
        return state


async def _pause(
    app: App,
    graph_id: str,
    labels: Sequence[str],
    *,
    on: bool,
    group: str = "",
    reason: str,
    wait: bool,
    budget: float = 0.0,
) -> None:
    asked = await pause.ask(app, graph_id, labels, on=on, group=group, reason=reason, budget=budget)
    if wait:
        await pause.settled(app, asked)
