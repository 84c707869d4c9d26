"""The description of the API: whole, valid, and the same as what is served."""

import re
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator

from taskgraph.interfaces.http.table import PATH, ROUTES, SECTIONS, description
from tests.http.serving import Server


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (each for name, each in value.items() if name == "$ref" and isinstance(each, str))
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_every_reference_leads_somewhere() -> None:
    found = set(references(description()))
    assert len(found) > 50
    for each in found:
        place: Any = description()
        for step in each.removeprefix("#/").split("/"):
            place = place[step.replace("~1", "/").replace("~0", "~")]
        assert isinstance(place, dict | bool)


def test_every_component_is_a_schema() -> None:
    components = description()["components"]["schemas"]
    for name, schema in components.items():
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
        Draft202012Validator.check_schema(schema)


def test_every_route_says_who_what_and_how_it_fails() -> None:
    names = [route.name for route in ROUTES]
    assert len(set(names)) == len(names)
    for route in ROUTES:
        operation = description()["paths"][route.whole_path][route.method.lower()]
        assert operation["operationId"] == route.name
        assert route.summary.endswith(".")
        assert set(route.path_names) <= PATH.keys()
        statuses = set(operation["responses"])
        assert str(route.status) in statuses
        if route.role is not None:
            assert {"400", "401", "403", "404", "429", "503"} <= statuses
            assert operation["x-role"] == str(route.role)
        assert bool(route.body) == ("requestBody" in operation)
        assert not route.body or route.method in ("POST", "PUT", "PATCH")
    assert tuple(route for routes in SECTIONS.values() for route in routes) == ROUTES


async def test_it_is_served(local: Server) -> None:
    assert (await local.get("/openapi.json")).json == description()
