"""Edits of a graph: from text to a validated EditDocument, or to everything that is wrong.

Each task is checked as a task of an extension, with what an update leaves out filled in.
"""

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from taskgraph.documents import texts
from taskgraph.documents.nodes import TaskNode
from taskgraph.documents.problems import PROBLEMS_MAX, Report
from taskgraph.documents.read import NOTHING_GIVEN, Given, document_from_object
from taskgraph.documents.schema_check import explain
from taskgraph.model import json_pointer, schemas
from taskgraph.model.errors import InvalidGraph
from taskgraph.model.ids import slugid_from
from taskgraph.model.json_strict import Path, canonical_json, show

_REMOVABLE: Final = frozenset(
    {"deadline", "notBefore", "maxRunTime", "pendingTimeout", "retry"}
)  # that null takes away
_STAND_INS: Final = ("something", "something else")  # labels that a task requires for want of its own


@dataclass(frozen=True, slots=True)
class Update:
    """What is to be other about one task.

    keys: those that were named; node: has their values, and what stands in for the others. deadline: the value of that
    key, which no node has.
    """

    label: str
    keys: frozenset[str]
    node: TaskNode
    deadline: str = ""


@dataclass(frozen=True, slots=True)
class EditDocument:
    """A validated edit. said: the JSON of it, with the values of parameters put in. if_revision: None for any."""

    updates: Mapping[str, Update] = field(default_factory=dict)
    delete: tuple[str, ...] = ()
    delete_groups: tuple[str, ...] = ()
    reason: str = ""
    if_revision: int | None = None
    said: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The JSON text that the rows of its request hold."""
        return canonical_json(self.said)

    @property
    def digest(self) -> str:
        """32 hexadecimal digits that are equal for edits that say the same."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    @property
    def request(self) -> str:
        """The id of its request, unless the caller chooses another."""
        return slugid_from(bytes.fromhex(self.digest))


def read_edit(
    text: bytes | str, *, source: str = "edit", given: Given = NOTHING_GIVEN, form: texts.Form = "json"
) -> EditDocument:
    """Read an edit. given: values of the graph's parameters. Raises InvalidGraph with every problem."""
    report = Report(source)
    return _checked(texts.parse(text, report, form).value, report, given)


def edit_from_object(obj: object, *, source: str = "edit", given: Given = NOTHING_GIVEN) -> EditDocument:
    """The same checks on Python values. Raises InvalidGraph."""
    try:
        text = canonical_json(obj)
    except (TypeError, ValueError, RecursionError) as error:
        report = Report(source)
        report.add((), "not-json", f"The edit is no JSON: {error}.", "Pass mappings, lists, text, numbers, booleans.")
        raise report.error() from error
    return read_edit(text, source=source, given=given)


def _checked(obj: Any, report: Report, given: Given) -> EditDocument:
    for error in itertools.islice(schemas.envelope("edit", "update").iter_errors(obj), PROBLEMS_MAX):
        explain(error, (), report, False)
    if not isinstance(obj, dict):
        raise report.error()
    said = obj.get("update")
    asked = said if isinstance(said, dict) else {}
    if not any(obj.get(key) for key in ("update", "delete", "deleteGroups")):
        remedy = "Name tasks in `update` or `delete`, or groups in `deleteGroups`."
        report.add((), "empty", "The edit changes nothing.", remedy)
    _check_once(obj, asked, report)
    updates = _updates(asked, report, given)
    if not report.count and not schemas.validator("edit").is_valid(obj):
        report.add((), "schema", "The edit is not of the form that the schema asks for.", "See schemas/edit.json.")
    report.raise_if_any()
    kept: dict[str, Any] = {key: value for key, value in obj.items() if value or key == "ifRevision"}
    if updates:
        kept["update"] = {
            label: {**asked[label], "task": each.node.task} if "task" in each.keys else asked[label]
            for label, each in updates.items()
        }
    tasks, groups = (tuple(obj.get(key, ())) for key in ("delete", "deleteGroups"))
    revision = int(obj["ifRevision"]) if "ifRevision" in obj else None
    return EditDocument(updates, tasks, groups, obj.get("reason", ""), revision, kept)


def _check_once(obj: Mapping[str, Any], asked: Mapping[str, Any], report: Report) -> None:
    for key in ("delete", "deleteGroups"):
        listed = obj.get(key)
        if not isinstance(listed, list):
            continue
        seen: set[str] = set()
        for index, name in enumerate(listed):
            if not isinstance(name, str):
                continue
            if name in seen:
                report.add((key, index), "duplicate", f"{show(name)} is named more than once.", "Name it once.")
            if key == "delete" and name in asked:
                message = f"{show(name)} is to be deleted, and to be updated."
                report.add((key, index), "deleted-and-updated", message, "Leave one of the two out.")
            seen.add(name)


def _updates(asked: Mapping[str, Any], report: Report, given: Given) -> dict[str, Update]:
    """The update of each task, checked as a task of an extension; problems name the places of the edit."""
    tasks: dict[str, Any] = {}
    known = schemas.members("edit", "update")
    listed = ", ".join(known)
    for label, wish in asked.items():
        path: Path = ("update", label)
        if not isinstance(wish, dict):
            report.add(path, "wrong-type", f"The update of {show(label)} must be an object.", "Name keys and values.")
            continue
        if not wish:
            report.add(path, "empty", f"The update of {show(label)} changes nothing.", f"Keys: {listed}.")
        for key in wish:
            if key not in known:
                message = f"{show(key)} is not a key of an update.{report.near(key, known)}"
                report.add((*path, key), "unknown-key", message, f"Known keys here: {listed}.")
        node = {key: value for key, value in wish.items() if key in known and not (value is None and key in _REMOVABLE)}
        task = node.setdefault("task", {})
        if "deadline" in node:
            deadline = node.pop("deadline")
            if isinstance(task, dict):
                node["task"] = {**task, "deadline": deadline}
        if "when" in node and "requires" not in node:
            node["requires"] = [next(each for each in _STAND_INS if each != label)]
        tasks[label] = node
    if not tasks:
        return {}
    try:
        document = document_from_object({"tasks": tasks}, source=report.source, kind="extension", given=given)
    except InvalidGraph as invalid:
        _add_problems(invalid, asked, report)
        return {}
    return {
        label: Update(label, frozenset(asked[label]), node, str(asked[label].get("deadline") or ""))
        for label, node in document.tasks.items()
    }


def _add_problems(invalid: InvalidGraph, asked: Mapping[str, Any], report: Report) -> None:
    for problem in invalid.problems:
        path = _path(problem.pointer, {"tasks": asked})
        if path[:1] == ["tasks"]:
            if problem.code == "surrogate":  # said when the text was read, of a path that its pointer cannot give back
                continue
            path[0] = "update"
            if path[2:4] == ["task", "deadline"] and "deadline" in asked.get(str(path[1]), {}):
                del path[2]
        report.add(tuple(path), problem.code, problem.message, problem.remedy, problem.line)


def _path(pointer: str, obj: Any) -> list[str | int]:
    """The path that a JSON pointer names: indexes of lists as numbers."""
    path: list[str | int] = []
    for name in json_pointer.steps(pointer):
        if isinstance(obj, list) and name.isdecimal():
            path.append(int(name))
            obj = obj[int(name)] if int(name) < len(obj) else None
        else:
            path.append(name)
            obj = obj.get(name) if isinstance(obj, dict) else None
    return path
