"""Operations as requests to a server, for a store that is behind one: each gives what the operation of its kind gives.

What can be read is read through the ports, as everywhere: which graph is meant, and what a wait needs to know.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, BinaryIO, Final

from taskgraph.documents.canonical import document_object, written_object
from taskgraph.documents.edit_document import EditDocument
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.recurrence import Recurrence, Times
from taskgraph.engine.archive_file import Bounds
from taskgraph.engine.delete import Deleted
from taskgraph.engine.doctor import Examined, examine_graph
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.poison import Poison, PoisonMessage
from taskgraph.engine.progress import Progress, no_progress
from taskgraph.engine.restore import Plan, Restored
from taskgraph.engine.schedules import Schedules, Written, anchored, another
from taskgraph.engine.submission import Extension, Submission, Submitted
from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations import archive, changes, which
from taskgraph.interfaces.operations.cancel import Cancellation
from taskgraph.interfaces.operations.checks import check_reason, task_rows
from taskgraph.interfaces.operations.grant import Grant
from taskgraph.interfaces.operations.limit import LimitRequest
from taskgraph.interfaces.operations.pause import PauseRequest
from taskgraph.interfaces.operations.prioritize import PriorityRequest, check_level
from taskgraph.interfaces.operations.rerun import RerunRequest
from taskgraph.interfaces.operations.tokens import Token
from taskgraph.model.clock import Clock
from taskgraph.model.columns import integer
from taskgraph.model.errors import DeletedGraph, InvalidInput, Refused
from taskgraph.model.ids import reference_of, task_id_of
from taskgraph.model.names import QueueNames
from taskgraph.model.roles import Role
from taskgraph.model.states import GraphState
from taskgraph.protocol.notices import GIVEN_UP
from taskgraph.protocol.schedule_rules import Schedule, check_name
from taskgraph.queries.graphs import Queries
from taskgraph.queries.lookup import check_graph_id
from taskgraph.storage.http.calls import Server, path_of
from taskgraph.storage.http.refusal import only_the_server
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Tables

Json = Mapping[str, Any]

_UNGUARDED: Final = (("unguarded", "1"),)


async def _change(app: App, server: Server, graph_id: str, kind: str, **given: Any) -> Any:
    """Ask for a change of a graph. given: what is not empty of this goes with it."""
    check_reason(str(given.get("reason", "")))
    await app.queries.state(graph_id)  # what stands for its id is found by this error, as in every store
    body: dict[str, Any] = {"change": kind, **{name: value for name, value in given.items() if value or name == "max"}}
    if "labels" in body:
        body["labels"] = list(dict.fromkeys(body["labels"]))  # a task that is named twice counts once
    return await server.ask("POST", path_of("graphs", graph_id, "changes"), _UNGUARDED, body=body)


def _tasks(graph_id: str, answer: Json) -> dict[str, str]:
    return {task_id_of(graph_id, label): label for label in answer["labels"]}


async def cancel(
    app: App,
    server: Server,
    graph_id: str,
    labels: Sequence[str] = (),
    *,
    group: str = "",
    reason: str = "",
    terminate: bool = False,
) -> Cancellation:
    answer = await _change(
        *(app, server, graph_id, "cancel"), labels=[*labels], group=group, reason=reason, terminate=terminate
    )
    state, tasks = GraphState(answer["state"]), _tasks(graph_id, answer)
    if not answer["asked"]:
        what = "all that was named" if labels or group else f"graph {graph_id}"
        return Cancellation(graph_id, state, nothing=f"{what} is cancelled already, or over")
    rows = await task_rows(app.tables, graph_id, tasks)
    return Cancellation(
        graph_id, state, tasks, {reference_of(row.key): integer(row.columns, "manualReruns") for row in rows}
    )


async def rerun(
    app: App,
    server: Server,
    graph_id: str,
    labels: Sequence[str] = (),
    *,
    group: str | None = None,
    failed: bool = False,
    everything: bool = False,
    downstream: bool = False,
    reason: str = "",
) -> RerunRequest:
    said = {"failed": failed, "all": everything, "downstream": downstream}
    answer = await _change(app, server, graph_id, "rerun", labels=[*labels], group=group, reason=reason, **said)
    replaced = {each["taskId"]: each["replacesRun"] for each in answer["tasks"]}
    order = list(replaced)
    found = sorted(await app.queries.statuses(graph_id, order), key=lambda each: order.index(each.task_id))
    return RerunRequest(graph_id, [replace(each, run=replaced[each.task_id]) for each in found], answer["following"])


async def hold(
    app: App,
    server: Server,
    graph_id: str,
    labels: Sequence[str] = (),
    *,
    on: bool,
    group: str = "",
    reason: str = "",
    budget: float = 0.0,
) -> PauseRequest:
    if labels and group:
        raise InvalidInput("name tasks or a group, not both")
    kinds = ("deactivate", "activate") if labels else ("pause", "resume")
    answer = await _change(
        *(app, server, graph_id, kinds[0] if on else kinds[1]),
        labels=[*labels],
        group=group,
        reason=reason,
        budget=budget,
    )
    return PauseRequest(graph_id, on, answer["askedAt"], group, _tasks(graph_id, answer), budget)


async def limit(
    app: App, server: Server, graph_id: str, most: int, *, group: str = "", reason: str = ""
) -> LimitRequest:
    answer = await _change(app, server, graph_id, "set-limit", max=most, group=group, reason=reason)
    return LimitRequest(graph_id, group, answer["max"], answer["askedAt"])


async def prioritize(
    app: App,
    server: Server,
    graph_id: str,
    level: str,
    labels: Sequence[str] = (),
    *,
    group: str = "",
    reason: str = "",
) -> PriorityRequest:
    check_level(level)
    answer = await _change(
        *(app, server, graph_id, "prioritize"),
        priority=level,
        labels=[*labels],
        group=group,
        reason=reason,
    )
    return PriorityRequest(graph_id, level, answer["askedAt"], _tasks(graph_id, answer))


async def hold_target(app: App, server: Server, target: str, on: bool, reason: str) -> bool:
    query = [("reason", reason)] if on and reason else []
    answer = await server.ask("POST", path_of("targets", f"{target}:{'pause' if on else 'resume'}"), query)
    return bool(answer["changed"])


async def limit_target(app: App, server: Server, target: str, most: int, reason: str) -> bool:
    query = [("max", str(most)), *([("reason", reason)] if reason else [])]
    answer = await server.ask("POST", path_of("targets", f"{target}:limit"), query)
    return bool(answer["changed"])


async def submit(
    app: App,
    server: Server,
    graph_id: str | None,
    document: GraphDocument,
    *,
    progress: Progress = no_progress,
    folder: str | None = None,
    fresh: bool = False,
) -> Submission:
    if not (fresh and graph_id):
        graph_id = await which.new_id(app, document, given=graph_id)
    answer = await server.ask("PUT", path_of("graphs", graph_id), body=written_object(document))
    return Submission(answer["graphId"], Submitted(answer["outcome"]), answer["taskCount"], answer["edges"])


async def apply(app: App, server: Server, graph_id: str, change: Json, digest: str) -> Extension:
    await app.queries.state(graph_id)
    try:
        answer = await server.ask("POST", path_of("graphs", graph_id, "changes"), [("plan", digest)], body=dict(change))
    except Refused as refused:
        if refused.code != changes.STALE:
            raise
        raise changes.StalePlan(str(refused), await changes.plan(app, graph_id, change)) from refused
    return Extension(graph_id, answer["request"], answer["state"])


async def extend(
    app: App, server: Server, graph_id: str, document: GraphDocument, *, request: str | None = None
) -> Extension:
    await app.queries.state(graph_id)
    query = [] if request is None else [("request", request)]
    path = path_of("graphs", graph_id, "extensions")
    answer = await server.ask("POST", path, query, body=document_object(document))
    return Extension(graph_id, answer["request"], answer["state"], answer["waitsFor"] or "")


async def edit(
    app: App, server: Server, graph_id: str, document: EditDocument, *, request: str | None = None
) -> Extension:
    await app.queries.state(graph_id)
    query = [] if request is None else [("request", request)]
    answer = await server.ask("POST", path_of("graphs", graph_id, "edits"), query, body=document.said)
    return Extension(graph_id, answer["request"], answer["state"])


async def restore(
    app: App,
    server: Server,
    file: BinaryIO,
    source: str,
    *,
    bounds: Bounds,
    required: bool = False,
    plan: Plan | None = None,
    planned: Callable[[Plan], None] = lambda plan: None,
    progress: Progress = no_progress,
) -> Restored:
    """The server has the keys that are trusted, and bounds of its own."""
    planned(plan or archive.look(app, file, source, bounds=bounds))
    file.seek(0)
    answer = await server.ask("POST", "/archives", [("signed", "1")] if required else [], file=file)
    state, rows, logs = answer["state"], answer["rows"], answer["logs"]
    return Restored(answer["graphId"], state, rows, logs, again=answer["already"])


async def delete(
    app: App,
    server: Server,
    graph_id: str,
    *,
    force: bool = False,
    reason: str = "",
    operation: str = "",
    progress: Progress = no_progress,
) -> Deleted:
    async def take(graph_id: str) -> Deleted:
        check_graph_id(graph_id)
        try:
            await app.queries.state(graph_id)
        except DeletedGraph as gone:
            if gone.successor:
                return await take(gone.successor)
        said = {"force": "1" if force else "", "reason": reason, "operation": operation}
        query = [(name, text) for name, text in said.items() if text]
        answer = await server.ask("DELETE", path_of("graphs", graph_id), query)
        until = answer["idFreeAfter"]
        return Deleted(
            answer["graphId"],
            answer["rows"],
            answer["logs"],
            answer["already"],
            None if until is None else datetime.fromisoformat(until),
        )

    return await which.whole(app, graph_id, take)


async def drain(app: App, server: Server, name: str, *, draining: str, exits: bool = False) -> None:
    query = [*([("now", "1")] if draining == "now" else []), *([("exit", "1")] if exits else [])]
    await server.ask("POST", path_of("workers", f"{name}:{'drain' if draining else 'undrain'}"), query)


async def grant(app: App, server: Server, graph_id: str, *, hours: float, addresses: str = "") -> Grant:
    if addresses:
        raise only_the_server(server.address, "a grant for some addresses alone")
    await app.queries.state(graph_id)
    answer = await server.ask("POST", path_of("graphs", graph_id, "grants"), [("hours", f"{hours:g}")])
    return Grant(
        graph_id=graph_id,
        endpoint=answer["endpoint"],
        table=answer["table"],
        expires=datetime.fromisoformat(answer["expires"]),
        protocols=",".join(answer["protocols"]),
        addresses="",
        url=answer["url"],
        token=answer["token"],
    )


async def share(app: App, server: Server, graph_id: str, *, hours: float) -> tuple[Token, str]:
    await app.queries.state(graph_id)
    answer = await server.ask("POST", path_of("graphs", f"{graph_id}:share"), [("hours", f"{hours:g}")])
    created, until = (datetime.fromisoformat(answer[name]) for name in ("created", "until"))
    token = Token(answer["name"], Role(answer["role"]), (graph_id,), created, until, answer["by"])
    return token, answer["token"]


async def retry_notices(app: App, server: Server, graph_id: str) -> int:
    """How many are to be tried: those that failed, or were given up."""
    before = await app.queries.channels(graph_id)
    await server.ask("POST", path_of("graphs", graph_id, "notices:retry"))
    return sum(bool(each.failures) or each.state == GIVEN_UP for each in before)


async def repair(app: App, server: Server, graph_id: str, progress: Callable[[int], None], handled: bool) -> Examined:
    before = await examine_graph(app.handlers, app.poison, graph_id, handled=handled)
    answer = await server.ask("POST", path_of("graphs", graph_id, "doctor:repair"))
    gone = {(each["code"], each["key"]) for each in answer["repaired"]}
    after = await examine_graph(app.handlers, app.poison, graph_id, progress=progress, handled=handled)
    return replace(after, repaired=tuple(each for each in before.findings if (each.code, each.key) in gone))


class ServedPoison(Poison):
    """Reads messages that were set aside, and has a server put one back."""

    def __init__(self, server: Server, tables: Tables, queues: Queues, clock: Clock, names: QueueNames) -> None:
        super().__init__(tables, queues, clock, names)
        self._server = server

    async def replay(self, key: str, by: str = "") -> PoisonMessage:
        found = next((each for each in await self.list() if each.key == key), None)
        await self._server.ask("POST", path_of("poison", f"{key}:replay"))
        return found or PoisonMessage(key, "", "", "", 0, "replayed", None)


class ServedSchedules(Schedules):
    """Reads schedules, and has a server change them."""

    def __init__(self, server: Server, handlers: Handlers, queries: Queries) -> None:
        super().__init__(handlers, queries)
        self._server = server

    async def set_active(self, name: str, *, active: bool) -> Schedule:
        await self._rows.find(name)
        await self._server.ask("POST", path_of("schedules", f"{name}:{'activate' if active else 'deactivate'}"))
        return (await self._rows.find(name))[1]

    async def create(
        self, name: str, document: GraphDocument, recurrence: Recurrence, *, active: bool = True, **rules: Any
    ) -> tuple[Schedule, Written]:
        check_name(name)
        anchored(recurrence, self._handlers.clock.now()).check()
        said = _said(document, recurrence, active=active, **rules)
        try:
            answer = await self._server.ask("PUT", path_of("schedules", name), body=said)
        except Refused as refused:
            raise (another(name) if refused.code == "no-guard" else refused) from refused
        return (await self._rows.find(name))[1], Written(answer["outcome"])

    async def update(
        self, name: str, *, document: GraphDocument | None = None, times: Times | None = None, **rules: Any
    ) -> Schedule:
        _, before = await self._rows.find(name)
        if times is not None:
            anchored(times.over(before.recurrence), self._handlers.clock.now()).check()
        if said := _said(document, times, **rules):
            await self._server.ask("PATCH", path_of("schedules", name), body=said, headers={"If-Match": "*"})
        return (await self._rows.find(name))[1]

    async def delete(self, name: str, **more: Any) -> Schedule:
        _, found = await self._rows.find(name)
        await self._server.ask("DELETE", path_of("schedules", name))
        return found

    async def run_now(self, name: str) -> Submission:
        _, found = await self._rows.find(name)
        answer = await self._server.ask("POST", path_of("schedules", f"{name}:run-now"))
        return Submission(answer["graphId"], Submitted(answer["outcome"]), found.tasks, 0)


def _said(document: GraphDocument | None, when: Recurrence | Times | None, **rules: Any) -> dict[str, Any]:
    """What a schedule is made of, as its document (schemas/schedule.json)."""
    said: dict[str, Any] = {"catchUp" if name == "catch_up" else name: value for name, value in rules.items()}
    if document is not None:
        said["document"] = written_object(document)
    for name in ("cron", "timezone", "every", "anchor", "at"):
        value = getattr(when, name, None)
        if value:
            said[name] = value.isoformat() if isinstance(value, datetime) else value
    return said
