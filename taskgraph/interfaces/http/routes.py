"""What a route is: method, path, who may, what it takes and answers. The table in `table` is made of these.

The same rows make the routes of the app, the OpenAPI document and the reference page, so that these cannot differ.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from taskgraph.interfaces.http.problems import Problem
from taskgraph.model.roles import Role

if TYPE_CHECKING:
    from taskgraph.interfaces.http.asked import Asked

BASE: Final = "/api/v1"
ANY_BODY: Final = "any"
"""In the place of the schema of a body, where what is wrong with it is the answer."""
FILE_BODY: Final = "application/gzip"
"""In the same place, where it is a file."""

_TRUE: Final = {"1": True, "true": True, "": True, "0": False, "false": False}
_INTEGER: Final = re.compile(r"-?[0-9]{1,9}")
_NUMBER: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A part of the path or of the query. schema: JSON Schema of its value. many: it may be repeated; a list then."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    many: bool = False

    def read(self, texts: Sequence[str]) -> Any:
        """The value; the default, or None, where there is no text. Raises ValueError, with what would do."""
        if self.many:
            return [self._one(each) for each in texts]
        if not texts:
            return self.schema.get("default")
        if len(texts) > 1:
            raise ValueError("it is given twice")
        return self._one(texts[0])

    def _one(self, text: str) -> Any:
        schema = self.schema
        if len(text) > schema.get("maxLength", 1_000):
            raise ValueError(f"at most {schema.get('maxLength', 1_000):,} characters")
        match schema["type"]:
            case "boolean":
                if text not in _TRUE:
                    raise ValueError("write 1 or 0")
                return _TRUE[text]
            case "integer" | "number" as kind:
                if (_INTEGER if kind == "integer" else _NUMBER).fullmatch(text) is None:
                    raise ValueError("write a number")
                number = int(text) if kind == "integer" else float(text)
                low, high = schema.get("minimum", number), schema.get("maximum", number)
                if not low <= number <= high:
                    raise ValueError(
                        f"write a number from {low:g} to {high:g}" if "maximum" in schema else f"{low} or more"
                    )
                return number
            case _:
                if text not in schema.get("enum", (text,)):
                    raise ValueError(f"write one of {', '.join(schema['enum'])}")
                if "pattern" in schema and re.search(schema["pattern"], text) is None:
                    raise ValueError(f"it must fit {schema['pattern']}")
                return text


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a path below BASE.

    role: who may call it, None for anyone. call: gives a JSON value, or a response. answer: the name of its shape in
    schemas/answers.json, or a media type. body: the name of a schema for the document that is sent (FILE.PART of a part
    of one), a media type, or "" for none. query: what it takes behind the `?`; its path says the rest. status: of an
    answer that is a JSON value. problems: statuses beside those that any route may have.
    """

    method: str
    path: str
    name: str
    summary: str
    role: Role | None
    call: "Callable[[Asked], Awaitable[Any]]"
    answer: str
    query: Sequence[Parameter] = ()
    body: str = ""
    status: int = 200
    problems: Sequence[int] = ()
    free: str = ""
    """The beginning of further parameters of the query, whose names the sender chooses."""
    scoped: bool = False
    """Whether a token for some graphs alone may call it, though its path names no graph."""

    @property
    def path_names(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)

    @property
    def whole_path(self) -> str:
        return BASE + self.path


def read_query(route: Route, given: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The values of its parameters. Raises Problem, with all that is wrong."""
    texts: dict[str, list[str]] = {}
    for name, text in given:
        texts.setdefault(name, []).append(text)
    known = {each.name: each for each in route.query}
    values: dict[str, Any] = {}
    wrong: list[dict[str, Any]] = []
    for name, each in known.items():
        try:
            values[name] = each.read(texts.get(name, ()))
        except ValueError as error:
            wrong.append(_wrong(name, f"The parameter {name} is not right: {error}.", each.description))
    free: dict[str, list[str]] = {}
    for name in texts.keys() - known.keys():
        if route.free and name.startswith(route.free):
            free[name.removeprefix(route.free)] = texts[name]
        else:
            names = ", ".join(known) or "none"
            wrong.append(_wrong(name, f"There is no parameter {name[:100]} here.", f"There are: {names}."))
    if wrong:
        raise Problem(
            400, "invalid-query", "the query is wrong", problems=sorted(wrong, key=lambda one: one["parameter"])
        )
    return {**values, route.free: free} if route.free else values


def _wrong(name: str, message: str, remedy: str) -> dict[str, Any]:
    return {"parameter": name[:100], "code": "invalid-parameter", "message": message, "remedy": remedy}
