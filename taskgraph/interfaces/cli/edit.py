"""The command `edit`: tasks of a graph that runs are changed or deleted, by a file or by options."""

import json as jsonlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import completion, failures
from taskgraph.interfaces.cli.common import Session, check_graph_id, command, read_source
from taskgraph.interfaces.cli.options import (
    ApplyOption,
    GraphArgument,
    ParamOption,
    PatienceOption,
    PlanOption,
    ReasonOption,
)
from taskgraph.interfaces.cli.output import count
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput
from taskgraph.model.priorities import LEVELS

if TYPE_CHECKING:
    from taskgraph.documents.edit_document import EditDocument
    from taskgraph.documents.texts import Form
    from taskgraph.interfaces.app import App

_TIMEOUT_SECONDS: Final = 60.0

Labels = list[str] | None

IfRevisionOption = Annotated[
    int | None,
    typer.Option("--if-revision", min=0, metavar="N", help="Refuse it if the graph has another revision by then."),
]
RequestOption = Annotated[
    str | None, typer.Option("--request", metavar="NAME", help="An id for the edit; made from its content otherwise.")
]


@dataclass(frozen=True)
class ChangeOptions:
    """Options for what changes of the tasks of --task."""

    requires: Annotated[
        Labels,
        typer.Option(
            "--requires",
            metavar="LABEL",
            autocompletion=completion.labels,
            help="What it requires from now on: all of it, one by one.",
        ),
    ] = None
    no_requires: Annotated[bool, typer.Option("--no-requires", help="It requires nothing any more.")] = False
    reruns: Annotated[
        int | None, typer.Option("--reruns", min=0, max=limits.RERUNS_MAX, help="How often it may run again.")
    ] = None
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="TIME", help="Its deadline, as RFC 3339; none for none.")
    ] = None
    active: Annotated[bool | None, typer.Option("--activate/--deactivate", help="Whether it may run.")] = None
    priority: Annotated[
        str | None, typer.Option("--priority", metavar="LEVEL", help=f"Its priority: {', '.join(LEVELS)}.")
    ] = None

    def update(self) -> dict[str, Any]:
        """As in a document. Raises InvalidInput."""
        if self.requires and self.no_requires:
            raise InvalidInput("--requires and --no-requires exclude each other")
        update: dict[str, Any] = {"requires": self.requires or []} if self.requires or self.no_requires else {}
        for name in ("reruns", "deadline", "active", "priority"):
            if (value := getattr(self, name)) is not None:
                update[name] = None if (name, value) == ("deadline", "none") else value
        return update


@command(
    'taskgraph edit nightly-2026-08-01 --task publish --reruns 3 --requires test --reason "it is flaky"',
    "taskgraph edit nightly-2026-08-01 --delete benchmark --plan",
    "taskgraph edit nightly-2026-08-01 change.json --if-revision 3",
)
def edit(
    session: Session,
    graph_id: GraphArgument,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="The edit: YAML, JSON or TOML; - for standard input.")
    ] = None,
    task: Annotated[
        Labels,
        typer.Option(
            "--task",
            metavar="LABEL",
            autocompletion=completion.labels,
            help="A task that the next options are about; may be repeated.",
        ),
    ] = None,
    change: ChangeOptions = ChangeOptions(),
    delete: Annotated[
        Labels,
        typer.Option(
            "--delete", metavar="LABEL", autocompletion=completion.labels, help="A task to take away; may be repeated."
        ),
    ] = None,
    delete_group: Annotated[
        Labels, typer.Option("--delete-group", metavar="NAME", help="A group to take away, with its tasks.")
    ] = None,
    reason: ReasonOption = "",
    if_revision: IfRevisionOption = None,
    plan: PlanOption = False,
    apply: ApplyOption = None,
    param: ParamOption = None,
    request: RequestOption = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is made or refused.")] = True,
    timeout: PatienceOption = _TIMEOUT_SECONDS,
) -> None:
    """Change or take away tasks of a graph that have not started, all of it in one step.

    Say what in a file (schemas/edit.json), or in options: --task with what is to be other about it, --delete,
    --delete-group. It is refused, with the reason and exit code 4, where a task has started, others require
    what goes, or tasks would wait for each other. Handlers must run for that: taskgraph serve.

    The same edit again gives its answer, as long as what it says is so; what was undone meanwhile is made again. With
    --request NAME it is made once, whatever becomes of it.
    """
    check_graph_id(graph_id)
    if request is not None:
        check_graph_id(request)
    from taskgraph.documents.edit_document import edit_from_object, read_edit
    from taskgraph.documents.parameters import mentions, typed

    options = _options(task or (), change.update(), delete, delete_group)
    if (file is None) == (not options):
        raise InvalidInput("hand in a file, or say it in options: --task, --delete, --delete-group; one of the two")
    if reason:
        options["reason"] = reason
    if if_revision is not None:
        options["ifRevision"] = if_revision
    values = typed(param or ())
    form: Form = "json"
    if file is None:
        data, name = jsonlib.dumps(options).encode(), "options"
    else:
        data, name, form = read_source(file)
    named = mentions(data.decode("utf-8", "replace"))

    async def ask(app: "App", graph_id: str) -> None:
        from taskgraph.interfaces.cli import planned
        from taskgraph.interfaces.operations import requests

        given = await requests.given(app, graph_id, values, named=named)
        document = read_edit(data, source=name, given=given, form=form)
        if file is not None and options:
            document = edit_from_object({**document.said, **options}, source=name)
        change = {"change": "edit", "edit": document.said}
        if not await planned.instead(app, session, graph_id, change, plan=plan, digest=apply, patience=timeout):
            await _ask(app, session, graph_id, document, request, timeout if wait else None)

    if not values and not named:
        read_edit(data, source=name, form=form)  # raises what is wrong with it before the store is opened
    session.open_graph(graph_id, ask, measured=True)


def _options(tasks: Sequence[str], update: Mapping[str, Any], delete: Labels, delete_group: Labels) -> dict[str, Any]:
    """What the options change, as in a document. Raises InvalidInput."""
    if update and not tasks:
        raise InvalidInput("name the task that this is about: --task LABEL")
    if tasks and not update:
        raise InvalidInput(
            "say what is to be other about it: --requires, --reruns, --deadline, --deactivate, --priority"
        )
    parts = {"update": {label: dict(update) for label in tasks}, "delete": delete, "deleteGroups": delete_group}
    return {name: part for name, part in parts.items() if part}


async def _ask(
    app: "App", session: Session, graph_id: str, document: "EditDocument", request: str | None, patience: float | None
) -> None:
    """patience: how long to wait, in seconds; None for not at all."""
    from taskgraph.interfaces.operations import requests
    from taskgraph.interfaces.operations.waiting import ends

    output = session.output
    staged = await requests.edit(app, graph_id, document, request=request)
    before = staged.state == "done"
    head = await requests.settled(app, staged, "edit", until=ends(app.clock, patience or 0))
    if patience is not None and head.get("state") not in requests.ANSWERED:
        raise failures.TimedOut(
            f"edit {staged.request} is {head.get('state')} after {patience:g} s, and is answered once "
            "handlers run (taskgraph serve); the same command looks again"
        )
    state, revision = str(head.get("state", "")), head.get("revision")
    if output.json:
        unchanged = state == "done" and head.get("unchanged") is True
        output.document(views.edited(graph_id, staged.request, state, revision, unchanged=unchanged))
    else:
        output.data(staged.request)
    if state != "done":
        output.say(f"graph {graph_id}: the edit is asked for")
    elif head.get("unchanged") is True:
        output.say(f"graph {graph_id}: revision {revision}; the edit changes nothing")
    elif before:
        named = f"request {staged.request}" if request is not None else "this edit"
        output.say(f"graph {graph_id}: {named} was made before, in revision {revision}")
    else:
        output.say(f"graph {graph_id}: revision {revision}; {_in_words(document, head)}")


def _in_words(document: "EditDocument", head: Mapping[str, Any]) -> str:
    updated = head.get("tasks")
    parts = [
        f"{count(updated, 'task')} updated" if isinstance(updated, int) and updated else "",
        f"{count(len(document.delete), 'task')} deleted" if document.delete else "",
        f"{count(len(document.delete_groups), 'group')} deleted" if document.delete_groups else "",
    ]
    return ", ".join(filter(None, parts))
