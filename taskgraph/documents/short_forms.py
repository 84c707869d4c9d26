"""Short forms of documents: what people write in a few words, as the tasks that it stands for.

`defaults`, `foreach`, `script`, and keys of a command beside `requires` are written out here, before anything is
checked. What is stored, and what the digest of a graph is made of, is the long form alone. Problems in it name the
places of the short one (`Report.place`).
"""

import copy
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from taskgraph.documents.placeholders import COMMANDS
from taskgraph.documents.problems import PROBLEMS_MAX, Report
from taskgraph.documents.schema_check import PARAM, explain
from taskgraph.model import schemas
from taskgraph.model.json_strict import Path, compact_json, show

FOREACH_MAX: Final = 10_000
"""So many tasks may come of one `foreach`."""

COMMAND_KEYS: Final = frozenset(
    {
        "command",
        "script",
        "shell",
        "env",
        "envFile",
        "inheritEnv",
        "cwd",
        "timeout",
        "inputs",
        "outputs",
        "cache",
        "image",
        "options",
    }
)  # which may stand beside `requires`
SHELLS: Final[Mapping[str, tuple[str, ...]]] = {
    "sh": ("sh", "-ec"),
    "bash": ("bash", "-eo", "pipefail", "-c"),
    "zsh": ("zsh", "-ec"),
    "python": ("python3", "-c"),
    "pwsh": ("pwsh", "-NoProfile", "-Command"),
    "node": ("node", "-e"),
}
"""The words before a script."""

EACH: Final = "$each"

_OF_NODE: Final = frozenset({"reruns", "notBefore", "retry", "maxRunTime", "pendingTimeout", "notify", "priority"})
_OF_PAYLOAD: Final = frozenset({"env", "envFile", "inheritEnv", "cwd", "timeout", "shell", "inputs", "cache"})
_RESERVED: Final = frozenset({"label", "include", "exclude"})
_SHORT: Final = COMMAND_KEYS | {"foreach"}
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_MENTION: Final = re.compile(r"\{\{ *([A-Za-z_][A-Za-z0-9_]*)(?:\.([A-Za-z0-9_]+))? *\}\}", re.ASCII)
_PARTS: Final[Mapping[str, Callable[[PurePosixPath], str]]] = {
    "name": lambda path: path.name,
    "stem": lambda path: path.stem,
    "dir": lambda path: str(path.parent),
    "ending": lambda path: path.suffix,
}

FindFiles = Callable[[str], list[str]]
"""Paths of the files that a pattern names, from the folder of the document on."""


@dataclass(slots=True)
class ShortForms:
    """What one document has of them, and where that stood.

    known: values of parameters. files: None where a document has no folder.
    """

    report: Report
    known: Mapping[str, Any]
    files: FindFiles | None
    _origins: dict[str, str] = field(default_factory=dict)
    _moved: dict[str, frozenset[str]] = field(default_factory=dict)

    def place(self, path: Path) -> Path:
        """The place in the document as written, of one in the long form."""
        if len(path) < 2 or path[0] != "tasks":
            return path
        label = str(path[1])
        origin = self._origins.get(label, label)
        moved = self._moved.get(label, ())
        if len(path) > 4 and path[2:4] == ("task", "payload"):
            key, rest = str(path[4]), path[5:]
            if key == "command" and "script" in moved:
                key, rest = "script", ()
            if key in moved:
                return ("tasks", origin, key, *rest)
            if key == "script":
                return ("tasks", origin, "task", "payload", key)
        return ("tasks", origin, *path[2:])

    def write_out(self, obj: dict[str, Any]) -> None:
        """Put the long form in the place of the short ones."""
        tasks: dict[str, Any] = obj["tasks"]
        if any(isinstance(node, dict) and "foreach" in node for node in tasks.values()):
            tasks = obj["tasks"] = self._each(obj, tasks)
        defaults = self._defaults(obj.pop("defaults", None))
        for label, node in tasks.items():
            if isinstance(node, dict):
                self._task(label, node, defaults)

    # --- defaults, scripts and commands

    def _defaults(self, said: Any) -> Mapping[str, Any]:
        if said is None:
            return {}
        before = self.report.count
        for error in itertools.islice(
            schemas.validator("task-graph", "#/$defs/defaults").iter_errors(said), PROBLEMS_MAX
        ):
            explain(error, ("defaults",), self.report, False)
        return said if self.report.count == before else {}

    def _task(self, label: str, node: dict[str, Any], defaults: Mapping[str, Any]) -> None:
        moved = COMMAND_KEYS.intersection(node)
        if not moved and not defaults and not _has_script(node):
            return
        task = node.setdefault("task", {})
        payload = task.setdefault("payload", {}) if isinstance(task, dict) else None
        if not isinstance(payload, dict):
            return  # the schema says what is wrong
        self._moved[label] = moved
        for key in moved:
            if key in payload:
                self._add(label, key, "twice", f"{show(key)} stands here and in the payload.", "Keep one of them.")
            payload[key] = node.pop(key)
        if "image" in moved:
            task.setdefault("executor", "docker")
        is_command = ("command" in payload or "script" in payload) and task.get("executor", "command") in COMMANDS
        for key, value in defaults.items():
            if key in _OF_PAYLOAD:
                if is_command and (key != "shell" or "script" in payload):
                    _fill_in(payload, key, value)
            else:
                _fill_in(node if key in _OF_NODE else task, key, value)
        if not payload and "executor" not in task:
            del task["payload"]
        elif "script" in moved or "shell" in moved or _has_script(node):
            self._script(label, payload)

    def _script(self, label: str, payload: dict[str, Any]) -> None:
        script, shell = payload.pop("script", None), payload.pop("shell", "sh")
        if script is None:
            self._add(label, "shell", "no-script", "There is a `shell`, and no `script` for it.", "Write a `script`.")
        elif "command" in payload:
            message = "There are a `script` and a `command`."
            self._add(label, "script", "twice", message, "A task has one of them.")
        elif not isinstance(script, str | dict) or not script:
            remedy = "Write the lines of it; in YAML behind `script: |`."
            self._add(label, "script", "wrong-type", "`script` must be a text that is not empty.", remedy)
        elif isinstance(shell, str) and shell not in SHELLS:
            near = self.report.near(shell, SHELLS)
            remedy = f"One of {', '.join(SHELLS)}, or the words of a command, such as [perl, -e]."
            self._add(label, "shell", "unknown-shell", f"There is no shell {show(shell)}.{near}", remedy)
        else:
            payload["command"] = [*(SHELLS[shell] if isinstance(shell, str) else shell), script]

    def _add(self, label: str, key: str, code: str, message: str, remedy: str) -> None:
        self.report.add(("tasks", label, "task", "payload", key), code, message, remedy)

    # --- tasks that stand for many

    def _each(self, obj: dict[str, Any], tasks: Mapping[str, Any]) -> dict[str, Any]:
        """The tasks with those of each `foreach` in its place, and a group of them by its name."""
        made: dict[str, Any] = {}
        groups = obj.get("groups", {})
        groups = dict(groups) if isinstance(groups, dict) else groups
        for name, node in tasks.items():
            if not isinstance(node, dict) or "foreach" not in node:
                made[name] = node
                continue
            said = node.pop("foreach")
            path: Path = ("tasks", name, "foreach")
            labels = []
            for label, values in self._instances(name, said, path):
                if label in made or label in tasks:
                    message = f"Two tasks would be labelled {show(label)}."
                    self.report.add(
                        path, "duplicate-label", message, "Write a `label` that has all of the names in it."
                    )
                    break
                made[label] = _Substitution(values, self.report, path).value(copy.deepcopy(node))
                self._origins[label] = name
                labels.append(label)
            if isinstance(groups, dict) and labels:
                if name in groups:
                    self.report.add(
                        path, "name-clash", f"{show(name)} is a group, too.", "Give one of them another name."
                    )
                groups[name] = {"tasks": labels}
        if groups:
            obj["groups"] = groups
        return made

    def _instances(self, name: str, said: Any, path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Label and values of each task."""
        said = {"item": said} if isinstance(said, list) else said
        if not isinstance(said, dict):
            remedy = "Write names with a list each, such as {size: [1, 2]}, or one list, whose values are {{item}}."
            self.report.add(path, "wrong-type", "`foreach` must be an object or an array.", remedy)
            return
        lists = {key: self._values(value, (*path, key)) for key, value in said.items() if key not in _RESERVED}
        if any(each is None for each in lists.values()):
            return
        for key in lists:
            if _VARIABLE.fullmatch(key) is None:
                remedy = "A name is a letter or _, followed by letters, digits and _."
                self.report.add((*path, key), "bad-name", f"{show(key)} cannot be a name in `foreach`.", remedy)
                return
        number = math.prod(len(each or ()) for each in lists.values()) if lists else 0
        if number > FOREACH_MAX:
            message = f"It stands for {number:,} tasks; {FOREACH_MAX:,} may come of one `foreach`."
            self.report.add(path, "too-many", message, "Give it shorter lists, or divide it.")
            return
        rows = [dict(zip(lists, each, strict=True)) for each in itertools.product(*map(_listed, lists.values()))]
        left_out = self._rows(said, "exclude", (), path)
        rows = [row for row in rows if number and not any(_matches(row, each) for each in left_out)]
        rows += self._rows(said, "include", tuple(lists), path)
        if not rows:
            self.report.add(path, "empty", f"{show(name)} stands for no task.", "Give it a list that is not empty.")
        template = said.get("label")
        if template is not None and not isinstance(template, str):
            self.report.add((*path, "label"), "wrong-type", "`label` must be a string.", "Write a string.")
            return
        for row in rows:
            words = " ".join([name, *map(_text, row.values())])
            yield (words if template is None else _Substitution(row, self.report, path).text(template)), row

    def _rows(self, said: Mapping[str, Any], key: str, wanted: Sequence[str], path: Path) -> list[dict[str, Any]]:
        listed = said.get(key, [])
        if not isinstance(listed, list) or not all(isinstance(each, dict) and each for each in listed):
            remedy = "Write a list of objects, such as [{size: 1}]."
            self.report.add((*path, key), "wrong-type", f"`{key}` must be a list of objects.", remedy)
            return []
        for index, each in enumerate(listed):
            if missing := [name for name in wanted if name not in each]:
                message = f"It has no value for {', '.join(map(show, missing))}."
                self.report.add((*path, key, index), "missing", message, "Give each name one.")
        return listed

    def _values(self, said: Any, path: Path) -> list[Any] | None:
        """The list of a name; None where there is none, which is reported."""
        if isinstance(said, dict) and said.keys() == {PARAM} and isinstance(said[PARAM], str):
            value = self.known.get(said[PARAM])
            if not isinstance(value, list):
                message = f"The parameter {show(said[PARAM])} has no list here."
                self.report.add(path, "no-list", message, "Declare it as an array, and give it a value or a default.")
                return None
            return value
        if isinstance(said, dict) and said.keys() == {"files"} and isinstance(said["files"], str):
            return self._files(said["files"], path)
        if not isinstance(said, list):
            remedy = 'Write a list, {"files": "src/*.c"}, or {"$param": "name"}.'
            self.report.add(path, "wrong-type", f"`{path[-1]}` must be an array.", remedy)
            return None
        return said

    def _files(self, pattern: str, path: Path) -> list[Any] | None:
        if self.files is None:
            message = "Files are looked for beside the file of a document, and this one is none."
            self.report.add(path, "no-folder", message, "Name a file of the graph, or list the paths.")
            return None
        found = self.files(pattern)
        if not found:
            self.report.add(path, "empty", f"There is no file {show(pattern)}.", "Correct the pattern, or the folder.")
            return None
        return list(found)


def _has_script(node: Mapping[str, Any]) -> bool:
    """Whether the payload of a command has a script; that of another executor may use these keys as it likes."""
    task = node.get("task")
    if not isinstance(task, dict) or task.get("executor", "command") not in COMMANDS:
        return False
    payload = task.get("payload")
    return isinstance(payload, dict) and ("script" in payload or "shell" in payload)


def is_short(obj: Any) -> bool:
    """Whether a document has anything to be written out."""
    tasks = obj.get("tasks") if isinstance(obj, dict) else None
    if not isinstance(tasks, dict):
        return False
    return "defaults" in obj or any(
        isinstance(node, dict) and (not _SHORT.isdisjoint(node) or _has_script(node)) for node in tasks.values()
    )


def _listed(values: list[Any] | None) -> list[Any]:
    return values or []


def _matches(row: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    return all(name in row and row[name] == value for name, value in pattern.items())


def _fill_in(into: dict[str, Any], key: str, value: Any) -> None:
    """A default: what is there already stays; of two objects, each key of it."""
    if key not in into:
        into[key] = copy.deepcopy(value)
    elif isinstance(value, dict) and isinstance(into[key], dict):
        into[key] = {**value, **into[key]}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else compact_json(value)


@dataclass(slots=True)
class _Substitution:
    """Puts the values of one task of a `foreach` into what is written for all."""

    values: Mapping[str, Any]
    report: Report
    path: Path

    def value(self, here: Any) -> Any:
        if isinstance(here, str):
            return self.text(here) if "{{" in here else here
        if isinstance(here, dict):
            if here.keys() == {EACH} and here[EACH] in self.values:
                return self.values[here[EACH]]
            return {key: self.value(member) for key, member in here.items()}
        return [self.value(member) for member in here] if isinstance(here, list) else here

    def text(self, text: str) -> str:
        """With each `{{name}}`, `{{name.stem}}` … replaced; other braces stay."""
        return _MENTION.sub(self._one, text)

    def _one(self, mention: re.Match[str]) -> str:
        name, part = mention.groups()
        if name not in self.values:
            return mention.group()
        value = self.values[name]
        if part is None:
            return _text(value)
        if isinstance(value, dict) and part in value:
            return _text(value[part])
        if isinstance(value, str) and part in _PARTS:
            return _PARTS[part](PurePosixPath(value))
        remedy = f"Of a text there are {', '.join(_PARTS)}; of an object, its keys."
        self.report.add(self.path, "unknown-part", f"{show(mention.group())} has no value.", remedy)
        return mention.group()
