"""Notices: which channels get which facts of a graph, as values, as columns and as JSON.

`notify` in a document names channels (a queue, a webhook, a command) for the ways in which a graph or a task may fare.
Each distinct channel of a graph has one row, which says up to which fact of the journal it was served; a task row names
its channels by key.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from taskgraph.model.columns import Columns
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import value
from taskgraph.model.json_strict import canonical_json
from taskgraph.storage.tables import Insert, Range, prefix

if TYPE_CHECKING:
    from taskgraph.documents.nodes import GraphDocument, TaskNode

PREFIX: Final = "notice:"
"""Of the row keys of channels."""

COLUMN: Final = "notify"
"""On a graph row: how many channels it has. On a task row: which of them get facts of the task, as JSON."""

OPEN: Final = "open"
DONE: Final = "done"
GIVEN_UP: Final = "given-up"

OLD_SCHEDULER: Final = "taskcluster-v1"
"""The format of a channel that gets the messages of the old TaskCluster scheduler's exchanges."""

GRAPH_KEYS: Final = ("onRunning", "onExtended", "onSuccess", "onFailure", "onBlocked", "onBudget", "onFinished")
TASK_KEYS: Final = ("onSuccess", "onFailure", "onFinished")

VERSION: Final = 1
_SCHEMA: Final = 1
_KEY_DIGITS: Final = 16
_NOTICE_KEYS: Final = ("event", "version", "id", "type", "graph", "sequence")  # which no field of a fact replaces
_GRAPH_FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "graph-running": ("onRunning",),
    "graph-extended": ("onExtended",),
    "graph-finished": ("onSuccess", "onFinished"),
    "graph-cancelled": ("onFailure", "onFinished"),
    "graph-blocked": ("onFailure", "onBlocked"),
    "graph-warned": ("onBudget",),
    "graph-overspent": ("onBudget",),
}
_TASK_FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "task-completed": ("onSuccess", "onFinished"),
    "task-failed": ("onFailure", "onFinished"),
    "task-exception": ("onFailure", "onFinished"),
    "task-cancelled": ("onFailure", "onFinished"),
    "task-skipped": ("onFinished",),
}


@value
class Channel:
    """Where notices go. kind: queue, webhook or command. where: its name, its address, or program and arguments.

    secret: name of the secret that signs a webhook, "" for the default one, if there is any. format: of what it gets,
    "" for notices. object: the channel as a document names it. key: the same for equal channels.
    """

    kind: str
    where: tuple[str, ...]
    secret: str = ""
    format: str = ""

    @property
    def object(self) -> dict[str, Any]:
        made: dict[str, Any] = {self.kind: list(self.where) if self.kind == "command" else self.where[0]}
        if self.secret:
            made["secret"] = self.secret
        if self.format:
            made["format"] = self.format
        return made

    @property
    def key(self) -> str:
        return hashlib.sha256(canonical_json(self.object).encode()).hexdigest()[:_KEY_DIGITS]

    @property
    def display(self) -> str:
        """For people: an address without its query and what may be a password."""
        if self.kind == "webhook":
            scheme, _, rest = self.where[0].partition("://")
            host, slash, path = rest.partition("/")
            return f"webhook {scheme}://{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}"
        return f"{self.kind} {' '.join(self.where)}"


def channel_of(obj: Mapping[str, Any]) -> Channel:
    """The channel that a validated document names. Raises IntegrityError for what no document can hold."""
    for kind in ("queue", "webhook", "command"):
        if kind in obj:
            where = obj[kind]
            parts = tuple(map(str, where)) if isinstance(where, list | tuple) else (str(where),)
            made = Channel(kind, parts, str(obj.get("secret", "")), str(obj.get("format", "")))
            if made.format not in ("", OLD_SCHEDULER):
                raise IntegrityError(f"a channel has the format {made.format}, which this version does not know")
            return made
    raise IntegrityError("a channel is neither a queue nor a webhook nor a command")


def channels(notify: Mapping[str, Any]) -> dict[str, tuple[Channel, ...]]:
    """Key of `notify` (onSuccess …) -> its channels, each once."""
    found: dict[str, tuple[Channel, ...]] = {}
    for key, named in notify.items():
        listed = named if isinstance(named, list | tuple) else [named]
        found[key] = tuple(dict.fromkeys(channel_of(each) for each in listed))
    return found


@dataclass(slots=True)
class Registration:
    """A channel of a graph. on: keys of the graph facts that it gets; tasks: whether it gets facts of tasks."""

    channel: Channel
    on: list[str] = field(default_factory=list)
    tasks: bool = False


def registrations(notify: Mapping[str, Any], nodes: "Iterable[TaskNode]") -> dict[str, Registration]:
    found: dict[str, Registration] = {}
    for key, named in channels(notify).items():
        for each in named:
            found.setdefault(each.key, Registration(each)).on.append(key)
    for node in nodes:
        if node.notify:
            for named in channels(node.notify).values():
                for each in named:
                    found.setdefault(each.key, Registration(each)).tasks = True
    return found


def has_notices(document: "GraphDocument") -> bool:
    return bool(document.notify) or any(node.notify for node in document.tasks.values())


def rows_of(registered: Mapping[str, Registration], now: datetime) -> list[Insert]:
    """A row for each channel, which has got nothing yet."""
    return [
        Insert(
            PREFIX + key,
            {
                "schema": _SCHEMA,
                "state": OPEN,
                "channel": canonical_json(each.channel.object),
                "on": canonical_json(sorted(each.on)),
                "tasks": each.tasks,
                "sequence": 0,
                "part": 0,
                "delivered": 0,
                "failures": 0,
                "created": now,
            },
        )
        for key, each in sorted(registered.items())
    ]


def task_column(notify: Mapping[str, Any]) -> str:
    return canonical_json({key: [each.key for each in named] for key, named in sorted(channels(notify).items())})


def all_rows(select: Sequence[str] | None = None) -> Range:
    return prefix(PREFIX, select=select)


def graph_keys(fact: Mapping[str, Any]) -> tuple[str, ...]:
    """Which of GRAPH_KEYS a fact of the journal is for; none for most facts."""
    kind = str(fact.get("event"))
    if kind == "graph-finished" and fact.get("failed"):
        return ("onFailure", "onFinished")
    return _GRAPH_FACTS.get(kind, ())


def task_keys(fact: Mapping[str, Any]) -> tuple[str, ...]:
    """Which of TASK_KEYS a fact of the journal is for; none for most facts."""
    return _TASK_FACTS.get(str(fact.get("event")), ())


def wants(fact: Mapping[str, Any], key: str, on: Sequence[str], task: Columns | None) -> bool:
    """Whether a channel gets a fact.

    key, on: of the channel's row. task: columns of the fact's task, None for a fact of the graph. A column that cannot
    be read names no channel: the doctor reports it.
    """
    if any(each in on for each in graph_keys(fact)):
        return True
    keys = task_keys(fact)
    if not keys or task is None:
        return False
    try:
        named = json.loads(str(task.get(COLUMN, "") or "{}"))
    except ValueError:
        return False
    if not isinstance(named, dict):
        return False
    return any(key in listed for each in keys if isinstance(listed := named.get(each), list))


@value
class Notice:
    """One fact on its way to one channel. id: the same at every attempt, and of no other notice."""

    id: str
    body: str


def notice(graph_id: str, sequence: int, part: int, time: datetime | None, fact: Mapping[str, Any]) -> Notice:
    """part: place of the fact among those of its row, from 0."""
    own = f"{graph_id}.{sequence}.{part}"
    body: dict[str, Any] = {
        "version": VERSION,
        "id": own,
        "type": fact.get("event", ""),
        "graph": graph_id,
        "sequence": sequence,
        "time": time.isoformat().replace("+00:00", "Z") if time is not None else None,
        **{name: each for name, each in fact.items() if name not in _NOTICE_KEYS},
    }
    return Notice(own, canonical_json(body))
