"""The table of routes as OpenAPI 3.1, with the project's own JSON schemas as its components."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from taskgraph import __version__
from taskgraph.interfaces.http import problems
from taskgraph.interfaces.http.routes import ANY_BODY, Parameter, Route
from taskgraph.model import schemas

Json = dict[str, Any]

_ANSWERS: Final = "answers"
_ANY: Final = (400, 401, 403, 404, 421, 429, 500, 503)
"""Problems that any route which needs a token may have."""

_OPEN: Final = (400, 403, 421, 500)
"""Those of a route that needs none."""

_PROBLEM: Final[Json] = {
    "type": "object",
    "description": "RFC 9457. code: a short stable word. problems: all that is wrong, with places and remedies.",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "near": {"type": "array", "items": {"type": "string"}},
        "problems": {"type": "array", "items": {"type": "object"}},
    },
}


def document(routes: Sequence[Route], path_parameters: Sequence[Parameter]) -> Json:
    """The whole description; its components are those schemas that are referred to."""
    parts = {each.name: each for each in path_parameters}
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.whole_path, {})[route.method.lower()] = _operation(route, parts)
    components = {"problem": _PROBLEM, **_components(paths)}
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "taskgraph",
            "version": __version__,
            "description": "Graphs of tasks in a storage account. Unknown keys of answers are to be ignored.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, parts: dict[str, Parameter]) -> Json:
    parameters = [_parameter(parts[name], "path") for name in route.path_names]
    parameters += [_parameter(each, "query") for each in route.query]
    statuses = [*(_ANY if route.role is not None else _OPEN), *route.problems]
    if route.path_names and route.method != "GET":
        statuses.append(405)  # an empty name makes the path of another route
    answers: Json = {str(each): _problem(each) for each in sorted(set(statuses))}
    answers[str(route.status)] = _answer(route)
    if route.status != 200:
        answers["200"] = _answer(route)  # the same again, or what was waited for
    if route.answer == "text/plain" or 416 in route.problems:
        answers["206"] = {**_answer(route), "description": "A part of it."}
    made: Json = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": parameters,
        "responses": dict(sorted(answers.items())),
    }
    if route.role is None:
        made["security"] = []
    else:
        made["x-role"] = str(route.role)
    if "/" in route.body:
        made["requestBody"] = {"required": True, "content": {route.body: {}}}
    elif route.body:
        schema = {} if route.body == ANY_BODY else _reference(route.body)
        made["requestBody"] = {
            "required": route.body != ANY_BODY,  # that it is missing is the answer then
            "content": {"application/json": {"schema": schema}},
        }
    return made


def _parameter(one: Parameter, place: str) -> Json:
    schema: Json = {"type": "array", "items": dict(one.schema)} if one.many else dict(one.schema)
    return {
        "name": one.name,
        "in": place,
        "required": place == "path",
        "description": one.description,
        "schema": schema,
    }


def _answer(route: Route) -> Json:
    if "/" in route.answer:
        content: Json = {route.answer: {}}
    else:
        content = {"application/json": {"schema": _reference(f"{_ANSWERS}.{route.answer}")}}
    if route.name == "getEvents":
        content["text/event-stream"] = {}
    return {"description": route.summary, "content": content}


def _problem(status: int) -> Json:
    content = {problems.MEDIA_TYPE: {"schema": _reference("problem")}}
    return {"description": problems.title(status), "content": content}


def _reference(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _components(value: Any) -> Json:
    """The schemas that are referred to, and those that these refer to, by name."""
    found: Json = {}
    wanted = list(_references(value))
    while wanted:
        name = wanted.pop().removeprefix("#/components/schemas/").partition("/")[0]
        if name in found or name == "problem":
            continue
        file, _, part = name.partition(".")
        schema = schemas.schema(file)
        found[name] = _moved(schema["$defs"][part] if part else schema, file)
        wanted += _references(found[name])
    return dict(sorted(found.items()))


def _moved(value: Any, file: str) -> Any:
    """A part of a schema with its references as they are here, without what only a whole schema has."""
    if isinstance(value, list):
        return [_moved(each, file) for each in value]
    if not isinstance(value, dict):
        return value
    moved = {
        key: _moved(each, file) for key, each in value.items() if key not in ("$schema", "$id", "$defs", "$anchor")
    }
    if isinstance(reference := value.get("$ref"), str):
        place, _, path = reference.partition("#/$defs/")
        name = place.rpartition(":")[2] or file
        moved["$ref"] = f"#/components/schemas/{name}.{path}" if path else f"#/components/schemas/{name}"
    return moved


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(reference := value.get("$ref"), str):
            yield reference
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _references(each)
