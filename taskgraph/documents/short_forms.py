"""Short forms of documents: what people write in a few words, as the tasks that it stands for.

`defaults`, `foreach`, `script`, and keys of a command beside `requires` are written out here, before anything is
checked. What is stored, and what the digest of a graph is made of, is the long form alone. Problems in it name the
places of the short one (`Report.place`).
"""

import copy
import itertools
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from taskgraph.documents.placeholders import COMMANDS, OF_FOLDER, WITH_FOLDER
from taskgraph.documents.problems import PROBLEMS_MAX, Report
from taskgraph.documents.references import EXPAND
from taskgraph.documents.schema_check import RESULT, explain
from taskgraph.model import schemas
from taskgraph.model.json_strict import Path, show

if TYPE_CHECKING:
    from taskgraph.documents.foreach import FindFiles, Foreach

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

_OF_NODE: Final = frozenset({"reruns", "notBefore", "retry", "maxRunTime", "pendingTimeout", "notify", "priority"})
_OF_PAYLOAD: Final = frozenset({"env", "envFile", "inheritEnv", "cwd", "timeout", "shell", "inputs", "cache"})
_SHORT: Final = COMMAND_KEYS | {"foreach", "graph"}


@dataclass(slots=True)
class ShortForms:
    """What one document has of them, and where that stood.

    known: values of parameters. files: None where a document has no folder.
    """

    report: Report
    known: Mapping[str, Any]
    files: "FindFiles | None"
    _origins: dict[str, str] = field(default_factory=dict)
    _moved: dict[str, frozenset[str]] = field(default_factory=dict)
    _expanded: dict[str, "Foreach"] = field(default_factory=dict)
    _nested: dict[str, tuple[str, "ShortForms"]] = field(default_factory=dict)

    def place(self, path: Path) -> Path:
        """The place in the document as written, of one in the long form."""
        if len(path) < 2 or path[0] != "tasks":
            return path
        label = str(path[1])
        if label in self._nested:
            name, forms = self._nested[label]
            inner = forms.place(path)
            own = str(inner[1]).removeprefix(f"{name}/")
            return ("tasks", self._origins.get(name, name), "graph", "tasks", own, *inner[2:])
        origin = self._origins.get(label, label)
        moved = self._moved.get(label, ())
        if label in self._expanded and path[2:4] == ("task", "each"):
            path = (*path[:2], *path[4:])
        elif label in self._expanded and path[2:5] == ("task", "payload", "values"):
            return ("tasks", origin, "foreach", *path[5:])
        elif path[2:5] == ("task", "payload", "graph") and label == f"{EXPAND} {origin}":
            return ("tasks", origin, *path[4:])
        if len(path) > 4 and path[2:4] == ("task", "payload"):
            key, rest = str(path[4]), path[5:]
            if key == "command" and "script" in moved:
                key, rest = "script", ()
            if key in moved:
                return ("tasks", origin, key, *rest)
            if key == "script":
                return ("tasks", origin, "task", "payload", key)
        return ("tasks", origin, *path[2:])

    def write_out(self, obj: dict[str, Any], outer: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Put the long form in the place of the short ones. outer: defaults of the graph around it."""
        tasks: dict[str, Any] = obj["tasks"]
        if any(isinstance(node, dict) and "foreach" in node for node in tasks.values()):
            tasks = obj["tasks"] = self._each(obj, tasks)
        defaults = dict(outer)
        for key, value in self._defaults(obj.pop("defaults", None)).items():
            whole = isinstance(value, dict) and isinstance(defaults.get(key), dict)
            defaults[key] = {**defaults[key], **value} if whole else value
        if any(isinstance(node, dict) and "graph" in node for node in tasks.values()):
            tasks = obj["tasks"] = self._graphs(obj, tasks, defaults)
        for label, node in tasks.items():
            if isinstance(node, dict) and label not in self._nested:
                self._task(label, node, defaults)
        if self._expanded:
            from taskgraph.documents.expansion import foreach_expander

            for label, foreach in self._expanded.items():
                tasks[label] = foreach_expander(foreach, tasks[label])

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
        without = () if task.get("executor", "command") in WITH_FOLDER else OF_FOLDER
        is_command = ("command" in payload or "script" in payload) and task.get("executor", "command") in COMMANDS
        for key, value in defaults.items():
            if key in _OF_PAYLOAD:
                if is_command and key not in without and (key != "shell" or "script" in payload):
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
        from taskgraph.documents.expansion import expander_label  # what few documents have is imported where it is met
        from taskgraph.documents.foreach import Foreach

        made: dict[str, Any] = {}
        groups = obj.get("groups", {})
        groups = dict(groups) if isinstance(groups, dict) else groups
        for name, node in tasks.items():
            if not isinstance(node, dict) or "foreach" not in node:
                made[name] = node
                continue
            path: Path = ("tasks", name, "foreach")
            foreach = Foreach(name, node.pop("foreach"), path, self.report, self.known, self.files)
            if foreach.takes_results:
                label = expander_label(name)
                if label in tasks:
                    message = f"Its tasks are made by a task {show(label)}, and there is one already."
                    self.report.add(path, "duplicate-label", message, "Give that one another label.")
                own = {label: node}
                self._expanded[label] = foreach
            else:
                own = foreach.tasks(node, {*made, *tasks})
            made.update(own)
            self._origins.update(dict.fromkeys(own, name))
            if isinstance(groups, dict) and own:
                if name in groups:
                    message = f"{show(name)} is a group, too."
                    self.report.add(path, "name-clash", message, "Give one of them another name.")
                grows = {"grows": True} if foreach.takes_results else {}
                groups[name] = {"tasks": list(own), **foreach.group, **grows}
        if groups:
            obj["groups"] = groups
        return made

    # --- tasks that are graphs

    def _graphs(self, obj: dict[str, Any], tasks: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
        """The tasks with those of each graph in its place, in a group by its name."""
        from taskgraph.documents.expansion import OF_EXPANDER, expander_label, graph_expander
        from taskgraph.documents.foreach import OF_GROUP
        from taskgraph.documents.subgraphs import renamed

        made: dict[str, Any] = {}
        groups = dict(obj["groups"]) if isinstance(obj.get("groups"), dict) else {}
        results: dict[str, str] = {}
        for name, node in tasks.items():
            if not isinstance(node, dict) or "graph" not in node:
                made[name] = node
                continue
            if name in groups:
                self._wrong(name, (), "name-clash", f"{show(name)} is a group, too.", "Give one of them another name.")
            graph, result = node.pop("graph"), node.pop("result", "")
            if result and isinstance(result, str):
                results[name] = f"{name}/{result}"
            if isinstance(graph, dict) and RESULT in graph:
                label = expander_label(name)
                self._only(name, node, {*OF_EXPANDER, *OF_GROUP, "requires", "priority", "task"})
                made[label] = graph_expander(name, node, graph, result)
                self._origins[label] = name
                groups[name] = {"tasks": [label], "grows": True, **{key: node[key] for key in OF_GROUP if key in node}}
                continue
            inner = self._inside(name, node, graph, result, defaults)
            made.update(inner["tasks"])
            groups.update(inner["groups"])
        if groups:
            obj["groups"] = groups
        return {label: renamed(node, results, taken=True) for label, node in made.items()} if results else made

    def _inside(
        self, name: str, node: Mapping[str, Any], graph: Any, result: str, defaults: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Tasks and groups of a graph that stands in a document."""
        from taskgraph.documents.foreach import OF_GROUP
        from taskgraph.documents.subgraphs import KEYS, nested

        if not isinstance(graph, dict) or not isinstance(graph.get("tasks"), dict) or not graph["tasks"]:
            remedy = 'Write {tasks: …}, or {"$result": "label"} for one that a task hands on.'
            self._wrong(name, (), "wrong-type", "`graph` must be an object with `tasks`.", remedy)
            return {"tasks": {}, "groups": {}}
        for key in graph.keys() - set(KEYS):
            near = self.report.near(key, KEYS)
            remedy = f"There are {', '.join(KEYS)}; what else is said is said of the whole graph."
            self._wrong(
                name, (key,), "unknown-key", f"A graph in the place of a task has no {show(key)}.{near}", remedy
            )
        of_group = {*OF_GROUP, "requires", "active"}
        self._only(name, node, of_group)
        if result and result not in graph["tasks"]:
            message = f"The graph has no task {show(str(result))}."
            self.report.add(("tasks", name, "result"), "unknown-label", message, "Name one of its tasks.")
        inner: dict[str, Any] = nested(name, graph)
        forms = ShortForms(self.report, self.known, self.files)
        self._nested.update(dict.fromkeys(inner["tasks"], (name, forms)))
        forms.write_out(inner, defaults)
        self._nested.update(dict.fromkeys(inner["tasks"], (name, forms)))  # and those of a `foreach` in it
        inner["groups"][name] |= {key: node[key] for key in of_group.intersection(node)}
        return inner

    def _only(self, name: str, node: Mapping[str, Any], known: Container[str]) -> None:
        """Report what has no meaning beside `graph`."""
        for key in node:
            if key not in known:
                message = f"{show(key)} has no meaning beside `graph`."
                self.report.add(("tasks", name, key), "misplaced-key", message, "Say it of tasks in the graph.")

    def _wrong(self, name: str, within: Path, code: str, message: str, remedy: str) -> None:
        self.report.add(("tasks", name, "graph", *within), code, message, remedy)


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


def _fill_in(into: dict[str, Any], key: str, value: Any) -> None:
    """A default: what is there already stays; of two objects, each key of it."""
    if key not in into:
        into[key] = copy.deepcopy(value)
    elif isinstance(value, dict) and isinstance(into[key], dict):
        into[key] = {**value, **into[key]}
