"""Findings of the schema validator in words, and the keys and names that stand in documents."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from taskgraph.documents.problems import Report
from taskgraph.model import limits, schemas
from taskgraph.model.json_strict import Path, show
from taskgraph.model.secrecy import SECRET

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

CHANNEL_KINDS: Final = ("queue", "webhook", "command")
SUBS: Final = "$subs"
SUBS_PREFIX: Final = "taskId:"
PARAM: Final = "$param"
RESULT: Final = "$result"
FILE: Final = "$file"
EACH: Final = "$each"

_LABEL = re.compile(rf"[^\x00-\x1f\x7f-\x9f]{{1,{limits.LABEL_CHARS_MAX}}}")
_PARAM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)


def named(requires: Any) -> tuple[Any, frozenset[str]]:
    """The labels of a requirement list, and those that are optional. What is no label stays, to be reported."""
    if not isinstance(requires, list) or dict not in map(type, requires):
        return requires, frozenset()
    labels = [each["label"] if type(each) is dict and type(each.get("label")) is str else each for each in requires]
    return labels, frozenset(
        label
        for label, each in zip(labels, requires, strict=True)
        if type(each) is dict and type(label) is str and each.get("optional") is True
    )


def is_label(text: Any) -> bool:
    """Whether text may be a label: 1 to 255 characters, none of them a control character."""
    return isinstance(text, str) and _LABEL.fullmatch(text) is not None


def is_param_name(text: Any) -> bool:
    """Whether text may be the name of a parameter: a letter or `_`, then letters, digits, `_`, `.`, `-`; 64 at most."""
    return isinstance(text, str) and _PARAM_NAME.fullmatch(text) is not None


TYPE_NAMES: Final = {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def _type_name(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return TYPE_NAMES["null" if value is None else "boolean"]
    kinds = {str: "string", int: "number", float: "number", list: "array"}
    return TYPE_NAMES[kinds.get(type(value), "object")]


def _name_of(path: Path) -> str:
    """What a sentence about a place begins with."""
    match path:
        case ():
            return "The document"
        case ("tasks", label):
            return f"The task {show(label)}"
        case ("groups", group):
            return f"The group {show(group)}"
        case (*above, int(index)):
            return f"Item {index} of `{above[-1]}`"
        case _:
            return f"`{show(path[-1], 40)[1:-1]}`"


def _as_json(text: str) -> str:
    """A text as JSON, to be typed."""
    return f'"{show(text)[1:-1]}"'


def explain(error: "ValidationError", base: Path, report: Report, extension: bool) -> None:
    path: Path = (*base, *error.absolute_path)
    value: Any = error.instance
    name = _name_of(path)
    named = SUBS in path[-1:] or (isinstance(value, dict) and SUBS in value and error.validator != "required")
    named = named or (isinstance(value, dict) and (RESULT in value or FILE in value) and len(path) > 4)
    named = named or SECRET in path[-1:] or (isinstance(value, dict) and SECRET in value)
    if named and path[2:4] == ("task", "payload"):
        return  # a reference of a wrong form: check_definition says it once, for every place in a payload
    if "propertyNames" in error.absolute_schema_path:
        _explain_name(error, path, report)
    elif error.validator == "required":
        bound: Any = error.validator_value
        for key in bound:
            if key not in value:
                remedy = "Add it, at least as an empty object." if key == "payload" else f"Add `{key}`."
                if path[:1] == ("groups",):
                    remedy = "List the labels of its tasks."
                report.add(path, "missing", f"{name} lacks the key `{key}`.", remedy)
    elif error.validator == "additionalProperties":
        allowed = list(error.schema["properties"]) if isinstance(error.schema, dict) else []
        for key in value:
            if key not in allowed:
                _explain_unknown_key(path, name, key, allowed, report, extension)
    elif error.validator == "uniqueItems":
        if path[-1:] == ("workerLabels",):  # of requires, check_requires names the label and its place
            report.add(path, "duplicate", f"{name} names a label twice.", "Name each once.")
    else:
        report.add(path, *_words(error, path, name, report))


def _explain_name(error: "ValidationError", path: Path, report: Report) -> None:
    """A key that cannot be the name that it is; labels are looked at by check_labels."""
    if path[:1] == ("params",):
        what = "the name of a parameter"
        remedy = "A name is a letter or _, followed by letters, digits, _, . and -, 64 characters at most."
    elif error.validator == "pattern":
        what = "the name of an environment variable"
        remedy = "A name has at least one character, and neither = nor a NUL."
    else:
        return
    name: Any = error.instance
    report.add((*path, name), "bad-name", f"{show(name)} cannot be {what}.", remedy)


def _words(error: "ValidationError", path: Path, name: str, report: Report) -> tuple[str, str, str]:
    value: Any = error.instance
    bound: Any = error.validator_value
    match error.validator:
        case "type":
            expected = TYPE_NAMES[bound if isinstance(bound, str) else bound[0]]
            remedy = f"Write {expected}."
            if expected == TYPE_NAMES["string"] and isinstance(value, bool | int | float):
                remedy = "Write it in quotes."
            elif expected == TYPE_NAMES["object"] and value is None:
                remedy = "Write an object: {} is an empty one."
            if path[-1:] == ("command",) and isinstance(value, str):
                remedy = f'Write its words: {_listed(value.split())}; for a shell: ["sh", "-c", {_as_json(value)}].'
            elif path[-1:] == ("inheritEnv",):
                remedy = "Write true, false, or a list of names of variables."
            elif isinstance(value, float):
                return "wrong-type", f"{name} must be {expected}, not {value}.", remedy
            return "wrong-type", f"{name} must be {expected}, not {_type_name(value)}.", remedy
        case "enum":
            choices = ", ".join(map(show, bound))
            texts = isinstance(value, str) and all(type(one) is str for one in bound)
            near = report.near(value, bound) if texts else ""
            return "not-allowed", f"{name} is {show(value)}, and none of {choices}.{near}", "Write one of them."
        case "minimum" | "maximum" | "exclusiveMinimum":
            wanted = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "more than"}[error.validator]
            wanted = f"{wanted} {bound:,}"
            message = f"{name} must be {wanted}, and is {show(value)}."
            return "out-of-range", message, f"Write a number that is {wanted}."
        case "maxLength":
            message = f"{name} has {len(value):,} characters; {bound:,} are allowed."
            return "too-long", message, f"Shorten it to {bound:,} characters."
        case "maxItems":
            message = f"{name} has {len(value):,} items; {bound:,} are allowed."
            return "too-many", message, f"Leave {len(value) - bound:,} of them out."
        case "minLength" | "minItems" | "minProperties":
            remedy = "Put at least one in, or leave the key out."
            if path[:1] == ("groups",) and path[2:] == ("tasks",):
                name, remedy = f"The group {show(path[1])}", "List the labels of its tasks, or remove the group."
            elif path == ("tasks",):
                remedy = "Put at least one task in: the key is required."
            return "empty", f"{name} must not be empty.", remedy
        case "format":
            message = f"{name} is {show(value)}, which is no RFC 3339 date-time."
            return "bad-date-time", message, 'Write it like "2030-01-31T12:00:00Z".'
        case "pattern":
            return "bad-form", f"{name} is {show(value)}, which has the wrong form.", _form(path, bound)
        case _ if error.schema is False:  # `target` beside `host`: it may not be there
            message = "A task for one host goes to the queue of that host, and to no other target."
            return "host-and-target", message, "Leave `target` out, or `host`."
        case _:  # a keyword that the schema has and this function does not know: say it in the validator's words
            return "schema", f"{name}: {error.message[:300]}.", "See schemas/task-graph.json."


def _listed(words: Sequence[str]) -> str:
    return f"[{', '.join(map(_as_json, words[:8]))}{', …' if len(words) > 8 else ''}]"


def _form(path: Path, pattern: str) -> str:
    if path[-1:] and path[-1] in _FORMS:
        return _FORMS[path[-1]]
    if "workerLabels" in path:
        return "A worker's label begins with a letter or digit; . _ : / = + - may follow too, 63 characters at most."
    if "requires" in path or path[:1] == ("groups",):
        return "A label has no control characters."
    if "inputs" in path or "outputs" in path:
        return "Write a path from the working directory on, such as dist/app, that stays below it."
    return "A command line cannot carry NUL characters." if "payload" in path else f"It must match {pattern}."


_FORMS: Final[dict[str | int, str]] = {
    "target": "A target has 1 to 40 lower-case letters and digits, and single hyphens between them.",
    "executor": ("An executor is a lower-case letter followed by lower-case letters, digits and hyphens, 40 at most."),
    "host": "A host begins with a letter or digit; letters, digits and . _ - may follow, 63 characters at most.",
    "queue": "A queue's name has 3 to 63 lower-case letters and digits, and single hyphens between them.",
    "webhook": (
        "An address begins with https:// or http:// and a host, whose port is 65535 at most; it holds neither "
        "blanks nor backslashes nor characters beyond ASCII."
    ),
    "url": "An address begins with https:// or http://.",
    "secret": "The name of a secret is a letter followed by letters, digits and underscores.",
}


def _explain_unknown_key(
    path: Path, name: str, key: str, allowed: Sequence[str], report: Report, extension: bool
) -> None:
    place = (*path, key)
    if not path and extension and key in schemas.members("task-graph"):
        remedy = "An extension holds `tasks`, `groups` of them, and `params` of its own, and nothing else."
        report.add(place, "unknown-key", f"`{key}` cannot be changed by an extension.", remedy)
        return
    near = report.near(key, allowed, "unknown-key")
    remedy = f"Known keys here: {', '.join(allowed)}."
    task_keys = schemas.members("task-graph", "task")
    if len(path) == 2 and path[0] == "tasks" and key in task_keys:
        remedy = f"It belongs one level deeper, at task.{key}."
    where = name[0].lower() + name[1:]
    report.add(place, "unknown-key", f"{show(key)} is not a key of {where}.{near}", remedy)
