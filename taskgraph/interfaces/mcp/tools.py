"""What an agent may call: routes of the HTTP API as tools, so that both answer the same.

A tool looks, plans, or applies what was planned: none changes anything without the digest of a plan.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

from taskgraph.interfaces.http.routes import Parameter, Route
from taskgraph.interfaces.http.table import PATH, ROUTES
from taskgraph.model import schemas
from taskgraph.model.errors import InvalidInput

APPLY: Final = "apply_change"
WAIT_SECONDS: Final = 10
"""For so long an applied change waits for the handlers that make it."""

_DOCUMENT: Final = {"type": "object", "description": "A graph: schemas/task-graph.json."}


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Tool:
    """query: parameters that the agent gives. fixed: a query that it does not. body: name and schema of the body."""

    name: str
    description: str
    route: Route
    query: Sequence[Parameter] = ()
    fixed: Mapping[str, str] | None = None
    body: tuple[str, Mapping[str, Any]] | None = None

    @property
    def applies(self) -> bool:
        return self.name == APPLY

    def input_schema(self) -> dict[str, Any]:
        given = {name: _schema(PATH[name]) for name in self.route.path_names}
        required = [*given]
        for each in self.query:
            given[each.name] = _schema(each)
        if self.body is not None:
            name, schema = self.body
            given[name] = dict(schema)
            required.append(name)
        if self.applies:
            required += [each.name for each in self.query]
        return {"type": "object", "properties": given, "required": required, "additionalProperties": False}

    def request(self, arguments: Mapping[str, Any]) -> Request:
        """Raises InvalidInput for arguments that are missing, or that it does not have."""
        schema = self.input_schema()
        missing = [name for name in schema["required"] if name not in arguments]
        others = [name for name in arguments if name not in schema["properties"]]
        if missing or others:
            words = ", ".join(
                [*(f"{name} is missing" for name in missing), *(f"there is no {name}" for name in others)]
            )
            raise InvalidInput(f"{self.name}: {words}; it takes {', '.join(schema['properties']) or 'nothing'}")
        path = self.route.path.format(**{name: quote(str(arguments[name]), safe="") for name in self.route.path_names})
        query = [(name, text) for name, text in (self.fixed or {}).items()]
        for each in self.query:
            value = arguments.get(each.name)
            values = value if isinstance(value, list) else [] if value is None else [value]
            query += [(each.name, _text(one)) for one in values]
        body = json.dumps(arguments[self.body[0]]) if self.body is not None else ""
        headers = {"prefer": f"wait={WAIT_SECONDS}"} if self.applies else {}
        return Request(self.route.method, f"{path}?{urlencode(query)}" if query else path, body, headers)


def _schema(one: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array", "items": dict(one.schema)} if one.many else dict(one.schema)
    return {"description": one.description, **schema}


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _words(name: str) -> str:
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name)


_LOOKING: Final = (
    *("listGraphs", "getGraph", "getDocument", "listTasks", "getTask", "whyGraph", "whyTask"),
    *(
        "getLog",
        "getOutput",
        "getResults",
        "getEvents",
        "getTimeline",
        "rehearseGraph",
        "getLimits",
        "getRequest",
        "examineGraph",
    ),
    *("getOverview", "listWorkers", "listTargets", "listSchedules", "getSchedule"),
)


def _made() -> dict[str, Tool]:
    by_name = {each.name: each for each in ROUTES}
    found = [Tool(_words(name), by_name[name].summary, by_name[name], by_name[name].query) for name in _LOOKING]
    found += [
        Tool(_words(name), by_name[name].summary, by_name[name], body=("document", _DOCUMENT))
        for name in ("validateDocument", "planDocument")
    ]
    route = by_name["rehearseDocument"]
    found.append(Tool(_words(route.name), route.summary, route, route.query, body=("document", _DOCUMENT)))
    route = by_name["changeGraph"]
    change = {**schemas.schema("change")}
    for name in ("$schema", "$id"):
        del change[name]
    body = ("change", change)
    found.append(
        Tool(
            "plan_change",
            "What a change of a graph would do now, task by task, and the digest under which it can be applied. "
            "Nothing is changed.",
            route,
            fixed={"dryRun": "1"},
            body=body,
        )
    )
    found.append(
        Tool(
            APPLY,
            "Make a change just as plan_change showed it. It is refused, with the new plan, where anything relevant "
            "has moved since.",
            route,
            [each for each in route.query if each.name == "plan"],
            body=body,
        )
    )
    return {each.name: each for each in found}


TOOLS: Final[Mapping[str, Tool]] = _made()
