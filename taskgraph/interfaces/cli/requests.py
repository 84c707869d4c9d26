"""Commands that ask for a change of graphs that run: rerun, cancel, pause, resume, (de)activate, prioritize, change.

They send messages and wait, if asked to; handlers change the rows (D16).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import completion, failures, options
from taskgraph.interfaces.cli.common import Session, command, hint_at_handlers, read_source
from taskgraph.interfaces.cli.output import Column, count, safe
from taskgraph.interfaces.cli.signals import RequestOptions, until_settled
from taskgraph.interfaces.meanings import CONFLICT
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput, Refused, TaskgraphError
from taskgraph.model.states import GraphState

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.interfaces.operations.cancel import Cancellation

_NAMED_MAX = 5

TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target", metavar="NAME", autocompletion=completion.targets, help="All work of this target, of all graphs."
    ),
]


@command(
    'taskgraph rerun nightly-2026-08-01 "test/unit" "test/slow" --reason "the disk was full"',
    "taskgraph rerun nightly-2026-08-01 --failed --downstream",
    "taskgraph rerun nightly-2026-08-01 --failed --plan",
    "taskgraph rerun nightly-2026-08-01 --failed --apply sha256:4b0c…",
    "taskgraph rerun nightly-2026-08-01 build --downstream",
    "taskgraph rerun nightly-2026-08-01 --group tests --wait",
)
def rerun(
    session: Session,
    graph_id: options.GraphArgument,
    labels: options.OptionalLabelsArgument = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="NAME", help="All tasks of this group that failed for good.")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="All tasks that failed for good, or were cancelled.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="All tasks that have ended, each after the other.")] = False,
    downstream: Annotated[
        bool,
        typer.Option("--downstream", help="Also what depends on them and has run, or was cancelled while it waited."),
    ] = False,
    asking: RequestOptions = RequestOptions(),
) -> None:
    """Run tasks again that have ended: those that are named, or those of a group, or all, that failed; or all.

    What depends on them runs again after them. Where some of that has run, --downstream says that it may. A graph that
    has ended goes on. Handlers must run for that: taskgraph serve, or taskgraph run --id ID. --wait waits until they
    have taken it up, and not for the end of the runs: taskgraph watch ID does. Where one task cannot be rerun, nothing
    is asked for: exit code 4.
    """

    async def ask(app: "App", graph_id: str) -> None:
        from taskgraph.interfaces.operations import rerun

        change = {"change": "rerun", "labels": labels, "group": group, "failed": failed, "all": everything}
        if await asking.planned(app, session, graph_id, {**change, "downstream": downstream}):
            return
        asked = await rerun.ask(
            app,
            graph_id,
            labels or (),
            group=group,
            failed=failed,
            everything=everything,
            downstream=downstream,
            reason=asking.reason,
        )
        if not asked.tasks:
            whose = f"graph {graph_id}" if group is None else f"group “{safe(group)}”"
            what = "has ended" if everything else "failed for good; name those that are to run again, or say --all"
            raise Refused(f"no task of {whose} {what}", "nothing")
        if await asking.answered(app, session, rerun.settled, asked, "not all of it is taken up"):
            return
        for each in asked.tasks:
            how = "taken up" if asking.wait else "asked for"
            session.output.data(f"run {each.run + 1} of “{safe(each.label)}” is {how}")
        if asked.following:
            named = ", ".join(f"“{safe(each)}”" for each in asked.following[:_NAMED_MAX])
            more = len(asked.following) - _NAMED_MAX
            after = f"{named} and {more:,} more" if more > 0 else named
            session.output.data(f"{count(len(asked.following), 'task')} will run again after that: {after}")
        if not asking.wait:
            await hint_at_handlers(app, session, graph_id)

    session.open_graph(graph_id, ask, measured=True)


@command(
    'taskgraph cancel nightly-2026-08-01 --reason "superseded"',
    "taskgraph cancel nightly-2026-08-01 --terminate --wait",
    'taskgraph cancel nightly-2026-08-01 "test/unit" "test/slow"',
    "taskgraph cancel nightly-2026-08-01 --group tests",
)
def cancel(
    session: Session,
    graph_id: options.GraphArgument,
    labels: options.OptionalLabelsArgument = None,
    group: options.PartOption = "",
    terminate: Annotated[
        bool,
        typer.Option("--terminate", help="Do not wait for running tasks to be stopped: they count as ended at once."),
    ] = False,
    asking: RequestOptions = RequestOptions(),
) -> None:
    """Cancel a graph, or some of its tasks.

    What has not begun never will. What runs is stopped by its worker: SIGTERM, then SIGKILL after a grace time. A task
    that is cancelled alone counts as failed, and can be rerun; a cancelled graph is over. Handlers must run for that:
    taskgraph serve. Exit code 4 if it had come to another end before.
    """

    async def ask(app: "App", graph_id: str) -> None:
        from taskgraph.interfaces.operations import cancel

        change = {"change": "cancel", "labels": labels, "group": group, "terminate": terminate}
        if await asking.planned(app, session, graph_id, change):
            return
        asked = await cancel.ask(app, graph_id, labels or (), group=group, reason=asking.reason, terminate=terminate)
        state = asked.state
        over = asking.wait and not asked.nothing
        if over:
            try:
                late = "what was asked for is not over"
                await until_settled(app, session, cancel.settled, asked, asking.timeout, late)
            except failures.Interrupted:
                raise failures.Interrupted(f"stopped waiting; graph {graph_id} is being cancelled") from None
            state = await app.queries.state(graph_id)
            if not asked.tasks and state == GraphState.FINISHED:
                raise Refused(f"graph {graph_id} finished before it could be cancelled", "finished")
        if not session.answered(asked.answer, state):
            await _print_cancelled(app, session, asked, state, over=over)

    session.open_graph(graph_id, ask, measured=True)


async def _print_cancelled(
    app: "App", session: Session, asked: "Cancellation", state: GraphState, *, over: bool
) -> None:
    output = session.output
    tasks = count(len(asked.tasks), "task") if asked.tasks else ""
    graph = f"graph {asked.graph_id}"
    if asked.nothing:
        output.data(safe(asked.nothing))
    elif not over:
        output.data(f"{graph}: {tasks or 'all of it'} is asked to be cancelled")
        await hint_at_handlers(app, session, asked.graph_id)
    else:
        output.data(
            f"{graph}: {tasks} cancelled, or at an end before; it is {state}" if tasks else f"{graph} is cancelled"
        )


@command(
    'taskgraph pause nightly-2026-08-01 --reason "the disk is full"',
    "taskgraph pause nightly-2026-08-01 --group tests --wait",
    "taskgraph pause nightly-2026-08-01 publish announce",
    'taskgraph pause --target gpu --reason "new drivers"',
)
def pause(
    session: Session,
    graph_id: options.OptionalGraphArgument = None,
    labels: options.OptionalLabelsArgument = None,
    group: options.PartOption = "",
    target: TargetOption = None,
    asking: RequestOptions = RequestOptions(),
) -> None:
    """Hold a graph back, or some of its tasks, or with --target all work of a target: no further run begins.

    What runs already runs to its end. A paused graph takes no extension. Handlers must run for that: taskgraph serve.
    Workers notice within some 5 s that their target is paused.
    """
    _hold_graph_or_target(session, graph_id, labels or (), group, target, asking, on=True)


@command(
    "taskgraph resume nightly-2026-08-01",
    "taskgraph resume nightly-2026-08-01 --group tests --wait",
    "taskgraph resume nightly-2026-08-01 --budget 8",
    "taskgraph resume --target gpu",
)
def resume(
    session: Session,
    graph_id: options.OptionalGraphArgument = None,
    labels: options.OptionalLabelsArgument = None,
    group: options.PartOption = "",
    target: TargetOption = None,
    budget: Annotated[
        float | None,
        typer.Option("--budget", metavar="AMOUNT", help="What the graph may cost from now on: see `taskgraph cost`."),
    ] = None,
    asking: RequestOptions = RequestOptions(),
) -> None:
    """Let a graph that was paused go on, or some of its tasks, or a target; also a group that was not active before."""
    if budget is not None and target is not None:
        raise InvalidInput("a budget is that of a graph, not of a target")
    _hold_graph_or_target(session, graph_id, labels or (), group, target, asking, on=False, budget=budget)


@command('taskgraph deactivate nightly-2026-08-01 publish --reason "not before noon"')
def deactivate(
    session: Session,
    graph_id: options.GraphArgument,
    labels: options.LabelsArgument,
    asking: RequestOptions = RequestOptions(),
) -> None:
    """Hold single tasks back, however ready they are, until they are activated; as `pause ID LABEL...` does."""
    _hold(session, graph_id, labels, "", asking, on=True)


@command("taskgraph activate nightly-2026-08-01 publish --wait")
def activate(
    session: Session,
    graph_id: options.GraphArgument,
    labels: options.LabelsArgument,
    asking: RequestOptions = RequestOptions(),
) -> None:
    """Let tasks run that were deactivated, or were not active from the start; as `resume ID LABEL...` does."""
    _hold(session, graph_id, labels, "", asking, on=False)


def _hold_graph_or_target(
    session: Session,
    graph_id: str | None,
    labels: Sequence[str],
    group: str,
    target: str | None,
    asking: RequestOptions,
    *,
    on: bool,
    budget: float | None = None,
) -> None:
    if target is not None:
        if graph_id is not None or group:
            raise InvalidInput("name a graph or a target, not both")
        asking.check_graph()
        _hold_target(session, target, asking, on=on)
    elif graph_id is None:
        raise InvalidInput("name the graph, or a target: --target NAME")
    else:
        _hold(session, graph_id, labels, group, asking, on=on, budget=budget)


def _hold(
    session: Session,
    graph_id: str,
    labels: Sequence[str],
    group: str,
    asking: RequestOptions,
    *,
    on: bool,
    budget: float | None = None,
) -> None:
    if budget is not None and not 0 < budget < limits.AMOUNT_MAX:
        raise InvalidInput(f"a budget is an amount above 0, and {budget:g} is none")

    async def ask(app: "App", graph_id: str) -> None:
        from taskgraph.interfaces.operations import pause

        kind = ("deactivate" if on else "activate") if labels else ("pause" if on else "resume")
        change = {"change": kind, "labels": [*labels], "group": group, "budget": budget}
        if await asking.planned(app, session, graph_id, change):
            return
        asked = await pause.ask(app, graph_id, labels, on=on, group=group, reason=asking.reason, budget=budget or 0.0)
        if await asking.answered(app, session, pause.settled, asked, "what was asked for is not so"):
            return
        what = count(len(asked.tasks), "task") if asked.tasks else f"group “{group}”" if group else "all of it"
        be, goes = ("are", "go") if len(asked.tasks) > 1 else ("is", "goes")
        if asking.wait:
            session.output.data(f"graph {graph_id}: {what} {f'{be} held back' if on else f'{goes} on'}")
        else:
            session.output.data(f"graph {graph_id}: {what} {be} asked {'to be held back' if on else 'to go on'}")
            await hint_at_handlers(app, session, graph_id)

    session.open_graph(graph_id, ask, measured=True)


def _hold_target(session: Session, target: str, asking: RequestOptions, *, on: bool) -> None:
    async def hold(app: "App") -> None:
        from taskgraph.interfaces.operations import pause

        changed = await pause.ask_target(app, target, on=on, reason=asking.reason, wait=asking.wait)
        if not session.answered(views.target_paused, target, on=on, changed=changed):
            words = ("is paused" if on else "goes on") if changed else ("is paused already" if on else "is not paused")
            session.output.data(f"target {target} {words}")

    session.open(hold)


@command(
    "taskgraph prioritize nightly-2026-08-01 high",
    "taskgraph prioritize nightly-2026-08-01 publish highest --wait",
    "taskgraph prioritize nightly-2026-08-01 --group tests low",
)
def prioritize(
    session: Session,
    graph_id: options.GraphArgument,
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="[LABEL]... LEVEL",
            help="Tasks, by label or taskId (all without any), and highest, high, normal, low or lowest.",
        ),
    ],
    group: options.PartOption = "",
    asking: RequestOptions = RequestOptions(),
) -> None:
    """Give tasks that have not begun another priority: those that are named, those of a group, or all.

    What runs is left alone, and so is what comes later. What stands in a queue already may still be taken at its old
    level. Handlers must run for that: taskgraph serve. Exit code 4 if a task that is named runs, or is over.
    """
    *labels, level = what

    async def ask(app: "App", graph_id: str) -> None:
        from taskgraph.interfaces.operations import prioritize

        change = {"change": "prioritize", "priority": level, "labels": labels, "group": group}
        if await asking.planned(app, session, graph_id, change):
            return
        asked = await prioritize.ask(app, graph_id, level, labels, group=group, reason=asking.reason)
        if await asking.answered(app, session, prioritize.settled, asked, f"not all of it has priority {level}"):
            return
        which = count(len(asked.tasks), "task") if asked.tasks else "no task that has not begun"
        has = ("have" if len(asked.tasks) > 1 else "has") if asking.wait or not asked.tasks else "to get"
        session.output.data(f"graph {graph_id}: {which} {has} priority {level}")
        if asked.tasks and not asking.wait:
            await hint_at_handlers(app, session, graph_id)

    session.open_graph(graph_id, ask, measured=True)


@command(
    "taskgraph change rerun.json --state blocked --tag team=data --plan --json > plans.json",
    "taskgraph change plans.json",
    "taskgraph change cancel.json nightly-1 nightly-2 --plan",
)
def change(
    session: Session,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="With --plan the change, as schemas/change.json has it; otherwise its plans."
        ),
    ],
    graphs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", autocompletion=completion.graph_ids, help="Plan it for these graphs."),
    ] = None,
    state: Annotated[str, typer.Option("--state", metavar="STATE", help="For graphs in this state.")] = "",
    schedule: Annotated[
        str, typer.Option("--schedule", metavar="NAME", autocompletion=completion.schedules, help="Of this schedule.")
    ] = "",
    name: Annotated[
        str, typer.Option("--name", metavar="TEXT", help="With this in their name; * and ? make it a pattern.")
    ] = "",
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="KEY[=VALUE]", help="With this tag; once for each.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show what it would do to each graph; write nothing.")] = False,
) -> None:
    """Change many graphs at once: plan one change for each, and then make just that.

    The graphs are found when it is planned, 100 at most, and never again: what --plan --json printed is the file by
    which the change is made. A graph of which anything in its plan has moved meanwhile is left alone; exit code 4 then,
    and the others are changed. Handlers must run for that: taskgraph serve.
    """
    from taskgraph.documents.read import read_json
    from taskgraph.interfaces.cli.graphs import tags_of
    from taskgraph.interfaces.operations import changes

    data, source, _ = read_source(file)
    body: Any = read_json(data, source=source)
    where = {"state": state, "schedule": schedule, "name": name, "tags": tags_of(tag or ())}
    where = {key: each for key, each in where.items() if each}
    if not plan:
        if where or graphs:
            raise InvalidInput("which graphs are changed stands in the plans: leave it out, or say --plan")
        _apply_plans(session, body, source)
        return
    if bool(where) == bool(graphs):
        raise InvalidInput("name graphs, or say which: --state, --schedule, --name, --tag; one of the two")
    meant = {"graphs": graphs} if graphs else {"where": where}
    asked = changes.check_many({"change": body, **meant}, planned=False, source=source)

    async def planned(app: "App") -> dict[str, Any]:
        ids = asked.get("graphs") or await changes.chosen(app, asked["where"])
        return await changes.plan_each(app, ids, asked["change"])

    found = session.open(planned, measured=True)
    if not session.answered(views.change_plans, body, found):
        _print_each(session, found, lambda each: f"{len(each.tasks):,} tasks" if each.tasks else "")
        session.output.hint("make just this: the same with --json > plans.json, and then taskgraph change plans.json")


def _apply_plans(session: Session, body: Any, source: str) -> None:
    """body: what --plan --json printed."""
    from taskgraph.interfaces.operations import changes

    if not isinstance(body, dict) or not isinstance(body.get("plans"), list):
        raise InvalidInput(f"{source} is no list of plans: taskgraph change CHANGE --plan --json prints one")
    plans = {each["graphId"]: each["plan"]["plan"] for each in body["plans"] if each.get("plan")}
    asked = changes.check_many({"change": body.get("change"), "plans": plans}, planned=True, source=source)
    found = session.open(lambda app: changes.apply_each(app, asked["plans"], asked["change"]), measured=True)
    left = [each for each, what in found.items() if isinstance(what, TaskgraphError)]
    if session.answered(views.changes_applied, found, plans):
        raise typer.Exit(CONFLICT if left else 0)
    _print_each(session, found, lambda each: "asked for")
    if left:
        raise Refused(f"{len(left):,} of {len(found):,} graphs are left alone", changes.STALE)


def _print_each(session: Session, found: Mapping[str, Any], words: Callable[[Any], str]) -> None:
    columns = (
        Column("GRAPH", lambda each: each[0]),
        Column("", lambda each: safe(str(each[1])) if isinstance(each[1], TaskgraphError) else _words(each[1], words)),
    )
    session.output.table(found.items(), columns)


def _words(what: Any, words: Callable[[Any], str]) -> str:
    refused = getattr(what, "refused", ())
    return safe(f"refused: {refused[0]}") if refused else words(what)
