"""The form of a task node: the schema in fast, and the schema's findings in words.

What this room is for: `schemas/task-graph.json` is the authority, and asking it takes a fifth of a millisecond for
each task. So `node_is_plain` gives the same yes or no in microseconds, tests hold it against the schema, and only what
it refuses is handed to the validator, whose findings `explain` turns into problems. It never looks at more than one
node: labels that must exist and cycles are not a matter of form.
"""

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from taskgraph.documents.problems import Report
from taskgraph.model import limits, priorities, schemas, timing
from taskgraph.model.json_strict import Path, show
from taskgraph.model.placement import is_host, is_worker_label
from taskgraph.model.states import When

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

TASK_KEYS: Final = (
    "routing",
    "deadline",
    "payload",
    "executor",
    "target",
    "host",
    "workerLabels",
    "workersLostMax",
    "metadata",
)
GRAPH_KEYS: Final = (
    "routing",
    "tasks",
    "groups",
    "metadata",
    "tags",
    "failurePolicy",
    "params",
    "notify",
    "stalledAfter",
    "deadline",
    "onStalled",
    "maxInFlight",
    "priority",
)
COMMAND_KEYS: Final = ("command", "env", "cwd", "timeout")
WEBHOOK_PATTERN: Final = (  # no backslash: one reader of addresses ends the host there, and another one does not
    r"^https?://(?=[!-\[\]-~]+$)(?:[^/?#@\[\]]*@)?(?:\[[^/?#@\[\]]+\]|[^/?#@:\[\]]+)"
    r"(?::(?:0*(?:[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?)?(?:[/?#].*)?$"
)
CHANNEL_KINDS: Final = ("queue", "webhook", "command")
SUBS: Final = "$subs"
SUBS_PREFIX: Final = "taskId:"
PARAM: Final = "$param"
RESULT: Final = "$result"

_NODE_KEYS: Final = frozenset({"requires", "when", "reruns", "task", "notify", "active", "priority", *timing.NODE_KEYS})
_REQUIREMENT_KEYS: Final = frozenset({"label", "optional"})
_CONDITIONS: Final = frozenset(map(str, When))
_GROUP_KEYS: Final = frozenset({"tasks", "requires", "active", "maxInFlight"})
_GROUP_PLAIN_KEYS: Final = frozenset({"active", "maxInFlight"})  # of a group, those that list no names
_TASK_NOTIFY_KEYS: Final = frozenset({"onSuccess", "onFailure", "onFinished"})
_CHANNEL_KEYS: Final = frozenset({"queue", "webhook", "secret", "command"})
_CHANNELS_MAX: Final = 10
_ARGUMENTS_MAX: Final = 100
_METADATA_CHARS_MAX: Final = {"name": 255, "description": 32_768, "owner": 255, "source": 4_096}
_LABEL = re.compile(rf"[^\x00-\x1f\x7f-\x9f]{{1,{limits.LABEL_CHARS_MAX}}}")
_TARGET = re.compile(limits.TARGET_PATTERN)
_EXECUTOR = re.compile(r"[a-z][a-z0-9-]{0,39}")
_QUEUE = re.compile(r"[a-z0-9](?:-?[a-z0-9]){2,62}")
_WEBHOOK = re.compile(WEBHOOK_PATTERN)
_SECRET = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_ENV_NAME = re.compile(r"[^=\x00]+")
_PARAM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*+)*+")


def node_is_plain(node: Any, labels: AbstractSet[str]) -> bool:
    """Whether a node obeys its schema: the same answer as the validator's, a hundred times faster.

    labels: labels known to be of the right form. A test holds this function against the schema.
    """
    if type(node) is not dict or not _NODE_KEYS.issuperset(node):
        return False
    requires = node.get("requires", [])
    if isinstance(requires, list) and dict in map(type, requires):
        if not _objects_are_plain(requires):
            return False
        requires = [each for each in requires if type(each) is not dict]
    if not _names_are_plain(requires, labels):
        return False
    if "when" in node and not (type(node["when"]) is str and node["when"] in _CONDITIONS):
        return False
    reruns = node.get("reruns", 0)
    if type(reruns) is not int and not (type(reruns) is float and reruns.is_integer()):
        return False
    if not 0 <= reruns <= limits.RERUNS_MAX:
        return False
    if "active" in node and type(node["active"]) is not bool:
        return False
    if "priority" in node and not priorities.is_level(node["priority"]):
        return False
    if "notify" in node and not _notify_is_plain(node["notify"]):
        return False
    if len(node) > 1 and not timing.is_plain(node):
        return False
    task = node.get("task")
    return type(task) is dict and _task_is_plain(task)


def _objects_are_plain(requires: list[Any]) -> bool:
    """Whether those requirements that are objects obey their schema, and none stands there twice."""
    seen = set()
    for each in requires:
        if type(each) is dict:
            optional = each.get("optional")
            if not _REQUIREMENT_KEYS.issuperset(each) or not is_label(each.get("label")):
                return False
            if type(optional) is not bool and "optional" in each:
                return False
            if (each["label"], optional) in seen:
                return False
            seen.add((each["label"], optional))
    return True


def named(requires: Any) -> tuple[Any, frozenset[str]]:
    """The labels of a requirement list, each in its place, and those that are optional.

    What is no list, and what names no label, is left as it is, for others to complain about.
    """
    if not isinstance(requires, list) or dict not in map(type, requires):
        return requires, frozenset()
    labels = [each["label"] if type(each) is dict and type(each.get("label")) is str else each for each in requires]
    return labels, frozenset(
        label
        for label, each in zip(labels, requires, strict=True)
        if type(each) is dict and type(label) is str and each.get("optional") is True
    )


def group_is_plain(group: Any, names: AbstractSet[str]) -> bool:
    """Whether a group obeys its schema, as `node_is_plain` says it of a task."""
    if type(group) is not dict or not _GROUP_KEYS.issuperset(group) or not group.get("tasks"):
        return False
    if type(group.get("active", True)) is not bool:
        return False
    most = group.get("maxInFlight", 1)
    if type(most) is not int or not 1 <= most <= limits.IN_FLIGHT_MAX:
        return False
    return all(_names_are_plain(listed, names) for key, listed in group.items() if key not in _GROUP_PLAIN_KEYS)


def _names_are_plain(listed: Any, known: AbstractSet[str]) -> bool:
    """Whether this is a list of labels, each of them once."""
    if type(listed) is not list:
        return False
    if not listed:
        return True
    try:
        if not known.issuperset(listed) and not all(map(is_label, listed)):  # type: ignore[attr-defined]
            return False
        return len(set(listed)) == len(listed)
    except TypeError:  # something in it cannot even be hashed
        return False


def _notify_is_plain(notify: Any) -> bool:
    if type(notify) is not dict or not _TASK_NOTIFY_KEYS.issuperset(notify):
        return False
    for named in notify.values():
        listed = named if type(named) is list else [named]
        if not 1 <= len(listed) <= _CHANNELS_MAX or not all(map(_channel_is_plain, listed)):
            return False
    return True


def _channel_is_plain(channel: Any) -> bool:
    """The form alone: that there is exactly one of queue, webhook and command is found by `documents`."""
    if type(channel) is not dict or not _CHANNEL_KEYS.issuperset(channel):
        return False
    for key, form, chars_max in (("queue", _QUEUE, 63), ("webhook", _WEBHOOK, 2000), ("secret", _SECRET, 40)):
        if key in channel:
            text = channel[key]
            if type(text) is not str or len(text) > chars_max or form.fullmatch(text) is None:
                return False
    if "command" not in channel:
        return True
    command = channel["command"]
    if type(command) is not list or not 1 <= len(command) <= _ARGUMENTS_MAX:
        return False
    return all(type(each) is str and "\0" not in each for each in command)


def is_label(text: Any) -> bool:
    """Whether text may be a label: 1 to 255 characters, none of them a control character."""
    return isinstance(text, str) and _LABEL.fullmatch(text) is not None


def is_param_name(text: Any) -> bool:
    """Whether text may be the name of a parameter: a letter or `_`, then letters, digits, `_`, `.`, `-`; 64 at most."""
    return isinstance(text, str) and _PARAM_NAME.fullmatch(text) is not None


def _is_param(value: Any) -> bool:
    """Whether a value is an object that stands for a parameter. Most documents hold none by now: they are replaced."""
    if type(value) is not dict or PARAM not in value or not value.keys() <= {PARAM, "path"}:
        return False
    return is_param_name(value[PARAM]) and _is_pointer(value.get("path", ""))


def _is_result(value: Any) -> bool:
    """Whether a value is an object that stands for the output of another task."""
    if type(value) is not dict or RESULT not in value or not value.keys() <= {RESULT, "path", "default"}:
        return False
    return is_label(value[RESULT]) and _is_pointer(value.get("path", ""))


def _is_given(value: Any) -> bool:
    return _is_param(value) or _is_result(value)


def _is_pointer(value: Any) -> bool:
    return type(value) is str and _POINTER.fullmatch(value) is not None


def _task_is_plain(task: dict[str, Any]) -> bool:
    routing = task.get("routing", "")
    if type(routing) is str:
        if len(routing) > limits.ROUTING_CHARS_MAX:
            return False
    elif not _is_param(routing):
        return False
    if "deadline" in task:
        deadline = task["deadline"]
        if not (schemas.is_date_time(deadline) if type(deadline) is str else _is_param(deadline)):
            return False
    if "target" in task:
        target = task["target"]
        if not (_TARGET.fullmatch(target) if type(target) is str else _is_param(target)):
            return False
    if "host" in task and ("target" in task or not (is_host(task["host"]) or _is_param(task["host"]))):
        return False
    if "workerLabels" in task and not _are_worker_labels(task["workerLabels"]):
        return False
    if "workersLostMax" in task and not _is_count(task["workersLostMax"], limits.WORKERS_LOST_BOUND):
        return False
    if "metadata" in task and not _metadata_is_plain(task["metadata"]):
        return False
    payload = task.get("payload")
    if type(payload) is not dict and "payload" in task:
        return False
    if "executor" not in task:
        return payload is None or "command" not in payload or _command_is_plain(payload)
    executor = task["executor"]
    if type(executor) is not str:
        return _is_param(executor)
    if _EXECUTOR.fullmatch(executor) is None:
        return False
    if executor == "command":
        return payload is not None and _command_is_plain(payload)
    if executor == "sleep":
        seconds = payload.get("seconds") if payload is not None else None
        return _is_given(seconds) if not _is_number(seconds) else bool(seconds >= 0)
    return True


def _is_count(value: Any, most: int) -> bool:
    whole = type(value) is int or (type(value) is float and value.is_integer())
    return 1 <= value <= most if whole else _is_param(value)


def _are_worker_labels(labels: Any) -> bool:
    if type(labels) is not list:
        return _is_param(labels)
    if len(labels) > limits.WORKER_LABELS_MAX:
        return False
    words = [label for label in labels if not _is_param(label)]
    return all(map(is_worker_label, words)) and all(label not in labels[:n] for n, label in enumerate(labels))


def _metadata_is_plain(metadata: Any) -> bool:
    if type(metadata) is not dict:
        return False
    return all(
        len(metadata[key]) <= chars_max if type(metadata[key]) is str else _is_param(metadata[key])
        for key, chars_max in _METADATA_CHARS_MAX.items()
        if key in metadata
    )


def _command_is_plain(payload: dict[str, Any]) -> bool:
    command = payload.get("command")
    if type(command) is list:
        if not command or not all(map(_is_text, command)):
            return False
    elif not _is_given(command):
        return False
    env = payload.get("env", {})
    if type(env) is not dict:
        return False
    if not all(_ENV_NAME.fullmatch(name) and _is_text(env[name]) for name in env) and not _is_given(env):
        return False
    if "cwd" in payload and not _is_text(payload["cwd"]):
        return False
    if "timeout" not in payload:
        return True
    timeout = payload["timeout"]
    return timeout > 0 if _is_number(timeout) else _is_given(timeout)


def _is_text(value: Any) -> bool:
    """Text that may stand in a command line, or a reference that becomes such text."""
    if type(value) is str:
        return "\0" not in value
    if type(value) is not dict or len(value) != 1 or SUBS not in value:
        return _is_given(value)
    return type(value[SUBS]) is str and value[SUBS].startswith(SUBS_PREFIX)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return type(value) is int or type(value) is float


# --- findings of the schema in words ------------------------------------------------------------------------------

_TYPE_NAMES: Final = {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def _type_name(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "an array"
        case _:
            return "an object"


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


def explain(error: "ValidationError", base: Path, report: Report, extension: bool) -> None:
    """One finding of the schema validator as problems in our words."""
    path: Path = (*base, *error.absolute_path)
    value: Any = error.instance
    bound: Any = error.validator_value
    name = _name_of(path)
    named = SUBS in path[-1:] or (isinstance(value, dict) and SUBS in value and error.validator != "required")
    named = named or (isinstance(value, dict) and RESULT in value and len(path) > 4)
    if named and path[2:4] == ("task", "payload"):
        return  # a reference of a wrong form: _check_references says it once, for every place in a payload
    if "propertyNames" in error.absolute_schema_path:
        if path[:1] == ("params",):
            report.add(
                (*path, value),
                "bad-name",
                f"{show(value)} cannot be the name of a parameter.",
                "A name is a letter or _, followed by letters, digits, _, . and -, 64 characters at most.",
            )
        elif error.absolute_schema_path[-1] == "pattern":
            report.add(
                (*path, value),
                "bad-name",
                f"{show(value)} cannot be the name of an environment variable.",
                "A name has at least one character, and neither = nor a NUL.",
            )
        return
    match error.validator:
        case "type":
            expected = bound if isinstance(bound, str) else "string"
            report.add(
                path,
                "wrong-type",
                f"{name} must be {_TYPE_NAMES[expected]}, not {_type_name(value)}.",
                f"Write {_TYPE_NAMES[expected]}.",
            )
        case "required":
            for key in bound:
                if key not in value:
                    remedy = "Add it, at least as an empty object." if key in ("task", "payload") else f"Add `{key}`."
                    if path[:1] == ("groups",):
                        remedy = "List the labels of its tasks."
                    report.add(path, "missing", f"{name} lacks the key `{key}`.", remedy)
        case "additionalProperties":
            allowed = list(error.schema["properties"]) if isinstance(error.schema, dict) else []
            for key in value:
                if key not in allowed:
                    _explain_unknown_key(path, name, key, allowed, report, extension)
        case "enum":
            choices = ", ".join(map(show, bound))
            near = (
                report.near(value, bound) if isinstance(value, str) and all(type(one) is str for one in bound) else ""
            )
            report.add(
                path, "not-allowed", f"{name} is {show(value)}, and none of {choices}.{near}", "Write one of them."
            )
        case "minimum" | "maximum" | "exclusiveMinimum":
            words = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "more than"}[error.validator]
            report.add(
                path,
                "out-of-range",
                f"{name} must be {words} {bound:,}, and is {show(value)}.",
                f"Write a number that is {words} {bound:,}.",
            )
        case "maxLength":
            report.add(
                path,
                "too-long",
                f"{name} has {len(value):,} characters; {bound:,} are allowed.",
                f"Shorten it to {bound:,} characters.",
            )
        case "maxItems":
            report.add(
                path,
                "too-many",
                f"{name} has {len(value):,} items; {bound:,} are allowed.",
                f"Leave {len(value) - bound:,} of them out.",
            )
        case "minLength" | "minItems" | "minProperties":
            remedy = "Put at least one in, or leave the key out."
            if path[:1] == ("groups",) and path[2:] == ("tasks",):
                name, remedy = f"The group {show(path[1])}", "List the labels of its tasks, or remove the group."
            elif path == ("tasks",):
                remedy = "Put at least one task in."
            report.add(path, "empty", f"{name} must not be empty.", remedy)
        case "format":
            report.add(
                path,
                "bad-date-time",
                f"{name} is {show(value)}, which is no RFC 3339 date-time.",
                'Write it like "2030-01-31T12:00:00Z".',
            )
        case "pattern":
            report.add(path, "bad-form", f"{name} is {show(value)}, which has the wrong form.", _form(path, bound))
        case "uniqueItems":
            if path[-1:] == ("workerLabels",):
                report.add(path, "duplicate", f"{name} names a label twice.", "Name each once.")
            # of requires, _check_requires names the label and its place
        case _ if error.schema is False:  # `target` beside `host`: it may not be there
            report.add(
                path,
                "host-and-target",
                "A task for one host goes to the queue of that host, and to no other target.",
                "Leave `target` out, or `host`.",
            )
        case _:  # a keyword that the schema has and this function does not know: say it in the validator's words
            report.add(path, "schema", f"{name}: {error.message[:300]}.", "See schemas/task-graph.json.")


def _form(path: Path, pattern: str) -> str:
    match path[-1:]:
        case ("target",):
            return "A target has 1 to 40 lower-case letters and digits, and single hyphens between them."
        case ("executor",):
            return "An executor is a lower-case letter followed by lower-case letters, digits and hyphens, 40 at most."
        case ("host",):
            return "A host begins with a letter or digit; letters, digits and . _ - may follow, 63 characters at most."
        case _ if "workerLabels" in path:
            return (
                "A worker's label begins with a letter or digit; . _ : / = + - may follow too, 63 characters at most."
            )
        case ("queue",):
            return "A queue's name has 3 to 63 lower-case letters and digits, and single hyphens between them."
        case ("webhook",):
            return (
                "An address begins with https:// or http:// and a host, whose port is 65535 at most; it holds neither "
                "blanks nor backslashes nor characters beyond ASCII."
            )
        case ("secret",):
            return "The name of a secret is a letter followed by letters, digits and underscores."
        case _ if "requires" in path or path[:1] == ("groups",):
            return "A label has no control characters."
        case _ if "payload" in path:
            return "A command line cannot carry NUL characters."
        case _:
            return f"It must match {pattern}."


def _explain_unknown_key(
    path: Path, name: str, key: str, allowed: Sequence[str], report: Report, extension: bool
) -> None:
    place = (*path, key)
    if not path and extension and key in GRAPH_KEYS:
        report.add(
            place,
            "unknown-key",
            f"`{key}` cannot be changed by an extension.",
            "An extension holds `tasks`, `groups` of them, and `params` of its own, and nothing else.",
        )
        return
    if not report.takes("unknown-key"):
        report.more(1)
        return
    near = report.near(key, allowed)
    remedy = f"Known keys here: {', '.join(allowed)}."
    if len(path) == 2 and path[0] == "tasks" and key in (*TASK_KEYS, "command", "env", "cwd", "timeout"):
        inside = f"{key}" if key in TASK_KEYS else f"payload.{key}"
        remedy = f"It belongs one level deeper, at task.{inside}."
    where = name[0].lower() + name[1:]
    report.add(place, "unknown-key", f"{show(key)} is not a key of {where}.{near}", remedy)
