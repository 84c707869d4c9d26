"""Argo's Workflow, WorkflowTemplate, ClusterWorkflowTemplate and CronWorkflow: a task for each pod that runs.

Templates of `dag` and `steps` are put in where they are called, nested as they are: a call of one is a group of its
tasks, and so is a call with `withItems` or a `withSequence` of known length. `retryStrategy` becomes reruns,
`parallelism` a limit, `onExit` a task that runs in any case. Containers and scripts are kept as information.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from taskgraph.documents.importers.shaping import Foreign, Imported, Reader, Shape
from taskgraph.documents.problems import Report, nearest
from taskgraph.documents.yaml_text import lines, parse_foreign
from taskgraph.model import limits
from taskgraph.model.json_strict import Path, show

_KINDS: Final = frozenset({"Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate", "CronWorkflow"})
_DEPTH_MAX: Final = 14  # calls of templates in templates: each is a group, and a task is in 16 at most
_TASKS_MAX: Final = 100_000
_DEPENDS: Final = re.compile(r"([A-Za-z0-9_-]+)(?:\.([A-Za-z]+))?")
_WORKS: Final = ("container", "script", "containerSet", "resource", "http", "suspend", "plugin", "data")


@dataclass(slots=True)
class _Workflow:
    """places: of each template in the file. finish: labels that end the graph are not among them."""

    templates: dict[str, dict[str, Any]]
    places: dict[str, Path]
    reader: Reader
    retries: int = 0
    shape: Shape = field(default_factory=lambda: Shape(whole={"failurePolicy": "continue"}))


def convert(foreign: Foreign) -> Imported:
    reader = Reader(foreign.source)
    documents = parse_foreign(foreign.text, Report(foreign.source))
    ours = [(obj, place) for obj, place in documents if isinstance(obj, dict) and obj.get("kind") in _KINDS]
    if not ours:
        kinds = ", ".join(sorted(_KINDS))
        reader.problem((), "missing", f"The file holds none of {kinds}.", "Choose a manifest of Argo Workflows.")
        reader.stop_if_any()
    reader.note_count(len(documents) - 1, "One more manifest of the file was left out.", "{} more manifests left out.")
    obj, place = ours[0]
    reader.know_lines(lambda paths: lines(place, paths))
    spec, where = reader.mapping(obj.get("spec", {}), ("spec",), "`spec`"), ("spec",)
    if obj["kind"] == "CronWorkflow":
        spec = reader.mapping(spec.get("workflowSpec", {}), ("spec", "workflowSpec"), "`workflowSpec`")
        where = ("spec", "workflowSpec")  # type: ignore[assignment]
        reader.note("The times of the CronWorkflow were left out: a schedule has its own command.")
    workflow = _workflow(spec, where, reader)
    entry = _entry(spec, workflow, foreign.goals)
    reader.stop_if_any()
    if entry:
        _enter(entry, spec, workflow)
    metadata = obj.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return reader.shaped(workflow.shape, name=metadata.get("name", metadata.get("generateName")))


def _workflow(spec: Mapping[str, Any], where: Path, reader: Reader) -> _Workflow:
    workflow = _Workflow({}, {}, reader, _retries(spec.get("retryStrategy")))
    place: Path = (*where, "templates")
    for index, each in enumerate(reader.array(spec.get("templates", []), place, "`templates`")):
        template = reader.mapping(each, (*place, index), f"Template {index}")
        name = reader.text(template.get("name", ""), (*place, index, "name"), "`name`")
        workflow.templates[name], workflow.places[name] = template, (*place, index)
    if isinstance(spec.get("workflowTemplateRef"), dict):
        message = "The workflow is made from a template that another manifest holds (`workflowTemplateRef`)."
        reader.problem((*where, "workflowTemplateRef"), "missing", message, "Import the template itself.")
    return workflow


def _entry(spec: Mapping[str, Any], workflow: _Workflow, goals: tuple[str, ...]) -> str:
    """The template to begin with: the goal, the entrypoint, or the only one that no other calls."""
    if goals:
        found = goals[0]
    elif isinstance(spec.get("entrypoint"), str):
        found = spec["entrypoint"]
    else:
        called = {call.get("template") for each in workflow.templates.values() for call in _calls_of(each)}
        alone = [name for name in workflow.templates if name not in called]
        graphs = [name for name in alone if workflow.templates[name].keys() & {"dag", "steps"}] or alone
        if len(graphs) != 1:
            message = f"There is no entrypoint, and {len(graphs)} templates could be one."
            names = ", ".join(graphs[:10]) or "none"
            workflow.reader.problem((), "missing", message, f"Name one by --goal: {names}.")
            return ""
        found = graphs[0]
    if found not in workflow.templates:
        near = "".join(f" Did you mean {show(one)}?" for one in nearest(found, workflow.templates, 1))
        message = f"There is no template {show(found)}.{near}"
        workflow.reader.problem((), "unknown-label", message, "Name a template of the file by --goal.")
        return ""
    return found


def _calls_of(template: Mapping[str, Any]) -> list[dict[str, Any]]:
    dag, steps = template.get("dag"), template.get("steps")
    found = dag.get("tasks") if isinstance(dag, dict) else None
    calls = [*found] if isinstance(found, list) else []
    for row in steps if isinstance(steps, list) else []:
        calls += _calls_of_row(row)
    return [call for call in calls if isinstance(call, dict)]


def _calls_of_row(row: Any) -> list[Any]:
    """Steps that run beside each other: a list, or, as Argo had it first, an object of them by name."""
    if isinstance(row, dict) and row and all(isinstance(call, dict) for call in row.values()):
        return [{"name": name, **call} for name, call in row.items()]
    return row if isinstance(row, list) else [row]


def _enter(entry: str, spec: Mapping[str, Any], workflow: _Workflow) -> None:
    shape, reader = workflow.shape, workflow.reader
    made = _Expansion(workflow).template(entry, "", (), workflow.places[entry])
    most = spec.get("parallelism")
    if isinstance(most, int) and 1 <= most <= limits.IN_FLIGHT_MAX:
        shape.whole["maxInFlight"] = most
    handler = spec.get("onExit")
    if isinstance(handler, str) and handler in workflow.templates and made:
        after = [*shape.tasks]
        inside = _Expansion(workflow).template(handler, "onExit", (), workflow.places[handler])
        used = {need for label in after for need in _names(shape.tasks[label]["requires"])}
        ends = [label for label in after if label not in used]
        for label in inside:
            if not shape.tasks[label]["requires"]:
                shape.tasks[label] |= {"requires": ends, "when": "always"}
    reader.stop_if_any()


def _names(requires: list[Any]) -> list[str]:
    return [each["label"] if isinstance(each, dict) else each for each in requires]


class _Expansion:
    """Puts templates in where they are called. Labels are the names of the calls from the entry on, with dots."""

    def __init__(self, workflow: _Workflow) -> None:
        self._workflow = workflow
        self._shape = workflow.shape
        self._reader = workflow.reader

    def template(self, name: str, above: str, way: tuple[str, ...], place: Path) -> list[str]:
        """Adds what a call of the template comes to; gives the labels of its tasks."""
        template = self._workflow.templates[name]
        if isinstance(template.get("dag"), dict):
            made = self._dag(template, above, (*way, name), (*place, "dag"))
        elif isinstance(template.get("steps"), list):
            made = self._steps(template, above, (*way, name), (*place, "steps"))
        else:
            return [self._task(above or name, template, place)]
        most = template.get("parallelism")
        if isinstance(most, int):
            self._shape.limit(f"parallelism {above or name}", made, most, self._reader)
        return made

    def _task(self, label: str, template: Mapping[str, Any], place: Path) -> str:
        label = self._reader.label(label)
        node: dict[str, Any] = {"requires": [], "task": {"executor": "noop", "payload": _information(template)}}
        if reruns := _retries(template.get("retryStrategy")) or self._workflow.retries:
            node["reruns"] = reruns
        seconds = template.get("activeDeadlineSeconds")
        if isinstance(seconds, int) and 0 < seconds <= limits.TIME_LIMIT_SECONDS_MAX:
            node["maxRunTime"] = seconds
        if len(self._shape.tasks) >= _TASKS_MAX:
            self._reader.problem(place, "too-many", f"There are more than {_TASKS_MAX:,} tasks.", "Divide the graph.")
            self._reader.stop_if_any()
        self._shape.tasks[label], self._shape.places[label] = node, place
        return label

    def _dag(self, template: Mapping[str, Any], above: str, way: tuple[str, ...], place: Path) -> list[str]:
        calls: dict[str, tuple[dict[str, Any], Path]] = {}
        tasks = self._reader.array(template["dag"].get("tasks", []), (*place, "tasks"), "`dag.tasks`")
        for index, each in enumerate(tasks):
            where: Path = (*place, "tasks", index)
            call = self._reader.mapping(each, where, f"Task {index}")
            calls[self._reader.text(call.get("name", ""), (*where, "name"), "`name`")] = call, where
        made: list[str] = []
        heads = {name: self._call(name, call, above, way, where, made) for name, (call, where) in calls.items()}
        for name, (call, where) in calls.items():
            requires = []
            for need, optional in self._depends(call, calls, where):
                requires.append({"label": heads[need], "optional": True} if optional else heads[need])
            self._require(heads[name], requires)
        return made

    def _steps(self, template: Mapping[str, Any], above: str, way: tuple[str, ...], place: Path) -> list[str]:
        made: list[str] = []
        before: list[Any] = []
        for index, row in enumerate(template["steps"]):
            heads: list[Any] = []
            for number, each in enumerate(_calls_of_row(row)):
                where: Path = (*place, index, number) if isinstance(row, list) else (*place, index)
                call = self._reader.mapping(each, where, f"Step {number} of row {index}")
                name = self._reader.text(call.get("name", ""), (*where, "name"), "`name`")
                head = self._call(name, call, above, way, where, made)
                self._require(head, before)
                heads.append({"label": head, "optional": True} if _goes_on(call) else head)
            before = heads or before
        return made

    def _require(self, head: str, requires: list[Any]) -> None:
        """Let a task, or all tasks of a group, require these."""
        if head in self._shape.tasks:
            self._shape.tasks[head]["requires"] = requires
        elif all(isinstance(each, str) for each in requires):
            self._shape.groups[head]["requires"] = requires
        else:  # a group cannot say that it goes on after a failure; its tasks can
            for label in self._shape.groups[head]["tasks"]:
                self._shape.tasks[label]["requires"] = [*requires, *self._shape.tasks[label]["requires"]]

    def _call(
        self, name: str, call: Mapping[str, Any], above: str, way: tuple[str, ...], place: Path, made: list[str]
    ) -> str:
        """Adds what a call comes to; gives the label or the name of the group that others require."""
        head = self._reader.label(f"{above}.{name}" if above else name)
        if head in self._shape.tasks or head in self._shape.groups:
            self._reader.problem(place, "duplicate-label", f"Two tasks are called {show(head)}.", "Rename one of them.")
            return head
        if isinstance(call.get("when"), str):
            self._reader.note_names([head], "Conditions that are not judged, so that these run")
        items = self._items(head, call)
        inside: list[str] = []
        for index, item in enumerate([None] if items is None else items):
            label = head if items is None else f"{head}({index}:{_shown(item)})"
            inside += self._called(label, call, way, place)
        made += inside
        if inside != [head]:
            self._shape.groups[head] = {"tasks": inside}
        return head

    def _called(self, label: str, call: Mapping[str, Any], way: tuple[str, ...], place: Path) -> list[str]:
        template = call.get("template")
        if isinstance(call.get("inline"), dict):
            return [self._task(label, call["inline"], place)]
        if not isinstance(template, str):
            self._reader.note_names([label], "Calls of templates in other manifests are one task each")
            return [self._task(label, {}, place)]
        if template not in self._workflow.templates:
            near = "".join(f" Did you mean {show(one)}?" for one in nearest(template, self._workflow.templates, 1))
            message = f"{show(call.get('name'))} calls the template {show(template)}, which is not in the file.{near}"
            self._reader.problem((*place, "template"), "unknown-label", message, "Correct the name, or add it.")
            return [self._task(label, {}, place)]
        if template in way or len(way) >= _DEPTH_MAX:
            self._reader.note_names(
                [label], "Calls that come back to their own template, or are too deep, are one task"
            )
            return [self._task(label, {}, place)]
        return self.template(template, label, way, self._workflow.places[template])

    def _items(self, head: str, call: Mapping[str, Any]) -> list[Any] | None:
        items, sequence = call.get("withItems"), call.get("withSequence")
        if isinstance(items, list) and items:
            return items
        if isinstance(sequence, dict):
            count = str(sequence.get("count", ""))
            start, end = str(sequence.get("start", "0")), str(sequence.get("end", ""))
            if count.isdigit() and 0 < int(count) <= _TASKS_MAX and start.isdigit():
                return [*range(int(start), int(start) + int(count))]
            if start.isdigit() and end.isdigit() and int(start) <= int(end) < int(start) + _TASKS_MAX:
                return [*range(int(start), int(end) + 1)]
        if not call.keys().isdisjoint(("withItems", "withSequence", "withParam")):
            self._reader.note_names([head], "Loops over what is known only when they run are one task each")
        return None

    def _depends(self, call: Mapping[str, Any], calls: Mapping[str, Any], place: Path) -> list[tuple[str, bool]]:
        """Names of tasks that must end first, and whether their failure does not matter."""
        stated = call.get("dependencies")
        found: dict[str, bool] = {}
        if isinstance(call.get("depends"), str):
            text = call["depends"]
            for name, result in _DEPENDS.findall(text):
                found[name] = found.get(name, False) or result not in ("", "Succeeded", "Daemoned")
            if "||" in text or "!" in text or any(found.values()):
                self._reader.note("Of `depends` the names were kept: what is asked of their results counts as any end.")
                found = dict.fromkeys(found, True)
        elif stated is not None:
            names = self._reader.texts(stated, (*place, "dependencies"), "`dependencies`")
            found = {name: name in calls and _goes_on(calls[name][0]) for name in names}
        for name in [name for name in found if name not in calls]:
            near = "".join(f" Did you mean {show(one)}?" for one in nearest(name, calls, 1))
            message = f"The task {show(call.get('name'))} depends on {show(name)}, which is not here.{near}"
            self._reader.problem(place, "unknown-label", message, "Correct the name, or add the task.")
            del found[name]
        return [*found.items()]


def _goes_on(call: Mapping[str, Any]) -> bool:
    stated = call.get("continueOn")
    return isinstance(stated, dict) and bool(stated.get("failed") or stated.get("error"))


def _retries(strategy: Any) -> int:
    limit = strategy.get("limit", 0) if isinstance(strategy, dict) else 0
    return min(int(limit), limits.RERUNS_MAX) if str(limit).isdigit() else 0


def _shown(item: Any) -> str:
    if isinstance(item, dict):
        return ",".join(f"{key}:{_shown(value)}" for key, value in item.items())
    return str(item)


def _information(template: Mapping[str, Any]) -> dict[str, Any]:
    kind = next((key for key in _WORKS if key in template), None)
    if kind is None:
        return {}
    work = template[kind]
    made: dict[str, Any] = {"kind": kind}
    if isinstance(work, dict):
        if isinstance(work.get("image"), str):
            made["image"] = work["image"]
        words = [word for key in ("command", "args") for word in work.get(key) or () if isinstance(word, str)]
        source = work.get("source")
        if words or isinstance(source, str):
            made["commandLine"] = " ".join([*words, *([source] if isinstance(source, str) else [])])
    return made
