"""The structure of an Airflow DAG: serialized as JSON, as the DOT of `airflow dags show DAG --save x.dot`, or its file.

Python is never run: of a file what stands there plainly is read (`airflow_code`). `retries` becomes reruns, a trigger
rule `when`, `max_active_tasks` a limit of the graph, a bash command information.
"""

from collections.abc import Mapping
from typing import Any, Final

from taskgraph.documents.importers import airflow_code, dot
from taskgraph.documents.importers.shaping import Foreign, Imported, Reader, Shape, stand_in
from taskgraph.documents.problems import nearest
from taskgraph.documents.read import read_json
from taskgraph.model import limits
from taskgraph.model.json_strict import Path, show

# An Airflow rule -> ours. Others wait for nothing that a graph of ours can say, and count as the default.
_RULES: Final = {
    "all_success": None,
    "none_failed": None,
    "none_failed_min_one_success": None,
    "none_failed_or_skipped": None,
    "all_done": "always",
    "always": "always",
    "all_done_setup_success": "always",
    "dummy": "always",
    "one_failed": "any-failed",
    "all_failed": "any-failed",
}
_ONE_SKIP: Final = frozenset({"none_failed", "none_failed_min_one_success", "none_failed_or_skipped", "all_failed"})


def convert(foreign: Foreign) -> Imported:
    reader = Reader(foreign.source)
    start = foreign.text.lstrip()
    if start.startswith(("{", "[")):
        return _serialized(read_json(foreign.text.encode(), source=foreign.source), foreign, reader)
    if "digraph" in foreign.text and not airflow_code.looks_like_python(foreign.text):
        return _drawn(foreign, reader)
    dag = airflow_code.read(foreign, reader)
    return _shaped(dag, reader)


def _shaped(dag: airflow_code.Dag, reader: Reader) -> Imported:
    shape = Shape(whole={"failurePolicy": "continue"})
    labels = {name: reader.label(name) for name in dag.tasks}
    for name, task in dag.tasks.items():
        _add(shape, labels[name], task.line, [labels[each] for each in task.upstream], task.said, reader)
    _limit(shape, dag.max_active_tasks)
    return reader.shaped(shape, name=dag.dag_id or None)


def _add(
    shape: Shape, label: str, place: Path | int, requires: list[str], said: Mapping[str, Any], reader: Reader
) -> None:
    """A task with what Airflow's operator says of itself, under the names of its arguments."""
    command = said.get("bash_command")
    node: dict[str, Any] = {"requires": requires, "task": stand_in(None, command if isinstance(command, str) else None)}
    if isinstance(said.get("operator"), str):
        node["task"]["payload"]["operator"] = said["operator"]
    retries, seconds, rule = said.get("retries"), said.get("execution_timeout"), said.get("trigger_rule")
    if isinstance(retries, int) and not isinstance(retries, bool) and retries > 0:
        node["reruns"] = min(retries, limits.RERUNS_MAX)
    if isinstance(seconds, int | float) and 0 < seconds <= limits.TIME_LIMIT_SECONDS_MAX:
        node["maxRunTime"] = seconds
    if isinstance(rule, str) and requires:
        if rule not in _RULES or rule in _ONE_SKIP:
            reader.note(f"The trigger rule {show(rule)} is kept as `{_RULES.get(rule) or 'all-completed'}`.")
        if (when := _RULES.get(rule)) is not None:
            node["when"] = when
    shape.tasks[label], shape.places[label] = node, place


def _limit(shape: Shape, most: Any) -> None:
    if isinstance(most, int) and not isinstance(most, bool) and 1 <= most <= limits.IN_FLIGHT_MAX:
        shape.whole["maxInFlight"] = most


def _drawn(foreign: Foreign, reader: Reader) -> Imported:
    graph = dot.read(foreign.text, reader)
    labels = {node: reader.label(node) for node in graph.nodes}
    requires: dict[str, dict[str, None]] = {node: {} for node in graph.nodes}
    for before, after in graph.edges:
        requires[after][labels[before]] = None
    shape = Shape(whole={"failurePolicy": "continue"})
    for node, label in labels.items():
        _add(shape, label, graph.lines[node], list(requires[node]), {}, reader)
    reader.note("A drawing has the tasks and their order alone; joins of task groups are noops.")
    return reader.shaped(shape, name=graph.name)


def _serialized(obj: Any, foreign: Foreign, reader: Reader) -> Imported:
    whole = reader.mapping(obj, (), "The document")
    above: Path = ("dag",) if "dag" in whole else ()
    dag = reader.mapping(whole.get("dag", whole), above, "`dag`")
    dag_id = dag.get("dag_id", dag.get("_dag_id"))
    if foreign.goals and dag_id not in foreign.goals:
        near = f"The file holds the DAG {show(dag_id)}."
        reader.problem(above, "unknown-label", f"There is no DAG {show(foreign.goals[0])}. {near}", "Correct the name.")
    place: Path = (*above, "tasks")
    if "tasks" not in dag:
        remedy = "Write what `SerializedDAG.to_dict` gives, or use `airflow dags show DAG --save x.dot`."
        reader.problem(above, "missing", "The document lacks the key `tasks`.", remedy)
    tasks: dict[str, tuple[dict[str, Any], Path]] = {}
    for index, each in enumerate(reader.array(dag.get("tasks", []), place, "`tasks`")):
        where: Path = (*place, index)
        task = reader.mapping(_plain(each), where, f"Task {index}")
        name = reader.text(task.get("task_id", task.get("_task_id")), (*where, "task_id"), "`task_id`")
        tasks[name] = task, where
    requires: dict[str, dict[str, None]] = {name: {} for name in tasks}
    labels = {name: reader.label(name) for name in tasks}
    for name, (task, where) in tasks.items():
        key = "downstream_task_ids" if "downstream_task_ids" in task else "_downstream_task_ids"
        for other in reader.texts(_plain(task.get(key, [])), (*where, key), f"`{key}`"):
            if other in tasks:
                requires[other][labels[name]] = None
                continue
            near = "".join(f" Did you mean {show(one)}?" for one in nearest(other, tasks, 1))
            message = f"{show(name)} comes before {show(other)}, which is no task of the DAG.{near}"
            reader.problem((*where, key), "unknown-label", message, "Have Airflow write the DAG again.")
    defaults = _plain(dag.get("default_args"))
    defaults = defaults if isinstance(defaults, dict) else {}
    shape = Shape(whole={"failurePolicy": "continue"})
    for name, (task, where) in tasks.items():
        said = {key: _plain(value) for key, value in {**defaults, **task}.items()}
        said["operator"] = task.get("task_type", task.get("_task_type"))
        _add(shape, labels[name], where, list(requires[name]), said, reader)
        if task.get("_is_mapped"):
            reader.note_names([name], "Mapped tasks are one task each: their number is known only when they run")
    _limit(shape, dag.get("max_active_tasks", dag.get("_max_active_tasks", dag.get("_concurrency"))))
    return reader.shaped(shape, name=dag_id)


def _plain(value: Any) -> Any:
    """What Airflow wrapped with its type: `{"__type": …, "__var": …}`."""
    return value["__var"] if isinstance(value, dict) and "__var" in value else value
