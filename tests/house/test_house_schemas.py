"""The JSON schemas are schemas, and their own examples obey them."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from taskgraph.model import schemas

FOLDER: Final = Path(__file__).resolve().parents[2] / "schemas"
FILES: Final = sorted(FOLDER.glob("*.json"))


def read(path: Path) -> dict[str, Any]:
    contents: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return contents


def test_there_is_something_to_look_at() -> None:
    assert "task-graph" in {path.stem for path in FILES}
    assert schemas.names() == tuple(sorted(path.stem for path in FILES))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_is_a_schema_of_2020_12(path: Path) -> None:
    contents = read(path)
    Draft202012Validator.check_schema(contents)
    assert contents["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert contents["$id"] == f"urn:taskgraph:schema:{path.stem}"
    assert contents["title"]
    assert contents["description"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_its_examples_obey_it(path: Path) -> None:
    contents = read(path)
    examples = contents.get("examples", [])
    assert examples, "a schema without an example"
    validator = schemas.Validator(contents)
    for example in examples:
        assert [error.message for error in validator.iter_errors(example)] == []
    assert not validator.is_valid("no object"), "a schema that refuses nothing"
